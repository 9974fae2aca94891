"""Recognises quantize, dequantize and fake-quantize in scalar expressions, by dataflow and value.

    quantize:    int(clamp(round(x / s) + z))    also x * (1/s), z before the rounding, clamps of any spelling
    dequantize:  (ext(q) - z) * s                also the subtraction in float, and scale 1 or zero point 0 left out

Constants may be literals, captured or operands; f64 scales are rounded to the nearest f32; parts may sit in
operations of their own.

There are two steps. `DequantizeShape` and `QuantizeShape` say which part of an expression plays which role; that
depends on the form only, so it is found once for all operations of one structure. `QuantizationMatcher` then reads
scales, zero points and bounds and refuses what contradicts itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse.indexing import Extents, Index, identity, is_identity, permutation_of
from qfuse.matchers.rounding import is_rounded_by_additions, plain
from qfuse.matchers.scalar import LinalgView, Scalar, ScalarReader, convert
from qfuse.qparams import ONE, ZERO, Param, QuantParams, StorageType

_EXTENSIONS = {"extsi": True, "extui": False}
_TO_FLOAT = {"sitofp": True, "uitofp": False}
_TO_INT = {"fptosi": True, "fptoui": False}
_FLOAT_CASTS = ("extf", "truncf")
_CASTS = (*_FLOAT_CASTS, "sitofp", "uitofp", "extsi", "extui", "trunci", "index_cast")
#: Storage that no operation can have widened or shifted before: what a body reads is the storage itself.
_NARROW = ("i2", "i3", "i4", "i8")
_LEAVES = ("const", "hole", "ssa", "elem")
#: What the last operation of a float expression may be when it is a dequantize or fake-quantize.
_DEQUANTIZE_ENDS = ("mul", "sub", "sitofp", "uitofp", *_FLOAT_CASTS)

#: Float types that quantized values may be expressed in.
EXPRESSED_TYPES = ("f16", "bf16", "f32", "f64")

#: How many operations a part may be away.
_STEPS = 8

Open = Callable[[Scalar, tuple[str, ...]], Scalar]


class ContradictionError(Exception):
    """The parts of a quantize or dequantize contradict each other."""


@dataclass(eq=False)
class Stored:
    """A matched dequantize: `storage[index]` with `params` over the result's dimensions."""

    storage: Any
    index: Index
    params: QuantParams


@dataclass(eq=False)
class Quantized:
    """A matched quantize or fake-quantize of the expression `input`."""

    input: Scalar
    params: QuantParams
    reciprocal: bool
    zero_point_first: bool


# -- shapes ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class DequantizeShape:
    """The roles in `(ext(storage) - zero_point) * scale`; None for parts that are not there."""

    expressed: str
    storage: Scalar
    signed: bool
    zero_point: Scalar | None
    scale: Scalar | None


@dataclass(eq=False)
class QuantizeShape:
    """The roles in `clamp(round(input / scale) + zero_point)`; None for parts that are not there.

    `inverse` is the factor of a multiplication by 1/scale, `scale` what is divided by.
    """

    type: str
    signed: bool
    input: Scalar
    scale: Scalar | None
    inverse: Scalar | None
    zero_point: Scalar | None
    zero_point_first: bool
    lows: tuple[Scalar, ...]
    highs: tuple[Scalar, ...]


def _closed(scalar: Scalar, wanted: tuple[str, ...]) -> Scalar:
    """Looks through float casts only: the expression of one operation by itself."""
    current = scalar
    while current.op in _FLOAT_CASTS:
        current = current.args[0]
    return current if current.op in wanted else scalar


def dequantize_shape(scalar: Scalar, open_: Open) -> DequantizeShape | None:
    """The roles in a float expression that is a dequantize, or None."""
    expressed = scalar.type
    scalar = open_(scalar, ("mul", "sitofp", "uitofp", "sub"))
    if scalar.op != "mul":
        return _integer_part(scalar, None, expressed, open_)
    for factor in (0, 1):
        found = _integer_part(scalar.args[factor], scalar.args[1 - factor], expressed, open_)
        if found is not None:
            return found
    return None


