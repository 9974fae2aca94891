"""A quantize that stays is written as one operation that rounds by additions.

    %v = divf %x, %s                        %v = divf %x, %s
    %r = math.roundeven %v                  %c = clamp %v, low - z, high - z
    %a = addf %r, %z               ->       %a = addf %c, 1.5 * 2^23
    %c = clamp %a, low, high                %i = subi (bitcast %a), (bits of 1.5 * 2^23) - z
    %q = fptosi %c                          %q = trunci %i

also where each step was an operation of its own. The division (or the multiplication by the reciprocal) stays as the
IR has it, so the stored integers are the same for every input; NaN, for which the IR has no defined result, becomes
the low bound. Needs f32 arithmetic and a storage type of at most 16 bits; anything else is left alone.
"""

from __future__ import annotations

from qfuse.emit.rounding import PlannedQuantize, is_spellable, respelled
from qfuse.fusions.base import Fusion
from qfuse.graph import Decision, Environment, Made, Refusal
from qfuse.indexing import Extents
from qfuse.matchers.nodes import Node, Quantize
from qfuse.matchers.scalar import Scalar, leaves

_STEPS = ("max", "min", "add", "round")


class RespellQuantize(Fusion):
    """Quantizes that no other fusion takes and that fusions read, when the option `rounding` is `magic`."""

    id = "qfuse.respell-quantize"
    nodes = (Quantize,)
    benefit = 0
    exactness = ("bit-exact",)
    on_demand = True
    doc = "a quantize that stays becomes one operation that rounds by additions"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies to f32 quantizes that are spelled with a rounding operation."""
        assert isinstance(node, Quantize)
        if env.options.rounding != "magic" or node.params.storage.bits > 16:
            return None
        planned = _plan(node, env)
        if planned is None:
            return None
        read = [leaf.payload[0] for s in (planned.scaled, planned.zero_point) if s is not None for leaf in leaves(s)]
        if any(env.form(value) is not None for value in read):
            return None  # a fusion refused to take integers here, and the report is to say why
        detail = {"result": str(node.params)}
        decision = Decision(
            self, node, "bit-exact", payload=planned, detail=detail, on_demand=True, float_inputs=tuple(read)
        )
        decision.replacement = Made(decision)
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The quantize in one generic."""
        return respelled(decision.payload, context)  # type: ignore[arg-type]


def _plan(node: Quantize, env: Environment) -> PlannedQuantize | None:
    """The parts of the spelled expression, followed through f32 operations only."""
    extents = node.params.extents
    scalar = env.reader.of(node.result)
    if scalar is None or scalar.op not in ("fptosi", "fptoui"):
        return None
    scalar = _opened(scalar.args[0], _STEPS, extents, env)
    while scalar.op in ("max", "min") and scalar.type == "f32":
        steps = [s for s in (_opened(a, _STEPS, extents, env) for a in scalar.args) if s.op in _STEPS]
        if not steps:
            return None
        scalar = steps[0]
    zero_point: Scalar | None = None
    if scalar.op == "add" and scalar.type == "f32":
        first, second = (_opened(a, ("round",), extents, env) for a in scalar.args)
        zero_point, scalar = (scalar.args[1], first) if first.op == "round" else (scalar.args[0], second)
    if scalar.op != "round" or scalar.type != "f32":
        return None
    scaled = _opened(scalar.args[0], ("div", "mul", "add"), extents, env)
    if scaled.op == "add":
        args = tuple(_opened(a, ("div", "mul"), extents, env) for a in scaled.args)
        scaled = Scalar("add", scaled.type, args)
    if not is_spellable(scaled) or not (zero_point is None or is_spellable(zero_point)):
        return None
    known = 0 if zero_point is None else node.params.zero_point.scalar
    return PlannedQuantize(node, scaled, zero_point, None if known is None else int(known))


def _opened(scalar: Scalar, wanted: tuple[str, ...], extents: Extents, env: Environment) -> Scalar:
    """Steps from a leaf into its producers as long as that leads to one of `wanted`."""
    current: Scalar | None = scalar
    for _ in range(8):
        if current is None or current.op in wanted or current.op != "elem":
            break
        current = env.reader.expand(current, extents)
    return scalar if current is None or current.op not in wanted else current
