"""Contractions of two dequantized tensors become integer contractions.

    %a = dequantize %qa          %acc = contract %qa, %qb : i8, i8 -> i32
    %b = dequantize %qb    ->    %r   = float(%acc - corrections) * (scale_a * scale_b)
    %r = contract %a, %b

by  sum_k (a - za)(b - zb) = sum_k a b  -  za sum_k b  -  zb sum_k a  +  K za zb  with a scale that does not vary along
k. Where it varies in blocks of g, the sum is taken block by block in integers and over the blocks in float.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qfuse.emit.spec import PlannedContraction, Side
from qfuse.fusions.base import Fusion
from qfuse.fusions.expression import constant_operand_over
from qfuse.fusions.requires import kind_of
from qfuse.graph import AccumForm, Array, Decision, Environment, Refusal, Step, StepOperand, StoredForm
from qfuse.indexing import (
    Extents,
    Index,
    Linear,
    as_dim,
    compose,
    dim,
    dims_of_index,
    identity,
    is_plain,
    permutation_of,
    plus,
    printed,
    times,
)
from qfuse.matchers.contraction import loop_extent
from qfuse.matchers.nodes import Contraction, Convolution, Node, Reduction
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import Param


class FuseContraction(Fusion):
    """matmul, batch_matmul, contract, dot, generics, multiply-then-reduce: any granularity, any batch dimensions."""

    id = "qfuse.contraction"
    nodes = (Contraction,)
    exactness = ("reassociated",)
    doc = "contraction of two dequantized tensors -> integer contraction with i32 or i64 accumulators"

    def match(self, node: Node) -> bool:
        """Float contractions; convolutions are another family."""
        return isinstance(node, Contraction) and not isinstance(node, Convolution) and not node.integer

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses what is not dequantized, scales that vary along the reduction, accumulators that may overflow."""
        assert isinstance(node, Contraction)
        forms = [env.form(node.lhs), env.form(node.rhs)]
        stored = [f for f in forms if isinstance(f, StoredForm)]
        if not stored:
            return None
        for position, form in enumerate(forms):
            if not isinstance(form, StoredForm):
                side = "lhs" if position == 0 else "rhs"
                return Refusal(
                    f"operand {position} ({side}) is not dequantized",
                    "quantize both operands (weight-only quantization stays in float)",
                )
        planned = _plan(node, stored[0], stored[1], env)
        if isinstance(planned, Refusal):
            return planned
        extents = env.bindings.extents(node.result.type)
        element = env.bindings.element_name(node.result.type)
        decision = Decision(self, node, "reassociated", payload=planned, needs=(stored[0].q, stored[1].q))
        steps = init_steps(node, element, extents, env)
        decision.form = AccumForm(decision, steps, (), identity(len(extents)), extents, element)
        decision.detail = {
            "lhs": str(stored[0].params),
            "rhs": str(stored[1].params),
            "accumulator": f"i{planned.bits}",
            "accumulator_bound": planned.bound,
            "block_size": None if planned.blocked is None else planned.blocked[1],
        }
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The accumulators, by the target's emitter."""
        return context.emitter.accumulate(decision.payload, context)  # type: ignore[attr-defined]


def _is_read_whole(leaf: Scalar, extents: Extents, env: Environment) -> bool:
    """Whether a tensor is read along all of its dimensions: a bias may be a slice of another."""
    value, index = leaf.payload
    own = env.bindings.extents(value.type)
    dims = [as_dim(e) for e in index]
    return is_plain(index) and all(n == (1 if d is None else extents[d]) for d, n in zip(dims, own, strict=True))


def init_steps(node: Contraction | Reduction, element: str, extents: Extents, env: Environment) -> tuple[Step, ...]:
    """What the contraction accumulates into, as an addition; nothing for zeros."""
    if node.init is None:
        return ()
    index = node.init_index if isinstance(node, Contraction) else None
    leaf = Scalar("elem", element, payload=(node.init, identity(len(extents)) if index is None else index))
    whole = leaf
    for _ in range(8):
        expanded = env.reader.expand(leaf, extents)
        if expanded is None or expanded.op not in ("elem", "const"):
            break
        leaf = expanded
        whole = whole if leaf.op == "const" or not _is_read_whole(leaf, extents, env) else leaf
    if leaf.op == "const":
        number = float(leaf.payload)
        return () if number == 0.0 else (Step("add", StepOperand(number=number)),)
    if leaf is not whole and env.reader.constants.read(leaf.payload[0]) is not None:
        part = constant_operand_over(leaf, extents, env)  # channels that are split, merged or left out
        if part is not None:
            return (Step("add", part),)
    value, index = whole.payload
    return (Step("add", StepOperand(value=value, index=index, element=leaf.type)),)


