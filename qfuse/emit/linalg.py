"""Spells integer operations in linalg on tensors."""

from __future__ import annotations

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.elementwise import PlannedElementwise, PlannedLookup, elementwise, lookup
from qfuse.emit.fixed_epilogue import FixedEpilogues
from qfuse.emit.float_epilogue import FloatEpilogues
from qfuse.emit.reduction import pool, pooled, position
from qfuse.emit.spec import PlannedPooling
from qfuse.emit.vocabulary import Vocabulary
from qfuse.graph import Array, Pooling
from qfuse.qparams import QuantParams


class LinalgEmitter(FloatEpilogues, FixedEpilogues, Vocabulary):
    """linalg generics, or named operations where they can say it. Override single methods to spell otherwise.

    `Contractions` has the methods that multiply and add, `FloatEpilogues` and `FixedEpilogues` those that end
    accumulators, `Moves` the layout operations, `Casts` the conversions of scalars.
    """

    def constant(self, array: Array) -> Value:
        """A constant tensor."""
        return self.builder.dense_constant(array)

    def pool(self, planned: PlannedPooling, context: BuildContext) -> Value:
        """The maximum or minimum of stored integers over windows or dimensions."""
        return pool(self.builder, planned, context)

    def pooled(self, move: Pooling, value: Value, params: QuantParams, neutral: int, context: BuildContext) -> Value:
        """The maximum or minimum of the elements of `value`, which stay stored integers of these parameters."""
        if move.pad is not None:
            value = self.move(move.pad, [value], params.storage.mlir, neutral)
        return pooled(self.builder, move.node, value, params.storage, neutral, context)

    def position(self, planned: PlannedPooling, context: BuildContext) -> Value:
        """The place of the first greatest or least of stored integers along a loop."""
        return position(self.builder, planned, context)

    def elementwise(self, planned: PlannedElementwise, context: BuildContext) -> Value:
        """An expression of stored integers up to its quantize, in one generic."""
        return elementwise(planned, context)

    def lookup(self, planned: PlannedLookup, context: BuildContext) -> Value:
        """A function of one stored integer, by a table."""
        return lookup(planned, context)
