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

from qfuse._mlir import Value
from qfuse.indexing import Extents, Index, is_identity, permutation_of
from qfuse.matchers.params import EXPRESSED_TYPES, ParamReader, check_scale, check_zero_point
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.roles import (
    ContradictionError,
    DequantizeShape,
    Open,
    QuantizeShape,
    closed,
    dequantize_shape,
    fake_quantize_shape,
    quantize_shape,
)
from qfuse.matchers.rounding import is_rounded_by_additions, plain
from qfuse.matchers.scalar import CASTS, FLOAT_CASTS, TO_INT, Scalar
from qfuse.matchers.scales import KnownScales
from qfuse.matchers.structure import View
from qfuse.matchers.unsigned import Meant, UnsignedStorage, meant_by_quantize
from qfuse.qparams import ONE, ZERO, Param, QuantParams, StorageType

#: Storage that no operation can have widened or shifted before: what a body reads is the storage itself.
_NARROW = ("i2", "i3", "i4", "i8")
#: What the last operation of a float expression may be when it is a dequantize or fake-quantize.
_DEQUANTIZE_ENDS = ("mul", "sub", "sitofp", "uitofp", *FLOAT_CASTS)

_DEQUANTIZE_STEPS = ("elem", "sub", "subi", *CASTS)

#: How many operations a part may be away.
_STEPS = 8


@dataclass(eq=False)
class Stored:
    """A matched dequantize: `storage[index]` with `params` over the result's dimensions."""

    storage: Any
    index: Index
    params: QuantParams
    repaired: bool = False


@dataclass(eq=False)
class Quantized:
    """A matched quantize or fake-quantize of the expression `input`."""

    input: Scalar
    params: QuantParams
    reciprocal: bool
    zero_point_first: bool
    repaired: bool = False


