"""Where the elements of TOSA's layout operations come from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, Linear, constant, dim, floordiv, identity, mod, plus, times

#: What each operation is; see `qfuse.matchers.layout.Layout`.
KINDS = {
    "tosa.transpose": "transpose",
    "tosa.reshape": "reshape",
    "tosa.identity": "cast",
    "tosa.slice": "slice",
    "tosa.tile": "broadcast",
    "tosa.reverse": "reverse",
    "tosa.pad": "pad",
    "tosa.concat": "concat",
    "tosa.gather": "gather",
    "tosa.resize": "gather",
}

_Sizes = tuple[int, ...]


def shape_values(bindings: Bindings, value: Value) -> _Sizes | None:
    """The numbers of a `!tosa.shape` value, or None when they are computed at run time."""
    op = getattr(value.owner, "operation", None)
    if op is None or op.name != "tosa.const_shape":
        return None
    array = bindings.dense(op.attributes["values"])
    return None if array is None else tuple(int(n) for n in array)


def tosa_source_index(bindings: Bindings, op: Operation) -> Index | None:
    """For operations with one source: the index of the source element, over the result's dimensions."""
    name = op.name
    if name in ("tosa.pad", "tosa.concat", "tosa.gather", "tosa.resize") or name not in KINDS:
        return None
    infos = bindings.tensor_info(op.operands[0].type), bindings.tensor_info(op.results[0].type)
    if infos[0] is None or infos[1] is None:
        return None
    inner, outer = infos[0][0], infos[1][0]
    if name == "tosa.transpose":
        return _inverse_permutation(bindings.integers(op.attributes["perms"]))
    if name == "tosa.identity":
        return identity(len(outer))
    if name == "tosa.reshape":
        return reshaped(inner, outer)
    if name == "tosa.reverse":
        return _reversed(outer, op.attributes["axis"].value)
    if name == "tosa.tile":
        return _tiled(inner, outer)
    starts = shape_values(bindings, op.operands[1])
    return None if starts is None else tuple(plus(dim(i), constant(n)) for i, n in enumerate(starts))


def tosa_inverse(bindings: Bindings, op: Operation, index: Index) -> Index | None:
    """The other way round, where every source element has one place in the result; else None."""
    name = op.name
    if name == "tosa.transpose":
        return tuple(dim(i) for i in bindings.integers(op.attributes["perms"]))
    if name in ("tosa.identity", "tosa.reverse"):
        return index
    if name == "tosa.reshape":
        return reshaped(bindings.extents(op.results[0].type), bindings.extents(op.operands[0].type))
    return None


def is_bilinear(op: Operation) -> bool:
    """Whether a `tosa.resize` computes; else it takes the nearest element."""
    return "BILINEAR" in str(op.attributes["mode"])


def tosa_padding(bindings: Bindings, op: Operation) -> tuple[tuple[int, int], ...] | None:
    """Elements that a `tosa.pad` adds below and above, one pair a dimension, or None when not known."""
    sizes = shape_values(bindings, op.operands[1])
    return None if sizes is None else tuple(zip(sizes[::2], sizes[1::2], strict=True))


@lru_cache(maxsize=1 << 8)
def _inverse_permutation(permutation: _Sizes) -> Index:
    places: list[Linear] = [constant(0)] * len(permutation)
    for result, source in enumerate(permutation):
        places[source] = dim(result)
    return tuple(places)


def _reversed(extents: Extents, axis: int) -> Index | None:
    extent = extents[axis]
    if extent is None:
        return None
    dims = list(identity(len(extents)))
    dims[axis] = plus(constant(extent - 1), times(dim(axis), -1))
    return tuple(dims)


def _tiled(inner: Extents, outer: Extents) -> Index | None:
    places: list[Linear] = []
    for position, (own, whole) in enumerate(zip(inner, outer, strict=True)):
        if own is None:
            if whole is not None:
                return None
            return None if inner != outer else identity(len(outer))
        places.append(dim(position) if own == whole else mod(dim(position), own, outer))
    return tuple(places)


@lru_cache(maxsize=1 << 10)
def reshaped(inner: Extents, outer: Extents) -> Index | None:
    """Where the elements of a tensor of shape `outer` lie in one of shape `inner`, both in row-major order.

    Dimensions are taken in groups of equal size; one group may be dynamic, as one dimension on either side.
    """
    kept = [i for i, n in enumerate(inner) if n != 1], [i for i, n in enumerate(outer) if n != 1]
    groups = _groups(inner, outer, *kept)
    if groups is None:
        return None
    places: list[Linear] = [constant(0)] * len(inner)
    for sources, results in groups:
        offset, stride = constant(0), 1
        for position in reversed(results):
            offset = plus(offset, times(dim(position), stride))
            stride *= outer[position] or 1
        stride = 1
        for number, position in enumerate(reversed(sources)):
            extent = inner[position]
            place = floordiv(offset, stride, outer)
            if number < len(sources) - 1:
                assert extent is not None, "only the first dimension of a group is dynamic"
                place = mod(place, extent, outer)
                stride *= extent
            places[position] = place
    return tuple(places)


def _groups(
    inner: Extents, outer: Extents, inner_dims: Sequence[int], outer_dims: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Dimensions of both shapes that hold the same elements, as few together as possible."""
    if inner.count(None) != outer.count(None) or inner.count(None) > 1 or 0 in inner:
        return None
    groups: list[tuple[list[int], list[int]]] = []
    left, right = list(inner_dims[::-1]), list(outer_dims[::-1])
    while left and right:
        sources, results = [left.pop()], [right.pop()]
        while _size(inner, sources) != _size(outer, results):
            if left and _is_short(_size(inner, sources), _size(outer, results)):
                sources.append(left.pop())
            elif right:
                results.append(right.pop())
            else:
                return None
        dynamic = [s for s in sources if inner[s] is None], [r for r in results if outer[r] is None]
        if any(d and part[0] != d[0] for d, part in zip(dynamic, (sources, results), strict=True)):
            return None  # what is within a dynamic dimension cannot be told apart from what is around it
        groups.append((sources, results))
    return None if left or right else groups


def _size(extents: Extents, positions: Sequence[int]) -> tuple[bool, int]:
    """Whether a group is dynamic, and the product of its known extents."""
    size = 1
    for position in positions:
        size *= extents[position] or 1
    return any(extents[p] is None for p in positions), size


def _is_short(a: tuple[bool, int], b: tuple[bool, int]) -> bool:
    return a[1] < b[1] if a[0] == b[0] else not a[0]
