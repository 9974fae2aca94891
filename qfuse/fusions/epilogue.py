"""Float operations between integer accumulators and the next quantize, and that quantize.

    %f = float(%acc) * s ; + bias ; relu ; quantize      ->      one operation from i32 to the storage type

Real scales let the scale of the output be divided in beforehand:  round(max(s * acc + b, 0) / t) + z  equals
max(round((s / t) * acc + b / t), 0) + z  because rounding is monotone and 0 is on the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.expression import stored_tensors
from qfuse.emit.fixed_epilogue import PlannedFixedRequantize, PlannedFixedRescale
from qfuse.emit.spec import PlannedContraction, PlannedRequantize, PlannedRescale
from qfuse.fusions.base import Fusion
from qfuse.fusions.expression import trace_back
from qfuse.fusions.fixed_point import plan_requantize, plan_rescale
from qfuse.graph import (
    AccumForm,
    Decision,
    Environment,
    Folded,
    Made,
    QValue,
    Refusal,
    Step,
    StepOperand,
    StoredForm,
)
from qfuse.indexing import compose, is_identity
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Elementwise, Node, Quantize
from qfuse.matchers.scalar import Scalar, leaves, substitute_index
from qfuse.qparams import QuantParams

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "max", "min": "min"}


class ExtendEpilogue(Fusion):
    """Adds, multiplications, clamps and casts on accumulators join their epilogue."""

    id = "qfuse.epilogue"
    nodes = (Elementwise,)
    doc = "bias, scale, relu, relu6, hardtanh behind an integer contraction join its epilogue"
    listed = False

    def match(self, node: Node) -> bool:
        """Elementwise nodes."""
        return isinstance(node, Elementwise)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies when one operand is made of accumulators and the rest is numbers or float tensors."""
        assert isinstance(node, Elementwise)
        extents = env.bindings.extents(node.result.type)
        if not node.scalar.type.startswith(("f", "bf")):
            return None
        found = trace(node.scalar, extents, env)
        if found is None:
            return None
        own = found.form
        form = AccumForm(own.decision, own.steps, own.moves, own.to_value, extents, node.scalar.type)
        return Decision(self, node, "reassociated", form=form, float_inputs=found.float_inputs)

    def build(self, decision: Decision, context: object) -> object:
        """Never called: steps are built with the epilogue they join."""
        raise AssertionError("epilogue steps have nothing of their own to build")