def _integer_part(scalar: Scalar, scale: Scalar | None, expressed: str, open_: Open) -> DequantizeShape | None:
    """`float(ext(q) - z)` or `float(q) - float(z)`."""
    scalar = open_(scalar, ("sitofp", "uitofp", "sub"))
    zero_point: Scalar | None = None
    if scalar.op == "sub":
        zero_point = scalar.args[1]
        scalar = open_(scalar.args[0], ("sitofp", "uitofp"))
    if scalar.op not in _TO_FLOAT:
        return None
    signed = _TO_FLOAT[scalar.op]
    inner = open_(scalar.args[0], ("subi", *_EXTENSIONS))
    subtracted = inner.op == "subi"
    if subtracted:
        if zero_point is not None:
            return None
        zero_point = inner.args[1]
        inner = open_(inner.args[0], tuple(_EXTENSIONS))
    if inner.op in _EXTENSIONS:
        extended = _EXTENSIONS[inner.op]
        inner = inner.args[0]
    elif subtracted and inner.type != "i32":
        return None  # a subtraction that wraps in the storage type is not a dequantize
    else:
        extended = signed
    if inner.op != "elem":
        return None
    if not signed and subtracted:
        raise ContradictionError("the zero point is subtracted and the difference, maybe negative, read as unsigned")
    if not signed and extended:
        raise ContradictionError("storage is sign-extended and then converted as unsigned")
    return DequantizeShape(expressed, inner, extended, zero_point, scale)


def quantize_shape(scalar: Scalar, open_: Open) -> QuantizeShape | None:
    """The roles in an integer expression that is a quantize, or None."""
    if scalar.op not in _TO_INT or not scalar.type[1:].isdigit():
        return None
    return _rounded(scalar.args[0], scalar.type, _TO_INT[scalar.op], open_)


def fake_quantize_shape(scalar: Scalar, open_: Open) -> tuple[QuantizeShape, Scalar | None, Scalar] | None:
    """In `(clamp(round(x / s) + z) - z) * s`: the roles of the quantize, the second `z` and the second `s`."""
    scalar = open_(scalar, ("mul",))
    if scalar.op != "mul":
        return None
    for factor in (0, 1):
        inner = open_(scalar.args[factor], ("sub", "max", "min"))
        zero_point: Scalar | None = None
        if inner.op == "sub":
            inner, zero_point = inner.args
        found = _rounded(inner, scalar.type, True, open_)
        if found is not None and found.lows and found.highs:
            return found, zero_point, scalar.args[1 - factor]
    return None


def _rounded(scalar: Scalar, type_: str, signed: bool, open_: Open) -> QuantizeShape | None:
    """`clamp(round(x / s) + z)`."""
    steps = ("max", "min", "add", "round")
    lows: list[Scalar] = []
    highs: list[Scalar] = []
    scalar = open_(scalar, steps)
    while scalar.op in ("max", "min"):
        position = _bound_position(scalar, steps, open_)
        if position is None:
            return None
        (lows if scalar.op == "max" else highs).append(scalar.args[position])
        scalar = open_(scalar.args[1 - position], steps)
    zero_point: Scalar | None = None
    if scalar.op == "add":
        split = _split_add(scalar, ("round",), open_)
        if split is None:
            return None
        zero_point, scalar = split
    if scalar.op != "round":
        return None
    inner = open_(scalar.args[0], ("div", "mul", "add"))
    zero_point_first = False
    if inner.op == "add" and zero_point is None:
        split = _split_add(inner, ("div", "mul"), open_)
        if split is not None:
            zero_point, inner = split
            zero_point_first = True
    scaled = _scaled(inner, open_)
    value, scale, inverse = scaled or ((inner if zero_point_first else scalar.args[0]), None, None)
    return QuantizeShape(
        type_, signed, value, scale, inverse, zero_point, zero_point_first, tuple(lows), tuple(highs)
    )  # fmt: skip


