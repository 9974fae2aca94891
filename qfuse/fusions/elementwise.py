"""Elementwise arithmetic on dequantized values, up to the quantize behind it.

    %a = dequantize %qa        %q = one operation from integers to integers:
    %b = dequantize %qb              (qa - za) * sa + (qb - zb) * sb ; relu ; round ; + z ; clamp
    %s = addf %a, %b     ->
    %r = relu %s
    %q = quantize %r

The float arithmetic is repeated as it is written, inside that operation: the stored integers are the same.

Needs at least one dequantized value; others may be constants or float tensors. Refuses what an indexing map cannot
read, and expressions of statistics of a dequantized tensor (softmax, normalizations): these stay in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qfuse._mlir import Value
from qfuse.emit.elementwise import PlannedElementwise
from qfuse.emit.expression import nodes, rebuilt, stored_tensors
from qfuse.fusions.base import Fusion
from qfuse.fusions.expression import CorrectedAccumulators, Traced, cast, parameter, trace_back, unreadable
from qfuse.fusions.fixed_elementwise import plan_fixed
from qfuse.fusions.requires import of_rescaled, of_result
from qfuse.graph import AccumForm, Decision, Environment, Made, QValue, Refusal, StoredForm
from qfuse.indexing import Extents, Index, identity
from qfuse.matchers.layout import Layout, match_layout
from qfuse.matchers.nodes import Contraction, Node, Quantize, Reduction
from qfuse.matchers.rounding import plain
from qfuse.matchers.scalar import Scalar
from qfuse.requirements import Requirements

_MOVES = ("collapse_shape", "expand_shape", "cast")


@dataclass(eq=False)
class Root:
    """A quantize and what it quantizes, back to stored integers.

    Attributes:
        node: the quantize.
        traced: the stored result as an expression.
        extents: of the expression.
        moves: layout operations between the expression and the quantize, which follow on the integers instead.
    """

    node: Quantize
    traced: Traced
    extents: Extents
    moves: tuple[Layout, ...]

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations between dequantize and quantize, in order."""
        inside = nodes(self.traced.source)
        names = [n.op for n in inside if n.args and not (n.op == "mul" and n.args[0].op in ("sitofp", "uitofp"))]
        return tuple(dict.fromkeys(n for n in names if n not in _SILENT)) or ("scale",)


#: Operations that do not tell one expression from another.
_SILENT = ("extsi", "extui", "subi", "sitofp", "uitofp", "extf", "truncf", "trunci", "fptosi", "fptoui", "cmpf")


class FuseElementwise(Fusion):
    """add, sub, mul, div, max, min, clamp, select and functions of dequantized values, broadcasts too."""

    id = "qfuse.elementwise"
    nodes = (Quantize,)
    benefit = 0
    counted = True
    exactness = ("bit-exact", "within-n-lsb")
    doc = "elementwise operations between dequantize and quantize become one integer-in, integer-out operation"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses unreadable indices and statistics of dequantized values."""
        assert isinstance(node, Quantize)
        root = find_root(node, env)
        if root is None:
            return None
        env.elementwise[node.result] = root.traced.through
        traced = root.traced
        refusal = refuse_common(root, env)
        if refusal is not None:
            return refusal
        if env.options.epilogue != "float":
            return self._fixed(root, env)
        if traced.unreadable is not None:
            return _cannot_read(traced.unreadable)
        decision = Decision(
            self, node, "bit-exact" if traced.exact else "within-1-lsb",
            needs=stored_tensors(traced.scalar), float_inputs=traced.floats,
            payload=PlannedElementwise(node, traced.scalar, root.extents, root.moves),
            detail=facts(root), requires=_requires(root, (), env),
        )  # fmt: skip
        decision.replacement = Made(decision)
        return decision

    def _fixed(self, root: Root, env: Environment) -> Decision | Refusal:
        params = root.node.params
        plan = plan_fixed(root.traced.source, root.node, params, root.extents, env)
        if isinstance(plan, Refusal):
            return plan
        place = unreadable(nodes(plan.scalar), root.extents, env)
        if place is not None:
            return _cannot_read(place)
        payload = PlannedElementwise(root.node, plan.scalar, root.extents, root.moves)
        decision = Decision(self, root.node, plan.exactness, needs=stored_tensors(plan.scalar), payload=payload)
        bound = {"tie_distance": plan.distance, "scaling": env.options.scaling, "guard_bits": plan.guard}
        decision.detail = {**facts(root), **bound}
        decision.requires = _requires(root, ended(stored_tensors(plan.scalar), root.node, plan.exactness), env)
        decision.replacement = Made(decision)
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """One elementwise operation, by the target's emitter."""
        return context.emitter.elementwise(decision.payload, context)  # type: ignore[attr-defined]


