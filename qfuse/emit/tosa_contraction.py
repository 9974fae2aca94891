"""Integer contractions in TOSA: matmul, convolutions, sums; what zero-point operands cannot hold is corrected.

    conv2d %a, %w, %bias, %za, %zw : i8, i8, i32, i8, i8 -> i32

A zero point is an operand where it is one constant of 8 bits. A constant operand with others is stored less them, where
that fits. What is left of zero points is subtracted afterwards:  sum (a - z) b = sum a b - z sum b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.emit.tosa_operand import Operand, held_operand, operand_of
from qfuse.emit.tosa_ops import TosaOps
from qfuse.emit.tosa_patches import patches, reads_patches, takes_channels, with_channels
from qfuse.emit.tosa_products import Part, Product, by_groups, filter_sums, groups_of, over_dims, plan_product
from qfuse.emit.tosa_unsigned import as_held
from qfuse.fixed_point import Multiplier
from qfuse.graph import Array
from qfuse.indexing import Index, as_dim, dims_of_index, gather
from qfuse.matchers.nodes import Convolution, Reduction

CONVOLUTIONS = ("tosa.conv2d", "tosa.conv3d", "tosa.depthwise_conv2d", "tosa.transpose_conv2d")
POOLS = ("tosa.avg_pool2d",)


def is_matmul(planned: PlannedContraction) -> bool:
    """Whether a contraction is written as a matmul."""
    if isinstance(planned.node, Convolution):
        return reads_patches(planned)
    return not planned.unit and not is_pointwise(planned)


def is_pointwise(planned: PlannedContraction) -> bool:
    """Whether a contraction is written as a convolution by one point: 16 bits by a constant, whose bias is i48."""
    if planned.unit or isinstance(planned.node, Convolution) or planned.bits != 48 or planned.rhs.array is None:
        return False
    held = held_operand(planned.rhs)
    return (
        held is not None
        and held[0].bits == 8
        and len(dims_of_index(planned.rhs.index)) == 2
        and not groups_of(planned)[0]
    )


class Sums:
    """The integer sums of a contraction, built when first asked for, with the bias of who asks first.

    Attributes:
        planned: what was planned.
    """

    def __init__(self, planned: PlannedContraction, ops: TosaOps, context: BuildContext) -> None:
        """Builds nothing yet."""
        self.planned = planned
        self._ops = ops
        self._context = context
        self._rank = len(planned.out_loops)
        self._value: Value | None = None
        self._bias: Array | None = None

    def value(self, bias: Array | None = None) -> Value:
        """The sums less what zero points add, plus an integer bias over the accumulators' dimensions."""
        bias = np.zeros((1,) * self._rank, np.int64) if bias is None or not bias.any() else bias
        fits = self._bias is None or bool((bias == self._bias).all())
        if self._value is None or (self.planned.bits == 48 and not fits):  # i48 is not added to: built anew
            with self._context.at(self.planned.node.op):
                self._value = self._build(bias)
            self._bias = bias
        assert self._bias is not None
        return self._plus(self._value, bias - self._bias)

    def _plus(self, value: Value, bias: Array) -> Value:
        if not bias.any():
            return value
        return self._ops.binary("add", value, self._ops.constant(bias, self._ops.element(value)))

    def _build(self, bias: Array) -> Value:
        planned = self.planned
        if planned.unit:
            return self._sum(bias)
        lhs, rhs = operand_of(planned.lhs), operand_of(planned.rhs)
        if planned.bits == 48 and is_matmul(planned):
            return self._wide_matmul(lhs, rhs, bias)
        known = known_corrections(planned, lhs, rhs)
        held, later = bias, np.zeros((1,) * self._rank, np.int64)
        if known is not None:
            held = held + known
        if is_pointwise(planned):
            value, later = self._pointwise(lhs, rhs, by_groups(planned, held).reshape(-1)), later
        elif isinstance(planned.node, Convolution):
            if any(n != 1 for n in held.shape[:-1]):
                held, later = np.zeros((1,) * self._rank, np.int64), held
            value = self._convolution(lhs, rhs, held.reshape(-1))
        else:
            value, later = self._matmul(lhs, rhs), held
        value = self._plus(value, later)
        return value if known is not None else self._corrected(value, lhs, rhs)

    # -- operands ----------------------------------------------------------------------------------------------

    def _tensor(self, operand: Operand, bits: int | None = None) -> Value:
        """The integers of an operand in the shape of the stored tensor."""
        element = f"i{operand.storage.bits if bits is None else bits}"
        if operand.array is not None:
            return self._ops.constant(operand.array, element)
        value = self._context.q(operand.side.form.q)
        value = self._split(value, operand.side)
        return self._ops.cast(as_held(self._ops, value, operand.side.storage, operand.offset), element)

    def _split(self, value: Value, side: Side) -> Value:
        """A tensor with its reduced dimension split into blocks, where they are."""
        if self.planned.blocked is None:
            return value
        last = len(self.planned.extents) - 1
        position = next(i for i, e in enumerate(side.index) if as_dim(e) == last)
        return self._context.emitter.split_dim(value, position, self.planned.blocked[1])

    def _whole(self, operand: Operand, bits: int | None = None) -> Value:
        """The integers of an operand in the shape of the operation's own operand."""
        form = operand.side.form
        if operand.array is not None:
            sizes = [n or 0 for n in form.params.extents]
            array = np.broadcast_to(gather(operand.array, form.index, sizes), sizes)
            return self._ops.constant(array, f"i{operand.storage.bits if bits is None else bits}")
        value = self._tensor(operand, bits)
        extents = [n or 0 for n in form.params.extents]
        return self._ops.tiled(self._ops.aligned(value, form.index, len(extents)), extents)

    # -- operations --------------------------------------------------------------------------------------------

    def _matmul(self, lhs: Operand, rhs: Operand) -> Value:
        planned, ops = self.planned, self._ops
        batch, rows, columns = groups_of(planned)
        reduced = list(planned.reduction)
        a = self._arranged(self._tensor(lhs), lhs.side.index, [batch, rows, reduced])
        b = self._arranged(self._tensor(rhs), rhs.side.index, [batch, reduced, columns])
        return self._multiplied(a, b, [ops.constant(np.asarray([o.zero]), "i8") for o in (lhs, rhs)])

    def _multiplied(self, a: Value, b: Value, zeros: Sequence[Value]) -> Value:
        """The matmul of tensors over (batch, rows, reduction) and (batch, reduction, columns)."""
        planned, ops = self.planned, self._ops
        groups = groups_of(planned)
        type_ = ops.builder.tensor(tuple(self._size(g) for g in groups), f"i{planned.bits}")
        value = ops.builder.create("tosa.matmul", [type_], [a, b, *zeros]).results[0]
        order = [d for group in groups for d in group]
        rest = [d for d in planned.out_loops if d not in order]
        extents = [planned.extents[d] or 1 for d in (*order, *rest)]
        value = ops.reshape(value, extents)
        return ops.transpose(value, [[*order, *rest].index(d) for d in planned.out_loops])

    def _wide_matmul(self, lhs: Operand, rhs: Operand, bias: Array) -> Value:
        """A product of i16, whose zero points and bias are further terms of the sum."""
        planned, ops = self.planned, self._ops
        product = plan_product(planned, lhs, rhs, bias)
        assert isinstance(product, Product)
        batch, rows, columns = groups_of(planned)
        shapes = [batch, rows, list(planned.reduction)], [batch, list(planned.reduction), columns]
        pieces = [[self._part(pair[i], o, shapes[i]) for pair in product.pairs] for i, o in enumerate((lhs, rhs))]
        sizes = [self._size(g) for g in (batch, rows, columns)]
        for row, digits in zip(product.rows, product.digits, strict=True):
            left, right = (digits, row) if digits.shape[1] != 1 else (row, digits)
            for i, (number, shape) in enumerate(((left, (sizes[0], sizes[1], 1)), (right, (sizes[0], 1, sizes[2])))):
                pieces[i].append(ops.constant(np.broadcast_to(number, shape), "i16"))
        a, b = (ops.concat(held, axis) for held, axis in zip(pieces, (2, 1), strict=True))
        return self._multiplied(a, b, [ops.constant(np.zeros(1), "i16")] * 2)

    def _part(self, part: Part, operand: Operand, groups: Sequence[Sequence[int]]) -> Value:
        """One of the tensors that add up to an operand less its zero point, over groups of loops."""
        ops, side = self._ops, operand.side
        if part.number is not None:
            return ops.constant(np.full([self._size(g) for g in groups], part.number), "i16")
        if isinstance(self.planned.node, Convolution) and operand.side is self.planned.lhs:
            return self._patches(part, operand, groups)
        if part.array is not None:
            value = ops.constant(part.array, "i16")
        else:
            value = self._less(part, operand)
        return self._arranged(value, side.index, groups)

    def _less(self, part: Part, operand: Operand) -> Value:
        """Stored integers less a part's offset, as i16."""
        ops, side = self._ops, operand.side
        value = self._context.q(side.form.q)
        if side.storage.bits == 32:
            return ops.narrow(value, part.offset)
        value = as_held(ops, value, side.storage, operand.offset)
        less = part.offset - operand.offset
        return ops.cast(ops.plus(ops.cast(value, "i32"), -less) if less else value, "i16")

    def _patches(self, part: Part, operand: Operand, groups: Sequence[Sequence[int]]) -> Value:
        """What the windows of a convolution read, over groups of loops."""
        ops, form, op = self._ops, operand.side.form, self.planned.node.op
        extents = [n or 0 for n in form.params.extents]
        value = ops.tiled(ops.aligned(self._less(part, operand), form.index, len(extents)), extents)
        zero = operand.zero if operand.rest is None else int(operand.rest.scalar or 0)
        value = patches(ops, op, value, zero + operand.offset - part.offset)
        if groups[0]:  # a matmul for each channel
            value = ops.transpose(value, [3, 0, 1, 2])
        return ops.reshape(value, [self._size(g) for g in groups])

    def _arranged(self, value: Value, index: Index, groups: Sequence[Sequence[int]]) -> Value:
        """A tensor read at `index` with one dimension for each group of loops."""
        loops = [as_dim(e) for e in index]
        order = [loops.index(d) for group in groups for d in group if d in loops]
        fixed = [i for i, d in enumerate(loops) if d is None]
        return self._ops.reshape(self._ops.transpose(value, [*fixed, *order]), [self._size(g) for g in groups])

    def _size(self, loops: Sequence[int]) -> int:
        return int(np.prod([self.planned.extents[d] or 1 for d in loops], dtype=np.int64))

    def _pointwise(self, lhs: Operand, rhs: Operand, bias: Array) -> Value:
        """`[rows, k] x [columns, k]` as a convolution by one point, whose bias has the accumulators' width."""
        planned = self.planned
        _, rows, columns = groups_of(planned)
        reduced = list(planned.reduction)
        m, n, k = (self._size(d) for d in (rows, columns, reduced))
        a = self._ops.reshape(self._arranged(self._tensor(lhs), lhs.side.index, [rows, reduced]), [1, m, 1, k])
        w = self._ops.reshape(self._arranged(self._tensor(rhs, 8), rhs.side.index, [columns, reduced]), [n, 1, 1, k])
        attributes = {
            "pad": "array<i64: 0, 0, 0, 0>", "stride": "array<i64: 1, 1>", "dilation": "array<i64: 1, 1>"
        }  # fmt: skip
        made = {name: self._ops.builder.attribute(text) for name, text in attributes.items()}
        value = self._convolved("tosa.conv2d", a, w, (lhs.zero, rhs.zero), bias, (1, m, 1, n), made)
        order = [*rows, *columns]
        rest = [d for d in planned.out_loops if d not in order]
        value = self._ops.reshape(value, [planned.extents[d] or 1 for d in (*order, *rest)])
        return self._ops.transpose(value, [[*order, *rest].index(d) for d in planned.out_loops])

    def _convolution(self, lhs: Operand, rhs: Operand, bias: Array) -> Value:
        op = self.planned.node.op
        attributes = _attributes(op, "acc_type")
        value, filters = self._whole(lhs), self._whole(rhs)
        if takes_channels(self.planned, lhs, rhs):
            assert lhs.rest is not None
            value, filters = with_channels(self._ops, value, filters, int(lhs.rest.scalar or 0))
        elif lhs.rest is not None and lhs.rest.scalar is not None:
            value = self._padded(value, int(lhs.rest.scalar), attributes)
        result = tuple(n or 0 for n in self._ops.bindings.extents(op.results[0].type))
        return self._convolved(op.name, value, filters, (lhs.zero, rhs.zero), bias, result, attributes)

    def _padded(self, value: Value, number: int, attributes: dict[str, Any]) -> Value:
        """Pads by what the zero-point operand cannot hold, in place of the operation's own padding."""
        pad = [int(n) for n in attributes.get("pad", [])]
        if not any(pad):
            return value
        attributes["pad"] = self._ops.builder.attribute(f"array<i64: {', '.join('0' for _ in pad)}>")
        return self._ops.pad(value, [0, 0, *pad, 0, 0], number)

    def _convolved(
        self,
        name: str,
        x: Value,
        w: Value,
        zeros: tuple[int, int],
        bias: Array,
        shape: tuple[int, ...],
        attributes: Any,
    ) -> Value:
        ops = self._ops
        wide = "i48" if ops.element(x) == "i16" else "i32"
        extra = [ops.constant(np.asarray([z]), ops.element(v)) for z, v in zip(zeros, (x, w), strict=True)]
        held = {**attributes, "acc_type": ops.builder.attribute(wide)}
        operands = [x, w, ops.constant(bias, wide), *extra]
        return ops.builder.create(name, [ops.builder.tensor(shape, wide)], operands, held).results[0]

    # -- sums --------------------------------------------------------------------------------------------------

    def _sum(self, bias: Array) -> Value:
        """The sum of one operand, less its zero point: over dimensions, or over windows by a kernel of ones."""
        planned, ops = self.planned, self._ops
        node = planned.node
        operand = operand_of(planned.lhs)
        value = self._whole(operand)
        rest = 0 if operand.rest is None or operand.rest.scalar is None else int(operand.rest.scalar)
        if isinstance(node, Reduction) and node.op.name in POOLS:
            return self._pooled(node, operand, value, rest, bias)
        if isinstance(node, Reduction) and node.kind == "bilinear":
            value = interpolated(ops, node, value)
            return self._plus(value, bias - (operand.zero or rest) * node.weight)
        value = ops.cast(value, "i32")
        value = ops.plus(value, -(operand.zero or rest))
        index = node.index if isinstance(node, Reduction) else planned.lhs.index
        return self._plus(self._reduced(value, index), bias)

    def _pooled(self, node: Reduction, operand: Operand, value: Value, rest: int, bias: Array) -> Value:
        """Sums over windows, as a depthwise convolution."""
        ops = self._ops
        channels = ops.shape(value)[-1]
        kernel = [int(n) for n in node.op.attributes["kernel"]]
        ones = ops.constant(np.ones((*kernel, channels, 1), np.int8), "i8")
        attributes = _attributes(node.op, "acc_type", "kernel", "nan_mode")
        attributes["dilation"] = ops.builder.attribute("array<i64: 1, 1>")
        result = tuple(n or 0 for n in ops.bindings.extents(node.op.results[0].type))
        held = np.zeros(1, np.int64)
        if self.planned.bits == 48:  # nothing adds i48
            held = bias.reshape(-1) - rest * int(np.prod(kernel))
            value = self._padded(value, rest, attributes)
            bias = np.zeros_like(bias)
        zeros = (operand.zero, 0)
        value = self._convolved("tosa.depthwise_conv2d", value, ones, zeros, held, result, attributes)
        return self._plus(value, bias)

    def _reduced(self, value: Value, index: Index) -> Value:
        """The sum of an i32 tensor read at `index` over the reduction, over the accumulators' dimensions."""
        ops, planned = self._ops, self.planned
        loops = [as_dim(e) for e in index]
        for axis, loop in enumerate(loops):
            if loop in planned.reduction:
                value = reduce_sum(ops, value, axis)
        kept = [i for i, d in enumerate(loops) if d in planned.out_loops]
        wanted = sorted(kept, key=lambda i: planned.out_loops.index(loops[i] or 0))
        rest = [i for i in range(len(loops)) if i not in kept]
        if wanted != kept:  # what is left of the others has extent 1
            value = ops.transpose(value, [*rest, *wanted])
        read = {loops[i] for i in kept}
        return ops.reshape(value, [(planned.extents[d] or 1) if d in read else 1 for d in planned.out_loops])

    # -- corrections -------------------------------------------------------------------------------------------

    def _corrected(self, value: Value, lhs: Operand, rhs: Operand) -> Value:
        """Sums less what zero points add that are known at run time only, or vary."""
        planned = self.planned
        zeros = [None if o.rest is None else self._zero(o) for o in (lhs, rhs)]
        for zero, other in ((zeros[0], rhs), (zeros[1], lhs)):
            if zero is not None:
                value = self._ops.binary("sub", value, self._ops.binary("mul", zero, self._row_sum(other)))
        if zeros[0] is None or zeros[1] is None:
            return value
        count = self._ops.number(self._size(planned.reduction), self._rank, "i32")
        both = self._ops.binary("mul", self._ops.binary("mul", zeros[0], zeros[1]), count)
        return self._ops.binary("add", value, both)

    def _zero(self, operand: Operand) -> Value:
        """A zero point over the accumulators' dimensions, as i32."""
        assert operand.rest is not None
        zero = over_dims(self._ops, self.planned, operand.rest, "i32")
        return zero if operand.rest.data is not None else self._ops.plus(zero, -operand.offset)

    def _row_sum(self, operand: Operand) -> Value:
        """The sum of an operand's integers, less its zero-point operand, over the accumulators' dimensions."""
        if operand.array is not None and isinstance(self.planned.node, Convolution):
            return self._ops.constant(filter_sums(self.planned, operand, within=True), "i32")
        value = self._ops.cast(self._tensor(operand), "i32")
        rank = len(self._ops.shape(value))
        if operand.zero:
            value = self._ops.binary("sub", value, self._ops.number(operand.zero, rank, "i32"))
        return self._reduced(value, operand.side.index)