def _bound_position(scalar: Scalar, steps: tuple[str, ...], open_: Open) -> int | None:
    """Which operand of a maximum or minimum is the bound: a number, else the leaf that leads nowhere."""
    for position in (1, 0):
        if scalar.args[position].op in ("const", "hole"):
            return position
    for position in (1, 0):
        if _is_leaf(scalar.args[position]) and open_(scalar.args[position], steps) is scalar.args[position]:
            return position
    return None


def _split_add(scalar: Scalar, wanted: tuple[str, ...], open_: Open) -> tuple[Scalar, Scalar] | None:
    """`(zero point, rest)` of a sum whose rest leads to one of `wanted`."""
    for position in (1, 0):
        other = open_(scalar.args[1 - position], wanted)
        if other.op in wanted and _is_parameter(scalar.args[position]):
            return scalar.args[position], other
    return None


def _scaled(scalar: Scalar, open_: Open) -> tuple[Scalar, Scalar | None, Scalar | None] | None:
    """`(input, scale, inverse scale)` of a division or a multiplication by a parameter."""
    if scalar.op == "div" and _is_parameter(scalar.args[1]):
        return scalar.args[0], scalar.args[1], None
    if scalar.op != "mul":
        return None
    # The parameter is the factor that does not have a value an element; in doubt the second.
    first, second = (_is_parameter(a) for a in scalar.args)
    varied = [a.op == "elem" and a.payload[1] == identity(len(a.payload[1])) for a in scalar.args]
    position = 0 if first and (not second or (varied[1] and not varied[0])) else 1
    if not (first, second)[position]:
        return None
    factor = scalar.args[position]
    opened = open_(factor, ("div",))
    if opened.op == "div" and opened.args[0].op == "const" and float(opened.args[0].payload) == 1.0:
        return scalar.args[1 - position], opened.args[1], factor
    return scalar.args[1 - position], None, factor


def _is_leaf(scalar: Scalar) -> bool:
    while scalar.op in _CASTS:
        scalar = scalar.args[0]
    return scalar.op in _LEAVES


def _is_parameter(scalar: Scalar) -> bool:
    """A leaf, a cast of one, or one over one."""
    return _is_leaf(scalar) or (scalar.op == "div" and all(_is_leaf(a) for a in scalar.args))


# -- values ------------------------------------------------------------------------------------------------------


