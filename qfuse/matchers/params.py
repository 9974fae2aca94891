"""Reads parts of expressions as parameters: scales, zero points and bounds, constant or known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from qfuse.indexing import Extents, Index, identity
from qfuse.matchers.evaluate import convert
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.roles import ContradictionError, Open
from qfuse.matchers.scalar import CASTS, EXTENSIONS, FLOAT_CASTS, TO_FLOAT, Scalar
from qfuse.qparams import Param

#: Float types that quantized values may be expressed in.
EXPRESSED_TYPES = ("f16", "bf16", "f32", "f64")

#: How many operations a part may be away.
_STEPS = 8


class ParamReader:
    """Reads parameters of one module; constant ones are kept."""

    def __init__(self, reader: ScalarReader) -> None:
        """A reader that expands expressions with `reader`."""
        self._reader = reader
        self._numbers: dict[Any, tuple[Any, Param]] = {}

    def opener(self, extents: Extents) -> Open:
        """Steps from a leaf into its producers as long as that leads to one of the wanted operations."""

        def open_(scalar: Scalar, wanted: tuple[str, ...]) -> Scalar:
            current = scalar
            for _ in range(_STEPS):
                while current.op in FLOAT_CASTS:
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

    def uniform(self, scalar: Scalar, extents: Extents) -> float | None:
        """The one number that an expression is everywhere, or None."""
        if scalar.op == "const":
            return float(scalar.payload)
        if scalar.op == "ssa":
            return None
        param = self.read(scalar, extents)
        return None if param is None else param.scalar

    def read(self, scalar: Scalar, extents: Extents) -> Param | None:
        """An expression as a parameter over data of shape `extents`, or None.

        Casts of constants are computed. Casts of run-time values are looked through: they do not change an integer
        zero point, nor a scale beyond its nearest number of the narrower type.
        """
        casts: list[Scalar] = []
        while scalar.op in CASTS:
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
        filled = self._reader.expand(scalar, extents)
        if filled is not None and filled.op == "const":
            return _constant_param(np.asarray(filled.payload), (), casts, extents)
        if index and index == identity(len(extents)) and 1 not in extents:
            return None  # one value an element: data, not a parameter
        found = _run_time_param(index, scalar, value, casts)
        return None if found is None else found.simplified(extents)

    def read_integer(self, scalar: Scalar, extents: Extents) -> Param | None:
        """The integers that an expression is the float value of, as a parameter, or None: read as they are stored."""
        opened = self.opener(extents)(scalar, tuple(TO_FLOAT))
        return self.read(opened, extents) if opened.op in TO_FLOAT else None

    def is_integral(self, scalar: Scalar, extents: Extents, depth: int = 0) -> bool:
        """Whether a float expression is known to be an integer everywhere."""
        if not scalar.type.startswith(("f", "bf")):
            return True
        if scalar.op in ("sitofp", "uitofp", "round", "round_away", "floor", "ceil", "trunc"):
            return True
        if scalar.op == "const":
            return float(scalar.payload).is_integer()
        if scalar.op in ("max", "min", "add", "sub", "neg", "select", *FLOAT_CASTS):
            args = scalar.args[1:] if scalar.op == "select" else scalar.args
            return all(self.is_integral(a, extents, depth) for a in args)
        if scalar.op != "elem" or depth > 8:
            return False
        data = self._reader.constants.value(scalar.payload[0])
        if data is not None:
            return bool(np.all(np.rint(data) == data))
        expanded = self._reader.expand(scalar, extents)
        return expanded is not None and self.is_integral(expanded, extents, depth + 1)


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
        if cast.op in (*TO_FLOAT, *EXTENSIONS):
            signed = {**TO_FLOAT, **EXTENSIONS}[cast.op]
    return Param(index, value=value, element=leaf.type, signed=signed)


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
