"""Layout operations: those that move elements and compute nothing, so that they can run on the stored integers.

    dequantize(layout(q)) == layout(dequantize(q))

holds for every operation here when the quantization parameters are moved along (a pad of 0.0 becomes a pad of the zero
point).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Index, Linear, as_dim, constant, dim, floordiv, identity, mod, plus, times
from qfuse.matchers.tosa_layout import KINDS, is_bilinear, tosa_inverse, tosa_padding, tosa_source_index

#: `tensor` operations whose result has the elements of their first operand in another order, or some of them.
_UNKNOWN_ORDER = ("tensor.reshape",)
#: IREE's identity that keeps what is before it apart from what is behind it.
BARRIER = "util.optimization_barrier"


@dataclass(eq=False)
class Layout:
    """A layout operation.

    Attributes:
        kind: `transpose`, `reshape`, `cast`, `broadcast`, `reverse`, `slice`, `pad`, `concat`, `gather` or `barrier`.
        op: the operation.
        sources: the tensors whose elements it moves.
        index: for each element of the result, which element of the source it is; None when not known statically.
        inverse: the other way round, where every source element has one place in the result; else None.
        axis: dimension of a concat.
        padded: dimensions that a pad extends.
        pad_value: SSA value that a pad yields.
    """

    kind: str
    op: Operation
    sources: tuple[Value, ...]
    index: Index | None = None
    inverse: Index | None = None
    axis: int | None = None
    padded: tuple[int, ...] = ()
    pad_value: Any = None


_NAMES = {
    "linalg.transpose": "transpose",
    "linalg.broadcast": "broadcast",
    "tensor.extract_slice": "slice",
    "tensor.cast": "cast",
    "tensor.collapse_shape": "reshape",
    "tensor.expand_shape": "reshape",
    "tensor.reshape": "reshape",
    "tensor.pad": "pad",
    "tensor.insert_slice": "pad",
    "tensor.concat": "concat",
    BARRIER: "barrier",
}


def match_layout(bindings: Bindings, op: Operation) -> Layout | None:
    """`op` as a layout operation on ranked tensors, or None. Generic copies are matched from their bodies."""
    name = op.name
    if name in KINDS:
        return _tosa(bindings, op)
    if name not in _NAMES or len(op.results) != 1 or not bindings.is_ranked_tensor(op.results[0].type):
        return None
    if name == "tensor.pad":
        return _pad(bindings, op)
    if name == "tensor.insert_slice":
        return _inserted(bindings, op)
    if name == "tensor.concat":
        return Layout("concat", op, tuple(op.operands), axis=op.attributes["dim"].value)
    if name in _UNKNOWN_ORDER:
        return Layout("reshape", op, (op.operands[0],))
    index = source_index(bindings, op)
    kind = _NAMES[name]
    if index is None and name not in ("tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice"):
        return None
    return Layout(kind, op, (op.operands[0],), index, None if index is None else _inverse(bindings, op, index))


def source_index(bindings: Bindings, op: Operation) -> Index | None:
    """For single-source layout operations: the index of the source element, over the result's dimensions."""
    name = op.name
    if name in KINDS:
        return tosa_source_index(bindings, op)
    if name not in _NAMES:
        return None
    if name == "linalg.transpose":
        return _inverse_permutation(bindings.integers(op.attributes["permutation"]))
    if name == "linalg.broadcast":
        added = set(bindings.integers(op.attributes["dimensions"]))
        rank = len(bindings.extents(op.results[0].type))
        return tuple(dim(i) for i in range(rank) if i not in added)
    if name == "tensor.cast":
        source_type = op.operands[0].type
        if not bindings.is_ranked_tensor(source_type) or not bindings.is_ranked_tensor(op.results[0].type):
            return None
        return identity(len(bindings.extents(source_type)))
    if name == "tensor.collapse_shape":
        inner = bindings.extents(op.operands[0].type)
        outer = bindings.extents(op.results[0].type)
        return _collapsed(_groups(op), inner, outer)
    if name == "tensor.expand_shape":
        return _expanded(_groups(op), bindings.extents(op.results[0].type))
    if name == "tensor.extract_slice":
        return _slice(bindings, op)
    if name == BARRIER and is_integer_barrier(bindings, op):
        return identity(len(bindings.extents(op.results[0].type)))
    return None


def is_integer_barrier(bindings: Bindings, op: Operation) -> bool:
    """Whether `op` is a barrier on integers; one on floats is somebody's wish, and left alone."""
    return (
        op.name == BARRIER
        and len(op.operands) == 1
        and bindings.is_ranked_tensor(op.results[0].type)
        and bindings.element_name(op.results[0].type).startswith("i")
    )


@lru_cache(maxsize=1 << 8)
def _inverse_permutation(permutation: tuple[int, ...]) -> Index:
    places: list[Linear] = [constant(0)] * len(permutation)
    for result, source in enumerate(permutation):
        places[source] = dim(result)
    return tuple(places)


def _groups(op: Operation) -> list[list[int]]:
    return [[int(i) for i in group] for group in op.attributes["reassociation"]]


def _collapsed(
    groups: Sequence[Sequence[int]], inner: Sequence[int | None], outer: Sequence[int | None]
) -> Index | None:
    """Index into the expanded tensor from the collapsed one's dimensions."""
    places: list[Linear] = []
    for position, group in enumerate(groups):
        stride = 1
        reversed_places: list[Linear] = []
        for number, member in enumerate(reversed(group)):
            extent = inner[member]
            place = floordiv(dim(position), stride, tuple(outer))
            if number < len(group) - 1:
                if not extent:  # dynamic, or nothing to index
                    return None
                place = mod(place, extent, tuple(outer))
                stride *= extent
            reversed_places.append(place)
        places.extend(reversed(reversed_places))
    return tuple(places) if groups else tuple(constant(0) for _ in inner)


