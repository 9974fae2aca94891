"""Recognises contractions and convolutions by what their bodies compute, whatever the operation is called."""

from __future__ import annotations

from dataclasses import dataclass

from qfuse._mlir import Operation, Value
from qfuse.indexing import Extents, Index, as_dim, dims_of_index, permutation_of
from qfuse.matchers.nodes import Contraction, Convolution, Node, Opaque
from qfuse.matchers.scalar import LinalgView, Scalar, ScalarReader

_CASTS = ("extf", "truncf")
_INTEGER_STEPS = ("extsi", "extui", "trunci", "subi", "addi")


@dataclass(frozen=True)
class _Factor:
    value: Value
    index: Index


def match_reduction(reader: ScalarReader, view: LinalgView) -> Node:
    """A structured operation with reduction loops as a `Contraction`, a `Convolution` or an `Opaque` reduction."""
    op = view.op
    result = op.results[0]
    opaque = Opaque(op, result, "pooling" if _has_window(view) else "reduction")
    if len(op.results) != 1 or len(view.inits) != 1:
        return opaque
    body = reader.body(view)
    out_index = view.structure.maps[len(view.inputs)]
    if body is None or permutation_of(out_index, len(view.extents)) is None:
        return opaque
    product = _added_to_init(body[0])
    if product is None:
        return opaque
    product, through = _behind_layouts(reader, product, view.extents)
    if through and _has_window(view):
        return opaque  # the sum over a window of a product, not a sliding product
    integer = product.op == "muli"
    if product.op not in ("mul", "muli"):
        return opaque
    factors = [_factor(a, integer) for a in product.args]
    if factors[0] is None or factors[1] is None:
        return opaque
    lhs, rhs = factors[0], factors[1]
    reduction = view.structure.reduction
    read = dims_of_index(lhs.index), dims_of_index(rhs.index)
    if not set(reduction) <= read[0] | read[1] or not all(dims & set(reduction) for dims in read):
        return opaque  # a repeated or a scaled sum
    if _is_window(rhs.index) and not _is_window(lhs.index):
        lhs, rhs = rhs, lhs
    kind = Convolution if _is_window(lhs.index) else Contraction
    return kind(
        op, result, lhs.value, rhs.value, view.inits[0], lhs.index, rhs.index, out_index, view.extents,
        reduction, integer, through,
    )  # fmt: skip


def _behind_layouts(reader: ScalarReader, product: Scalar, extents: Extents) -> tuple[Scalar, tuple[Operation, ...]]:
    """A float product that is an operation of its own, and the operations down to it; else what was given."""
    current: Scalar | None = product
    through: list[Operation] = []
    while current is not None and current.op == "elem" and current.type.startswith(("f", "bf")) and len(through) < 8:
        producer = getattr(current.payload[0].owner, "operation", None)
        current = reader.expand(current, extents)
        if producer is None or current is None:
            break
        through.append(producer)
        if current.op == "mul":
            return current, tuple(through)
    return product, ()


def _added_to_init(scalar: Scalar) -> Scalar | None:
    while scalar.op in _CASTS:
        scalar = scalar.args[0]
    if scalar.op not in ("add", "addi"):
        return None
    for position in (0, 1):
        other = scalar.args[position]
        while other.op in _CASTS:
            other = other.args[0]
        if other.op == "init":
            product = scalar.args[1 - position]
            while product.op in _CASTS:
                product = product.args[0]
            return product
    return None


def _factor(scalar: Scalar, integer: bool) -> _Factor | None:
    """The tensor that a factor of the product reads, through casts (and zero point subtractions of integers)."""
    while scalar.op in _CASTS or (integer and scalar.op in _INTEGER_STEPS):
        scalar = scalar.args[0]
    if scalar.op != "elem":
        return None
    value, index = scalar.payload
    return _Factor(value, index)


def _is_window(index: Index) -> bool:
    return any(as_dim(e) is None and len(e.terms) > 1 for e in index)


def _has_window(view: LinalgView) -> bool:
    return any(_is_window(index) for index in view.structure.maps)


def loop_extent(extents: Extents, loops: tuple[int, ...]) -> int | None:
    """Product of the extents of `loops`, None when one is dynamic."""
    total = 1
    for loop in loops:
        extent = extents[loop]
        if extent is None:
            return None
        total *= extent
    return total
