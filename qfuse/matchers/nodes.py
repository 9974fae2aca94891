"""Typed nodes: what each operation of a function is, in terms that do not depend on the dialect it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from qfuse._mlir import Operation, Value
from qfuse.indexing import Extents, Index
from qfuse.matchers.layout import Layout
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import QuantParams


@dataclass(eq=False)
class Node:
    """Base of all nodes.

    Attributes:
        op: the operation that produces `result` (the last one of a chain).
        result: the SSA value that the node stands for.
    """

    op: Operation
    result: Value

    @property
    def replaced(self) -> Value:
        """The result that what is built takes the place of."""
        return self.result


@dataclass(eq=False)
class Dequantize(Node):
    """`result = scale * (storage - zero_point)`.

    Attributes:
        storage: the integer tensor, of the result's shape, or a quantized-type tensor (see `storage_cast`).
        index: where the result's elements come from in `storage` (identity unless a layout was read through).
        params: over the result's dimensions.
        storage_cast: printed integer tensor type to `quant.scast` `storage` to first, or None.
        repaired: whether the IR reads unsigned storage as signed, which it cannot have been meant to.
    """

    storage: Value
    index: Index
    params: QuantParams
    storage_cast: str | None = None
    repaired: bool = False


@dataclass(eq=False)
class Quantize(Node):
    """`result = clamp(round(input / scale) + zero_point)` as integers.

    Attributes:
        input: the expression that is quantized, usually one element of a float tensor.
        params: over the result's dimensions.
        reciprocal: whether the IR multiplies by 1/scale instead of dividing.
        zero_point_first: whether the zero point is added before rounding.
        repaired: whether the IR saturates unsigned storage as signed, which it cannot have been meant to.
    """

    input: Scalar
    params: QuantParams
    reciprocal: bool
    zero_point_first: bool
    repaired: bool = False


@dataclass(eq=False)
class FakeQuantize(Node):
    """A quantize and a dequantize in float arithmetic; no integer tensor exists.

    Attributes:
        input: the expression that is quantized.
        params: over the result's dimensions; the storage type is the smallest that holds the clamp bounds.
    """

    input: Scalar
    params: QuantParams


@dataclass(eq=False)
class Contraction(Node):
    """`result[out] = init[out] + sum over reduction of lhs[...] * rhs[...]`.

    Attributes:
        lhs: first multiplied tensor.
        rhs: second multiplied tensor.
        init: what is accumulated into, or None for zeros.
        lhs_index: over the loops.
        rhs_index: over the loops.
        out_index: over the loops (distinct parallel loops).
        extents: of the loops.
        reduction: loops that are summed over.
        integer: whether it multiplies integers already.
        through: intermediate operations when the product is an operation of its own.
        init_index: of `init`, over the result's dimensions; None where it has the result's shape.
    """

    lhs: Value
    rhs: Value
    init: Value | None
    lhs_index: Index
    rhs_index: Index
    out_index: Index
    extents: Extents
    reduction: tuple[int, ...]
    integer: bool = False
    through: tuple[Operation, ...] = ()
    init_index: Index | None = None


@dataclass(eq=False)
class Convolution(Contraction):
    """A contraction whose first operand is read at sums of loops (a sliding window).

    Attributes:
        padding: elements of 0.0 that are read before and behind each dimension of `lhs`; empty where none are.
        spread: distance of neighbouring elements in each dimension of `lhs`, with 0.0 between them (a transposed
            convolution, whose `lhs_index` is a floor division by it); empty where they lie side by side.
        multiplier: results a channel of a depthwise convolution whose `rhs` has both as dimensions; else 0.
    """

    padding: tuple[tuple[int, int], ...] = ()
    spread: tuple[int, ...] = ()
    multiplier: int = 0


@dataclass(eq=False)
class Reduction(Node):
    """`result[out] = init[out] combined with operand[index]` over the reduction loops: sums, maxima, minima, pooling.

    Attributes:
        kind: `sum`, `max`, `min`, `mean` of the elements that are not padding, `argmax` or `argmin`: the place of the
            first greatest or least along the one reduction loop; `bilinear` for the sum of the four neighbours of a
            place by weights that depend on it.
        operand: the tensor that is reduced.
        init: what is accumulated into, or None for the neutral element.
        index: of the operand, over the loops.
        out_index: over the loops (distinct parallel loops).
        extents: of the loops.
        reduction: loops that are reduced over.
        padding: elements that are left out, before and behind each dimension of `operand`; empty where none are.
        weight: what the weights add up to, which are integers divided by it.
        position: of an operation with two results the second, the places; the first, the values, is not read.
    """

    kind: str
    operand: Value
    init: Value | None
    index: Index
    out_index: Index
    extents: Extents
    reduction: tuple[int, ...]
    padding: tuple[tuple[int, int], ...] = ()
    weight: int = 1
    position: Value | None = None

    @property
    def replaced(self) -> Value:
        """The places, where these are the second result."""
        return self.result if self.position is None else self.position


@dataclass(eq=False)
class Elementwise(Node):
    """An elementwise operation: the expression of one element over the result's dimensions."""

    scalar: Scalar


@dataclass(eq=False)
class LayoutNode(Node):
    """A layout operation."""

    layout: Layout


@dataclass(eq=False)
class Opaque(Node):
    """Anything else; `kind` says what it looks like (`reduction`, `pooling`, ...)."""

    kind: str


@dataclass(eq=False)
class Contradiction(Node):
    """A quantize or dequantize whose parts contradict each other; it is left alone.

    Attributes:
        reason: what contradicts what.
    """

    reason: str


AnyNode: TypeAlias = Any
