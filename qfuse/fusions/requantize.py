"""Float operations between integer accumulators and the next quantize, and that quantize.

    %f = float(%acc) * s ; + bias ; relu ; quantize      ->      one operation from i32 to the storage type

Real scales let the scale of the output be divided in beforehand:  round(max(s * acc + b, 0) / t) + z  equals
max(round((s / t) * acc + b / t), 0) + z  because rounding is monotone and 0 is on the grid.
"""

from __future__ import annotations

from typing import Any

from qfuse._mlir import Value
from qfuse.emit.expression import stored_tensors
from qfuse.emit.fixed_epilogue import PlannedFixedRequantize, PlannedFixedRescale
from qfuse.emit.spec import PlannedRequantize, PlannedRescale
from qfuse.fusions.base import Fusion
from qfuse.fusions.behind import ended, refuse_poolings
from qfuse.fusions.distance import float_distance
from qfuse.fusions.epilogue import trace
from qfuse.fusions.fixed_point import plan_requantize, plan_rescale
from qfuse.fusions.requires import of_poolings, of_requantize, of_rescaled
from qfuse.graph import (
    AccumForm,
    Decision,
    Environment,
    Made,
    QValue,
    Refusal,
    StoredForm,
)
from qfuse.indexing import is_identity
from qfuse.matchers.nodes import Node, Quantize
from qfuse.qparams import QuantParams


class FuseRequantize(Fusion):
    """A quantize behind integer accumulators becomes their epilogue: from i32 straight to the storage type."""

    id = "qfuse.requantize"
    nodes = (Quantize,)
    exactness = ("within-n-lsb",)
    doc = "accumulators, bias, activation and quantize become one integer-in, integer-out operation"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses parameters that vary where the layout in between cannot be followed."""
        assert isinstance(node, Quantize)
        params = node.params
        found = trace(node.input, params.extents, env)
        if found is None:
            return None
        form = found.form
        if node.zero_point_first:
            return Refusal("the zero point is added before rounding, which a requantize does not do")
        if params.zero_point.scalar is None and any(move.kind == "pad" for move in form.moves):
            return Refusal("the zero point that stands for the padding is not one constant")
        if form.moves and (params.scale.index or params.zero_point.index):
            if form.to_value is None:
                return Refusal("the output's parameters vary and the layout before the quantize cannot be inverted")
            own = env.bindings.extents(form.decision.node.result.type)
            params = params.over(form.to_value, own)
        refusal = refuse_poolings(node, form, env)
        if refusal is not None:
            return refusal
        if env.options.epilogue != "float":
            return self._fixed(node, form, params, env)
        distance = float_distance(form, params, env)
        steps = 1 if distance.steps is None or distance.steps < 0.5 else int(distance.steps) + 1
        decision = Decision(
            self, node, f"within-{steps}-lsb",
            float_inputs=(*found.float_inputs, *_step_values(form)),
            needs=(form.decision, *_step_integers(form), *ended(form, node)),
            payload=PlannedRequantize(form, params, distance.folds),
        )  # fmt: skip
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params), "tie_distance": distance.steps}
        decision.requires = (of_requantize(form, node.params, env), *of_poolings(form, node.params))
        return decision

    def _fixed(self, node: Quantize, form: AccumForm, params: QuantParams, env: Environment) -> Decision | Refusal:
        plan = plan_requantize(form, params, env)
        if isinstance(plan, Refusal):
            return plan
        payload = PlannedFixedRequantize(form, params, plan.scale, plan.is_mean)
        added = tuple(a.q for a in plan.scale.addends)
        needs = (form.decision, *added, *ended(form, node))
        decision = Decision(self, node, plan.exactness, needs=needs, payload=payload)
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params), **plan.detail}
        decision.requires = (of_requantize(form, node.params, env), *of_poolings(form, node.params))
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The epilogue and the layout operations behind it, by the target's emitter."""
        return requantized(decision.payload, decision.node, context)


def requantized(planned: PlannedRequantize | PlannedFixedRequantize, node: Node, context: Any) -> Value:
    """Accumulators as stored integers, by the target's emitter."""
    if isinstance(planned, PlannedFixedRequantize):
        return context.emitter.requantize_fixed(planned, node, context)
    return context.emitter.requantize(planned, node, context)


def _step_values(form: AccumForm) -> tuple[Value, ...]:
    """Float tensors that the steps read."""
    operands = [s.operand for s in form.steps if s.operand is not None and s.operand.scalar is None]
    return tuple(o.value for o in operands if o.value is not None)


def _step_integers(form: AccumForm) -> tuple[QValue, ...]:
    """Integer tensors that the steps read."""
    scalars = [s.operand.scalar for s in form.steps if s.operand is not None and s.operand.scalar is not None]
    return stored_tensors(*scalars)


class FuseRescale(Fusion):
    """dequantize -> layout -> quantize with other parameters becomes one operation from integers to integers.

    The float arithmetic between them is repeated as it is written, inside that operation.
    """

    id = "qfuse.rescale"
    nodes = (Quantize,)
    exactness = ("bit-exact", "within-n-lsb")
    doc = "dequantize then quantize with other parameters becomes one integer-in, integer-out operation"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses what is not spelled as one subtraction, product, division and rounding."""
        assert isinstance(node, Quantize)
        if node.input.op != "elem" or not node.op.name.startswith(("linalg.", "tosa.")):
            return None
        value, index = node.input.payload
        form = env.form(value)
        extents = node.params.extents
        if not isinstance(form, StoredForm) or not is_identity(index, extents):
            return None
        if node.zero_point_first:
            return Refusal("the zero point is added before rounding, which a rescale does not do")
        if env.options.epilogue != "float":
            return self._fixed(node, form, env)
        if node.reciprocal:
            return Refusal("the quantize multiplies by the reciprocal scale, a rescale divides")
        exact = form.params.expressed in ("f32", "f64") and form.params.expressed == node.params.expressed
        decision = Decision(
            self,
            node,
            "bit-exact" if exact else "within-1-lsb",
            needs=(form.q,),
            detail={"input": str(form.params), "result": str(node.params)},
            payload=PlannedRescale(form, node.params),
        )
        decision.replacement = Made(decision)
        decision.requires = (of_rescaled("rescale", [form], node, env),)
        return decision

    def _fixed(self, node: Quantize, form: StoredForm, env: Environment) -> Decision | Refusal:
        plan = plan_rescale(form, node.params, env)
        if isinstance(plan, Refusal):
            return plan
        payload = PlannedFixedRescale(form, node.params, plan.scale)
        decision = Decision(self, node, plan.exactness, needs=(form.q,), payload=payload)
        decision.replacement = Made(decision)
        decision.detail = {"input": str(form.params), "result": str(node.params), **plan.detail}
        decision.requires = (of_rescaled("rescale", [form], node, env),)
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """One elementwise operation, by the target's emitter."""
        if isinstance(decision.payload, PlannedFixedRescale):
            return context.emitter.rescale_fixed(decision.payload, decision.node, context)  # type: ignore[attr-defined]
        return context.emitter.rescale(decision.payload, decision.node, context)  # type: ignore[attr-defined]