def _expanded(groups: Sequence[Sequence[int]], extents: Sequence[int | None]) -> Index | None:
    """Index into the collapsed tensor from the expanded one's dimensions."""
    places: list[Linear] = []
    for group in groups:
        total, stride = constant(0), 1
        for number, member in enumerate(reversed(group)):
            total = plus(total, times(dim(member), stride))
            extent = extents[member]
            if number < len(group) - 1:
                if extent is None:
                    return None
                stride *= extent
        places.append(total)
    return tuple(places)


def _slice(bindings: Bindings, op: Operation) -> Index | None:
    offsets = list(op.attributes["static_offsets"])
    sizes = list(op.attributes["static_sizes"])
    strides = list(op.attributes["static_strides"])
    dynamic = -(2**63)
    kept = kept_dims(sizes, bindings.extents(op.results[0].type))
    if kept is None or dynamic in offsets or dynamic in strides:
        return None
    return tuple(
        plus(times(dim(kept.index(i)), strides[i]), constant(offsets[i])) if i in kept else constant(offsets[i])
        for i in range(len(offsets))
    )


def kept_dims(sizes: Sequence[int], result: Sequence[int | None]) -> list[int] | None:
    """Source dimensions that a (possibly rank-reducing) slice keeps."""
    if len(sizes) == len(result):
        return list(range(len(sizes)))
    kept: list[int] = []
    wanted = list(result)
    for position, size in enumerate(sizes):
        left = len(sizes) - position
        if wanted and (size == wanted[0] or (size < 0 and wanted[0] is None)):
            if size == 1 and left > len(wanted) and all(s != 1 for s in wanted[:1]):
                continue
            kept.append(position)
            wanted.pop(0)
        elif size != 1:
            return None
    return kept if not wanted else None


def _inverse(bindings: Bindings, op: Operation, index: Index) -> Index | None:
    name = op.name
    if name == "linalg.transpose":
        return tuple([dim(i) for i in bindings.integers(op.attributes["permutation"])])
    if name == "tensor.cast":
        return identity(len(index))
    if name == "tensor.collapse_shape":
        return _expanded(_groups(op), bindings.extents(op.operands[0].type))
    if name == "tensor.expand_shape":
        inner = bindings.extents(op.results[0].type)
        return _collapsed(_groups(op), inner, bindings.extents(op.operands[0].type))
    return None


def _pad(bindings: Bindings, op: Operation) -> Layout | None:
    low = list(op.attributes["static_low"])
    high = list(op.attributes["static_high"])
    block = op.regions[0].blocks[0]
    operations = list(block.operations)
    value = operations[-1].operation.operands[0]
    if len(operations) != 1 or value.owner == block:
        return None
    dynamic = -(2**63)
    padded = tuple(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a or b)
    index: Index | None = None
    if dynamic not in low:
        index = tuple(plus(dim(i), constant(-a)) for i, a in enumerate(low))
    return Layout("pad", op, (op.operands[0],), index, padded=padded, pad_value=value)


def _inserted(bindings: Bindings, op: Operation) -> Layout | None:
    """An insertion into a tensor of one value pads, between the elements too when it has strides."""
    base = getattr(op.operands[1].owner, "operation", None)
    if base is None or base.name != "linalg.fill":
        return None
    inner = bindings.extents(op.operands[0].type)
    outer = bindings.extents(op.results[0].type)
    if len(inner) != len(outer):
        return None
    offsets, strides = list(op.attributes["static_offsets"]), list(op.attributes["static_strides"])
    padded = tuple(
        i
        for i, (a, b) in enumerate(zip(inner, outer, strict=True))
        if offsets[i] != 0 or strides[i] != 1 or a != b or a is None
    )
    # Only the dimensions that are not padded have a place in the source for each of theirs.
    index = tuple(constant(0) if i in padded else dim(i) for i in range(len(outer)))
    return Layout("pad", op, (op.operands[0],), index, padded=padded, pad_value=base.operands[0])


def _tosa(bindings: Bindings, op: Operation) -> Layout | None:
    kind = KINDS[op.name]
    if len(op.results) != 1 or not all(bindings.is_ranked_tensor(v.type) for v in (*op.results, op.operands[0])):
        return None
    if op.name == "tosa.resize" and is_bilinear(op):
        return None
    if kind == "concat":
        return Layout(kind, op, tuple(op.operands), axis=op.attributes["axis"].value)
    if kind == "pad":
        padding = tosa_padding(bindings, op)
        index = None if padding is None else tuple(plus(dim(i), constant(-a)) for i, (a, _) in enumerate(padding))
        rank = len(bindings.extents(op.results[0].type))
        padded = tuple(range(rank)) if padding is None else tuple(i for i, p in enumerate(padding) if any(p))
        return Layout(kind, op, (op.operands[0],), index, padded=padded, pad_value=op.operands[2])
    index = tosa_source_index(bindings, op)
    inverse = None if index is None else tosa_inverse(bindings, op, index)
    return Layout(kind, op, (op.operands[0],), index, inverse)


def is_projection(index: Index) -> bool:
    """Whether an index is a list of distinct dimensions, so that an indexing map can say it."""
    positions = [as_dim(e) for e in index]
    return None not in positions and len(set(positions)) == len(positions)
