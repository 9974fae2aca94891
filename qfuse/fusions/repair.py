"""Unsigned storage in TOSA, where what stays of a quantize or dequantize is written as it was meant.

TOSA saturates a cast to i8 at 127 and reads i8 with its sign. Where clamp and zero point say that the storage is
unsigned (`qfuse.matchers.unsigned`), the quantize is written 128 less, as signed integers, and so is what reads them:

    %c = tosa.clamp %x [0, 255]              %s = tosa.sub (clamp %x [0, 255]), 128.0
    %q = tosa.cast %c : f32 to i8     ->     %q = tosa.cast %s : f32 to i8        (and 128 more where bits are read)

    %i = tosa.cast %q : i8 to i32            %i = tosa.cast %q : i8 to i32
    %d = tosa.sub %i, z               ->     %d = tosa.sub %i, z - 128

The results are those of the model and not those of the unfused module, which are wrong from 128 on.
"""

from __future__ import annotations

from typing import Any

from qfuse._mlir import Value
from qfuse.fusions.base import Fusion
from qfuse.fusions.dequantize import ReadDequantize
from qfuse.graph import Decision, Environment, Existing, Made, Refusal, StoredForm
from qfuse.matchers.nodes import Contraction, Dequantize, Node, Quantize
from qfuse.matchers.tosa_layout import KINDS


class RepairQuantize(Fusion):
    """A quantize to unsigned storage that stays in float."""

    id = "qfuse.repair-quantize"
    repairs = True
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
        if env.bindings.element_name(op.operands[0].type) != "f32":
            return None
        source = _before_the_clamp(op.operands[0])
        if source is None:
            return Refusal("the clamp of unsigned storage must be one operation before the cast")
        decision = Decision(self, node, "bit-exact", float_inputs=(source,), payload=source)
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params)}
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """By the target's emitter."""
        assert isinstance(decision.node, Quantize)
        return context.emitter.repaired_quantize(decision.payload, decision.node.params)


def _before_the_clamp(value: Value) -> Value | None:
    """What is clamped before a cast; truncating it in between changes nothing, because it is whole."""
    op = getattr(value.owner, "operation", None)
    if op is not None and op.name == "tosa.select":
        steps = [getattr(v.owner, "operation", None) for v in list(op.operands)[1:]]
        if {None if s is None else s.name for s in steps} != {"tosa.ceil", "tosa.floor"}:
            return None
        first, second = (s.operands[0] for s in steps if s is not None)
        op = getattr(first.owner, "operation", None) if first == second else None
    return op.operands[0] if op is not None and op.name == "tosa.clamp" else None


class RepairDequantize(ReadDequantize):
    """A dequantize of unsigned storage: its form, and its float value for those who read that."""

    id = "qfuse.repair-dequantize"
    repairs = True
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


class RepairContraction(Fusion):
    """An integer contraction of unsigned bytes, read as signed ones less a zero point that wraps around."""

    id = "qfuse.repair-contraction"
    repairs = True
    nodes = (Contraction,)
    benefit = 1001
    exactness = ("bit-exact",)
    doc = "an integer contraction that reads uint8 as signed is written as it was meant"

    def match(self, node: Node) -> bool:
        """Contractions of integers."""
        return isinstance(node, Contraction) and node.integer

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies where an operand was quantized to unsigned bytes and its zero point is constant."""
        assert isinstance(node, Contraction)
        op = node.op
        if not env.vocabulary.repairs or not op.name.startswith("tosa."):
            return None
        zeros = list(op.operands)[-2:]
        repaired: list[tuple[int, int]] = []
        for side, value in enumerate((node.lhs, node.rhs)):
            if not _is_unsigned(value, env) or env.bindings.element_name(value.type) != "i8":
                continue
            number = env.reader.constants.scalar(zeros[side])
            if number is None:
                return Refusal("the zero point of unsigned bytes in an integer contraction must be constant")
            repaired.append((side, (int(number[0]) & 255) - 128))
        if not repaired:
            return None
        needs = tuple(Existing(op.operands[side]) for side, _ in repaired)
        decision = Decision(self, node, "bit-exact", needs=needs, payload=repaired)
        decision.detail = {"repaired": True}
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """By the target's emitter."""
        tensors = [context.q(q) for q in decision.needs]
        return context.emitter.repaired_contraction(decision.node.op, decision.payload, tensors)


def _is_unsigned(value: Value, env: Environment) -> bool:
    """Whether a quantize to unsigned bytes is behind a tensor and what moves it."""
    op = getattr(value.owner, "operation", None)
    while op is not None and value not in env.quantizes and op.name in KINDS:
        value = op.operands[0]
        op = getattr(value.owner, "operation", None)
    found = env.quantizes.get(value)
    return found is not None and found.repaired
