"""Recognises quantize, dequantize and fake-quantize in scalar expressions, by dataflow and value.

    quantize:    int(clamp(round(x / s) + z))    also x * (1/s), z before the rounding, clamps of any spelling
    dequantize:  (ext(q) - z) * s                also the subtraction in float, and scale 1 or zero point 0 left out

Constants may be literals, captured or operands; f64 scales are rounded to the nearest f32; parts may sit in
operations of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse.indexing import Extents, Index, dims_of_index, identity
from qfuse.matchers.scalar import Scalar, ScalarReader
from qfuse.qparams import ONE, ZERO, Param, QuantParams, StorageType

_EXTENSIONS = {"extsi": True, "extui": False}
_TO_FLOAT = {"sitofp": True, "uitofp": False}
_TO_INT = {"fptosi": True, "fptoui": False}
_FLOAT_CASTS = ("extf", "truncf")


class ContradictionError(Exception):
    """The parts of a quantize or dequantize contradict each other."""


@dataclass(frozen=True)
class Stored:
    """A matched dequantize: `storage[index]` with `params` over the result's dimensions."""

    storage: Any
    index: Index
    params: QuantParams


@dataclass(frozen=True)
class Quantized:
    """A matched quantize or fake-quantize of the expression `input`."""

    input: Scalar
    params: QuantParams
    reciprocal: bool
    zero_point_first: bool


