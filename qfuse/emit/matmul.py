"""Contractions as matmuls: adjacent loops are one, others loops around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from qfuse._mlir import Value
from qfuse.emit.base import dims_in
from qfuse.emit.contractions import Contractions
from qfuse.emit.reshape import reshape
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.indexing import as_dim, identity

#: Loops that are one dimension of a matmul: adjacent and in this order wherever they are read or written.
Axis: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Matmul:
    """The loops of a contraction as those of a matmul.

    Attributes:
        rows_of: which operand has the rows, 0 or 1; the other has the columns.
        rows: the most steps of adjacent loops that this operand and the result have alone.
        columns: likewise of the other operand.
        depth: the reduction.
        outer: loops around the matmul, an axis each.
        extents: of all loops.
    """

    rows_of: int
    rows: Axis
    columns: Axis
    depth: Axis
    outer: tuple[Axis, ...]
    extents: tuple[int, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Outer loops, rows, columns, reduction."""
        return (*self.outer, self.rows, self.columns, self.depth)

    def size(self, axis: Axis) -> int:
        """How many steps an axis has."""
        return math.prod(self.extents[loop] for loop in axis)

    def axes_of(self, loops: Sequence[int]) -> list[Axis]:
        """The axes of a tensor that is read or written at `loops`."""
        return [axis for loop in loops for axis in self.axes if axis[0] == loop]


def matmul_of(planned: PlannedContraction, rows_of: int) -> Matmul | None:
    """A contraction of static extents whose operands are read at lists of loops as a matmul; else None."""
    sides = planned.lhs, planned.rhs
    loops = [dims_in(side.index) for side in sides]
    if planned.unit or any(len(set(own)) != len(side.index) for own, side in zip(loops, sides, strict=True)):
        return None
    extents = tuple(n or 0 for n in planned.extents)
    out, own, other = planned.out_loops, loops[rows_of], loops[1 - rows_of]
    rows = _longest_axis([d for d in own if d not in other], own, out, extents)
    columns = _longest_axis([d for d in other if d not in own], other, out, extents)
    depth = _longest_axis([d for d in own if d in planned.reduction], own, other, extents)
    if 0 in extents or not rows or not columns or set(depth) != set(planned.reduction):
        return None
    outer = tuple((d,) for d in out if d not in (*rows, *columns))
    return Matmul(rows_of, rows, columns, depth, outer, extents)


def multiply_merged(
    emitter: Contractions, planned: PlannedContraction, operands: Sequence[Value], rows_of: int
) -> Value:
    """The accumulators, over `planned.out_loops`, of a generic over axes, where the contraction is a matmul."""
    matmul = matmul_of(planned, rows_of)
    if matmul is None:
        init = emitter.zeros(planned, planned.out_loops, f"i{planned.bits}", ())
        return emitter.multiply_add(planned, operands[0], operands[1], init)
    out = matmul.axes_of(planned.out_loops)
    axes = [*out, matmul.depth]
    dims = dict(zip(axes, identity(len(axes)), strict=True))

    def merged(side: Side) -> Side:
        return replace(side, index=tuple(dims[a] for a in matmul.axes_of(dims_in(side.index))))

    over_axes = replace(
        planned,
        lhs=merged(planned.lhs),
        rhs=merged(planned.rhs),
        extents=tuple(matmul.size(a) for a in axes),
        reduction=(len(out),),
        out_loops=tuple(range(len(out))),
    )
    values = [
        reshape(emitter.builder, value, [over_axes.extents[as_dim(e) or 0] or 0 for e in side.index])
        for value, side in zip(operands, (over_axes.lhs, over_axes.rhs), strict=True)
    ]
    init = emitter.zeros(over_axes, over_axes.out_loops, f"i{planned.bits}", ())
    result = emitter.multiply_add(over_axes, values[0], values[1], init)
    return reshape(emitter.builder, result, [matmul.extents[d] for d in planned.out_loops])


def _longest_axis(chosen: Sequence[int], first: Sequence[int], second: Sequence[int], extents: Sequence[int]) -> Axis:
    """Of the chosen loops, in the order of `first`, those that are adjacent in both lists; the most steps win."""
    runs: list[Axis] = []
    for loop in chosen:
        if runs and all((runs[-1][-1], loop) in pairwise(order) for order in (first, second)):
            runs[-1] += (loop,)
        else:
            runs.append((loop,))
    return max(runs, key=lambda run: math.prod(extents[loop] for loop in run), default=())