class ExtendCast(Fusion):
    """A cast between float types on a dequantized value keeps its integer form."""

    id = "qfuse.float-cast"
    nodes = (Elementwise,)
    doc = "extf of a dequantized value keeps its integer form"
    listed = False

    def match(self, node: Node) -> bool:
        """Elementwise nodes that are one extension."""
        return isinstance(node, Elementwise) and node.scalar.op == "extf"

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies to stored forms; an extension is exact."""
        assert isinstance(node, Elementwise)
        leaf = node.scalar.args[0]
        if leaf.op != "elem":
            return None
        value, index = leaf.payload
        form = env.form(value)
        if not isinstance(form, StoredForm):
            return None
        extents = env.bindings.extents(node.result.type)
        params = replace(form.params.over(index, extents), expressed=node.scalar.type)
        moved = StoredForm(form.q, compose(form.index, index, extents), params, form.low, form.high)
        return Decision(self, node, "bit-exact", form=moved)

    def build(self, decision: Decision, context: object) -> object:
        """Never called."""
        raise AssertionError("casts have nothing to build")


@dataclass(eq=False)
class _Traced:
    form: AccumForm
    float_inputs: tuple[Value, ...]


def trace(scalar: Scalar, extents: tuple[int | None, ...], env: Environment) -> _Traced | None:
    """An expression as steps on one set of accumulators, or None."""
    if scalar.op in ("extf", "truncf"):
        return trace(scalar.args[0], extents, env)
    if scalar.op == "elem":
        value, index = scalar.payload
        form = env.form(value)
        if isinstance(form, AccumForm) and is_identity(index, extents):
            return _Traced(form, ())
        return None
    if any(move.kind == "pad" for leaf in leaves(scalar) for move in _moves_of(leaf, env)):
        return None  # what is computed on a padded value changes the padding too
    if scalar.op == "neg":
        inner = trace(scalar.args[0], extents, env)
        return None if inner is None else _extended(inner, Step("neg"), ())
    kind = _BINARY.get(scalar.op)
    if kind is None:
        return None
    for position in (0, 1):
        inner = trace(scalar.args[position], extents, env)
        if inner is None:
            continue
        other = _operand(scalar.args[1 - position], inner.form, extents, env)
        if other is None:
            continue
        if position == 1 and kind == "div":
            return None
        name = "rsub" if position == 1 and kind == "sub" else kind
        values = () if other.value is None or other.scalar is not None else (other.value,)
        return _extended(inner, Step(name, other), values)
    return None


def _moves_of(leaf: Scalar, env: Environment) -> tuple[Layout, ...]:
    form = env.form(leaf.payload[0])
    return form.moves if isinstance(form, AccumForm) else ()


def _extended(traced: _Traced, step: Step, values: tuple[Value, ...]) -> _Traced:
    own = traced.form
    form = AccumForm(own.decision, (*own.steps, step), own.moves, own.to_value, own.extents, own.element)
    return _Traced(form, (*traced.float_inputs, *values))


def _operand(scalar: Scalar, form: AccumForm, extents: tuple[int | None, ...], env: Environment) -> StepOperand | None:
    """A number or a float tensor, read over the accumulators' dimensions."""
    while scalar.op in ("extf", "truncf") and scalar.args[0].op in ("elem", "const", "extf", "truncf"):
        scalar = scalar.args[0]
    if scalar.op == "const":
        return StepOperand(number=float(scalar.payload))
    if scalar.op == "ssa" and scalar.type.startswith(("f", "bf")):
        return StepOperand(value=scalar.payload, element=scalar.type)
    if not scalar.type.startswith(("f", "bf")):
        return None
    if scalar.op == "elem" and not scalar.payload[1]:
        return StepOperand(value=scalar.payload[0], element=scalar.type)
    if form.to_value is None:
        return None
    own = env.bindings.extents(form.decision.node.result.type)
    scalar = substitute_index(scalar, form.to_value, own)
    stored = _of_integers(scalar, own, env)
    if scalar.op != "elem":
        return None if stored is None else StepOperand(element=scalar.type, scalar=stored)
    value, index = scalar.payload
    return StepOperand(value=value, index=index, element=scalar.type, scalar=stored)


def _of_integers(scalar: Scalar, extents: tuple[int | None, ...], env: Environment) -> Scalar | None:
    """The operand of a step as an expression of integers that are known at run time only, or None."""
    traced = trace_back(scalar, extents, env)
    if traced is None or traced.floats or traced.unreadable() is not None:
        return None
    if all(env.array(f.q, f.params.storage) is not None for f in traced.forms):
        return None
    return traced.scalar


