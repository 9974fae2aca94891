"""Maxima and minima of the float value of accumulators are taken behind the quantize, on its integers.

    %m = max_pool(relu(float(%acc) * s)) ; quantize      ->      max_pool(requantize %acc)

A quantize and whatever keeps the order of numbers commute with a maximum:  f(max(a, b)) = max(f(a), f(b)).
"""

from __future__ import annotations

import math

from qfuse._mlir import Value
from qfuse.emit.behind import stored_neutral
from qfuse.fusions.base import Fusion
from qfuse.graph import AccumForm, Decision, Environment, Pooling, Refusal, Step
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Quantize, Reduction
from qfuse.matchers.scalar import leaves

#: Operations that read the extents of a tensor only.
_SHAPES = ("tensor.dim",)


def taken_behind(
    fusion: Fusion, node: Reduction, form: AccumForm, pad: Layout | None, env: Environment
) -> Decision | Refusal:
    """The decision that a reduction of the float value of a form follows the epilogue; builds nothing by itself."""
    if not _is_read_once(node.result):
        return _read_by_several()
    source = node.operand if pad is None else pad.sources[0]
    decision = Decision(fusion, node, "bit-exact")
    move = Pooling(
        "maximum" if node.kind == "max" else "minimum", node.op, (source,), decision=decision, pad=pad,
        behind=len(form.steps),
    )  # fmt: skip
    extents = env.bindings.extents(node.result.type)
    decision.form = AccumForm(form.decision, form.steps, (*form.moves, move), None, extents, form.element)
    return decision


def refuse_order(form: AccumForm) -> Refusal | None:
    """Why the poolings of a form cannot follow its steps: one behind them does not keep the order of numbers."""
    for move in form.poolings:
        for step in form.steps[move.behind :]:
            finding = _turns(step)
            if finding is not None:
                return Refusal(f"what follows a {move.kind} must keep the order of numbers, found {finding}")
    return None


def _turns(step: Step) -> str | None:
    """What is wrong with a step behind a pooling, or None where it does not decrease."""
    operand = step.operand
    if operand is None or step.kind in ("neg", "rsub"):
        return "a negation"
    number = operand.number
    if step.kind in ("mul", "div"):
        what = "product with" if step.kind == "mul" else "division by"
        if number is None:
            return f"a {what} a number that is known at run time only"
        return None if 0 < number < math.inf else f"a {what} {number:g}"
    if number is not None and (math.isnan(number) or (step.kind in ("add", "sub") and math.isinf(number))):
        return f"an operation with {number:g}"
    return None


def refuse_poolings(node: Quantize, form: AccumForm, env: Environment) -> Refusal | None:
    """Why the poolings of a form that is quantized cannot be taken of the integers, or None."""
    if not form.poolings:
        return None
    refusal = refuse_order(form)
    if refusal is not None:
        return refusal
    if any(stored_neutral(move, form, node.params) is None for move in form.poolings):
        return Refusal("the integer that a maximum or minimum starts from is known at run time only")
    return None if all(map(_is_read_once, _between(node, env))) else _read_by_several()


def ended(form: AccumForm, node: Quantize) -> tuple[Decision, ...]:
    """The decisions of the poolings of a form, which are carried out where `node` quantizes it."""
    found = tuple(move.decision for move in form.poolings)
    for decision in found:
        decision.payload, decision.detail = node.params.storage, {"result": str(node.params)}
    return found


def _between(node: Quantize, env: Environment) -> list[Value]:
    """Float values from the first pooling to the quantize."""
    found: list[Value] = []
    pending = [leaf.payload[0] for leaf in leaves(node.input) if leaf.op == "elem"]
    while pending:
        value = pending.pop()
        form = env.form(value)
        if value in found or not isinstance(form, AccumForm) or not form.poolings:
            continue
        found.append(value)
        pending += list(value.owner.operation.operands)
    return found


def _read_by_several() -> Refusal:
    return Refusal(
        "several operations read the result, so that it would be taken of integers and of floats",
        "quantize it once, for all that read it",
    )


def _is_read_once(value: Value) -> bool:
    readers = {use.owner.operation for use in value.uses}
    return len([op for op in readers if op.name not in _SHAPES]) <= 1


__all__ = ["ended", "refuse_order", "refuse_poolings", "taken_behind"]
