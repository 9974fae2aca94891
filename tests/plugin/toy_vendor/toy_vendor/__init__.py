"""A toy vendor: one fusion into a kernel of its own, one target with restrictions, one emitter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qfuse import Decision, Fusion, Refusal, Target
from qfuse.emit.linalg import LinalgEmitter
from qfuse.graph import AccumForm, Environment, Made
from qfuse.matchers.nodes import Node, Quantize


class FuseQMatmul(Fusion):
    """A quantized contraction and the requantize behind it become one call of the vendor's kernel.

        %acc = contract %qa, %qb        ->    %r = "toy.qmatmul"(%qa, %qb) {multiplier, lhs_zero_point, ...}
        %r = requantize %acc

    Refuses anything between the two, and parameters that are not one constant a tensor.
    """

    id = "toy.qmatmul"
    benefit = 10
    nodes = (Quantize,)
    exactness = ("within-n-lsb",)
    doc = "quantized matmul and requantize -> the toy NPU's kernel"

    def match(self, node: Node) -> bool:
        """Quantize nodes: the rewrite is rooted at the tail."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies to a quantize of bare accumulators whose scales and zero points are single constants."""
        assert isinstance(node, Quantize)
        if node.input.op != "elem":
            return None
        form = env.form(node.input.payload[0])
        if not isinstance(form, AccumForm):
            return None
        if form.steps or form.moves:
            return Refusal("the toy kernel takes no epilogue, found one", "quantize the contraction's own result")
        planned = form.decision.payload
        sides = (planned.lhs.params, planned.rhs.params, node.params)
        if any(p.scale.scalar is None or p.zero_point.scalar is None for p in sides):
            return Refusal("the toy kernel takes one scale and zero point a tensor")
        lhs, rhs, out = sides
        multiplier = lhs.scale.scalar * rhs.scale.scalar / out.scale.scalar
        decision = Decision(self, node, "within-1-lsb", needs=(form.decision,), payload=(planned, multiplier))
        decision.replacement = Made(decision)
        decision.detail = {"kernel": "qmatmul", "multiplier": multiplier}
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """The kernel on the stored integers."""
        planned, multiplier = decision.payload
        builder = context.builder
        attributes = {
            "multiplier": builder.attribute(f"{multiplier:e} : f64"),
            "lhs_zero_point": builder.attribute(f"{int(planned.lhs.params.zero_point.scalar)} : i32"),
            "rhs_zero_point": builder.attribute(f"{int(planned.rhs.params.zero_point.scalar)} : i32"),
        }
        operands = [context.q(planned.lhs.form.q), context.q(planned.rhs.form.q)]
        return builder.create("toy.qmatmul", [decision.node.result.type], operands, attributes).results[0]


class ToyEmitter(LinalgEmitter):
    """linalg, but multiply-accumulates are one operation of the vendor's dialect."""

    def multiply_add(self, planned: Any, lhs: Any, rhs: Any, init: Any) -> Any:
        """`"toy.mac"(lhs, rhs, init)`."""
        operands: Sequence[Any] = [lhs, rhs, init]
        return self.builder.create("toy.mac", [init.type], operands).results[0]


def fusions() -> list[Fusion]:
    """What the entry point qfuse.fusions names."""
    return [FuseQMatmul()]


def targets() -> list[Target]:
    """What the entry point qfuse.targets names."""
    return [
        Target(
            "toy-npu",
            "a toy NPU: s8 only, no zero point on weights, i32 accumulators",
            storage=frozenset({"s8"}),
            asymmetric=frozenset({"lhs"}),
            accumulators=(32,),
            split_reduction=False,
        )
    ]
