"""Integer sums of products, and what zero points add to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qfuse._builder import Body
from qfuse._mlir import Extents, Value
from qfuse.emit.base import BuildContext, dims_in, loops_to_dims, out_extents
from qfuse.emit.casts import Casts
from qfuse.emit.epilogue import Operand
from qfuse.emit.named import named_contraction
from qfuse.emit.reduction import window_carrier
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.graph import Array, Existing
from qfuse.indexing import affine_map, as_dim, compose, dims_of_index, identity, substitute
from qfuse.matchers.nodes import Convolution
from qfuse.qparams import Param, StorageType


class Accumulators:
    """Accumulators of a built contraction.

    Attributes:
        planned: what was planned.
        value: integer tensor over `planned.out_loops`.
        corrected: whether the zero points are subtracted already.
    """

    def __init__(self, planned: PlannedContraction, value: Value, corrected: bool) -> None:
        """See the class."""
        self.planned = planned
        self.value = value
        self.corrected = corrected


class Contractions(Casts):
    """The part of an emitter that multiplies and adds integers."""

    def accumulate(self, planned: PlannedContraction, context: BuildContext) -> Accumulators:
        """The integer sum of products of a planned contraction."""
        is_named = keeps_name(planned)
        if is_named:
            sides = [self.as_signed(side, context) for side in (planned.lhs, planned.rhs)]
            planned = replace(planned, lhs=sides[0], rhs=sides[1])
        lhs = self._operand(planned, planned.lhs, context)
        rhs = lhs if planned.unit else self._operand(planned, planned.rhs, context)
        sizes = context.sizes(planned.node.init, _result_extents(planned))
        if is_named or (self.options.spelling == "named" and not planned.unit):
            named = named_contraction(self.builder, planned, lhs, rhs, sizes)
            if named is not None:
                return Accumulators(planned, *named)
        init = self.zeros(planned, planned.out_loops, f"i{planned.bits}", sizes)
        return Accumulators(planned, self.multiply_add(planned, lhs, rhs, init), False)

    def as_signed(self, side: Side, context: BuildContext) -> Side:
        """An operand of unsigned bytes as signed ones, 128 less, its zero point too; others as they are."""
        storage, zero = side.storage, side.params.zero_point
        if storage.signed or storage.bits != 8 or zero.data is None:
            return side
        value = context.q(side.form.q)
        extents = self.builder.bindings.extents(value.type)
        rank = len(extents)
        flip = affine_map(rank, identity(rank))

        def body(inner: Body, args: Sequence[Value]) -> Value:
            return inner.op("arith.xori", "i8", args[0], inner.constant("-128 : i8"))

        init = self.builder.empty(value, extents, "i8")
        shifted = self.builder.generic([value], init, [flip, flip], "p" * rank, body)
        signed = StorageType(8, True)
        zero = Param(zero.index, zero.data.astype(np.int64) - 128, element="i64")
        params = replace(side.params, storage=signed, zero_point=zero)
        form = replace(side.form, q=Existing(shifted), low=side.form.low - 128, high=side.form.high - 128)
        array = None if side.array is None else side.array.astype(np.int16) - 128
        return Side(form, side.index, params, signed, array)

    def _operand(self, planned: PlannedContraction, side: Side, context: BuildContext) -> Value:
        value = context.q(side.form.q)
        if planned.blocked is None:
            return value
        _, size = planned.blocked
        position = next(i for i, e in enumerate(side.index) if as_dim(e) == len(planned.extents) - 1)
        return self.split_dim(value, position, size)

    def split_dim(self, value: Value, position: int, size: int) -> Value:
        """Expands dimension `position` into blocks of `size`."""
        bindings = self.builder.bindings
        extents = bindings.extents(value.type)
        element = bindings.element_name(value.type)
        extent = extents[position]
        assert extent is not None
        expanded = (*extents[:position], extent // size, size, *extents[position + 1 :])
        groups = [[i] for i in range(position)] + [[position, position + 1]]
        groups += [[i + 1] for i in range(position + 1, len(extents))]
        return self.expand_shape(value, groups, expanded, element)

    def expand_shape(
        self, value: Value, groups: Sequence[Sequence[int]], extents: Sequence[int | None], element: str
    ) -> Value:
        """A `tensor.expand_shape`; dynamic extents are those of the source (one a group)."""
        builder = self.builder
        sizes = [builder.dim(value, g) for g, group in enumerate(groups) for d in group if extents[d] is None]
        static = ", ".join(str(-(2**63)) if n is None else str(n) for n in extents)
        attributes = {
            "reassociation": builder.attribute("[" + ", ".join(f"{list(g)}" for g in groups) + "]"),
            "static_output_shape": builder.attribute(f"array<i64: {static}>" if extents else "array<i64>"),
        }
        type_ = builder.tensor(tuple(extents), element)
        return builder.create("tensor.expand_shape", [type_], [value, *sizes], attributes).results[0]

    def zeros(self, planned: PlannedContraction, loops: Sequence[int], element: str, sizes: Sequence[Value]) -> Value:
        """A tensor of integer zeros over `loops`."""
        empty = self.builder.empty(None, out_extents(planned.extents, loops), element, sizes)
        return self.builder.fill_tensor(self.builder.constant(f"0 : {element}"), empty)

    def multiply_add(self, planned: PlannedContraction, lhs: Value, rhs: Value, init: Value) -> Value:
        """The contraction itself, as one generic with the operands extended in its body."""
        rank = len(planned.extents)
        wide = f"i{planned.bits}"
        out = tuple(identity(rank)[d] for d in planned.out_loops)
        iterators = "".join("r" if d in planned.reduction else "p" for d in range(rank))

        if planned.unit:
            return self.add_up(planned, lhs, init, iterators)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            a = self.extend(inner, args[0], planned.lhs.storage.bits, planned.lhs.storage.signed, wide)
            b = self.extend(inner, args[1], planned.rhs.storage.bits, planned.rhs.storage.signed, wide)
            return inner.op("arith.addi", wide, args[2], inner.op("arith.muli", wide, a, b))

        maps = [affine_map(rank, i) for i in (planned.lhs.index, planned.rhs.index, out)]
        return self.builder.generic([lhs, rhs], init, maps, iterators, body)

    def add_up(self, planned: PlannedContraction, value: Value, init: Value, iterators: str) -> Value:
        """The integer sum of one operand over the reduction."""
        rank = len(planned.extents)
        storage = planned.lhs.storage
        wide = f"i{planned.bits}"
        out = tuple(identity(rank)[d] for d in planned.out_loops)
        carrier, carried = window_carrier(self.builder, planned.extents, [planned.lhs.index], out)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            return inner.op(
                "arith.addi", wide, args[-1], self.extend(inner, args[0], storage.bits, storage.signed, wide)
            )

        maps = [affine_map(rank, i) for i in (planned.lhs.index, *carried, out)]
        return self.builder.generic([value, *carrier], init, maps, iterators, body)

    def row_sum(self, planned: PlannedContraction, side: Side, context: BuildContext) -> Operand:
        """`sum q` over the reduction of one operand, over the accumulators' dimensions."""
        used = dims_of_index(side.index)
        kept = [d for d in planned.out_loops if d in used]
        to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
        index = tuple(to_dims[d] for d in kept)
        if side.array is not None:
            return Operand(index, _sum_constant(side, planned.reduction, kept))
        loops = sorted(used)
        rank = len(loops)
        dims = identity(rank)
        renumbered = {loop: dims[i] for i, loop in enumerate(loops)}
        read = tuple(substitute(e, renumbered, ()) for e in side.index)
        written = tuple(renumbered[d] for d in kept)
        value = self._operand(planned, side, context)
        wide = f"i{planned.bits}"
        dynamic = [d for d in planned.out_loops if planned.extents[d] is None]
        size_of = dict(zip(dynamic, context.sizes(planned.node.init, _result_extents(planned)), strict=False))
        extents = out_extents(planned.extents, kept)
        empty = self.builder.empty(None, extents, wide, [size_of[d] for d in kept if d in size_of])
        init = self.builder.fill_tensor(self.builder.constant(f"0 : {wide}"), empty)
        carrier, carried = window_carrier(self.builder, out_extents(planned.extents, loops), [read], written)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            extended = self.extend(inner, args[0], side.storage.bits, side.storage.signed, wide)
            return inner.op("arith.addi", wide, args[-1], extended)

        iterators = "".join("r" if d in planned.reduction else "p" for d in loops)
        maps = [affine_map(rank, i) for i in (read, *carried, written)]
        total = self.builder.generic([value, *carrier], init, maps, iterators, body)
        return Operand(index, value=total, element=wide)

    @staticmethod
    def _over_dims(planned: PlannedContraction, param: Param) -> Operand:
        if not param.index:
            return Operand.of(param)
        to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
        extents = out_extents(planned.extents, planned.out_loops)
        return Operand.of(Param(
            compose(param.index, to_dims, extents), param.data, param.value, param.element, param.signed
        ))  # fmt: skip

    def _corrections(self, planned: PlannedContraction, context: BuildContext) -> list[tuple[int, tuple[Operand, ...]]]:
        """Terms of  - za sum b  - zb sum a  + K za zb, without those that are zero."""
        lhs_zero = self._over_dims(planned, planned.lhs.params.zero_point)
        rhs_zero = self._over_dims(planned, planned.rhs.params.zero_point)
        terms: list[tuple[int, tuple[Operand, ...]]] = []
        if not planned.lhs.params.symmetric:
            terms.append((-1, (lhs_zero, self.row_sum(planned, planned.rhs, context))))
        if not planned.rhs.params.symmetric:
            terms.append((-1, (rhs_zero, self.row_sum(planned, planned.lhs, context))))
        if len(terms) == 2:
            terms.append((1, (self._count(planned, context), lhs_zero, rhs_zero)))
        return terms

    def _count(self, planned: PlannedContraction, context: BuildContext) -> Operand:
        """How many products each accumulator sums up."""
        total: Array = np.asarray(1, np.int64)
        dynamic: list[Value] = []
        for loop in planned.reduction:
            extent = planned.extents[loop]
            if extent is not None:
                total = total * extent
                continue
            value = context.q(planned.lhs.form.q)
            dynamic.append(self.builder.dim(value, dims_in(planned.lhs.index).index(loop)))
        if not dynamic:
            return Operand((), total)
        count = self.builder.constant(f"{int(total)} : index")
        for size in dynamic:
            count = self.builder.create("arith.muli", [self.builder.type("index")], [count, size]).results[0]
        wide = self.builder.type("i64")
        cast = self.builder.create("arith.index_cast", [wide], [count]).results[0]
        return Operand((), value=cast, element="i64")


def keeps_name(planned: PlannedContraction) -> bool:
    """Whether integers are multiplied by the operation that multiplied floats.

    A convolution keeps its name where it can: compilers know few convolutions by their bodies.
    """
    return isinstance(planned.node, Convolution) and planned.node.op.name != "linalg.generic"


def _result_extents(planned: PlannedContraction) -> Extents:
    """Extents of the result: of the accumulators without the loop over blocks."""
    loops = planned.out_loops if planned.blocked is None else planned.out_loops[:-1]
    return out_extents(planned.extents, loops)


def _sum_constant(side: Side, reduction: Sequence[int], kept: Sequence[int]) -> Array:
    """Sum of constant integers over the reduction; axes in the order of `kept`."""
    assert side.array is not None
    loops = dims_in(side.index)
    axes = tuple(i for i, d in enumerate(loops) if d in reduction)
    # Bytes whose sum fits an i32 are summed up there, which is faster.
    is_small = side.array.dtype.itemsize == 1 and side.array.size < 1 << 22
    total = side.array.sum(axis=axes, dtype=np.int32 if is_small else np.int64).astype(np.int64)
    left = [d for d in loops if d not in reduction]
    return total.transpose([left.index(d) for d in kept]) if total.ndim else total
