"""Bilinear resizing of dequantized values: the weights are integers, all divided by one number.

r = (sum of four x w) / W     with  sum of w = W
x = s (q - z)       ->       r = s / W (sum of four q w  -  W z)

Sums of 16 bits that a machine makes in i48 are narrowed to i32, which loses nothing: the bound says so.
"""

from __future__ import annotations

from qfuse.emit.spec import PlannedContraction, Side
from qfuse.fusions.base import Fusion
from qfuse.fusions.contraction import choose_accumulator
from qfuse.fusions.reduction import ones_over, summed
from qfuse.graph import Decision, Environment, Refusal, Step, StepOperand, StoredForm
from qfuse.indexing import as_dim, dims_of_index
from qfuse.matchers.nodes import Node, Reduction


class FuseResize(Fusion):
    """`tosa.resize` by neighbours' weights; what takes the nearest element moves to the integers as it is."""

    id = "qfuse.resize"
    nodes = (Reduction,)
    exactness = ("reassociated",)
    doc = "bilinear resizing of a dequantized tensor -> integer sums by weights"

    def match(self, node: Node) -> bool:
        """Bilinear resizing."""
        return isinstance(node, Reduction) and node.kind == "bilinear"

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses parameters that vary along a resized dimension and sums that may overflow."""
        assert isinstance(node, Reduction)
        form = env.form(node.operand)
        if not isinstance(form, StoredForm):
            return None
        kept = {d for d in map(as_dim, node.index) if d is not None}
        if (dims_of_index(form.params.scale.index) | dims_of_index(form.params.zero_point.index)) - kept:
            return Refusal("the parameters vary along a resized dimension", "quantize along another dimension")
        loops = node.extents
        side = Side(form, form.index, form.params.over(node.index, loops), form.params.storage, None)
        ones = ones_over((), loops)
        assert ones is not None
        low, high = side.extremes
        bound = node.weight * max(abs(low), abs(high), 1)
        planned = PlannedContraction(node, side, ones, loops, (), None, tuple(range(len(loops))), 0, bound, bound, True)
        planned = choose_accumulator(planned, env)
        if isinstance(planned, Refusal):
            return planned
        if planned.bits > 32 and max(bound, node.weight * max(abs(form.low), abs(form.high))) < 1 << 31:
            planned.bits = 32  # wider ones are narrowed as they are made
        return summed(self, node, form, planned, (Step("div", StepOperand(number=float(node.weight))),), env)

    def build(self, decision: Decision, context: object) -> object:
        """The sums, by the target's emitter."""
        return context.emitter.accumulate(decision.payload, context)  # type: ignore[attr-defined]
