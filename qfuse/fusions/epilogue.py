"""Float operations on integer accumulators join their epilogue, as steps.

%f = float(%acc) * s ; + bias ; relu      ->      steps of the accumulators' form
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qfuse._mlir import Value
from qfuse.fusions.base import Fusion
from qfuse.fusions.behind import refuse_order
from qfuse.fusions.expression import constant_operand_over, trace_back
from qfuse.graph import (
    AccumForm,
    Decision,
    Environment,
    Refusal,
    Step,
    StepOperand,
    StoredForm,
)
from qfuse.indexing import compose, is_identity
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Elementwise, Node
from qfuse.matchers.scalar import Scalar, leaves, substitute_index

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "max", "min": "min"}


class ExtendEpilogue(Fusion):
    """Adds, multiplications, clamps and casts on accumulators join their epilogue."""

    id = "qfuse.epilogue"
    nodes = (Elementwise,)
    exactness = ("reassociated",)
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
        refusal = refuse_order(own)
        if refusal is not None:
            return refusal
        form = AccumForm(own.decision, own.steps, own.moves, own.to_value, extents, node.scalar.type)
        return Decision(self, node, "reassociated", form=form, float_inputs=found.float_inputs)

    def build(self, decision: Decision, context: object) -> object:
        """Never called: steps are built with the epilogue they join."""
        raise AssertionError("epilogue steps have nothing of their own to build")


class ExtendCast(Fusion):
    """A cast between float types on a dequantized value keeps its integer form."""

    id = "qfuse.float-cast"
    nodes = (Elementwise,)
    exactness = ("bit-exact",)
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
    constant = None if scalar.op == "elem" else constant_operand_over(scalar, own, env)
    if constant is not None:
        return constant
    stored = _of_integers(scalar, own, env)
    if scalar.op != "elem":
        return None if stored is None else StepOperand(element=scalar.type, scalar=stored)
    value, index = scalar.payload
    return StepOperand(value=value, index=index, element=scalar.type, scalar=stored)


def _of_integers(scalar: Scalar, extents: tuple[int | None, ...], env: Environment) -> Scalar | None:
    """The operand of a step as an expression of stored integers, or None."""
    traced = trace_back(scalar, extents, env)
    if traced is None or not traced.forms or traced.floats or traced.unreadable is not None:
        return None
    return traced.scalar
