"""Quantizes and dequantizes raised to named operations instead of fused, and lowered again.

%q = linalg.generic(%x) { divf, roundeven, addf, maximumf, minimumf, fptosi }
  <->    %q = "iree_linalg_ext.quantize_affine"(%x, %scale, %zero_point, %init)
  <->    %t = quant.qcast %x ; %q = quant.scast %t
  <->    %q = "acme.quantize"(%x) {qfuse.affine = "quantize", scales = ..., ...}
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from qfuse.emit.affine import IREE, QUANT, SCHEMAS, AffineNames, PlannedAffine, extents_known, lowered, raised
from qfuse.emit.base import BuildContext
from qfuse.errors import UsageError
from qfuse.fusions.base import Fusion
from qfuse.graph import Decision, Environment, Existing, Made, Refusal
from qfuse.indexing import as_dim, is_identity
from qfuse.matchers.named import is_named_affine
from qfuse.matchers.nodes import Dequantize, Node, Quantize
from qfuse.qparams import Param, QuantParams, block_size

_OPERATION = re.compile(r"\w+(\.\w+)+")


class _Respelled(Fusion):
    """What raising and lowering have in common."""

    nodes = (Quantize, Dequantize)
    exactness = ("bit-exact",)
    benefit = 2000  # whoever names it wants nothing else of these nodes
    opt_in = True

    def match(self, node: Node) -> bool:
        """Quantize and dequantize nodes."""
        return isinstance(node, Quantize | Dequantize)

    def _decided(self, node: Quantize | Dequantize, env: Environment) -> Decision | Refusal:
        """The decision to spell a node anew, or why that would not be the same arithmetic."""
        params = node.params
        if params.expressed != "f32":
            return Refusal(f"named affine operations are of f32, found {params.expressed}")
        exact = params.storage.bits <= 16 or (isinstance(node, Dequantize) and params.symmetric)
        if not exact:
            return Refusal(f"{params.storage} with its zero point is not exact in f32")
        for what, param in (("scale", params.scale), ("zero point", params.zero_point)):
            refusal = _refused(what, param)
            if refusal is not None:
                return refusal
        if isinstance(node, Dequantize):
            if not is_identity(node.index, params.extents):
                return Refusal("the integers are moved inside the dequantize")
            stored = Existing(node.storage, node.storage_cast)
            payload = PlannedAffine(False, params), stored
            decision = Decision(self, node, "bit-exact", needs=(stored,), payload=payload)
            decision.detail = {"input": str(params), **_repaired(node)}
            return decision
        if node.zero_point_first:
            return Refusal("the zero point is added before rounding, which a named quantize does not do")
        if node.reciprocal:
            return Refusal("the quantize multiplies by the reciprocal scale, a named quantize divides")
        if node.input.op != "elem" or not is_identity(node.input.payload[1], params.extents):
            return Refusal("the quantize computes or moves its input in the same operation")
        value = node.input.payload[0]
        if env.bindings.extents(value.type) != params.extents:
            return Refusal("the quantize computes or moves its input in the same operation")
        decision = Decision(
            self, node, "bit-exact", float_inputs=(value,), payload=(PlannedAffine(True, params), value)
        )
        decision.replacement = Made(decision)
        decision.detail = {"result": str(params), **_repaired(node)}
        return decision


def _repaired(node: Quantize | Dequantize) -> dict[str, bool]:
    """A fact for the report: what is raised means what was meant, not what the IR computes."""
    return {"repaired": True} if node.repaired else {}


def _refused(what: str, param: Param) -> Refusal | None:
    if param.data is None:
        return None
    if what == "scale" and not np.array_equal(param.data.astype(np.float32).astype(np.float64), param.data):
        return Refusal("the scale is not a number of f32")
    return None


def _source(decision: Decision, context: BuildContext) -> object:
    source = decision.payload[1]
    return context.q(source) if isinstance(source, Existing) else source


@dataclass(eq=False, kw_only=True)
class RaiseAffine(_Respelled):
    """Quantizes and dequantizes become named operations; nothing is fused.

    Used only where a target or the option `fusions` names it.

    Attributes:
        id: see `qfuse.Fusion`.
        names: what they become.
        doc: see `qfuse.Fusion`.
    """

    id: str
    names: AffineNames
    doc: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for a schema that is not known, and for names that no operation has."""
        if self.names.schema not in SCHEMAS:
            known = ", ".join(SCHEMAS)
            raise UsageError(f"fusion {self.id}: schema is one of {known}, not {self.names.schema!r}")
        for name in (self.names.quantize, self.names.dequantize):
            if not _OPERATION.fullmatch(name):
                raise UsageError(f"fusion {self.id}: an operation's name is dialect.name, not {name!r}")

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses what the named operation cannot say."""
        assert isinstance(node, Quantize | Dequantize)
        if is_named_affine(node.op):
            return None
        decision = self._decided(node, env)
        if isinstance(decision, Refusal):
            return decision
        refusal = _unsaid(node.params, self.names)
        name = self.names.quantize if isinstance(node, Quantize) else self.names.dequantize
        context = node.op.context
        if refusal is None and not context.allow_unregistered_dialects and not context.is_registered_operation(name):
            return Refusal(
                f"operation {name} is not registered in the module's context",
                "register its dialect, or allow unregistered dialects",
            )
        return decision if refusal is None else refusal

    def build(self, decision: Decision, context: BuildContext) -> object:  # type: ignore[override]
        """The named operation."""
        return raised(decision.payload[0], _source(decision, context), self.names, context)


def _unsaid(params: QuantParams, names: AffineNames) -> Refusal | None:
    """What a schema has no words for."""
    both = (params.scale, params.zero_point)
    if names.schema == "iree":
        if any(as_dim(e) is None for param in both for e in param.index):
            return Refusal(f"{names.quantize} takes parameters along dimensions, found {params.granularity}")
        return None
    if any(param.data is None for param in both):
        return Refusal(f"{names.quantize} carries constant parameters, these are known only at run time")
    blocks = block_size((params.scale.index, params.zero_point.index), params.extents)
    if blocks is None or not extents_known(params.extents, blocks):
        return Refusal(f"{names.quantize} takes parameters in blocks of known extents, found {params.granularity}")
    return None


class LowerAffine(_Respelled):
    """Named quantizes and dequantizes become plain arithmetic: the inverse of `RaiseAffine`."""

    id = "qfuse.lower-affine"
    doc = "named quantize and dequantize operations -> linalg.generic"

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies to named operations."""
        assert isinstance(node, Quantize | Dequantize)
        return self._decided(node, env) if is_named_affine(node.op) else None

    def build(self, decision: Decision, context: BuildContext) -> object:  # type: ignore[override]
        """One generic."""
        return lowered(decision.payload[0], _source(decision, context), context)


def affine_fusions() -> list[Fusion]:
    """The built-in ones."""
    return [
        RaiseAffine(
            id="qfuse.raise-iree",
            names=IREE,
            doc="quantize and dequantize -> iree_linalg_ext.quantize_affine, dequantize_affine",
        ),
        RaiseAffine(id="qfuse.raise-quant", names=QUANT, doc="quantize and dequantize -> quant.qcast, quant.dcast"),
        LowerAffine(),
    ]


__all__ = ["AffineNames", "LowerAffine", "RaiseAffine", "affine_fusions"]
