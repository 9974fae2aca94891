"""Spells integer operations so that IREE's CPU backend runs them fast.

- Both operands of a contraction have one signed type. Mixed ones (u8 x s8, i16 x i8) have no fast kernel: unsigned
  storage is shifted (`q - 128`, zero point `z - 128`), the narrower operand is widened. With the option `operands=i16`
  i8 storage is widened as well. What is widened to i16 has its zero point subtracted on the way. With `operands=vnni`
  one operand is unsigned, and the contraction is written out in tiles (`iree_tiles`).
- Convolutions are contractions over patches (`patches`), depthwise ones have their channels last (`channels_last`).
- The integers of a run-time operand pass through `util.optimization_barrier`. Without it IREE computes them where it
  packs the operand into tiles, element by element. So do integers that are reshaped: IREE would move the reshape
  into the contraction before it. Arguments need none, and dynamic shapes get none: IREE cannot see the extents of a
  tensor through the barrier.

The barrier is registered in IREE's bindings only; a context of another binding is made to allow unregistered
dialects. IREE parses its generic form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qfuse._builder import Body, Builder
from qfuse._mlir import Value
from qfuse.cost.options import Options
from qfuse.emit.base import BuildContext, dims_in, loops_to_dims
from qfuse.emit.channels_last import depthwise, has_channels_first
from qfuse.emit.contractions import Accumulators, keeps_name
from qfuse.emit.iree_tiles import Tiling, pack, packed_constant, packing, tiled_contraction, tiling_of
from qfuse.emit.linalg import LinalgEmitter
from qfuse.emit.matmul import multiply_merged
from qfuse.emit.patches import Patches, patches_of
from qfuse.emit.spec import EXACT_IN_FLOAT, PlannedContraction, Side
from qfuse.graph import Array, Existing, Folded, QValue
from qfuse.indexing import affine_map, as_dim, compose, gather, identity
from qfuse.matchers.layout import BARRIER, Layout
from qfuse.qparams import ZERO, Param, StorageType

VNNI = "vnni"
_WIDTHS = (8, 16, 32)


@dataclass(eq=False)
class _Conversion:
    """How stored integers become operands.

    Attributes:
        storage: type of the operands.
        shift: subtracted from stored integers and zero points alike: half the range, where the signedness changes.
        zero_point: subtracted from stored integers, over their dimensions, or None.
        is_apart: whether a barrier keeps a run-time operand apart from what computes it.
    """

    storage: StorageType
    shift: int
    zero_point: Param | None
    is_apart: bool


class IreeEmitter(LinalgEmitter):
    """linalg with operands of the types that IREE has kernels for, kept apart from what computes them."""

    def __init__(self, builder: Builder, options: Options) -> None:
        """An emitter that creates operations with `builder`."""
        super().__init__(builder, options)
        self._operands: dict[tuple[Value, Hashable], Value] = {}

    def accumulate(self, planned: PlannedContraction, context: BuildContext) -> Accumulators:
        """The integer sum of products, of operands of the types that IREE has kernels for."""
        is_generic = self.options.spelling == "generic"
        patches = patches_of(planned, is_merged=False) if is_generic else None
        read = planned if patches is None else patches.read(planned)
        is_tiled = self.options.operands == VNNI and (patches is not None or not keeps_name(planned))
        tiling = tiling_of(read) if is_tiled else None
        if patches is not None and tiling is None:
            patches = patches_of(planned, is_merged=True)
        signed = StorageType(self._width(planned), True)
        types = [signed, signed]
        if tiling is not None:
            types[tiling.matmul.rows_of] = StorageType(8, False)
        lhs, rhs = (
            self._converted(planned, side, type_, context, is_apart=tiling is None or patches is not None)
            for side, type_ in zip((planned.lhs, planned.rhs), types, strict=True)
        )
        planned = replace(planned, lhs=lhs, rhs=rhs, raw_bound=_raw_bound(planned, lhs, rhs, self.options))
        if patches is not None:
            planned = self._over_patches(planned, patches, context)
        if tiling is not None:
            operands = [self._packed(planned, tiling, i, context) for i in range(2)]
            self._allow("flow.dispatch.region")
            return Accumulators(planned, tiled_contraction(self.builder, tiling, planned, operands), False)
        if patches is None and not (is_generic and has_channels_first(planned)):
            return super().accumulate(planned, context)
        operands = [self._operand(planned, side, context) for side in (planned.lhs, planned.rhs)]
        if patches is None:
            return Accumulators(planned, depthwise(self.builder, planned, operands, self.barrier), False)
        value = multiply_merged(self, replace(planned, out_loops=patches.out_loops), operands, patches.image)
        order = [patches.out_loops.index(d) for d in planned.out_loops]
        if order != sorted(order):
            value = self.barrier(value)  # IREE would move the transposition into the matmul.
        return Accumulators(planned, self.builder.transposed(value, order), False)

    def _over_patches(self, planned: PlannedContraction, patches: Patches, context: BuildContext) -> PlannedContraction:
        """A convolution as a contraction over patches."""
        side = planned.rhs if patches.image else planned.lhs
        value, is_copy = patches.made(self.builder, side, self._operand(planned, side, context))
        form = replace(side.form, q=Existing(self.barrier(value) if is_copy else value))
        side = replace(side, form=form)
        planned = replace(planned, rhs=side) if patches.image else replace(planned, lhs=side)
        return patches.read(planned)

    def move(self, layout: Layout, inputs: Sequence[Value], element: str, fill: int | Param | None) -> Value:
        """Repeats a layout operation on integers, a reshape behind a barrier."""
        if layout.kind == "reshape":
            inputs = [self._kept(value) for value in inputs]
        return super().move(layout, inputs, element, fill)

    def _kept(self, value: Value) -> Value:
        """`value` behind its barrier, made once."""
        return self._once(value, BARRIER, lambda: self.barrier(value))

    def _once(self, value: Value, how: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` makes of `value`, right behind it and once for each `how`."""
        if (value, how) not in self._operands:
            with self.builder.behind(value):
                self._operands[value, how] = make()
        return self._operands[value, how]

    def barrier(self, value: Value) -> Value:
        """`value`, computed by itself where that is possible and of use."""
        is_argument = getattr(value.owner, "operation", None) is None
        if is_argument or None in self.builder.bindings.extents(value.type):
            return value
        self._allow(BARRIER)
        return self.builder.create(BARRIER, [value.type], [value]).results[0]

    def _allow(self, name: str) -> None:
        """Makes a context that does not know IREE's operation `name` take it."""
        if not self.builder.context.is_registered_operation(name):
            self.builder.context.allow_unregistered_dialects = True

    # -- operands ----------------------------------------------------------------------------------------------

    def _width(self, planned: PlannedContraction) -> int:
        """Of operands of one signed type, in bits."""
        bits = max(planned.lhs.storage.bits, planned.rhs.storage.bits, 16 if self.options.operands == "i16" else 8)
        return next(w for w in _WIDTHS if w >= bits)

    def _packed(self, planned: PlannedContraction, tiling: Tiling, position: int, context: BuildContext) -> Value:
        """An operand in tiles, made once for all contractions that tile it alike."""
        side = planned.rhs if position else planned.lhs
        how = packing(tiling, side, position == tiling.matmul.rows_of)
        if side.array is not None:
            return packed_constant(self.builder, how, side.array)
        value = self._operand(planned, side, context)
        return self._once(value, how, lambda: pack(self.builder, how, value))

    def _converted(
        self, planned: PlannedContraction, side: Side, type_: StorageType, context: BuildContext, *, is_apart: bool
    ) -> Side:
        """An operand as integers of `type_`; constant ones are signed."""
        storage = side.storage
        half = 1 << (type_.bits - 1)
        if type_.signed:
            shift = half if not storage.signed and storage.bits == type_.bits else 0
        else:
            shift = -half if storage.signed else 0
        zero_point = None
        if type_.bits == 16 and storage.bits <= 8 and not side.params.symmetric:
            zero_point = _over_stored(side)
        conversion = _Conversion(type_, shift, zero_point, is_apart)
        array = side.array
        if array is not None:
            if storage == type_:
                return self._with_integers(side, side.form.q, array, _Conversion(type_, 0, None, is_apart))
            if zero_point is None or zero_point.is_constant:
                whole = _convert_array(_whole(planned, side, array), conversion)
                return self._with_integers(side, Folded(whole), whole.reshape(array.shape), conversion)
        value = self._run_time(side, conversion, context)
        return self._with_integers(side, Existing(value), None, conversion)

    def _with_integers(self, side: Side, q: QValue, array: Array | None, conversion: _Conversion) -> Side:
        zero_point = side.params.zero_point
        if conversion.zero_point is not None:
            zero_point = ZERO
        elif conversion.shift:
            zero_point = self._shifted(zero_point, conversion.shift)
        storage = conversion.storage
        low, high = side.form.low - conversion.shift, side.form.high - conversion.shift
        if conversion.zero_point is not None:
            low, high = side.extremes
        params = replace(side.params, storage=storage, zero_point=zero_point, quant_min=low, quant_max=high)
        form = replace(side.form, q=q, low=low, high=high)
        return Side(form, side.index, params, storage, array)

    def _run_time(self, side: Side, conversion: _Conversion, context: BuildContext) -> Value:
        """The operand, maybe behind a barrier; made once where it does not depend on a run-time zero point."""
        value = context.q(side.form.q)
        zero = conversion.zero_point
        if zero is not None and not zero.is_constant:
            return self._convert(value, side.storage, conversion)
        subtracted = None if zero is None or zero.data is None else (zero.index, zero.data.tobytes())
        how = conversion.storage, conversion.is_apart, subtracted
        return self._once(value, how, lambda: self._convert(value, side.storage, conversion))

    def _convert(self, value: Value, storage: StorageType, conversion: _Conversion) -> Value:
        """Widens, shifts or subtracts the zero point, in one generic where there is anything to do, and sets apart."""
        if storage != conversion.storage:
            value = self._as_type(value, storage, conversion)
        return self.barrier(value) if conversion.is_apart else value

    def _as_type(self, value: Value, storage: StorageType, conversion: _Conversion) -> Value:
        builder, bindings = self.builder, self.builder.bindings
        wide = f"i{conversion.storage.bits}"
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
                return inner.op("arith.xori", wide, x, inner.constant(f"{-abs(conversion.shift)} : {wide}"))
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
    values = array.astype(np.int64 if conversion.storage.bits > 16 else np.int32) - conversion.shift
    zero = conversion.zero_point
    if zero is not None and zero.data is not None:
        values = values - gather(zero.data.astype(values.dtype), zero.index, values.shape)
    return values.astype(f"int{conversion.storage.bits}")


def _raw_bound(planned: PlannedContraction, lhs: Side, rhs: Side, options: Options) -> int:
    """Greatest absolute value of the sum of products of the converted operands."""
    sizes = [planned.extents[loop] for loop in planned.reduction]
    size = options.max_reduction or 1 if None in sizes else math.prod(n or 1 for n in sizes)
    greatest = [max(abs(s.form.low), abs(s.form.high), 1) for s in (lhs, rhs)]
    bounds = [size * greatest[0] * greatest[1]]
    for side, other in ((lhs, greatest[1]), (rhs, greatest[0])):
        if side.array is not None and side.array.size:
            axes = tuple(i for i, e in enumerate(side.index) if as_dim(e) in planned.reduction)
            wide = np.abs(side.array.astype(np.int32 if side.storage.bits <= 16 else np.int64))
            bounds.append(int(wide.sum(axis=axes, dtype=np.int64).max(initial=1)) * other)
    # Only with sums as small as the plan's may the corrections join the float bias: its error bound is in the report.
    return min(bounds) if min(bounds) <= max(planned.bound, planned.raw_bound) else EXACT_IN_FLOAT