def known_corrections(planned: PlannedContraction, lhs: Operand, rhs: Operand) -> Array | None:
    """What is added to the sums for zero points that are left, where it is known; else None."""
    rank = len(planned.out_loops)
    total = np.zeros((1,) * rank, np.int64)
    if (lhs.rest is None and rhs.rest is None) or takes_channels(planned, lhs, rhs):
        return total
    if rhs.rest is not None or lhs.rest is None or lhs.rest.scalar is None or rhs.array is None:
        return None
    return -int(lhs.rest.scalar) * filter_sums(planned, rhs, within=False)


def reduce_sum(ops: TosaOps, value: Value, axis: int) -> Value:
    """The sum along one dimension, which stays with extent 1."""
    shape = list(ops.shape(value))
    shape[axis] = 1
    attributes = {"axis": ops.builder.attribute(f"{axis} : i32")}
    type_ = ops.builder.tensor(tuple(shape), ops.element(value))
    return ops.builder.create("tosa.reduce_sum", [type_], [value], attributes).results[0]


def interpolated(ops: TosaOps, node: Reduction, value: Value) -> Value:
    """Sums of the four neighbours of each place by integer weights, in i32."""
    op = node.op
    wide = ops.element(value) == "i16"
    type_ = ops.builder.tensor(ops.bindings.extents(op.results[0].type), "i48" if wide else "i32")
    operands = [value, *list(op.operands)[1:]]
    sums = ops.builder.create(op.name, [type_], operands, _attributes(op)).results[0]
    return ops.rescale(sums, Multiplier.of(1.0, 15), "single", "i32") if wide else sums


def _attributes(op: Any, *left_out: str) -> dict[str, Any]:
    return {name: op.attributes[name] for name in op.attributes if name not in left_out}


__all__ = ["CONVOLUTIONS", "Operand", "Sums", "is_matmul", "is_pointwise", "operand_of"]
