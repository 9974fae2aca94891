"""Unsigned storage in TOSA, where what stays of a quantize or dequantize is written as it was meant.

TOSA saturates a cast to i8 at 127 and reads i8 with its sign. Where clamp and zero point say that the storage is
unsigned (`qfuse.matchers.unsigned`), the quantize is written 128 less, as signed integers, and so is what reads them:

    %c = tosa.clamp %x [0, 255]              %s = tosa.sub %c, 128.0
    %q = tosa.cast %c : f32 to i8     ->     %q = tosa.cast %s : f32 to i8            (and 128 more where bits are read)

    %i = tosa.cast %q : i8 to i32            %i = tosa.cast %q : i8 to i32
    %d = tosa.sub %i, z               ->     %d = tosa.sub %i, z - 128

The results are those of the model and not those of the unfused module, which are wrong from 128 on.
"""

from __future__ import annotations

from typing import Any

from qfuse.fusions.base import Fusion
from qfuse.fusions.dequantize import ReadDequantize
from qfuse.graph import Decision, Environment, Existing, Made, Refusal, StoredForm
from qfuse.matchers.nodes import Dequantize, Node, Quantize


class RepairQuantize(Fusion):
    """A quantize to unsigned storage that stays in float."""

    id = "qfuse.repair-quantize"
    nodes = (Quantize,)
    benefit = -10
    exactness = ("bit-exact",)
    doc = "a quantize to uint8 that TOSA saturates at 127 is written as it was meant"

    def match(self, node: Node) -> bool:
        """Quantizes of unsigned storage that the IR saturates as signed."""
        return isinstance(node, Quantize) and node.repaired

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies where the IR's last operation is a cast of clamped floats."""
        assert isinstance(node, Quantize)
        op = node.op
        if not env.vocabulary.repairs or op.name != "tosa.cast" or node.params.storage.bits != 8:
            return None
        source = op.operands[0]
        if not env.bindings.element_name(source.type).startswith(("f", "bf")):
            return None
        decision = Decision(self, node, "bit-exact", float_inputs=(source,), payload=source)
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params), "repaired": True}
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """By the target's emitter."""
        return context.emitter.repaired_quantize(decision.payload, context)


class RepairDequantize(ReadDequantize):
    """A dequantize of unsigned storage: its form, and its float value for those who read that."""

    id = "qfuse.repair-dequantize"
    nodes = (Dequantize,)
    benefit = 1001
    listed = True
    exactness = ("bit-exact",)
    doc = "a dequantize of uint8 that TOSA reads as signed is written as it was meant"

    def match(self, node: Node) -> bool:
        """Dequantizes of unsigned storage that the IR reads as signed."""
        return isinstance(node, Dequantize) and node.repaired

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """As of any dequantize."""
        assert isinstance(node, Dequantize)
        decision = super().check(node, env)
        if not isinstance(decision, Decision) or not env.vocabulary.repairs:
            return decision
        assert isinstance(decision.form, StoredForm)
        if node.params.expressed == "f32" and isinstance(decision.form.q, Existing):
            decision.replacement = Made(decision)
            decision.needs = (decision.form.q,)
        decision.detail = {"input": str(node.params), "repaired": True}
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """By the target's emitter."""
        return context.emitter.repaired_dequantize(decision.form, context)
