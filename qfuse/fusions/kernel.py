"""Whole quantized layers become one call of a vendor's kernel, from a description.

%acc = contract %qa, %qb : i8, i8 -> i32
%r   = requantize(%acc + bias)              ->    %r = call @acme_qmatmul(%qa, %weight, %bias, %multiplier, ...)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from qfuse.cost.schema import InvalidKeyError, several, storage_type
from qfuse.emit.behind import followed
from qfuse.emit.call import KernelCall
from qfuse.emit.spec import PlannedContraction
from qfuse.errors import UsageError
from qfuse.fixed_point import ROUNDINGS
from qfuse.fusions.base import Fusion
from qfuse.fusions.behind import ended, refuse_poolings
from qfuse.fusions.epilogue import trace
from qfuse.fusions.fixed_point import plan_requantize
from qfuse.fusions.kernel_layer import LayerPlanner
from qfuse.fusions.layer import Layer
from qfuse.fusions.requires import of_poolings, of_requantize
from qfuse.graph import AccumForm, Decision, Environment, Made, Refusal
from qfuse.matchers.nodes import Contraction, Convolution, Node, Quantize

#: By what is computed the letters that each tensor can have.
LETTERS = {
    "contraction": {"lhs": "bmk", "rhs": "bnk", "result": "bmn"},
    "convolution": {"lhs": "ngcdhw", "rhs": "gocdhw", "result": "ngodhw"},
}
COMPUTES = tuple(LETTERS)


@dataclass(eq=False, kw_only=True)
class KernelFusion(Fusion):
    """A matrix product or convolution with bias, activation and requantize as one call of a kernel.

    What the kernel is given, by name (`c` stands for the dimension that is `n` of a matrix product, `o` or `g` of a
    convolution):

        lhs, rhs                        the stored integers
        bias                            i32, added to the products of (lhs - zero point) and (rhs - zero point)
        folded_bias                     i32, the same for products of lhs and (rhs - zero point)
        multiplier, shift               of the requantize:  round(accumulator * multiplier / 2^shift)
        lhs_zero_point, rhs_zero_point, result_zero_point
        result_min, result_max          clamp bounds of the stored result
        strides, dilations              of a convolution, a number a dimension of the window
        padding                         of a convolution: for each dimension of the window before and behind

    What is not zero (one for strides and dilations, the range of the storage type for the bounds) and not in the
    description is refused, as is what varies along dimensions that its layout does not have.

    Attributes:
        id: see `qfuse.Fusion`.
        call: the kernel, with the layout of each tensor in the letters of `qfuse.fusions.roles`: rows `m`, columns `n`,
            reduction `k` and batches `b`; of a convolution `n`, `d`, `h`, `w`, `c`, `o` and `g`.
        computes: `contraction` or `convolution`.
        doc: see `qfuse.Fusion`.
        benefit: see `qfuse.Fusion`.
        storage: for `lhs`, `rhs` and `result` the storage types that it takes.
        scaling: how it rounds the product with the multiplier; see `qfuse.fixed_point`.
        power_of_two: whether the multiplier is always 1, so that only a shift is passed.
        multiples: by letter, what the extent must be a multiple of.
        pads: by letter (`k` or `c`), to what multiple the extent is padded; the weights must be constant.
        limits: by letter, the largest extent.
        constants: operands (`rhs`) that must be constant.
    """

    id: str
    call: KernelCall
    computes: str = "contraction"
    doc: str = ""
    benefit: int = 10
    storage: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    scaling: str = "single"
    power_of_two: bool = False
    multiples: Mapping[str, int] = field(default_factory=dict[str, int])
    pads: Mapping[str, int] = field(default_factory=dict[str, int])
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    constants: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raises UsageError for a description that no kernel can have."""
        reduced = {"contraction": "k", "convolution": "c"}.get(self.computes)
        if reduced is None:
            raise UsageError(f"fusion {self.id}: computes is one of {', '.join(COMPUTES)}, not {self.computes!r}")
        if self.scaling not in ROUNDINGS:
            raise UsageError(f"fusion {self.id}: scaling is one of {', '.join(ROUNDINGS)}, not {self.scaling!r}")
        if set(self.pads) - {reduced}:
            raise UsageError(f"fusion {self.id}: only {reduced} can be padded, not {', '.join(sorted(self.pads))}")
        for value in (*self.call.operands, *self.call.attributes):
            if value.name not in _NAMES:
                known = ", ".join(_NAMES)
                raise UsageError(f"fusion {self.id}: {value.name!r} is not one of {known}")
        for name in ("lhs", "rhs"):
            if name not in [v.name for v in self.call.operands]:
                raise UsageError(f"fusion {self.id}: {name} must be an operand of {self.call.kernel}")
        if self.call.find("bias") is not None and self.call.find("folded_bias") is not None:
            raise UsageError(f"fusion {self.id}: {self.call.kernel} takes a bias or a folded_bias, not both")
        for problem in self._misspelled():
            raise UsageError(f"fusion {self.id}: {problem}")
        self.nodes = (Quantize,)
        self.exactness = ("within-n-lsb",)
        self.declines = True

    def _misspelled(self) -> Iterator[str]:
        """Layouts, letters, operands and storage types that no layer has: they would restrict nothing or everything."""
        tensors = LETTERS[self.computes]
        layouts = {v.name: v.layout for v in (*self.call.operands, *self.call.attributes)}
        for name, layout in (*layouts.items(), ("result", self.call.result)):
            letters = tensors.get(name, tensors["result"])
            if set(layout) - set(letters) or len(set(layout)) < len(layout):
                yield f"the layout of {name} has each of {', '.join(letters)} once at most, not {layout!r}"
        known = sorted({letter for letters in tensors.values() for letter in letters})
        for field_, sizes in (("multiples", self.multiples), ("pads", self.pads), ("limits", self.limits)):
            for letter, size in sizes.items():
                if letter not in known:
                    yield f"{field_} are of {', '.join(known)}, not of {letter!r}"
                if not isinstance(cast("object", size), int) or size < 1:
                    yield f"{field_} of {letter} takes a positive integer, got {size!r}"
        odd = [] if isinstance(cast("object", self.constants), str) else sorted({*self.constants} - {"lhs", "rhs"})
        if odd or isinstance(cast("object", self.constants), str):
            yield f"constants takes a set of lhs and rhs, got {self.constants!r}"
        for role, types in self.storage.items():
            if role not in tensors:
                yield f"storage is of {', '.join(tensors)}, not of {role!r}"
            try:
                several(storage_type)(types)
            except InvalidKeyError as error:
                yield f"storage of {role} {error.message}"

    def match(self, node: Node) -> bool:
        """Quantize nodes: the rewrite is rooted at the tail."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses whatever the description has no place for."""
        assert isinstance(node, Quantize)
        found = trace(node.input, node.params.extents, env)
        if found is None:
            return None
        form = found.form
        planned = form.decision.payload
        if not isinstance(planned, PlannedContraction) or planned.unit or not isinstance(planned.node, Contraction):
            return None
        if isinstance(planned.node, Convolution) != (self.computes == "convolution"):
            return None
        layer = self._layer(node, form, planned, env)
        if isinstance(layer, Refusal):
            return replace(layer, reason=f"{self.call.kernel}: {layer.reason}")
        decision = Decision(
            self,
            node,
            layer.plan.exactness,
            needs=(form.decision, layer.lhs, layer.rhs, *ended(form, node)),
            payload=layer,
        )
        decision.replacement = Made(decision)
        decision.detail = {"kernel": self.call.kernel, "result": str(node.params), **layer.plan.detail}
        decision.requires = (of_requantize(form, node.params, self._scaled(env)), *of_poolings(form, node.params))
        return decision

    def _layer(self, node: Quantize, form: AccumForm, planned: PlannedContraction, env: Environment) -> Layer | Refusal:
        if node.zero_point_first:
            return Refusal("the zero point is added before rounding, which a requantize does not do")
        if node.params.zero_point.scalar is None and any(move.kind == "pad" for move in form.moves):
            return Refusal("the zero point that stands for the padding is not one constant")
        params = node.params
        if form.moves and (params.scale.index or params.zero_point.index):
            if form.to_value is None:
                return Refusal("the output's parameters vary and the layout before the quantize cannot be inverted")
            params = params.over(form.to_value, env.bindings.extents(planned.node.result.type))
        refusal = refuse_poolings(node, form, env)
        if refusal is not None:
            return refusal
        if planned.bits > 32:
            return Refusal(f"accumulators of i32, found i{planned.bits}", "use a smaller reduction")
        plan = plan_requantize(form, params, self._scaled(env))
        if isinstance(plan, Refusal):
            return plan
        if plan.scale.addends:
            return Refusal("a tensor is added before the quantize")
        if not bool((plan.scale.sign == 1).all()):
            return Refusal("the accumulators are negated before the quantize")
        return LayerPlanner(self, node, form, planned, plan, env).layer()

    def _scaled(self, env: Environment) -> Environment:
        """Scaling is what the kernel does, whatever the run's options say about other epilogues."""
        own = copy.copy(env)
        epilogue = "power-of-two" if self.power_of_two else "fixed-point"
        own.options = replace(env.options, epilogue=epilogue, scaling=self.scaling)
        return own

    def build(self, decision: Decision, context: Any) -> Any:
        """The operands in the kernel's layouts, the call, the result in its own layout, and what follows on it."""
        layer: Layer = decision.payload
        value = layer.emit(self.call, context)
        node = decision.node
        assert isinstance(node, Quantize)
        return followed(value, layer.form, node.params, context)


_NAMES = (
    "lhs", "rhs", "bias", "folded_bias", "multiplier", "shift", "lhs_zero_point", "rhs_zero_point",
    "result_zero_point", "result_min", "result_max", "strides", "dilations", "padding",
)  # fmt: skip


__all__ = ["KernelFusion"]
