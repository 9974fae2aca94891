"""A concat of tensors with different parameters is rescaled branch by branch.

    %c = concat (dequantize %qa), (dequantize %qb)          %ra = rescale %qa, %rb = rescale %qb
    %q = quantize %c                                   ->   %q  = concat %ra, %rb

A branch may also be an elementwise expression of dequantized values. With the float epilogue each branch repeats the
arithmetic as it is written, else it is rescaled in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qfuse._mlir import Value
from qfuse.emit.elementwise import PlannedElementwise
from qfuse.emit.expression import nodes, rebuilt, stored_tensors
from qfuse.fusions.base import Fusion
from qfuse.fusions.elementwise import meant, spelled
from qfuse.fusions.expression import Traced, trace_back
from qfuse.fusions.fixed_elementwise import plan_fixed
from qfuse.fusions.requires import of_rescaled
from qfuse.graph import Decision, Environment, Made, Refusal
from qfuse.indexing import dims_of_index, identity, is_identity
from qfuse.matchers.layout import Layout, match_layout
from qfuse.matchers.nodes import Node, Quantize
from qfuse.matchers.scalar import Scalar


@dataclass(frozen=True, eq=False)
class PlannedConcat:
    """Branches, each an expression of stored integers, and the concat of their results.

    Attributes:
        branches: in order.
        layout: the concat to repeat.
        element: printed type of the stored results.
    """

    branches: tuple[PlannedElementwise, ...]
    layout: Layout
    element: str


class FuseConcat(Fusion):
    """A quantize of a concat whose branches have parameters of their own."""

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
        layout = _concat(node, env)
        if layout is None:
            return None
        traced = _branches(node, layout, env)
        if all(t is None for t in traced):
            return None
        found = [t for t in traced if t is not None]
        env.elementwise[node.result] = tuple(v for t in found for v in t.through)
        if len(found) != len(traced):
            return Refusal("a branch of the concat is not dequantized", "quantize all branches")
        params = node.params
        if layout.axis in dims_of_index(params.scale.index) | dims_of_index(params.zero_point.index):
            return Refusal("the parameters of the result vary along the concatenated dimension")
        if any(t.unreadable is not None for t in found):
            return Refusal("a branch of the concat is read at an index that is not a list of dimensions")
        return self._planned(node, layout, found, env)

    def _planned(self, node: Quantize, layout: Layout, found: list[Traced], env: Environment) -> Decision | Refusal:
        scalars, steps, distance = [t.scalar for t in found], 0, None
        extents = [env.bindings.extents(s.type) for s in layout.sources]
        if env.options.epilogue != "float":
            plans = [
                plan_fixed(t.source, node, node.params.over(identity(len(e)), e), e, env)
                for t, e in zip(found, extents, strict=True)
            ]
            refused = [p for p in plans if isinstance(p, Refusal)]
            if refused:
                return refused[0]
            fixed = [p for p in plans if not isinstance(p, Refusal)]
            scalars = [p.scalar for p in fixed]
            steps, distance = max(p.steps for p in fixed), max(p.distance for p in fixed)
        elif not all(t.exact for t in found):
            steps = 1
        branches = tuple(PlannedElementwise(node, s, e) for s, e in zip(scalars, extents, strict=True))
        decision = Decision(
            self, node, "bit-exact" if not steps else f"within-{steps}-lsb",
            needs=stored_tensors(*scalars), float_inputs=tuple(v for t in found for v in t.floats),
            payload=PlannedConcat(branches, layout, node.params.storage.mlir),
            detail={
                "input": " and ".join(dict.fromkeys(str(f.params) for t in found for f in t.forms)),
                "result": str(node.params),
                "tie_distance": distance,
            },
            requires=(of_rescaled("concat", [f for t in found for f in t.forms], node, env),),
        )  # fmt: skip
        decision.replacement = Made(decision)
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """The branches and their concat, by the target's emitter."""
        planned: PlannedConcat = decision.payload
        emitter = context.emitter
        values: list[Value] = [emitter.elementwise(branch, context) for branch in planned.branches]
        return emitter.move(planned.layout, values, planned.element, None)


def _concat(node: Quantize, env: Environment) -> Layout | None:
    """The concat that is quantized, when it is not on integers already."""
    value, index = node.input.payload
    owner = getattr(value.owner, "operation", None)
    if owner is None or env.form(value) is not None or not is_identity(index, node.params.extents):
        return None
    layout = match_layout(env.bindings, owner)
    return layout if layout is not None and layout.kind == "concat" else None


def _branches(node: Quantize, layout: Layout, env: Environment) -> list[Traced | None]:
    """The quantize applied to each branch, back to stored integers."""
    scalar = spelled(node, env)
    if not any(n.op == "elem" and n.payload == node.input.payload for n in nodes(scalar)):
        scalar = meant(node)  # spelled as several operations
    return [_branch(node, scalar, source, env) for source in layout.sources]


def _branch(node: Quantize, scalar: Scalar, source: Value, env: Environment) -> Traced | None:
    extents = env.bindings.extents(source.type)
    wanted = node.input.payload
    leaf = Scalar("elem", node.input.type, payload=(source, identity(len(extents))))
    # Every other leaf is a parameter; these do not vary along the concatenated dimension.
    moved = rebuilt(scalar, lambda s: leaf if s.op == "elem" and s.payload == wanted else s)
    return trace_back(moved, extents, env, leaf) if any(n is leaf for n in nodes(moved)) else None
