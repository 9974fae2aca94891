"""What emitters are given: a contraction with everything decided, and a requantize."""

from __future__ import annotations

from dataclasses import dataclass

from qfuse.graph import AccumForm, Array, StoredForm
from qfuse.indexing import Extents, Index
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Contraction, Reduction
from qfuse.qparams import QuantParams, StorageType

#: Below this the conversion of an i32 accumulator to f32 is exact.
EXACT_IN_FLOAT = 1 << 24


@dataclass(eq=False)
class Side:
    """One operand of a planned contraction.

    Attributes:
        form: where its integers come from.
        index: of the stored integers, over the loops.
        params: over the loops.
        storage: its integer type.
        array: constant stored integers, read when needed, or None.
    """

    form: StoredForm
    index: Index
    params: QuantParams
    storage: StorageType
    array: Array | None

    @property
    def extremes(self) -> tuple[int, int]:
        """Least and greatest `q - zero_point`."""
        low, high = self.form.low, self.form.high
        zero = self.params.zero_point
        if zero.data is None:
            return low - high, high - low
        return (low, high) if zero.span is None else (low - int(zero.span[1]), high - int(zero.span[0]))


@dataclass(eq=False)
class PlannedContraction:
    """Everything that building needs.

    Attributes:
        node: the contraction.
        lhs: first operand.
        rhs: second operand.
        extents: of the loops; with blocks the reduction loop is within a block and a loop over blocks is appended.
        reduction: loops that are summed over in integers.
        blocked: `(loop, block size)` of the split reduction loop, or None. The appended loop is the last.
        out_loops: loops of the accumulators' dimensions, in order (with blocks the last is the block loop).
        unit: whether the second operand is all ones (a sum): only its shape is read.
        bits: accumulator width.
        bound: greatest absolute value of the corrected sum.
        raw_bound: the same before the zero point corrections.
    """

    node: Contraction | Reduction
    lhs: Side
    rhs: Side
    extents: Extents
    reduction: tuple[int, ...]
    blocked: tuple[int, int] | None
    out_loops: tuple[int, ...]
    bits: int
    bound: int
    raw_bound: int
    unit: bool = False


@dataclass(eq=False)
class PlannedPooling:
    """A maximum or minimum over windows or dimensions of stored integers.

    Attributes:
        node: the reduction.
        form: the integers; pads of infinities are read through.
        storage: their type.
        pad: the layout operation that pads with an infinity, or None.
    """

    node: Reduction
    form: StoredForm
    storage: StorageType
    pad: Layout | None


@dataclass(eq=False)
class PlannedRequantize:
    """Accumulators, float steps on them, and the quantize that ends them.

    Attributes:
        form: the accumulators with their steps and layout operations.
        params: of the output, over the accumulators' dimensions.
        folds: whether constant zero-point corrections join the bias, where they are small enough.
    """

    form: AccumForm
    params: QuantParams
    folds: bool = True


@dataclass(eq=False)
class PlannedRescale:
    """Stored integers and the quantize that gives them other parameters.

    Attributes:
        form: the integers and their parameters.
        params: of the output.
    """

    form: StoredForm
    params: QuantParams
