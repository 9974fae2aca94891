"""Quantizes that need no arithmetic: of a dequantized value with its own parameters, and of a constant."""

from __future__ import annotations

import numpy as np

from qfuse.fusions.base import Fusion
from qfuse.graph import (
    Decision,
    Environment,
    Folded,
    QValue,
    Refusal,
    StoredForm,
)
from qfuse.indexing import is_identity
from qfuse.matchers.nodes import Node, Quantize
from qfuse.qparams import QuantParams


class CancelRequantize(Fusion):
    """dequantize -> layout -> quantize with equal parameters is the layout of the integers."""

    id = "qfuse.cancel"
    nodes = (Quantize,)
    benefit = 2
    exactness = ("bit-exact",)
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
    exactness = ("bit-exact",)
    doc = "quantize of a constant is folded to an integer constant"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies when every leaf of the spelled expression is constant and can be read."""
        assert isinstance(node, Quantize)
        extents = node.params.extents
        if None in extents or node.input.op != "elem" or node.repaired:
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
