"""Sums, means, average and maximum pooling of dequantized values.

sum of (q - z) * s        =  s * (sum q - n z)          accumulators, like a contraction with ones
max of (q - z) * s        =  s * (max q - z)            the integers' own maximum; parameters stay
"""

from __future__ import annotations

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.spec import PlannedContraction, PlannedPooling, Side
from qfuse.fusions.base import Fusion
from qfuse.fusions.behind import taken_behind
from qfuse.fusions.contraction import init_steps, plan_sum, side_of
from qfuse.fusions.windows import as_one_sum, divided
from qfuse.graph import AccumForm, Decision, Environment, Folded, Made, Refusal, Step, StoredForm
from qfuse.indexing import Extents, Index, constant, dims_of_index, identity
from qfuse.matchers.layout import Layout, match_layout
from qfuse.matchers.nodes import Node, Reduction
from qfuse.qparams import ONE, ZERO, QuantParams, StorageType


class FuseSum(Fusion):
    """Sums over dimensions or windows; a division behind joins the epilogue, so means and average pooling too.

    A sum of sums is one sum. A mean that leaves out padding divides by the elements of each window.
    """

    id = "qfuse.sum"
    nodes = (Reduction,)
    exactness = ("reassociated",)
    doc = "sum, mean and average pooling of a dequantized tensor -> integer sums"

    def match(self, node: Node) -> bool:
        """Sums and means."""
        return isinstance(node, Reduction) and node.kind in ("sum", "mean")

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses scales that vary along the reduction and accumulators that may overflow."""
        assert isinstance(node, Reduction)
        found = as_one_sum(node, env.form(node.operand))
        if found is None:
            return None
        whole, form, factors = found
        lhs = side_of(form, whole.index, whole.extents, env)
        ones = ones_over(whole.reduction, whole.extents)
        if ones is None:
            return Refusal("the reduction size is dynamic")
        planned = plan_sum(whole, lhs, ones, env, unit=True)
        if isinstance(planned, Refusal):
            return planned
        if planned.blocked is not None:
            return Refusal("the scale varies along the reduction")
        element = env.bindings.element_name(node.result.type)
        steps = (*factors, *init_steps(node, element, env.bindings.extents(node.result.type), env))
        if node.kind == "mean":
            step = divided(node, element, env)
            if isinstance(step, Refusal):
                return step
            steps = (*steps, step)
        return summed(self, node, form, planned, steps, env)

    def build(self, decision: Decision, context: object) -> object:
        """The accumulators, by the target's emitter."""
        return context.emitter.accumulate(decision.payload, context)  # type: ignore[attr-defined]


def summed(
    fusion: Fusion,
    node: Reduction,
    form: StoredForm,
    planned: PlannedContraction,
    steps: tuple[Step, ...],
    env: Environment,
) -> Decision:
    """The decision that a reduction of stored integers is integer sums, followed by `steps` on their float value."""
    extents = env.bindings.extents(node.result.type)
    decision = Decision(fusion, node, "reassociated", payload=planned, needs=(form.q,))
    element = env.bindings.element_name(node.result.type)
    decision.form = AccumForm(decision, steps, (), identity(len(extents)), extents, element)
    decision.detail = {
        "input": str(form.params),
        "accumulator": f"i{planned.bits}",
        "accumulator_bound": planned.bound,
    }
    return decision


def ones_over(reduction: tuple[int, ...], extents: Extents) -> Side | None:
    """A second operand of ones over the reduction loops."""
    sizes = [extents[d] for d in reduction]
    if None in sizes:
        return None
    storage = StorageType(8, True)
    array = np.ones([n or 0 for n in sizes], np.int8)
    params = QuantParams(storage, 1, 1, ONE, ZERO, "f32", extents)
    dims = identity(len(extents))
    form = StoredForm(Folded(array), tuple(dims[d] for d in reduction), params, 1, 1)
    return Side(form, tuple(dims[d] for d in reduction), params, storage, array)


