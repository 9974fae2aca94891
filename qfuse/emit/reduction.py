"""Spells integer reductions over windows and dimensions in linalg."""

from __future__ import annotations

from collections.abc import Sequence

from qfuse._builder import Body, Builder
from qfuse._mlir import Extents, Value
from qfuse.emit.base import BuildContext, out_extents
from qfuse.emit.spec import PlannedPooling
from qfuse.indexing import Index, affine_map, as_dim, dims_of_index, identity
from qfuse.matchers.nodes import Reduction
from qfuse.qparams import StorageType

_NAMES = {("max", True): "maxsi", ("min", True): "minsi", ("max", False): "maxui", ("min", False): "minui"}

#: `arith.cmpi` predicates: sgt, slt, ugt, ult.
_PREDICATES = {("max", True): 4, ("min", True): 2, ("max", False): 8, ("min", False): 6}


def window_carrier(
    builder: Builder, extents: Extents, read: Sequence[Index], written: Index
) -> tuple[list[Value], list[Index]]:
    """An operand that only gives loops an extent: those that no operand is read at by themselves.

    Returns the operand and its index, or nothing when every loop has an operand that gives its extent.
    """
    known = {as_dim(e) for index in (*read, written) for e in index}
    missing = [d for d in range(len(extents)) if d not in known]
    if not missing:
        return [], []
    dims = identity(len(extents))
    shape = builder.empty(None, out_extents(extents, missing), "i8")
    return [shape], [tuple(dims[d] for d in missing)]


def pool(builder: Builder, planned: PlannedPooling, context: BuildContext) -> Value:
    """The maximum or minimum of stored integers."""
    storage = planned.storage
    neutral = storage.min if planned.node.kind == "max" else storage.max
    value = context.stored(planned.form)
    if planned.pad is not None:
        value = context.emitter.move(planned.pad, [value], storage.mlir, neutral)
    return pooled(builder, planned.node, value, storage, neutral, context)


def pooled(
    builder: Builder, node: Reduction, value: Value, storage: StorageType, neutral: int, context: BuildContext
) -> Value:
    """The maximum or minimum of the elements of `value`, which are of this storage type, from `neutral` on."""
    element, index = storage.mlir, node.index
    rank = len(node.extents)
    out = builder.bindings.extents(node.result.type)
    empty = builder.empty(None, out, element, context.sizes(node.init))
    init = builder.fill_tensor(builder.constant(f"{_signless(neutral, storage.bits)} : {element}"), empty)
    carrier, carried = window_carrier(builder, node.extents, [index], node.out_index)
    name = f"arith.{_NAMES[node.kind, storage.signed]}"

    def body(inner: Body, args: Sequence[Value]) -> Value:
        return inner.op(name, element, args[0], args[-1])

    iterators = "".join("r" if d in node.reduction else "p" for d in range(rank))
    maps = [affine_map(rank, i) for i in (index, *carried, node.out_index)]
    return builder.generic([value, *carrier], init, maps, iterators, body)


def position(builder: Builder, planned: PlannedPooling, context: BuildContext) -> Value:
    """The place of the first greatest or least stored integer along a loop, and that integer beside it."""
    node, storage = planned.node, planned.storage
    kind, element = node.kind.removeprefix("arg"), storage.mlir
    neutral = storage.min if kind == "max" else storage.max
    value, start = context.stored(planned.form), list(node.op.operands)[-1]
    rank, places = len(node.extents), builder.bindings.element_name(start.type)
    empty = builder.empty(None, builder.bindings.extents(start.type), element, context.sizes(node.init))
    best = builder.fill_tensor(builder.constant(f"{_signless(neutral, storage.bits)} : {element}"), empty)
    carrier, carried = window_carrier(builder, node.extents, [node.index], node.out_index)

    def body(inner: Body, args: Sequence[Value]) -> Sequence[Value]:
        x, held, at = args[0], args[-2], args[-1]
        better = inner.compare("arith.cmpi", _PREDICATES[kind, storage.signed], x, held)
        here = inner.op("arith.index_cast", places, inner.index(node.reduction[0]))
        greatest = inner.op(f"arith.{_NAMES[kind, storage.signed]}", element, x, held)
        return [greatest, inner.op("arith.select", places, better, here, at)]

    iterators = "".join("r" if d in node.reduction else "p" for d in range(rank))
    maps = [affine_map(rank, i) for i in (node.index, *carried, node.out_index, node.out_index)]
    return builder.generics([value, *carrier], [best, start], maps, iterators, body)[1]


def _signless(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def window_dims(index: Index) -> frozenset[int]:
    """Loops that an index reads only as parts of sums."""
    plain = {as_dim(e) for e in index}
    return frozenset(d for d in dims_of_index(index) if d not in plain)