class FuseRequantize(Fusion):
    """A quantize behind integer accumulators becomes their epilogue: from i32 straight to the storage type."""

    id = "qfuse.requantize"
    nodes = (Quantize,)
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
        if env.options.epilogue != "float":
            return self._fixed(node, form, params, env)
        distance = _tie_distance(form, params, env)
        steps = 1 if distance is None or distance < 0.5 else int(distance) + 1
        decision = Decision(
            self, node, f"within-{steps}-lsb",
            float_inputs=(*found.float_inputs, *_step_values(form)),
            needs=(form.decision, *_step_integers(form)),
            payload=PlannedRequantize(form, params),
        )  # fmt: skip
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params), "tie_distance": distance}
        return decision

    def _fixed(self, node: Quantize, form: AccumForm, params: QuantParams, env: Environment) -> Decision | Refusal:
        plan = plan_requantize(form, params, env)
        if isinstance(plan, Refusal):
            return plan
        payload = PlannedFixedRequantize(form, params, plan.scale)
        added = tuple(a.q for a in plan.scale.addends)
        decision = Decision(self, node, plan.exactness, needs=(form.decision, *added), payload=payload)
        decision.replacement = Made(decision)
        decision.detail = {"result": str(node.params), **plan.detail}
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The epilogue and the layout operations behind it, by the target's emitter."""
        if isinstance(decision.payload, PlannedFixedRequantize):
            return context.emitter.requantize_fixed(decision.payload, decision.node, context)  # type: ignore[attr-defined]
        return context.emitter.requantize(decision.payload, decision.node, context)  # type: ignore[attr-defined]


def _tie_distance(form: AccumForm, params: QuantParams, env: Environment) -> float | None:
    """How far the f32 arithmetic can be from the real value, in output steps; None when not known before run time.

    The accumulators are converted (one rounding), multiplied by a rounded factor (two), added to a rounded bias (two):
    each rounds by at most 2^-24 of the largest magnitude that occurs.
    """
    planned: PlannedContraction = form.decision.payload
    if form.element == "f64":
        return 0.0
    lhs, rhs, out = (p.scale.span for p in (planned.lhs.params, planned.rhs.params, params))
    if lhs is None or rhs is None or out is None:
        return None
    least = out[0]
    product = max(planned.bound, planned.raw_bound) / least * lhs[1] * rhs[1]
    bias, added = 0.0, 0
    for step in form.steps:
        if step.kind in ("max", "min", "neg"):
            continue
        constant = _constant_of(step, env)
        if constant is None:
            constant, added = _greatest(step, env), added + 1
        if step.kind not in ("add", "sub", "rsub") or constant is None:
            return None
        bias += constant / least
    blocks = 1 if planned.blocked is None else 1 + (planned.extents[-1] or 1)
    # Each addition that is not part of the bias rounds once more what is there.
    return float(f"{2.0**-24 * ((5 + added) * product * blocks + (3 + added) * bias):.3g}")


def _greatest(step: Step, env: Environment) -> float | None:
    """Greatest magnitude of a step's operand that is read as integers, or None."""
    form = None if step.operand is None or step.operand.value is None else env.form(step.operand.value)
    if step.operand is None or step.operand.scalar is None or not isinstance(form, StoredForm):
        return None
    scale, zero = form.params.scale.data, form.params.zero_point.data
    if scale is None or zero is None or not scale.size or not zero.size:
        return None
    farthest = max(abs(form.low - int(zero.max())), abs(form.high - int(zero.min())), abs(form.high), abs(form.low))
    return float(scale.max()) * farthest


def _constant_of(step: Step, env: Environment) -> float | None:
    """Greatest magnitude of a step's constant operand, or None."""
    operand = step.operand
    if operand is None:
        return None
    if operand.number is not None:
        return abs(operand.number)
    array = None if operand.value is None else env.reader.constants.read(operand.value)
    return None if array is None or not array.size else float(abs(array).max())


def _step_values(form: AccumForm) -> tuple[Value, ...]:
    """Float tensors that the steps read."""
    operands = [s.operand for s in form.steps if s.operand is not None and s.operand.scalar is None]
    return tuple(o.value for o in operands if o.value is not None)


def _step_integers(form: AccumForm) -> tuple[QValue, ...]:
    """Integer tensors that the steps read."""
    scalars = [s.operand.scalar for s in form.steps if s.operand is not None and s.operand.scalar is not None]
    return stored_tensors(*scalars)