def _plan(
    node: Contraction, lhs_form: StoredForm, rhs_form: StoredForm, env: Environment
) -> PlannedContraction | Refusal:
    loops = node.extents
    lhs = side_of(lhs_form, node.lhs_index, loops, env)
    rhs = side_of(rhs_form, node.rhs_index, loops, env)
    for role, side in (("lhs", lhs), ("rhs", rhs)):
        in_window = isinstance(node, Convolution) and (role == "lhs" or node.multiplier > 0)
        if permutation_of(side.index, len(loops)) is None and not in_window:
            return Refusal(f"{role} is read at {printed(side.index)}, which is not a list of loops")
    if not dims_of_index(lhs.index) & dims_of_index(rhs.index) >= set(node.reduction):
        return Refusal("a reduction loop is not read by both operands")
    return plan_sum(node, lhs, rhs, env)


def plan_sum(
    node: Contraction | Reduction, lhs: Side, rhs: Side, env: Environment, unit: bool = False
) -> PlannedContraction | Refusal:
    """Decides blocks and accumulators of a sum of products; with `unit` of a sum."""
    loops = node.extents
    out_loops = tuple(d for d in (as_dim(e) for e in node.out_index) if d is not None)
    extents, reduction, blocked = loops, node.reduction, None
    varying = _blocks(lhs, rhs, node.reduction, loops)
    if isinstance(varying, Refusal):
        return varying
    size = _reduction_size(loops, node.reduction, env)
    if varying is not None:
        split = _split(lhs, rhs, loops, varying)
        lhs, rhs, extents, blocked = *split, varying
        out_loops = (*out_loops, len(loops))
        size = varying[1]
    if size is None:
        return Refusal("the reduction size is dynamic and no bound is given", "give one with the option max_reduction")
    bound, raw = _bounds(lhs, rhs, reduction, size)
    planned = PlannedContraction(node, lhs, rhs, extents, reduction, blocked, out_loops, 0, bound, raw, unit)
    return choose_accumulator(planned, env)


def choose_accumulator(planned: PlannedContraction, env: Environment) -> PlannedContraction | Refusal:
    """The narrowest accumulators that hold the sums, in blocks where none do; or why there are none."""
    kind = kind_of(planned.node)
    widths = env.target.accumulator_widths(kind)
    fixed = env.vocabulary.accumulator(planned.lhs.storage, planned.rhs.storage)
    widths = tuple(w for w in widths if fixed in (None, w))
    if not widths:
        return Refusal(f"operands {planned.lhs.storage} and {planned.rhs.storage} take accumulators of {fixed} bits")
    for bits in widths:
        if planned.bound < 1 << (bits - 1):
            planned.bits = bits
            return planned
    narrow = widths[-1]
    types, where = " or ".join(f"i{w}" for w in widths), env.target.accumulators_quoted(kind)
    reason = f"the accumulator can reach {planned.bound}, which does not fit {types}{where}"
    hint = "use narrower storage, a smaller reduction or a target with wider accumulators"
    if not env.target.split_reduction or planned.blocked is not None or len(planned.reduction) != 1 or planned.unit:
        return Refusal(reason, hint)
    loop = planned.reduction[0]
    extent = planned.extents[loop]
    term = _magnitude(planned.lhs) * _magnitude(planned.rhs)
    most = ((1 << (narrow - 1)) - 1) // term
    size = None if extent is None else next((g for g in range(min(most, extent), 0, -1) if extent % g == 0), None)
    if size is None or size * 8 < min(most, extent or 0) or size < 2:
        return Refusal(reason, hint)
    lhs, rhs, extents = _split(planned.lhs, planned.rhs, planned.extents, (loop, size))
    bound, raw = _bounds(lhs, rhs, planned.reduction, size)
    return replace(
        planned, lhs=lhs, rhs=rhs, extents=extents, blocked=(loop, size),
        out_loops=(*planned.out_loops, len(planned.extents)), bits=narrow, bound=bound, raw_bound=raw,
    )  # fmt: skip


def side_of(form: StoredForm, index: Index, loops: Extents, env: Environment) -> Side:
    """An operand of a sum: a form read at `index`, everything over the loops."""
    params = form.params.over(index, loops)
    stored_index = compose(form.index, index, loops)
    return Side(form, stored_index, params, form.params.storage, env.array(form.q, form.params.storage))


def _reduction_size(loops: Extents, reduction: tuple[int, ...], env: Environment) -> int | None:
    size = loop_extent(loops, reduction)
    return env.options.max_reduction if size is None else size


