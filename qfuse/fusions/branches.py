"""What a quantize of a concat computes from each branch.

    transpose(relu(concat %a, %b)) ; quantize    ->    transpose(concat (quantize relu %a), (quantize relu %b))

Operations between the concat and the quantize are applied to each branch; moves among them follow on the integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qfuse._mlir import Value
from qfuse.emit.expression import nodes, rebuilt
from qfuse.fusions.elementwise import meant, spelled
from qfuse.fusions.expression import LONGEST, constant_over, is_repeatable
from qfuse.graph import Environment
from qfuse.indexing import Extents, Index, compose, constant, dims_of_index, identity, is_identity, plus
from qfuse.matchers.layout import Layout, match_layout
from qfuse.matchers.nodes import Quantize
from qfuse.matchers.scalar import Scalar, substitute_index
from qfuse.qparams import QuantParams


@dataclass(frozen=True, eq=False)
class Joined:
    """A quantize of a concat, over the concat's dimensions.

    Attributes:
        layout: the concat.
        stored: the stored result of the quantize.
        input: what is quantized.
        leaf: one element of the concat, which both read.
        params: of the result.
        moves: layout operations between the concat and the quantize, in order.
        through: the values between them.
    """

    layout: Layout
    stored: Scalar
    input: Scalar
    leaf: Scalar
    params: QuantParams
    moves: tuple[Layout, ...]
    through: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """The same of one branch, over its own dimensions: `node` quantizes an expression of its elements."""

    node: Quantize
    stored: Scalar


def joined(node: Quantize, env: Environment) -> Joined | None:
    """The concat that is quantized, when it is not on integers already and nothing else varies beside it."""
    stages: list[Layout | Scalar] = []
    through: list[Value] = []
    current, extents = node.input, node.params.extents
    while True:
        current = _expanded(current, extents, env, through)
        value = _tensor_of(current, env)
        owner = None if value is None or env.form(value) is not None else getattr(value.owner, "operation", None)
        layout = None if owner is None else match_layout(env.bindings, owner)
        if value is None or layout is None:
            return None
        stages.append(current)
        if layout.kind == "concat":
            return _over(node, layout, value, stages, tuple(through), env)
        if layout.inverse is None or len(layout.sources) != 1:
            return None
        stages.append(layout)
        through.append(value)
        source = layout.sources[0]
        extents = env.bindings.extents(source.type)
        current = Scalar("elem", current.type, payload=(source, identity(len(extents))))


def _expanded(scalar: Scalar, extents: Extents, env: Environment, through: list[Value]) -> Scalar:
    """An expression with what elementwise operations compute written out, back to moves and to what has a form."""
    for _ in range(LONGEST):
        found: dict[tuple[Value, Index], Scalar] = {}
        for leaf in nodes(scalar):
            if leaf.op != "elem" or not leaf.payload[1] or leaf.payload in found:
                continue
            value = leaf.payload[0]
            owner = getattr(value.owner, "operation", None)
            if owner is None or env.form(value) is not None or match_layout(env.bindings, owner) is not None:
                continue
            expanded = env.reader.expand(leaf, extents)
            if expanded is not None and expanded.args and is_repeatable(expanded, env):
                found[leaf.payload] = expanded
        if not found:
            break
        through += [value for value, _ in found]
        scalar = _replaced(scalar, found)
    return scalar


def _replaced(scalar: Scalar, found: Mapping[tuple[Value, Index], Scalar]) -> Scalar:
    return rebuilt(scalar, lambda s: found.get(s.payload, s) if s.op == "elem" else s)


def _tensor_of(scalar: Scalar, env: Environment) -> Value | None:
    """The one tensor that an expression reads, at the place of its result, beside constants and scalars."""
    found: Value | None = None
    for leaf in nodes(scalar):
        if leaf.op != "elem" or not leaf.payload[1] or env.reader.constants.read(leaf.payload[0]) is not None:
            continue
        value, index = leaf.payload
        if (found is not None and found != value) or not is_identity(index, env.bindings.extents(value.type)):
            return None
        found = value
    return found


def _over(
    node: Quantize,
    layout: Layout,
    value: Value,
    stages: list[Layout | Scalar],
    through: tuple[Value, ...],
    env: Environment,
) -> Joined:
    """Everything over the dimensions of the concat: indices are followed back through the moves."""
    extents = env.bindings.extents(value.type)
    place = identity(len(extents))
    leaf = current = Scalar("elem", env.bindings.element_name(value.type), payload=(value, place))
    for stage in reversed(stages):
        if isinstance(stage, Layout):
            assert stage.inverse is not None
            place, value = compose(stage.inverse, place, extents), stage.op.results[0]
        else:
            current = _swapped(substitute_index(stage, place, extents), value, current)
    source, read = spelled(node, env), node.input.payload[0]
    if not any(n.op == "elem" and n.payload[0] == read for n in nodes(source)):
        source = meant(node)  # spelled as several operations
    stored = _swapped(substitute_index(source, place, extents), read, current)
    moves = tuple(s for s in reversed(stages) if isinstance(s, Layout))
    return Joined(layout, stored, current, leaf, node.params.over(place, extents), moves, through)


def _swapped(scalar: Scalar, value: Value, by: Scalar) -> Scalar:
    return rebuilt(scalar, lambda s: by if s.op == "elem" and s.payload[0] == value else s)


def branches(node: Quantize, whole: Joined, env: Environment) -> list[Branch] | None:
    """What is computed from each branch; None where a tensor beside the concat cannot be taken apart."""
    found: list[Branch] = []
    offset: int | None = 0
    for source in whole.layout.sources:
        extents = env.bindings.extents(source.type)
        place = identity(len(extents))
        leaf = Scalar("elem", whole.leaf.type, payload=(source, place))
        stored, read = (_part(s, whole, leaf, offset, extents, env) for s in (whole.stored, whole.input))
        if stored is None or read is None:
            return None
        found.append(Branch(replace(node, input=read, params=whole.params.over(place, extents)), stored))
        size = extents[whole.layout.axis or 0]
        offset = None if offset is None or size is None else offset + size
    return found


def _part(
    scalar: Scalar, whole: Joined, leaf: Scalar, offset: int | None, extents: Extents, env: Environment
) -> Scalar | None:
    """An expression over the concat's dimensions over those of a branch that begins at `offset`."""
    axis = whole.layout.axis or 0
    place: Index = identity(len(extents))
    shifted = None if offset is None else (*place[:axis], plus(place[axis], constant(offset)), *place[axis + 1 :])
    failed = False

    def replaced(s: Scalar) -> Scalar:
        nonlocal failed
        if s.op != "elem":
            return s
        if s.payload == whole.leaf.payload:
            return leaf
        if axis not in dims_of_index(s.payload[1]):
            return s
        moved = None if shifted is None else constant_over(substitute_index(s, shifted, extents), extents, env)
        failed = failed or moved is None
        return moved or s

    found = rebuilt(scalar, replaced)
    return None if failed else found
