"""A concat of tensors with different parameters is rescaled branch by branch.

    %c = concat (dequantize %qa), (dequantize %qb)          %ra = rescale %qa, %rb = rescale %qb
    %q = quantize %c                                   ->   %q  = concat %ra, %rb

A branch may also be an elementwise expression of dequantized values, or integer accumulators (the groups of a
convolution that was taken apart). With the float epilogue each branch repeats the arithmetic as it is written, else it
is rescaled in integers. Operations between the concat and the quantize are done on each branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qfuse._mlir import Value
from qfuse.emit.elementwise import PlannedElementwise
from qfuse.emit.expression import stored_tensors
from qfuse.emit.fixed_epilogue import PlannedFixedRequantize
from qfuse.emit.spec import PlannedRequantize
from qfuse.fusions.base import Fusion
from qfuse.fusions.branches import Branch, Joined, branches, joined
from qfuse.fusions.elementwise import ended, of_ended
from qfuse.fusions.expression import trace_back
from qfuse.fusions.fixed_elementwise import plan_fixed
from qfuse.fusions.requantize import FuseRequantize, requantized
from qfuse.fusions.requires import of_rescaled
from qfuse.graph import Decision, Environment, Made, QValue, Refusal, StoredForm
from qfuse.indexing import dims_of_index
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Node, Quantize
from qfuse.requirements import Requirements


@dataclass(frozen=True, eq=False)
class PlannedConcat:
    """Branches and the concat of their results.

    Attributes:
        branches: in order; each an expression of stored integers, or accumulators that are quantized.
        layout: the concat to repeat.
        moves: layout operations that follow on the integers, in order.
        element: printed type of the stored results.
    """

    branches: tuple[PlannedElementwise | PlannedRequantize | PlannedFixedRequantize, ...]
    layout: Layout
    moves: tuple[Layout, ...]
    element: str


@dataclass(frozen=True, eq=False)
class _Part:
    """One planned branch: what to build, and its share of the decision."""

    payload: PlannedElementwise | PlannedRequantize | PlannedFixedRequantize
    exactness: str
    distance: float | None
    needs: tuple[QValue | Decision, ...]
    floats: tuple[Value, ...] = ()
    through: tuple[Value, ...] = ()
    forms: tuple[StoredForm, ...] = ()
    requires: tuple[Requirements, ...] = ()


class FuseConcat(Fusion):
    """A quantize of a concat whose branches have parameters of their own, or are accumulators."""

    id = "qfuse.concat"
    nodes = (Quantize,)
    benefit = 0
    counted = True
    exactness = ("bit-exact", "within-n-lsb")
    doc = "concat of tensors with different parameters: each branch is rescaled, then integers are concatenated"

    def match(self, node: Node) -> bool:
        """Quantize nodes of a tensor."""
        return isinstance(node, Quantize) and node.input.op == "elem"

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses branches that are not dequantized and parameters of the result that vary along the concat."""
        assert isinstance(node, Quantize)
        whole = joined(node, env)
        if whole is None:
            return None
        taken = branches(node, whole, env)
        if taken is None:
            return None
        planned = [_planned(branch, env) for branch in taken]
        found = [p for p in planned if p is not None]
        if not found:
            return None
        parts = [p for p in found if not isinstance(p, Refusal)]
        env.elementwise[node.result] = (*whole.through, *(v for p in parts for v in p.through))
        if len(found) != len(planned):
            return Refusal("a branch of the concat is not dequantized", "quantize all branches")
        if whole.layout.axis in dims_of_index(whole.params.scale.index) | dims_of_index(whole.params.zero_point.index):
            return Refusal("the parameters of the result vary along the concatenated dimension")
        refused = [p for p in found if isinstance(p, Refusal)]
        return refused[0] if refused else self._decided(node, whole, parts, env)

    def _decided(self, node: Quantize, whole: Joined, parts: list[_Part], env: Environment) -> Decision:
        forms = [f for p in parts for f in p.forms]
        inputs = dict.fromkeys(str(f.params) for f in forms)
        distances = [p.distance for p in parts if p.distance is not None]
        decision = Decision(
            self, node, max((p.exactness for p in parts), key=_steps),
            needs=tuple(dict.fromkeys(n for p in parts for n in p.needs)),
            float_inputs=tuple(v for p in parts for v in p.floats),
            payload=PlannedConcat(
                tuple(p.payload for p in parts), whole.layout, whole.moves, node.params.storage.mlir
            ),
            detail={
                **({"input": " and ".join(inputs)} if inputs else {}),
                "result": str(node.params),
                "tie_distance": max(distances) if distances else None,
            },
            requires=(of_rescaled("concat", forms, node, env), *(r for p in parts for r in p.requires)),
        )  # fmt: skip
        decision.replacement = Made(decision)
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """The branches and their concat, by the target's emitter."""
        planned: PlannedConcat = decision.payload
        emitter = context.emitter
        made = [
            emitter.elementwise(b, context)
            if isinstance(b, PlannedElementwise)
            else requantized(b, decision.node, context)
            for b in planned.branches
        ]
        value = emitter.move(planned.layout, made, planned.element, None)
        for layout in planned.moves:
            value = emitter.move(layout, [value], planned.element, None)
        return value


def _steps(exactness: str) -> int:
    return int(exactness.split("-")[1]) if exactness.startswith("within-") else 0


def _planned(branch: Branch, env: Environment) -> _Part | Refusal | None:
    """How a branch becomes stored integers; None where it is not made of integers."""
    found = FuseRequantize().check(branch.node, env)
    if isinstance(found, Decision):
        distance = found.detail["tie_distance"]
        return _Part(found.payload, found.exactness, distance, found.needs, found.float_inputs, requires=found.requires)
    expression = _expression(branch, env)
    return expression if isinstance(expression, _Part) or found is None else found


def _expression(branch: Branch, env: Environment) -> _Part | Refusal | None:
    """The same of an elementwise expression."""
    node, extents = branch.node, branch.node.params.extents
    integers = env.options.epilogue != "float"
    traced = trace_back(branch.stored, extents, env, node.input, integers)
    if traced is None:
        return None
    if traced.unreadable is not None:
        return Refusal("a branch of the concat is read at an index that is not a list of dimensions")
    scalar, exactness, distance = traced.scalar, "bit-exact" if traced.exact else "within-1-lsb", None
    if integers:
        plan = plan_fixed(traced.source, node, node.params, extents, env)
        if isinstance(plan, Refusal):
            return plan
        scalar, exactness, distance = plan.scalar, plan.exactness, plan.distance
    tensors = stored_tensors(scalar)
    own = of_rescaled("concat", traced.forms, node, env)
    requires = tuple(of_ended(ended(tensors, node, exactness), node, own, own.clamp))
    payload = PlannedElementwise(node, scalar, extents)
    return _Part(payload, exactness, distance, tensors, traced.floats, traced.through, traced.forms, requires)
