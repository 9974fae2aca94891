"""A quantized layer with everything decided, and how it is built around a kernel's call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.call import KernelCall
from qfuse.fusions.fixed_point import FixedPlan
from qfuse.fusions.roles import Arrangement, arranged, restored
from qfuse.graph import AccumForm, QValue


@dataclass(eq=False)
class Layer:
    """A layer with everything decided.

    Attributes:
        form: the accumulators.
        plan: its requantize.
        lhs: stored integers of the first operand.
        rhs: of the second.
        ways: how lhs, rhs and result are arranged.
        fills: of operands that are padded: before and behind each letter, and with what.
        values: what the kernel is given besides lhs and rhs, and constant operands in their layout.
        element: printed element type of the result.
        result: printed type of the arranged result.
        sizes: for each dynamic letter of the result the operand and position that has it.
    """

    form: AccumForm
    plan: FixedPlan
    lhs: QValue
    rhs: QValue
    ways: Mapping[str, Arrangement]
    fills: Mapping[str, tuple[tuple[int, ...], str]]
    values: Mapping[str, Any]
    element: str
    result: str
    sizes: Mapping[str, tuple[str, int]]

    def emit(self, call: KernelCall, context: BuildContext) -> Value:
        """The call and what is around it, but for layout operations behind it."""
        values = dict(self.values)
        for name, q in (("lhs", self.lhs), ("rhs", self.rhs)):
            if name in values:
                continue
            value = arranged(context.q(q), self.ways[name], context)
            if name in self.fills:
                high, fill = self.fills[name]
                value = context.builder.pad(value, [0] * len(high), high, fill)
            values[name] = value
        for letter, (name, position) in self.sizes.items():
            values[f"size {letter}"] = context.builder.dim(values[name], position)
        return restored(call.emit(context, values, self.result), self.ways["result"], context)
