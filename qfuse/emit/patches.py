"""Convolutions as contractions over patches (im2col)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from qfuse._builder import Builder
from qfuse._mlir import Value
from qfuse.emit.base import dims_in
from qfuse.emit.reshape import reshape
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.indexing import affine_map, as_dim, compose, constant, dims_of_index, identity, is_plain
from qfuse.matchers.nodes import Convolution

#: Elements of the largest tensor of patches. A convolution of more stays one.
MOST_ELEMENTS = 1 << 26
#: Result channels (of a group) below which a convolution stays one.
FEWEST_CHANNELS = 8


@dataclass(frozen=True)
class Patches:
    """A tensor with what each result element of a convolution reads.

    Attributes:
        image: which operand it is made from, 0 or 1.
        loops: its dimensions.
        extents: of these loops.
        out_loops: dimensions of the accumulators, as what is adjacent in the patches is adjacent there.
    """

    image: int
    loops: tuple[int, ...]
    extents: tuple[int, ...]
    out_loops: tuple[int, ...]

    def read(self, planned: PlannedContraction) -> PlannedContraction:
        """The convolution as a contraction that reads patches, which are not made yet."""
        dims = identity(len(planned.extents))
        index = tuple(dims[d] for d in self.loops)
        if self.image:
            return replace(planned, rhs=replace(planned.rhs, index=index))
        return replace(planned, lhs=replace(planned.lhs, index=index))

    def made(self, builder: Builder, side: Side, value: Value) -> tuple[Value, bool]:
        """The tensor, from the image `value` that is read as `side` says, and whether it is a copy."""
        places = {loop: i for i, loop in enumerate(self.loops)}
        rank = len(self.loops)
        dims = identity(rank)
        zero = constant(0)
        to_dims = tuple(dims[places[d]] if d in places else zero for d in range(max(self.loops) + 1))
        read = compose(side.index, to_dims, ())
        steps = tuple(zero if n == 1 else dims[i] for i, n in enumerate(self.extents))
        moving = [as_dim(e) for e in compose(read, steps, ()) if e != zero]
        own = [n for n in builder.bindings.extents(value.type) if n != 1]
        # Pointwise, every element is read once, in its order.
        if moving == [i for i, n in enumerate(self.extents) if n != 1] and own == [n for n in self.extents if n != 1]:
            return reshape(builder, value, self.extents), False
        init = builder.empty(None, self.extents, builder.bindings.element_name(value.type))
        maps = [affine_map(rank, read), affine_map(rank, dims)]
        return builder.generic([value], init, maps, "p" * rank, lambda _, args: args[0]), True


def patches_of(planned: PlannedContraction, *, is_merged: bool) -> Patches | None:
    """The patches of a convolution of static extents with enough channels; None for depthwise ones and others.

    Args:
        planned: the convolution.
        is_merged: whether the images of a batch are to be one dimension with the places in them, even if the
            accumulators have to be transposed for it.
    """
    if not isinstance(planned.node, Convolution) or planned.unit:
        return None
    sides = planned.lhs, planned.rhs
    images = [i for i, side in enumerate(sides) if not is_plain(side.index)]
    if len(images) != 1 or None in planned.extents:
        return None
    used, weight = dims_of_index(sides[images[0]].index), dims_in(sides[1 - images[0]].index)
    extents = [n or 0 for n in planned.extents]
    channels = [d for d in planned.out_loops if d not in used]
    reduction = [d for d in weight if d in planned.reduction]
    if not channels or set(reduction) != set(planned.reduction) or not set(reduction) <= used:
        return None
    before = planned.out_loops.index(channels[0])
    first, last = ([d for d in part if d in used] for part in (planned.out_loops[:before], planned.out_loops[before:]))
    if is_merged and last:
        last = [d for d in first if d not in weight and extents[d] > 1] + last
        first = [d for d in first if d not in last]
    # The reduction stands where the channels do in the result: what is adjacent there stays so.
    loops, out_loops = (*first, *reduction, *last), (*first, *channels, *last)
    sizes = tuple(extents[d] for d in loops)
    few = math.prod(extents[d] for d in channels) < FEWEST_CHANNELS
    return None if few or math.prod(sizes) > MOST_ELEMENTS else Patches(images[0], loops, sizes, out_loops)