class QuantizationMatcher:
    """Matches expressions of one module."""

    def __init__(self, reader: ScalarReader) -> None:
        """A matcher that expands expressions with `reader`."""
        self._reader = reader
        self._numbers: dict[Any, tuple[Any, Param]] = {}

    # -- of operations -----------------------------------------------------------------------------------------

    def dequantize_of(self, view: LinalgView, template: Scalar, extents: Extents) -> Stored | None:
        """The elementwise operation of `view` as a dequantize, or None; `template` is its structure's expression.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        if template.op not in _DEQUANTIZE_ENDS:
            return None
        shape = self._kept(view, template, dequantize_shape)
        if shape is not None and shape.storage.type in _NARROW:
            return self._stored(_applied_dequantize(self._reader, shape, view), extents)
        return self.dequantize(self._reader.applied(template, view), extents)

    def quantize_of(self, view: LinalgView, template: Scalar, extents: Extents) -> Quantized | None:
        """The elementwise operation of `view` as a quantize, or None; `template` is its structure's expression.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        if template.op not in _TO_INT:
            if is_rounded_by_additions(template):
                return self.quantize(plain(self._reader.applied(template, view)), extents)
            return None
        shape = self._kept(view, template, quantize_shape)
        if shape is not None and shape.scale is not None and shape.inverse is None:
            return self._quantized(_applied_quantize(self._reader, shape, view), extents, None)
        return self.quantize(plain(self._reader.applied(template, view)), extents)

    def fake_quantize_of(self, view: LinalgView, template: Scalar, extents: Extents) -> Quantized | None:
        """The elementwise operation of `view` as a fake-quantize, or None."""
        if template.op not in ("mul", *_FLOAT_CASTS):
            return None
        found = fake_quantize_shape(self._reader.applied(template, view), self._opener(extents))
        if found is None:
            return None
        shape, zero_point, scale = found
        quantized = self._quantized(shape, extents, 32)
        if quantized is None:
            return None
        back = self.param(scale, extents), self._zero_point(zero_point, extents)
        if back[0] is None or back[1] is None or not back[1].equals(quantized.params.zero_point):
            return None
        return quantized if _same_scale(back[0], quantized.params.scale) else None

    @staticmethod
    def _kept(view: LinalgView, template: Scalar, find: Callable[[Scalar, Open], Any]) -> Any:
        """What `find` finds in a structure's own expression, found once."""
        found = view.structure.found
        key = (find, id(template))
        if key not in found:
            found[key] = find(template, _closed)
        return found[key]

    # -- of expressions ----------------------------------------------------------------------------------------

    def dequantize(self, scalar: Scalar, extents: Extents) -> Stored | None:
        """`scalar` as a dequantize over a result of shape `extents`, or None.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        shape = dequantize_shape(scalar, self._opener(extents))
        return None if shape is None else self._stored(shape, extents)

    def quantize(self, scalar: Scalar, extents: Extents) -> Quantized | None:
        """`scalar` (an integer) as a quantize over a result of shape `extents`, or None.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        shape = quantize_shape(scalar, self._opener(extents))
        return None if shape is None else self._quantized(shape, extents, None)

    def _stored(self, shape: DequantizeShape, extents: Extents) -> Stored | None:
        if shape.expressed not in EXPRESSED_TYPES:
            return None
        leaf = shape.storage
        bits = int(leaf.type[1:]) if leaf.type[1:].isdigit() else 0
        if not 2 <= bits <= 32 or (bits == 32 and shape.scale is None and shape.zero_point is None):
            return None
        scale = ONE if shape.scale is None else self.param(shape.scale, extents)
        zero_point = self._zero_point(shape.zero_point, extents)
        if scale is None or zero_point is None:
            return None
        storage = StorageType(bits, shape.signed)
        check_scale(scale)
        check_zero_point(zero_point, storage.min, storage.max, bits)
        value, index = self._nearest_storage(leaf, extents).payload
        params = QuantParams(storage, storage.min, storage.max, scale, zero_point, shape.expressed, extents)
        return Stored(value, index, params)

    def _nearest_storage(self, leaf: Scalar, extents: Extents) -> Scalar:
        """Reads through layout operations where that makes the storage's index a list of dimensions."""
        current: Scalar | None = leaf
        for _ in range(_STEPS):
            if current is None or current.op != "elem":
                break
            index = current.payload[1]
            if is_identity(index, extents) or permutation_of(index, len(extents)) is not None:
                return current
            current = self._reader.expand(current, extents)
        return leaf

    def _quantized(self, shape: QuantizeShape, extents: Extents, fake_bits: int | None) -> Quantized | None:
        """`fake_bits`: None for a real quantize, else the widest storage to assume for a fake one."""
        if shape.input.type not in EXPRESSED_TYPES:
            return None
        lows = [self._uniform(s, extents) for s in shape.lows]
        highs = [self._uniform(s, extents) for s in shape.highs]
        known_lows = [v for v in lows if v is not None]
        known_highs = [v for v in highs if v is not None]
        if not lows or not highs or len(known_lows) != len(lows) or len(known_highs) != len(highs):
            return None
        low, high = max(known_lows), min(known_highs)
        if not math.isfinite(low) or not math.isfinite(high) or not 2 <= _width(shape.type) <= 32:
            return None
        scale = self._scale(shape, extents)
        zero_point = self._zero_point(shape.zero_point, extents)
        if scale is None or zero_point is None:
            return None
        if fake_bits is not None:
            storage = _smallest_storage(low, high, fake_bits)
        else:
            storage = StorageType(int(shape.type[1:]), shape.signed)
            low, high = _checked_bounds(low, high, storage)
        check_scale(scale)
        check_zero_point(zero_point, storage.min, storage.max, storage.bits)
        value = shape.input
        params = QuantParams(storage, int(low), int(high), scale, zero_point, value.type, extents)
        return Quantized(value, params, shape.inverse is not None, shape.zero_point_first)

    def _zero_point(self, scalar: Scalar | None, extents: Extents) -> Param | None:
        """A zero point that is known to be integral, or None."""
        if scalar is None:
            return ZERO
        param = self.param(scalar, extents)
        if param is None or not self._is_integral(scalar, extents):
            return None
        if param.data is None or param.data.dtype.kind != "f":
            return param
        return Param(param.index, param.data.astype(np.int64), param.value, "i64", param.signed)

    def _scale(self, shape: QuantizeShape, extents: Extents) -> Param | None:
        if shape.scale is not None:
            return self.param(shape.scale, extents)
        if shape.inverse is None:
            return ONE
        inverse = self.param(shape.inverse, extents)
        if inverse is None or inverse.data is None or not inverse.data.all():
            return None
        exact = 1.0 / inverse.data.astype(np.float64)
        return Param(inverse.index, exact.astype(np.float32), element="f32")

    # -- parts -------------------------------------------------------------------------------------------------

    def _opener(self, extents: Extents) -> Open:
        """Steps from a leaf into its producers as long as that leads to one of the wanted operations."""

        def open_(scalar: Scalar, wanted: tuple[str, ...]) -> Scalar:
            current = scalar
            for _ in range(_STEPS):
                while current.op in _FLOAT_CASTS:
                    current = current.args[0]
                if current.op in wanted:
                    return current
                if current.op not in ("elem", "ssa"):
                    break
                expanded = self._reader.expand(current, extents)
                if expanded is None:
                    break
                current = expanded
            return scalar

        return open_

    def _uniform(self, scalar: Scalar, extents: Extents) -> float | None:
        """The one number that an expression is everywhere, or None."""
        if scalar.op == "const":
            return float(scalar.payload)
        if scalar.op == "ssa":
            return None
        param = self.param(scalar, extents)
        return None if param is None else param.scalar

    def param(self, scalar: Scalar, extents: Extents) -> Param | None:
        """An expression as a parameter over data of shape `extents`, or None.

        Casts of constants are computed. Casts of run-time values are looked through: they do not change an integer
        zero point, nor a scale beyond its nearest number of the narrower type.
        """
        casts: list[Scalar] = []
        while scalar.op in _CASTS:
            casts.append(scalar)
            scalar = scalar.args[0]
        if scalar.op == "const":
            return _constant_param(np.asarray(scalar.payload), (), casts, extents)
        if scalar.op == "ssa":
            return _run_time_param((), scalar, scalar.payload, casts)
        if scalar.op != "elem":
            return None
        value, index = scalar.payload
        data = self._reader.constants.value(scalar.payload[0])
        if data is not None:
            key = (value, index, extents, tuple((c.op, c.type) for c in casts))
            kept = self._numbers.get(key)
            if kept is not None and kept[0] is data:
                return kept[1]
            found = _constant_param(data, index, casts, extents)
            if found is not None:
                self._numbers[key] = (data, found)
            return found
        if index and index == identity(len(extents)) and 1 not in extents:
            return None  # one value an element: data, not a parameter
        found = _run_time_param(index, scalar, value, casts)
        return None if found is None else found.simplified(extents)

    def _is_integral(self, scalar: Scalar, extents: Extents, depth: int = 0) -> bool:
        """Whether a float expression is known to be an integer everywhere."""
        if not scalar.type.startswith(("f", "bf")):
            return True
        if scalar.op in ("sitofp", "uitofp", "round", "round_away", "floor", "ceil", "trunc"):
            return True
        if scalar.op == "const":
            return float(scalar.payload).is_integer()
        if scalar.op in ("max", "min", "add", "sub", "neg", "select", *_FLOAT_CASTS):
            args = scalar.args[1:] if scalar.op == "select" else scalar.args
            return all(self._is_integral(a, extents, depth) for a in args)
        if scalar.op != "elem" or depth > 8:
            return False
        data = self._reader.constants.value(scalar.payload[0])
        if data is not None:
            return bool(np.all(np.rint(data) == data))
        expanded = self._reader.expand(scalar, extents)
        return expanded is not None and self._is_integral(expanded, extents, depth + 1)


