"""The place of a maximum of dequantized values is that of the maximum of their integers.

    %x = dequantize %q
    %i = argmax %x            ->      %i = argmax %q

A scale is positive, so that greater integers are greater values; and as long as no two integers are the same float, the
first greatest of the one is that of the other.
"""

from __future__ import annotations

import numpy as np

from qfuse.emit.spec import PlannedPooling
from qfuse.fusions.base import Fusion
from qfuse.fusions.reduction import starts_neutral
from qfuse.graph import Decision, Environment, Made, Refusal, StoredForm
from qfuse.indexing import dims_of_index, identity
from qfuse.matchers.nodes import Node, Reduction
from qfuse.matchers.scalar import Scalar

#: Integers of at most this magnitude, less their zero point, are different floats when multiplied by a scale.
_DIFFERENT = {"f32": 1 << 22, "f64": 1 << 51}


class FusePosition(Fusion):
    """argmax and argmin: the first place, whose value is not read."""

    id = "qfuse.argmax"
    nodes = (Reduction,)
    exactness = ("bit-exact",)
    doc = "argmax and argmin of a dequantized tensor are taken on the integers"

    def match(self, node: Node) -> bool:
        """Places of maxima and minima."""
        return isinstance(node, Reduction) and node.kind in ("argmax", "argmin")

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses parameters that vary along the reduction, narrow floats, and starts that are not the neutral ones."""
        assert isinstance(node, Reduction)
        form = env.form(node.operand)
        if not isinstance(form, StoredForm):
            return None
        if not starts_neutral(node, env) or not _starts_at_zero(node, env):
            return Refusal("the reduction does not start from the neutral infinity at place 0")
        varying = dims_of_index(form.params.scale.index) | dims_of_index(form.params.zero_point.index)
        if any(dims_of_index((node.index[d],)) & set(node.reduction) for d in varying):
            return Refusal("the parameters vary along a reduced dimension", "quantize along another dimension")
        if _magnitude(form) > _DIFFERENT.get(form.params.expressed, 0) or _overflows(form):
            return Refusal(f"different integers may be the same {form.params.expressed}, whose first place is another")
        payload = PlannedPooling(node, form, form.params.storage, None)
        decision = Decision(self, node, "bit-exact", payload=payload, needs=(form.q,))
        decision.replacement = Made(decision)
        decision.detail = {"input": str(form.params)}
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The place, by the target's emitter."""
        return context.emitter.position(decision.payload, context)  # type: ignore[attr-defined]


def _magnitude(form: StoredForm) -> int:
    """The greatest integer, less its zero point, that can occur."""
    low, high, storage = form.low, form.high, form.params.storage
    span = form.params.zero_point.span
    zeros = (storage.min, storage.max) if span is None else (int(np.floor(span[0])), int(np.ceil(span[1])))
    return max(abs(low - zeros[1]), abs(high - zeros[0]))


def _overflows(form: StoredForm) -> bool:
    """Whether a scale is so great that a dequantized value may be infinite."""
    span, kind = form.params.scale.span, np.float64 if form.params.expressed == "f64" else np.float32
    return span is not None and span[1] * _magnitude(form) > float(np.finfo(kind).max)


def _starts_at_zero(node: Reduction, env: Environment) -> bool:
    """Whether the place of a reduction that never finds a greater element is 0."""
    if node.position is None:
        return True
    start = list(node.op.operands)[-1]
    extents = env.bindings.extents(start.type)
    leaf = Scalar("elem", env.bindings.element_name(start.type), payload=(start, identity(len(extents))))
    found = env.reader.expand(leaf, extents)
    if found is not None and found.op == "const":
        return found.payload == 0
    array = env.reader.constants.read(start)
    return array is not None and not array.any()