class FuseMaximum(Fusion):
    """Maxima and minima over windows or dimensions: the integers' own, since a scale is positive.

    Those of the float value of accumulators follow the quantize behind them, see `qfuse.fusions.behind`.
    """

    id = "qfuse.maximum"
    nodes = (Reduction,)
    exactness = ("bit-exact",)
    doc = "max pooling, max and min of a dequantized tensor are taken on the integers"

    def match(self, node: Node) -> bool:
        """Maxima and minima."""
        return isinstance(node, Reduction) and node.kind in ("max", "min")

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses parameters that vary along the reduction, and inits and padding that are not the neutral infinity."""
        assert isinstance(node, Reduction)
        source, pad, index = _behind_padding(node, env)
        form = env.form(source)
        if form is None:
            return _refuse_padding(node, env)
        if not starts_neutral(node, env):
            return Refusal("the reduction does not start from the neutral infinity")
        if isinstance(form, AccumForm):
            return taken_behind(self, node, form, pad, env)
        varying = dims_of_index(form.params.scale.index) | dims_of_index(form.params.zero_point.index)
        if varying and (pad is not None or _moves(node, varying)):
            return Refusal("the parameters vary along a reduced dimension")
        extents = env.bindings.extents(node.result.type)
        planned = PlannedPooling(node, form, form.params.storage, pad)
        decision = Decision(self, node, "bit-exact", payload=planned, needs=(form.q,))
        params = form.params.over(_to_source(node, index), extents) if varying else form.params.over((), extents)
        result = StoredForm(Made(decision), identity(len(extents)), params, form.low, form.high)
        decision.form = result
        decision.detail = {"input": str(form.params)}
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The integer maximum, by the target's emitter; one behind an epilogue is built with that."""
        return context.emitter.pool(decision.payload, context)  # type: ignore[attr-defined]


def _behind_padding(node: Reduction, env: Environment) -> tuple[Value, Layout | None, Index]:
    """The reduced tensor, read through a pad with the neutral infinity."""
    layout = _padded(node, env)
    if layout is None or env.form(node.operand) is not None:
        return node.operand, None, node.index
    number = env.reader.constants.scalar(layout.pad_value)
    if number is None or not _is_neutral(float(number[0]), _neutral(node)):
        return node.operand, None, node.index
    return layout.sources[0], layout, node.index


def _padded(node: Reduction, env: Environment) -> Layout | None:
    """The pad that the reduced tensor comes from, or None."""
    owner = getattr(node.operand.owner, "operation", None)
    known = owner is not None and owner.name in ("tensor.pad", "tosa.pad")
    return match_layout(env.bindings, owner) if known else None


def _refuse_padding(node: Reduction, env: Environment) -> Refusal | None:
    """Where the float value of accumulators is padded by another number than those that the integers have."""
    layout = _padded(node, env)
    if layout is None or not isinstance(env.form(layout.sources[0]), AccumForm):
        return None
    number = env.reader.constants.scalar(layout.pad_value)
    found = "a number that is known at run time only" if number is None else f"{float(number[0]):g}"
    return Refusal(f"padding must be the neutral infinity or 0, found {found}")


def _neutral(node: Reduction) -> float:
    return float("-inf") if node.kind.endswith("max") else float("inf")


def starts_neutral(node: Reduction, env: Environment) -> bool:
    """Whether a maximum or minimum, or the place of one, starts from what any element replaces."""
    if node.init is None:
        return True
    start = init_steps(node, "f32", env.bindings.extents(node.result.type), env)
    number = start[0].operand.number if len(start) == 1 and start[0].operand is not None else None
    return number is not None and _is_neutral(number, _neutral(node))


def _is_neutral(number: float, neutral: float) -> bool:
    """The infinity, or the greatest finite float of a type, which some frontends write instead."""
    return number == neutral or (abs(number) >= 3.0e38 and number * neutral > 0)


def _moves(node: Reduction, varying: frozenset[int]) -> bool:
    """Whether any of these dimensions of the operand is read at more than one parallel loop."""
    reduced = set(node.reduction)
    return any(dims_of_index((node.index[d],)) & reduced for d in varying)


def _to_source(node: Reduction, index: Index) -> Index:
    """For each dimension of the operand its place in the result's dimensions (0 where it is reduced)."""
    dims = identity(len(node.out_index))
    places = {next(iter(dims_of_index((e,)))): dims[i] for i, e in enumerate(node.out_index)}
    return tuple(places.get(next(iter(dims_of_index((e,))), -1), constant(0)) for e in index)