def _applied_dequantize(reader: ScalarReader, shape: DequantizeShape, view: LinalgView) -> DequantizeShape:
    zero_point = None if shape.zero_point is None else reader.applied(shape.zero_point, view)
    scale = None if shape.scale is None else reader.applied(shape.scale, view)
    return DequantizeShape(shape.expressed, reader.applied(shape.storage, view), shape.signed, zero_point, scale)


def _applied_quantize(reader: ScalarReader, shape: QuantizeShape, view: LinalgView) -> QuantizeShape:
    def applied(scalar: Scalar | None) -> Scalar | None:
        return None if scalar is None else reader.applied(scalar, view)

    return QuantizeShape(
        shape.type,
        shape.signed,
        reader.applied(shape.input, view),
        applied(shape.scale),
        applied(shape.inverse),
        applied(shape.zero_point),
        shape.zero_point_first,
        tuple([reader.applied(s, view) for s in shape.lows]),
        tuple([reader.applied(s, view) for s in shape.highs]),
    )


def _constant_param(data: np.ndarray[Any, Any], index: Index, casts: list[Scalar], extents: Extents) -> Param | None:
    """A parameter of constant values, as what the casts (outermost first) make of them."""
    for cast in reversed(casts):
        converted = convert(data, cast.op, cast.args[0].type, cast.type)
        if converted is None:
            return None
        data = converted
    return Param(index, data, element="f32" if data.dtype.kind == "f" else "i64").simplified(extents)