class QuantizationMatcher:
    """Matches expressions of one module."""

    def __init__(self, reader: ScalarReader) -> None:
        """A matcher that expands expressions with `reader`."""
        self._reader = reader
        self._params = ParamReader(reader)
        self._scales = KnownScales()
        self.unsigned = UnsignedStorage(reader.bindings, reader.constants)

    # -- of operations -----------------------------------------------------------------------------------------

    def dequantize_of(self, view: View, template: Scalar, extents: Extents) -> Stored | None:
        """The elementwise operation of `view` as a dequantize, or None; `template` is its structure's expression.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        if template.op not in _DEQUANTIZE_ENDS:
            return None
        shape = self._kept(view, template, dequantize_shape)
        if shape is not None and shape.storage.type in _NARROW:
            return self._stored(_applied_dequantize(self._reader, shape, view), extents, False)
        shape = dequantize_shape(self._reader.applied(template, view), self._params.opener(extents))
        return None if shape is None else self._stored(shape, extents, view.structure.signless)

    def quantize_of(self, view: View, template: Scalar, extents: Extents) -> Quantized | None:
        """The elementwise operation of `view` as a quantize, or None; `template` is its structure's expression.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        if template.op not in TO_INT:
            if is_rounded_by_additions(template):
                return self.quantize(plain(self._reader.applied(template, view)), extents)
            return None
        shape = self._kept(view, template, quantize_shape)
        if shape is not None and shape.scale is not None and shape.inverse is None:
            return self._quantized(_applied_quantize(self._reader, shape, view), extents, None)
        result = None if len(view.op.results) != 1 else view.op.results[0]
        return self.quantize(plain(self._reader.applied(template, view)), extents, result)

    def fake_quantize_of(self, view: View, template: Scalar, extents: Extents) -> Quantized | None:
        """The elementwise operation of `view` as a fake-quantize, or None."""
        if template.op not in ("mul", *FLOAT_CASTS):
            return None
        found = fake_quantize_shape(self._reader.applied(template, view), self._params.opener(extents))
        if found is None:
            return None
        shape, zero_point, scale = found
        quantized = self._quantized(shape, extents, 32)
        if quantized is None:
            return None
        back = self._params.read(scale, extents), self._zero_point(zero_point, extents)
        if back[0] is None or back[1] is None or not back[1].equals(quantized.params.zero_point):
            return None
        return quantized if _same_scale(back[0], quantized.params.scale) else None

    @staticmethod
    def _kept(view: View, template: Scalar, find: Callable[[Scalar, Open], Any]) -> Any:
        """What `find` finds in a structure's own expression, found once."""
        found = view.structure.found
        key = (find, id(template))
        if key not in found:
            found[key] = find(template, closed)
        return found[key]

    # -- of expressions ----------------------------------------------------------------------------------------

    def dequantize(self, scalar: Scalar, extents: Extents) -> Stored | None:
        """`scalar` as a dequantize over a result of shape `extents`, or None.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        shape = dequantize_shape(scalar, self._params.opener(extents))
        return None if shape is None else self._stored(shape, extents, False)

    def quantize(self, scalar: Scalar, extents: Extents, result: Value | None = None) -> Quantized | None:
        """`scalar` (an integer) as a quantize over a result of shape `extents`, or None.

        Args:
            scalar: the expression.
            extents: shape of what it is an element of.
            result: that tensor, behind which dequantizes are looked for that know the scale.

        Raises:
            ContradictionError: it is one, but its parts contradict each other.
        """
        shape = quantize_shape(scalar, self._params.opener(extents))
        return None if shape is None else self._quantized(shape, extents, None, result)

    def _stored(self, shape: DequantizeShape, extents: Extents, signless: bool) -> Stored | None:
        """`signless`: whether unsigned storage is read as signed for want of another way."""
        if shape.expressed not in EXPRESSED_TYPES:
            return None
        leaf = shape.storage
        bits = int(leaf.type[1:]) if leaf.type[1:].isdigit() else 0
        if not 2 <= bits <= 32 or (bits == 32 and shape.scale is None and shape.zero_point is None):
            return None
        scale = ONE if shape.scale is None else self._params.read(shape.scale, extents)
        zero_point = self._zero_point(shape.zero_point, extents)
        if scale is None or zero_point is None:
            return None
        value, index = self._nearest_storage(leaf, extents).payload
        repaired = signless and bits == 8 and self.unsigned.meant_by_dequantize(value, bits, zero_point)
        storage = StorageType(bits, shape.signed and not repaired)
        check_scale(scale)
        check_zero_point(zero_point, storage.min, storage.max, bits)
        self._scales.add(scale)
        params = QuantParams(storage, storage.min, storage.max, scale, zero_point, shape.expressed, extents)
        return Stored(value, index, params, repaired)

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

    def _quantized(
        self, shape: QuantizeShape, extents: Extents, fake_bits: int | None, result: Value | None = None
    ) -> Quantized | None:
        """`fake_bits`: None for a real quantize, else the widest storage to assume for a fake one."""
        if shape.input.type not in EXPRESSED_TYPES:
            return None
        lows = [self._params.uniform(s, extents) for s in shape.lows]
        highs = [self._params.uniform(s, extents) for s in shape.highs]
        known_lows = [v for v in lows if v is not None]
        known_highs = [v for v in highs if v is not None]
        if not lows or not highs or len(known_lows) != len(lows) or len(known_highs) != len(highs):
            return None
        low, high = max(known_lows), min(known_highs)
        if not math.isfinite(low) or not math.isfinite(high) or not 2 <= _width(shape.type) <= 32:
            return None
        scale = self._scale(shape, extents, result)
        zero_point = self._zero_point(shape.zero_point, extents)
        if scale is None or zero_point is None or (shape.inner_lows and not (low.is_integer() and high.is_integer())):
            return None
        meant = None if fake_bits is not None else self._unsigned(shape, zero_point, extents)
        if fake_bits is not None:
            storage = _smallest_storage(low, high, fake_bits)
        elif meant is not None:
            storage, low, high = meant.storage, meant.low, meant.high
        else:
            storage = StorageType(int(shape.type[1:]), shape.signed)
            low, high = _checked_bounds(low, high, storage)
        check_scale(scale)
        check_zero_point(zero_point, storage.min, storage.max, storage.bits)
        value = shape.input
        params = QuantParams(storage, int(low), int(high), scale, zero_point, value.type, extents)
        return Quantized(value, params, shape.inverse is not None, shape.zero_point_first, meant is not None)

    def _unsigned(self, shape: QuantizeShape, zero_point: Param, extents: Extents) -> Meant | None:
        """The unsigned storage that a clamp before a saturating cast to i8 stands for, or None."""
        if shape.type != "i8" or not shape.inner_lows or not shape.inner_highs:
            return None
        low = max(self._params.uniform(s, extents) or 0.0 for s in shape.inner_lows)
        high = min(self._params.uniform(s, extents) or 0.0 for s in shape.inner_highs)
        return meant_by_quantize(8, (low, high), zero_point, self.unsigned.around)

    def _zero_point(self, scalar: Scalar | None, extents: Extents) -> Param | None:
        """A zero point that is known to be integral, or None."""
        if scalar is None:
            return ZERO
        param = self._params.read(scalar, extents)
        if param is None or not self._params.is_integral(scalar, extents):
            return None
        if param.value is not None and param.element in EXPRESSED_TYPES:
            param = self._params.read_integer(scalar, extents) or param
        if param.data is None or param.data.dtype.kind != "f":
            return param
        return Param(param.index, param.data.astype(np.int64), param.value, "i64", param.signed)

    def _scale(self, shape: QuantizeShape, extents: Extents, result: Value | None) -> Param | None:
        if shape.scale is not None:
            return self._params.read(shape.scale, extents)
        if shape.inverse is None:
            return ONE
        inverse = self._params.read(shape.inverse, extents)
        if inverse is None or inverse.data is None or not inverse.data.all():
            return None
        own = [] if result is None else self._scales_behind(result)
        return Param(inverse.index, self._scales.of_inverse(inverse.data, own), element="f32")

    def _scales_behind(self, value: Value) -> list[np.ndarray[Any, Any]]:
        """Constant scales of the dequantizes that read `value`."""
        found: list[np.ndarray[Any, Any]] = []
        pending = [(value, 0)]
        while pending:
            current, depth = pending.pop()
            for use in current.uses:
                user = use.owner.operation
                if len(user.results) != 1 or not self._reader.bindings.is_ranked_tensor(user.results[0].type):
                    continue
                result = user.results[0]
                scalar = self._reader.of(result)
                if scalar is not None and scalar.op == "mul":
                    found += self._scale_of(scalar, self._reader.bindings.extents(result.type))
                elif depth < _STEPS and (scalar is None or scalar.op in _DEQUANTIZE_STEPS):
                    pending.append((result, depth + 1))
        return found

    def _scale_of(self, scalar: Scalar, extents: Extents) -> list[np.ndarray[Any, Any]]:
        try:
            shape = dequantize_shape(scalar, self._params.opener(extents))
        except ContradictionError:
            return []
        scale = None if shape is None or shape.scale is None else self._params.read(shape.scale, extents)
        return [] if scale is None or scale.data is None else [scale.data]


def _applied_dequantize(reader: ScalarReader, shape: DequantizeShape, view: View) -> DequantizeShape:
    zero_point = None if shape.zero_point is None else reader.applied(shape.zero_point, view)
    scale = None if shape.scale is None else reader.applied(shape.scale, view)
    return DequantizeShape(shape.expressed, reader.applied(shape.storage, view), shape.signed, zero_point, scale)


def _applied_quantize(reader: ScalarReader, shape: QuantizeShape, view: View) -> QuantizeShape:
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