def _cannot_read(place: str) -> Refusal:
    return Refusal(
        f"an operand of the elementwise operation is read at {place}, which is not a list of dimensions",
        "make the move an operation of its own before the dequantize",
    )


def facts(root: Root) -> dict[str, Any]:
    """What the report says of a fused expression."""
    inputs = " and ".join(dict.fromkeys(str(f.params) for f in root.traced.forms))
    return {"operation": ", ".join(root.operations), "input": inputs, "result": str(root.node.params)}


def _requires(root: Root, accumulators: Sequence[Decision], env: Environment) -> tuple[Requirements, ...]:
    """What the expression needs, and what the accumulators need that it makes stored integers of."""
    own = of_rescaled("elementwise", root.traced.forms, root.node, env, root.operations)
    clamp = "range" if {"max", "min"} & set(root.operations) else own.clamp
    return (own, *of_ended(accumulators, root.node, own, clamp))


def ended(tensors: Sequence[QValue], node: Quantize, exactness: str) -> list[Decision]:
    """The accumulators among what an expression reads that `node` quantizes, which are then as exact as it is."""
    read = [t.decision for t in tensors if isinstance(t, Made) and isinstance(t.decision.fusion, CorrectedAccumulators)]
    for decision in read:
        decision.exactness, decision.detail = exactness, {"result": str(node.params)}
    return read


def of_ended(
    accumulators: Sequence[Decision], node: Quantize, own: Requirements, clamp: str | None
) -> Iterator[Requirements]:
    """What accumulators need that an expression makes stored integers of; `own` is what the expression needs."""
    for decision in accumulators:
        if isinstance(decision.node, Contraction | Reduction):
            yield of_result(decision.node, node.params, own.epilogue, own.scaling, clamp)


def refuse_common(root: Root, env: Environment) -> Refusal | None:
    """What no fusion of elementwise operations takes."""
    kind = statistic(root, env)
    if kind is not None:
        return Refusal(
            f"{kind} stays in float: it divides by or subtracts a float statistic of the tensor it is applied to",
            "quantize its input and its output only where float between them is acceptable",
        )
    return None


# -- finding -----------------------------------------------------------------------------------------------------


def find_root(node: Quantize, env: Environment) -> Root | None:
    """The expression that a quantize ends, or None when there is no operation on dequantized values before it."""
    source, extents = node.input, node.params.extents
    integers = env.options.epilogue != "float"
    form = env.form(source.payload[0]) if source.op == "elem" else None
    if isinstance(form, StoredForm) or (isinstance(form, AccumForm) and not integers):
        return None
    scalar, source, moves = _behind_moves(node, spelled(node, env), env)
    if moves:
        extents = env.bindings.extents(moves[0].sources[0].type)
    traced = trace_back(scalar, extents, env, source, integers)
    if traced is None or (source.op == "elem" and not traced.through):
        return None
    return Root(node, traced, extents, moves)


def spelled(node: Quantize, env: Environment) -> Scalar:
    """The stored result of a quantize as arithmetic: its own, or that of its parameters where none can be repeated."""
    body = None if node.repaired else env.reader.of(node.result)
    return meant(node) if body is None else plain(body)