def _run_time_param(index: Index, leaf: Scalar, value: Any, casts: list[Scalar]) -> Param | None:
    """A parameter held by an SSA value, read through casts that keep it; the innermost extension says its sign."""
    signed = True
    for cast in casts:
        if cast.op == "trunci" and int(cast.type[1:]) < 32:
            return None
        if cast.op in (*_TO_FLOAT, *_EXTENSIONS):
            signed = {**_TO_FLOAT, **_EXTENSIONS}[cast.op]
    return Param(index, value=value, element=leaf.type, signed=signed)


def _same_scale(a: Param, b: Param) -> bool:
    """Whether two scales are equal, one of them maybe the rounded reciprocal of a rounded reciprocal."""
    if a.data is None or b.data is None or a.data.shape != b.data.shape:
        return a.equals(b)
    return a.index == b.index and bool(np.allclose(a.data, b.data, rtol=1e-6, atol=0))


def _width(type_: str) -> int:
    """Bits of an integer type; of a float type those of the greatest storage it may stand for."""
    return int(type_[1:]) if type_[0] == "i" and type_[1:].isdigit() else 32


def _smallest_storage(low: float, high: float, widest: int) -> StorageType:
    for bits in (4, 8, 16):
        storage = StorageType(bits, low < 0)
        if storage.min <= low and high <= storage.max:
            return storage
    return StorageType(widest, low < 0)


def _checked_bounds(low: float, high: float, storage: StorageType) -> tuple[float, float]:
    if storage.bits < 32 and (low < storage.min or high > storage.max):
        kind = "signed" if storage.signed else "unsigned"
        raise ContradictionError(
            f"the clamp [{low:g}, {high:g}] does not fit the {kind} {storage.bits}-bit storage that the cast produces"
        )
    low, high = max(low, storage.min), min(high, storage.max)
    if low > high:
        raise ContradictionError(f"the clamp [{low:g}, {high:g}] is empty")
    return low, high


def check_scale(scale: Param) -> None:
    """Raises ContradictionError for constant scales that are not positive finite numbers."""
    data, span = scale.data, scale.span
    if data is None or span is None or (span[0] > 0 and span[1] < float("inf")):
        return
    if not np.all(np.isfinite(data)):
        raise ContradictionError("a scale is not finite")
    raise ContradictionError("a scale is zero" if np.any(data == 0) else "a scale is negative")


def check_zero_point(zero_point: Param, low: int, high: int, bits: int) -> None:
    """Raises ContradictionError for constant zero points outside the storage range."""
    span = zero_point.span
    if bits >= 32 or span is None:
        return
    least, most = span
    if least < low or most > high:
        outside = least if least < low else most
        raise ContradictionError(f"the zero point {outside:g} is outside the storage range [{low}, {high}]")
