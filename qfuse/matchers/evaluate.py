"""Values of scalar expressions on arrays: in the precision that each operation has in the IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qfuse._elements import nearest_bf16
from qfuse.matchers.functions import apply
from qfuse.matchers.scalar import Scalar

_CONVERSIONS = ("extf", "truncf", "sitofp", "uitofp", "extsi", "extui", "trunci", "index_cast", "fptosi", "fptoui")
_NUMPY = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "i4": np.int8, "index": np.int64,
}  # fmt: skip

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "addi": np.add, "sub": np.subtract, "subi": np.subtract, "mul": np.multiply, "muli": np.multiply,
    "div": np.divide, "neg": np.negative, "round": np.rint, "max": np.maximum, "min": np.minimum,
    "maxsi": np.maximum, "minsi": np.minimum,
}  # fmt: skip


def compute(scalar: Scalar, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Arithmetic and casts, of arrays that the operands of `scalar` are, or None for other operations and types."""
    target = _NUMPY.get(scalar.type)
    if target is None:
        return None
    if scalar.op in _CONVERSIONS:
        return convert(args[0], scalar.op, scalar.args[0].type, scalar.type)
    arithmetic = _ARITHMETIC.get(scalar.op)
    if arithmetic is None:
        return None
    with np.errstate(all="ignore"):
        return _held(np.asarray(arithmetic(*args)).astype(target), scalar.type)


def compute_function(scalar: Scalar, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Functions and comparisons, which constants are not folded by while reading."""
    target = np.bool_ if scalar.type == "i1" else _NUMPY.get(scalar.type)
    if target is None:
        return None
    with np.errstate(all="ignore"):
        value = apply(scalar.op, scalar.payload, args)
        return None if value is None else _held(value.astype(target), scalar.type)


def convert(array: np.ndarray[Any, Any], cast: str, source: str, target: str) -> np.ndarray[Any, Any] | None:
    """What a cast operation makes of an array; printed types say what it holds. None for types that are not known."""
    to = _NUMPY.get(target)
    if to is None:
        return None
    if cast in ("uitofp", "extui") and array.dtype.kind == "i":
        bits = int(source[1:])
        array = array.astype(np.int64) & ((1 << bits) - 1) if bits < 64 else array.view(np.uint64)
    if cast in ("fptosi", "fptoui"):
        with np.errstate(all="ignore"):
            array = array.astype(np.int64)
    with np.errstate(all="ignore"):
        return _held(array.astype(to), target)


def _held(array: np.ndarray[Any, Any], type_: str) -> np.ndarray[Any, Any]:
    """Values of numpy's next wider type brought to what `type_` holds."""
    if type_ == "bf16":
        return nearest_bf16(array)
    if type_ == "i4":
        return ((array + 8) & 15) - 8
    return array


def typed(number: Any, type_: str) -> Any:
    """A number as numpy's type for the printed type `type_`; as it is where there is none."""
    numpy_type = _NUMPY.get(type_)
    return number if numpy_type is None else numpy_type(number)


def fold(scalar: Scalar) -> Scalar:
    """Casts and products of constants are constants."""
    if not scalar.args:
        return scalar
    for arg in scalar.args:
        if arg.op != "const":
            return scalar
    value = compute(scalar, [np.asarray(a.payload) for a in scalar.args])
    return scalar if value is None else Scalar("const", scalar.type, payload=value[()])