class CancelRequantize(Fusion):
    """dequantize -> layout -> quantize with equal parameters is the layout of the integers."""

    id = "qfuse.cancel"
    nodes = (Quantize,)
    benefit = 2
    doc = "dequantize then quantize with equal parameters disappears"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies when the input is a dequantized value of the same parameters and no wider range."""
        assert isinstance(node, Quantize)
        if node.input.op != "elem":
            return None
        value, index = node.input.payload
        form = env.form(value)
        extents = node.params.extents
        if not isinstance(form, StoredForm) or not is_identity(index, extents):
            return None
        if not form.params.equals(node.params):
            return None
        if form.low < node.params.quant_min or form.high > node.params.quant_max:
            return None
        if not _round_trips(form, node.params):
            return None
        return Decision(
            self, node, "bit-exact", replacement=_at_identity(form, extents), needs=(form.q,),
            detail={"result": str(node.params)}, payload=form,
        )  # fmt: skip

    def build(self, decision: Decision, context: object) -> object:
        """The integers themselves, moved where a layout was in between."""
        return context.stored(decision.payload)  # type: ignore[attr-defined]


class FuseRescale(Fusion):
    """dequantize -> layout -> quantize with other parameters becomes one operation from integers to integers.

    The float arithmetic between them is repeated as it is written, inside that operation.
    """

    id = "qfuse.rescale"
    nodes = (Quantize,)
    doc = "dequantize then quantize with other parameters becomes one integer-in, integer-out operation"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses what is not spelled as one subtraction, product, division and rounding."""
        assert isinstance(node, Quantize)
        if node.input.op != "elem" or not node.op.name.startswith("linalg."):
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
        return decision

    def _fixed(self, node: Quantize, form: StoredForm, env: Environment) -> Decision | Refusal:
        plan = plan_rescale(form, node.params, env)
        if isinstance(plan, Refusal):
            return plan
        payload = PlannedFixedRescale(form, node.params, plan.scale)
        decision = Decision(self, node, plan.exactness, needs=(form.q,), payload=payload)
        decision.replacement = Made(decision)
        decision.detail = {"input": str(form.params), "result": str(node.params), **plan.detail}
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """One elementwise operation, by the target's emitter."""
        if isinstance(decision.payload, PlannedFixedRescale):
            return context.emitter.rescale_fixed(decision.payload, decision.node, context)  # type: ignore[attr-defined]
        return context.emitter.rescale(decision.payload, decision.node, context)  # type: ignore[attr-defined]


def _round_trips(form: StoredForm, params: QuantParams) -> bool:
    """Whether round((q - z) * s / s) gives q back in the float type: q - z must be exact with margin."""
    spread = max(abs(form.low), abs(form.high)) * 2
    digits = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}.get(params.expressed, 0)
    return spread < 1 << max(digits - 2, 0)


def _at_identity(form: StoredForm, extents: tuple[int | None, ...]) -> QValue | None:
    return form.q if is_identity(form.index, extents) else None


class FoldQuantize(Fusion):
    """The quantize of a constant is computed now, in the precision the IR computes it in."""

    id = "qfuse.fold-quantize"
    nodes = (Quantize,)
    benefit = 2
    doc = "quantize of a constant is folded to an integer constant"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies when every leaf of the spelled expression is constant and can be read."""
        assert isinstance(node, Quantize)
        extents = node.params.extents
        if None in extents or node.input.op != "elem":
            return None
        source = node.input.payload[0]
        if env.reader.constants.read(source) is None:
            return None
        sizes = [n or 0 for n in extents]
        spelled = env.reader.of(node.result)
        values = None if spelled is None else env.reader.evaluate(spelled, sizes)
        if values is None:
            return None
        folded = Folded(np.ascontiguousarray(np.broadcast_to(values, sizes)))
        return Decision(
            self, node, "bit-exact", replacement=folded, detail={"result": str(node.params)}, payload=folded
        )

    def build(self, decision: Decision, context: object) -> object:
        """The constant."""
        return context.q(decision.payload)  # type: ignore[attr-defined]
