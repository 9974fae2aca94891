"""Spells integer operations so that IREE's CPU backend runs them fast.

- Both operands of a contraction have one signed type. Mixed ones (u8 x s8, i16 x i8) have no fast kernel: unsigned
  storage is shifted (`q - 128`, zero point `z - 128`), the narrower operand is widened. With the option `operands=i16`
  i8 storage is widened as well. What is widened to i16 has its zero point subtracted on the way.
- The integers of a run-time operand pass through `util.optimization_barrier`. Without it IREE computes them where it
  packs the operand into tiles, element by element. Arguments need none, and dynamic shapes get none: IREE cannot see
  the extents of a tensor through the barrier.

The barrier is registered in IREE's bindings only; a context of another binding is made to allow unregistered
dialects. IREE parses its generic form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qfuse._builder import Body, Builder
from qfuse._mlir import Value
from qfuse.cost.options import Options
from qfuse.emit.base import BuildContext, dims_in, loops_to_dims
from qfuse.emit.contractions import Accumulators
from qfuse.emit.linalg import LinalgEmitter
from qfuse.emit.spec import EXACT_IN_FLOAT, PlannedContraction, Side
from qfuse.graph import Array, Existing
from qfuse.indexing import affine_map, as_dim, compose, gather, identity
from qfuse.matchers.layout import BARRIER
from qfuse.qparams import ZERO, Param, StorageType

_WIDTHS = (8, 16, 32)


@dataclass(eq=False)
class _Conversion:
    """How stored integers become operands.

    Attributes:
        width: of the operands in bits; they are signed.
        shift: subtracted from stored integers and zero points alike.
        zero_point: subtracted from stored integers, over their dimensions, or None.
    """

    width: int
    shift: int
    zero_point: Param | None


class IreeEmitter(LinalgEmitter):
    """linalg with operands of one signed type, kept apart from what computes them."""

    def __init__(self, builder: Builder, options: Options) -> None:
        """An emitter that creates operations with `builder`."""
        super().__init__(builder, options)
        self._operands: dict[Any, Value] = {}

    def accumulate(self, planned: PlannedContraction, context: BuildContext) -> Accumulators:
        """The integer sum of products, of operands of one signed type."""
        bits = max(planned.lhs.storage.bits, planned.rhs.storage.bits, int(self.options.operands[1:]))
        width = next(w for w in _WIDTHS if w >= bits)
        lhs, rhs = (self._converted(planned, side, width, context) for side in (planned.lhs, planned.rhs))
        raw_bound = _raw_bound(planned, lhs, rhs, self.options)
        return super().accumulate(replace(planned, lhs=lhs, rhs=rhs, raw_bound=raw_bound), context)

    def barrier(self, value: Value) -> Value:
        """`value`, computed by itself where that is possible and of use."""
        is_argument = getattr(value.owner, "operation", None) is None
        if is_argument or None in self.builder.bindings.extents(value.type):
            return value
        if not self.builder.context.is_registered_operation(BARRIER):
            self.builder.context.allow_unregistered_dialects = True
        return self.builder.create(BARRIER, [value.type], [value]).results[0]

    # -- operands ----------------------------------------------------------------------------------------------

    def _converted(self, planned: PlannedContraction, side: Side, width: int, context: BuildContext) -> Side:
        """An operand as signed integers of `width` bits."""
        storage = side.storage
        shift = 1 << (width - 1) if not storage.signed and storage.bits == width else 0
        zero_point = None
        if width == 16 and storage.bits <= 8 and not side.params.symmetric:
            zero_point = _over_stored(side)
        conversion = _Conversion(width, shift, zero_point)
        array = side.array
        if array is not None:
            if storage == StorageType(width, True):
                return self._with_integers(side, context.q(side.form.q), array, _Conversion(width, 0, None))
            if zero_point is not None and not zero_point.is_constant:
                return self._with_integers(side, self._run_time(side, conversion, context), None, conversion)
            whole = _convert_array(_whole(planned, side, array), conversion)
            return self._with_integers(
                side, self.builder.dense_constant(whole), whole.reshape(array.shape), conversion
            )  # fmt: skip
        return self._with_integers(side, self._run_time(side, conversion, context), None, conversion)

    def _with_integers(self, side: Side, value: Value, array: Array | None, conversion: _Conversion) -> Side:
        zero_point = side.params.zero_point
        if conversion.zero_point is not None:
            zero_point = ZERO
        elif conversion.shift:
            zero_point = self._shifted(zero_point, conversion.shift)
        storage = StorageType(conversion.width, True)
        low, high = side.form.low - conversion.shift, side.form.high - conversion.shift
        if conversion.zero_point is not None:
            low, high = side.extremes
        params = replace(side.params, storage=storage, zero_point=zero_point, quant_min=low, quant_max=high)
        form = replace(side.form, q=Existing(value), low=low, high=high)
        return Side(form, side.index, params, storage, array)

    def _run_time(self, side: Side, conversion: _Conversion, context: BuildContext) -> Value:
        """The operand behind its barrier; made once where it does not depend on a run-time zero point."""
        value = context.q(side.form.q)
        zero = conversion.zero_point
        if zero is not None and not zero.is_constant:
            return self.barrier(self._convert(value, side.storage, conversion))
        key = (
            value,
            conversion.width,
            None if zero is None or zero.data is None else (zero.index, zero.data.tobytes()),
        )
        if key not in self._operands:
            with self.builder.behind(value):
                self._operands[key] = self.barrier(self._convert(value, side.storage, conversion))
        return self._operands[key]

    def _convert(self, value: Value, storage: StorageType, conversion: _Conversion) -> Value:
        """Widens, shifts or subtracts the zero point, in one generic; `value` itself where there is nothing to do."""
        if storage == StorageType(conversion.width, True):
            return value
        builder, bindings = self.builder, self.builder.bindings
        wide = f"i{conversion.width}"
        extents = bindings.extents(value.type)
        rank = len(extents)
        zero = conversion.zero_point
        operands: list[tuple[Value, str]] = [(value, affine_map(rank, identity(rank)))]
        if zero is not None and zero.scalar is None:
            tensor = builder.dense_constant(zero.data.astype(np.int16)) if zero.data is not None else zero.value
            if bindings.is_ranked_tensor(tensor.type):
                operands.append((tensor, affine_map(rank, zero.index)))

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = self.extend(inner, args[0], storage.bits, storage.signed, wide)
            if conversion.shift:
                return inner.op("arith.xori", wide, x, inner.constant(f"{-conversion.shift} : {wide}"))
            if zero is None:
                return x
            if zero.scalar is not None:
                return inner.op("arith.subi", wide, x, inner.constant(f"{int(zero.scalar)} : {wide}"))
            source = args[1] if len(operands) == 2 else zero.value
            element = wide if zero.data is not None else zero.element
            return inner.op("arith.subi", wide, x, self.convert(inner, source, element, wide, zero.signed))

        sizes = [builder.dim(value, i) for i, n in enumerate(extents) if n is None]
        init = builder.empty(None, extents, wide, sizes)
        maps = [m for _, m in operands] + [affine_map(rank, identity(rank))]
        return builder.generic([v for v, _ in operands], init, maps, "p" * rank, body)

    def _shifted(self, zero: Param, shift: int) -> Param:
        """A zero point less `shift`."""
        if zero.data is not None:
            return replace(zero, data=zero.data.astype(np.int64) - shift, element="i64")
        builder = self.builder
        is_tensor = builder.bindings.is_ranked_tensor(zero.value.type)
        extents = builder.bindings.extents(zero.value.type) if is_tensor else ()
        rank = len(extents)
        sizes = [builder.dim(zero.value, i) for i, n in enumerate(extents) if n is None]

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = self.convert(inner, args[0], zero.element, "i32", zero.signed)
            return inner.op("arith.subi", "i32", x, inner.constant(f"{shift} : i32"))

        same = affine_map(rank, identity(rank))
        init = builder.empty(None, extents, "i32", sizes)
        value = builder.generic([zero.value], init, [same, same], "p" * rank, body)
        return Param(zero.index, value=value, element="i32")


def _over_stored(side: Side) -> Param:
    """The zero point over the dimensions of the stored integers."""
    params = side.form.params
    to_stored = loops_to_dims(tuple(dims_in(side.form.index)), len(params.extents))
    return replace(params.zero_point, index=compose(params.zero_point.index, to_stored, ()))


def _whole(planned: PlannedContraction, side: Side, array: Array) -> Array:
    """Constant integers with the reduction not split into blocks."""
    if planned.blocked is None:
        return array
    position = next(i for i, e in enumerate(side.index) if as_dim(e) == len(planned.extents) - 1)
    shape = array.shape
    return array.reshape(*shape[:position], -1, *shape[position + 2 :])


def _convert_array(array: Array, conversion: _Conversion) -> Array:
    values = array.astype(np.int64 if conversion.width > 16 else np.int32) - conversion.shift
    zero = conversion.zero_point
    if zero is not None and zero.data is not None:
        values = values - gather(zero.data.astype(values.dtype), zero.index, values.shape)
    return values.astype(f"int{conversion.width}")


def _raw_bound(planned: PlannedContraction, lhs: Side, rhs: Side, options: Options) -> int:
    """Greatest absolute value of the sum of products of the converted operands."""
    sizes = [planned.extents[loop] for loop in planned.reduction]
    size = options.max_reduction or 1 if None in sizes else int(np.prod([n or 1 for n in sizes], dtype=np.int64))
    greatest = [max(abs(s.form.low), abs(s.form.high), 1) for s in (lhs, rhs)]
    bounds = [size * greatest[0] * greatest[1]]
    for side, other in ((lhs, greatest[1]), (rhs, greatest[0])):
        if side.array is not None and side.array.size:
            axes = tuple(i for i, e in enumerate(side.index) if as_dim(e) in planned.reduction)
            wide = np.abs(side.array.astype(np.int32 if side.storage.bits <= 16 else np.int64))
            bounds.append(int(wide.sum(axis=axes, dtype=np.int64).max(initial=1)) * other)
    # Only with sums as small as the plan's may the corrections join the float bias: its error bound is in the report.
    return min(bounds) if min(bounds) <= max(planned.bound, planned.raw_bound) else EXACT_IN_FLOAT