class QuantizationMatcher:
    """Matches expressions of one module."""

    def __init__(self, reader: ScalarReader) -> None:
        """A matcher that expands expressions with `reader`."""
        self._reader = reader

    # -- dequantize --------------------------------------------------------------------------------------------

    def dequantize(self, scalar: Scalar, extents: Extents) -> Stored | None:
        """`scalar` as a dequantize over a result of shape `extents`, or None.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        expressed = scalar.type
        scalar = self._strip_float_casts(scalar, extents)
        scale, inner = self._split_scale(scalar, extents)
        if inner is None:
            return None
        parts = self._integer_part(inner, extents)
        if parts is None:
            return None
        leaf, signed, zero_point = parts
        bits = int(leaf.type[1:]) if leaf.type[1:].isdigit() else 0
        trivial = scale is ONE and zero_point is ZERO
        if not 2 <= bits <= 32 or (bits == 32 and trivial):
            return None
        storage = StorageType(bits, signed)
        value, index = leaf.payload
        params = QuantParams(storage, storage.min, storage.max, scale, zero_point, expressed, extents)
        check_scale(scale)
        check_zero_point(zero_point, storage.min, storage.max, bits)
        return Stored(value, index, params)

    def _split_scale(self, scalar: Scalar, extents: Extents) -> tuple[Param, Scalar | None]:
        """`(scale, integer part as a float)`; the part is None when `scalar` is no such product."""
        if scalar.op != "mul":
            return ONE, scalar if self._is_integer_float(scalar, extents) else None
        for factor, other in ((0, 1), (1, 0)):
            inner = self._strip_float_casts(scalar.args[factor], extents)
            if not self._is_integer_float(inner, extents):
                continue
            scale = self.param(scalar.args[other], extents)
            if scale is not None:
                return scale, inner
        return ONE, None

    def _is_integer_float(self, scalar: Scalar, extents: Extents) -> bool:
        scalar = self._open(scalar, extents, ("sitofp", "uitofp", "sub"))
        if scalar.op == "sub":
            scalar = self._open(scalar.args[0], extents, ("sitofp", "uitofp"))
        return scalar.op in _TO_FLOAT

    def _integer_part(self, scalar: Scalar, extents: Extents) -> tuple[Scalar, bool, Param] | None:
        """`(storage leaf, signed, zero point)` of `float(ext(q) - z)` or `float(q) - float(z)`."""
        scalar = self._open(scalar, extents, ("sitofp", "uitofp", "sub"))
        zero_point = ZERO
        if scalar.op == "sub":
            found = self.param(scalar.args[1], extents)
            if found is None or not self._is_integral(scalar.args[1], extents):
                return None
            zero_point = found
            scalar = self._open(scalar.args[0], extents, ("sitofp", "uitofp"))
        if scalar.op not in _TO_FLOAT:
            return None
        signed = _TO_FLOAT[scalar.op]
        inner = self._open(scalar.args[0], extents, ("subi", *_EXTENSIONS))
        if inner.op == "subi":
            found = self.param(inner.args[1], extents)
            if found is None or zero_point is not ZERO:
                return None
            zero_point = found
            inner = self._open(inner.args[0], extents, tuple(_EXTENSIONS))
        if inner.op in _EXTENSIONS:
            extended = _EXTENSIONS[inner.op]
            if not signed and extended and scalar.args[0].op != "subi":
                raise ContradictionError("storage is sign-extended and then converted as unsigned")
            signed = extended
            inner = inner.args[0]
        elif zero_point is not ZERO and inner.type != "i32" and scalar.args[0].op == "subi":
            return None  # a subtraction that wraps in the storage type is not a dequantize
        return (inner, signed, zero_point) if inner.op == "elem" else None

    # -- quantize ----------------------------------------------------------------------------------------------

    def quantize(self, scalar: Scalar, extents: Extents) -> Quantized | None:
        """`scalar` (an integer) as a quantize over a result of shape `extents`, or None.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        if scalar.op not in _TO_INT or not scalar.type[1:].isdigit():
            return None
        signed = _TO_INT[scalar.op]
        bits = int(scalar.type[1:])
        found = self._rounded(scalar.args[0], extents)
        if found is None:
            return None
        low, high, matched = found
        if low is None or high is None:
            return None
        storage = StorageType(bits, signed)
        if bits < 32 and (low < storage.min or high > storage.max):
            kind = "signed" if signed else "unsigned"
            raise ContradictionError(
                f"the clamp [{low:g}, {high:g}] does not fit the {kind} {bits}-bit storage that the cast produces"
            )
        low, high = max(low, storage.min), min(high, storage.max)
        if low > high:
            raise ContradictionError(f"the clamp [{low:g}, {high:g}] is empty")
        return self._finish(matched, storage, int(low), int(high), extents)

    def fake_quantize(self, scalar: Scalar, extents: Extents) -> Quantized | None:
        """`(clamp(round(x / s) + z) - z) * s` in float, or None."""
        scalar = self._open(scalar, extents, ("mul",))
        if scalar.op != "mul":
            return None
        for factor in (0, 1):
            if self.param(scalar.args[1 - factor], extents) is None:
                continue
            inner = self._open(scalar.args[factor], extents, ("sub", "max", "min"))
            if inner.op == "sub":
                inner = inner.args[0]
            found = self._rounded(inner, extents)
            if found is None or found[0] is None or found[1] is None:
                continue
            low, high, matched = found
            signed = low < 0
            bits = next((b for b in (4, 8, 16) if StorageType(b, signed).min <= low and high <= StorageType(b, signed).max), 32)
            return self._finish(matched, StorageType(bits, signed), int(low), int(high), extents)
        return None

    def _finish(
        self, matched: _Rounded, storage: StorageType, low: int, high: int, extents: Extents
    ) -> Quantized:
        check_scale(matched.scale)
        check_zero_point(matched.zero_point, storage.min, storage.max, storage.bits)
        params = QuantParams(
            storage, low, high, matched.scale, matched.zero_point, matched.input.type, extents
        )
        return Quantized(matched.input, params, matched.reciprocal, matched.zero_point_first)

    def _rounded(self, scalar: Scalar, extents: Extents) -> tuple[float | None, float | None, _Rounded] | None:
        """`(low, high, rest)` of `clamp(round(x / s) + z)`."""
        low: float | None = None
        high: float | None = None
        scalar = self._open(scalar, extents, ("max", "min", "add", "round"))
        while scalar.op in ("max", "min"):
            bound = next((self._uniform(a, extents) for a in scalar.args[::-1] if self._uniform(a, extents) is not None), None)
            if bound is None:
                return None
            other = scalar.args[0] if self._uniform(scalar.args[1], extents) is not None else scalar.args[1]
            if scalar.op == "max":
                low = bound if low is None else max(low, bound)
            else:
                high = bound if high is None else min(high, bound)
            scalar = self._open(other, extents, ("max", "min", "add", "round"))
        zero_point = ZERO
        if scalar.op == "add":
            split = self._split_add(scalar, extents)
            if split is None:
                return None
            zero_point, scalar = split
        if scalar.op != "round":
            return None
        inner = self._open(scalar.args[0], extents, ("div", "mul", "add"))
        zero_point_first = False
        if inner.op == "add" and zero_point is ZERO:
            split = self._split_add(inner, extents, inner_ops=("div", "mul"))
            if split is not None:
                zero_point, inner = split
                zero_point_first = True
        return low, high, self._scaled(inner, scalar.args[0], zero_point, zero_point_first, extents)

    def _split_add(
        self, scalar: Scalar, extents: Extents, inner_ops: tuple[str, ...] = ("round",)
    ) -> tuple[Param, Scalar] | None:
        for position in (1, 0):
            other = self._open(scalar.args[1 - position], extents, inner_ops)
            if other.op not in inner_ops or not self._is_integral(scalar.args[position], extents):
                continue
            zero_point = self.param(scalar.args[position], extents)
            if zero_point is not None:
                return zero_point, other
        return None

    def _scaled(
        self, scalar: Scalar, unopened: Scalar, zero_point: Param, zero_point_first: bool, extents: Extents
    ) -> _Rounded:
        if scalar.op == "div":
            scale = self.param(scalar.args[1], extents)
            if scale is not None:
                return _Rounded(scalar.args[0], scale, zero_point, False, zero_point_first)
        if scalar.op == "mul":
            for factor, other in ((1, 0), (0, 1)):
                scale = self._reciprocal(scalar.args[factor], extents)
                if scale is not None:
                    return _Rounded(scalar.args[other], scale, zero_point, True, zero_point_first)
        return _Rounded(scalar if zero_point_first else unopened, ONE, zero_point, False, zero_point_first)

    def _reciprocal(self, scalar: Scalar, extents: Extents) -> Param | None:
        """The parameter `s` of an expression that is `1 / s`, constant or computed."""
        opened = self._open(scalar, extents, ("div",))
        if opened.op == "div" and self._uniform(opened.args[0], extents) == 1.0:
            return self.param(opened.args[1], extents)
        inverse = self.param(scalar, extents)
        if inverse is None or inverse.data is None or not inverse.data.all():
            return None
        exact = 1.0 / inverse.data.astype(np.float64)
        return Param(inverse.index, exact.astype(np.float32), element="f32")

    # -- parts -------------------------------------------------------------------------------------------------

    def _open(self, scalar: Scalar, extents: Extents, wanted: tuple[str, ...]) -> Scalar:
        """Steps from a leaf into its producers as long as that leads to one of `wanted`."""
        current = scalar
        for _ in range(8):
            current = self._strip_float_casts_once(current)
            if current.op in wanted:
                return current
            if current.op != "elem":
                break
            expanded = self._reader.expand(current, extents)
            if expanded is None:
                break
            current = expanded
        return scalar

    @staticmethod
    def _strip_float_casts_once(scalar: Scalar) -> Scalar:
        return scalar.args[0] if scalar.op in _FLOAT_CASTS else scalar

    def _strip_float_casts(self, scalar: Scalar, extents: Extents) -> Scalar:
        while scalar.op in _FLOAT_CASTS:
            scalar = scalar.args[0]
        return scalar if scalar.op != "elem" else self._open(scalar, extents, ("mul", "sitofp", "uitofp", "sub"))

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

        Casts between number types are looked through: they do not change a scale (beyond its nearest f32) or an
        integer zero point.
        """
        if scalar.op == "const":
            data = np.asarray(scalar.payload)
            return Param((), data, element=scalar.type)
        signed = True
        integer = not scalar.type.startswith(("f", "bf"))
        narrow_float = scalar.type in ("f16", "f32")
        while scalar.op in (*_FLOAT_CASTS, "sitofp", "uitofp", "extsi", "extui", "trunci", "index_cast"):
            if scalar.op in ("uitofp", "extui"):
                signed = False
            scalar = scalar.args[0]
        if scalar.op == "const":
            return Param((), np.asarray(scalar.payload), element=scalar.type)
        if scalar.op == "ssa":
            return Param((), value=scalar.payload, element=scalar.type, signed=signed)
        if scalar.op != "elem":
            return None
        value, index = scalar.payload
        data = self._constant(scalar, extents)
        if data is not None:
            if data.dtype.kind == "i" and not signed:
                data = data.view(data.dtype.name.replace("int", "uint")).astype(np.int64)
            if data.dtype == np.float64 and narrow_float and not integer:
                data = data.astype(np.float32)
            element = "f32" if data.dtype.kind == "f" else "i64"
            return Param(index, data, element=element).simplified(extents)
        if dims_of_index(index) and index == identity(len(extents)) and None not in extents:
            if all(n != 1 for n in extents):
                return None  # one value an element: data, not a parameter
        return Param(index, value=value, element=scalar.type, signed=signed).simplified(extents)

    def _constant(self, leaf: Scalar, extents: Extents) -> np.ndarray[Any, Any] | None:
        """Constant values of a leaf in its own tensor's shape."""
        value, _ = leaf.payload
        array = self._reader.constants.read(value)
        if array is not None:
            return array
        own = self._reader.bindings.extents(value.type)
        template = None if None in own else self._reader.of(value)
        if template is None:
            return None
        sizes = [n or 0 for n in own]
        if int(np.prod(sizes, dtype=np.int64)) > 1 << 22:
            return None
        computed = self._reader.evaluate(template, sizes)
        return None if computed is None else np.broadcast_to(computed, sizes)

    def _is_integral(self, scalar: Scalar, extents: Extents, depth: int = 0) -> bool:
        """Whether a float expression is known to be an integer everywhere."""
        if not scalar.type.startswith(("f", "bf")):
            return True
        if scalar.op in ("sitofp", "uitofp", "round", "floor", "ceil"):
            return True
        if scalar.op == "const":
            return float(scalar.payload).is_integer()
        if scalar.op in ("max", "min", "add", "sub", "neg", "select", *_FLOAT_CASTS):
            args = scalar.args[1:] if scalar.op == "select" else scalar.args
            return all(self._is_integral(a, extents, depth) for a in args)
        if scalar.op != "elem" or depth > 8:
            return False
        data = self._constant(scalar, extents)
        if data is not None:
            return bool(np.all(np.rint(data) == data))
        expanded = self._reader.expand(scalar, extents)
        return expanded is not None and self._is_integral(expanded, extents, depth + 1)


@dataclass(frozen=True)
class _Rounded:
    input: Scalar
    scale: Param
    zero_point: Param
    reciprocal: bool
    zero_point_first: bool


def check_scale(scale: Param) -> None:
    """Raises ContradictionError for constant scales that are not positive finite numbers."""
    if scale.data is None:
        return
    values = scale.data.astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise ContradictionError("a scale is not finite")
    if np.any(values == 0):
        raise ContradictionError("a scale is zero")
    if np.any(values < 0):
        raise ContradictionError("a scale is negative")


def check_zero_point(zero_point: Param, low: int, high: int, bits: int) -> None:
    """Raises ContradictionError for constant zero points outside the storage range."""
    if zero_point.data is None or bits >= 32 or not zero_point.data.size:
        return
    least, most = zero_point.data.min(), zero_point.data.max()
    if least < low or most > high:
        outside = least if least < low else most
        raise ContradictionError(f"the zero point {outside:g} is outside the storage range [{low}, {high}]")