def _blocks(lhs: Side, rhs: Side, reduction: tuple[int, ...], loops: Extents) -> tuple[int, int] | Refusal | None:
    """The reduction loop and block size along which parameters vary, or None when they do not."""
    found: dict[int, int] = {}
    for role, side in (("lhs", lhs), ("rhs", rhs)):
        for what, param in (("scale", side.params.scale), ("zero point", side.params.zero_point)):
            for expr in param.index:
                for atom, _ in expr.terms:
                    loop = atom.position if atom.kind == "d" else _only_dim(atom.arg)
                    if loop is None or loop not in reduction:
                        continue
                    if atom.kind != "/" or as_dim(atom.arg or expr) is None:
                        return Refusal(
                            f"the {what} of {role} varies along the reduction without blocks",
                            "quantize along another dimension, or in groups",
                        )
                    before = found.get(loop)
                    found[loop] = atom.divisor if before is None else int(np.gcd(before, atom.divisor))
    if not found:
        return None
    if len(found) > 1:
        return Refusal("parameters vary in blocks along two reduction loops")
    loop, size = next(iter(found.items()))
    extent = loops[loop]
    if extent is None or extent % size:
        shown = "dynamic" if extent is None else str(extent)
        return Refusal(f"blocks of {size} do not divide the reduction size {shown}")
    return loop, size


def _only_dim(expr: Linear | None) -> int | None:
    if expr is None:
        return None
    dims = dims_of_index((expr,))
    return next(iter(dims)) if len(dims) == 1 else None


def _split(lhs: Side, rhs: Side, loops: Extents, blocked: tuple[int, int]) -> tuple[Side, Side, Extents]:
    """Splits a loop `k` into blocks: `k = block * size + k'`; the block loop is appended."""
    loop, size = blocked
    extent = loops[loop]
    assert extent is not None, "a loop of unknown extent is not split"
    count = extent // size
    extents = (*loops[:loop], size, *loops[loop + 1 :], count)
    places = list(identity(len(loops)))
    places[loop] = plus(times(dim(len(loops)), size), dim(loop))

    def moved(side: Side) -> Side:
        params = side.params.over(tuple(places), extents)
        index: list[Linear] = []
        array = side.array
        for position, expr in enumerate(side.index):
            if as_dim(expr) != loop:
                index.append(expr)
                continue
            index += [dim(len(loops)), dim(loop)]
            if array is not None:
                shape = array.shape
                array = array.reshape(*shape[:position], count, size, *shape[position + 1 :])
        return Side(side.form, tuple(index), params, side.storage, array)

    return moved(lhs), moved(rhs), extents


def _magnitude(side: Side) -> int:
    low, high = side.extremes
    return max(abs(low), abs(high), 1)


def _bounds(lhs: Side, rhs: Side, reduction: tuple[int, ...], size: int) -> tuple[int, int]:
    """Greatest absolute value of the corrected and of the uncorrected sum over `size` products.

    With constant integers on one side its values are used, an output channel at a time.
    """
    raw_term = [max(abs(s.form.low), abs(s.form.high), 1) for s in (lhs, rhs)]
    corrected = size * _magnitude(lhs) * _magnitude(rhs)
    raw = size * raw_term[0] * raw_term[1]
    for side, other, other_raw in ((rhs, lhs, raw_term[0]), (lhs, rhs, raw_term[1])):
        sums = _absolute_sums(side, reduction)
        if sums is None:
            continue
        corrected = min(corrected, sums[0] * _magnitude(other))
        raw = min(raw, sums[1] * other_raw)
    return max(corrected, 1), max(raw, 1)


def _absolute_sums(side: Side, reduction: tuple[int, ...]) -> tuple[int, int] | None:
    """Greatest `sum |q - z|` and `sum |q|` over the reduction of a constant operand."""
    if side.array is None or not side.array.size or None in map(as_dim, side.index):
        return None
    axes = tuple(i for i, e in enumerate(side.index) if as_dim(e) in reduction)
    wide = side.array.astype(np.int32 if side.storage.bits <= 16 else np.int64)
    # Sums of bytes that fit an i32 are summed up there, which is faster.
    total = np.int32 if side.storage.bits <= 8 and side.array.size < 1 << 22 else np.int64
    raw = int(np.abs(wide).sum(axis=axes, dtype=total).max(initial=0))
    if side.params.symmetric:
        return raw, raw
    zero = _aligned(side.params.zero_point, side.index)
    if zero is None:
        return None
    return int(np.abs(wide - zero).sum(axis=axes, dtype=np.int64).max(initial=0)), raw


def _aligned(param: Param, index: Index) -> Array | None:
    """A constant parameter as an array that broadcasts against stored integers read at `index`."""
    if param.data is None:
        return None
    if not param.index:
        return param.data.astype(np.int64)
    places = {as_dim(e): i for i, e in enumerate(index)}
    shape = [1] * len(index)
    order: list[int] = []
    for axis, expr in enumerate(param.index):
        place = places.get(as_dim(expr))
        if place is None:
            return None
        order.append(place)
        shape[place] = param.data.shape[axis]
    return param.data.astype(np.int64).transpose(np.argsort(order)).reshape(shape)