def meant(node: Quantize) -> Scalar:
    """The stored result of a quantize as arithmetic with its parameters."""
    params, x = node.params, node.input
    type_ = x.type
    x = Scalar("round", type_, (Scalar("div", type_, (x, parameter(params.scale, type_))),))
    if not params.symmetric:
        zero = parameter(params.zero_point, "i32" if params.storage.bits < 32 else "i64")
        x = Scalar(
            "add", type_, (x, Scalar("sitofp", type_, (zero,)) if zero.op != "const" else _as_float(zero, type_))
        )
    for op, bound in (("max", params.quant_min), ("min", params.quant_max)):
        x = Scalar(op, type_, (x, _as_float(Scalar("const", "i64", payload=bound), type_)))
    return Scalar("fptosi" if params.storage.signed else "fptoui", params.storage.mlir, (x,))


def _as_float(scalar: Scalar, type_: str) -> Scalar:
    return cast(Scalar("const", "f64", payload=float(scalar.payload)), type_)


def _behind_moves(node: Quantize, scalar: Scalar, env: Environment) -> tuple[Scalar, Scalar, tuple[Layout, ...]]:
    """The stored result and its input over the tensor that reshapes before the quantize start from.

    The reshapes follow on the integers.
    """
    params, extents = node.params, node.params.extents
    unmoved = scalar, node.input, ()
    if node.input.op != "elem" or params.scale.index or params.zero_point.index or None in extents:
        return unmoved
    value, index = node.input.payload
    leaves = [n for n in nodes(scalar) if n.op == "elem" and n.payload[1]]
    if index != identity(len(extents)) or any(n.payload != node.input.payload for n in leaves):
        return unmoved
    moves: list[Layout] = []
    source = value
    while not isinstance(env.form(source), StoredForm):
        owner = getattr(source.owner, "operation", None)
        layout = None if owner is None else match_layout(env.bindings, owner)
        if layout is None or layout.inverse is None or layout.kind not in ("reshape", "cast"):
            break
        if None in env.bindings.extents(layout.sources[0].type):
            break
        moves.insert(0, layout)
        source = layout.sources[0]
    if not moves:
        return unmoved
    place: Index = identity(len(env.bindings.extents(source.type)))
    leaf = Scalar("elem", node.input.type, payload=(source, place))
    return rebuilt(scalar, lambda s: leaf if s.op == "elem" and s.payload[1] else s), leaf, tuple(moves)


# -- statistics --------------------------------------------------------------------------------------------------


def statistic(root: Root, env: Environment) -> str | None:
    """`softmax` or `a normalization` when the expression reads a reduction of its own dequantized input."""
    params = (root.node.params.scale.value, root.node.params.zero_point.value)
    own = set(root.traced.through)
    for value in root.traced.floats:
        if any(value == p for p in params if p is not None):
            continue
        seen = _producers(value, env)
        if not any(v in own or isinstance(env.form(v), StoredForm) for v in seen):
            continue
        if any(_has(env, v, "exp") for v in seen):
            return "softmax"
        if any(_has(env, v, "sqrt", "rsqrt") for v in (value, *seen, *own)):
            return "a normalization"
    return None


def _producers(value: Value, env: Environment) -> list[Value]:
    """What a float value is computed from, a few operations far."""
    found: list[Value] = []
    pending = [value]
    while pending and len(found) < 24:
        owner = getattr(pending.pop().owner, "operation", None)
        if owner is None or not owner.name.startswith(("linalg.", "tensor.", "tosa.")):
            continue
        for operand in owner.operands:
            if env.bindings.is_ranked_tensor(operand.type) and operand not in found:
                found.append(operand)
                if not isinstance(env.form(operand), StoredForm):
                    pending.append(operand)
    return found


def _has(env: Environment, value: Value, *names: str) -> bool:
    scalar = env.reader.of(value)
    return scalar is not None and any(n.op in names for n in nodes(scalar))
