"""Recognises contractions and convolutions by what their bodies compute, whatever the operation is called."""

from __future__ import annotations

from dataclasses import dataclass

from qfuse._mlir import Operation, Value
from qfuse.indexing import Extents, Index, Linear, as_dim, constant, dim, dims_of_index, permutation_of
from qfuse.matchers.nodes import Contraction, Convolution, Node, Opaque, Reduction
from qfuse.matchers.position import match_position
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.scalar import Scalar
from qfuse.matchers.structure import View

_CASTS = ("extf", "truncf")
_INTEGER_STEPS = ("extsi", "extui", "trunci", "subi", "addi")


@dataclass(eq=False)
class _Factor:
    value: Value
    index: Index


def match_reduction(reader: ScalarReader, view: View) -> Node:
    """A structured operation with reduction loops as a `Contraction`, `Convolution` or `Reduction`, else `Opaque`."""
    op = view.op
    result = op.results[0]
    opaque = Opaque(op, result, "pooling" if _has_window(view) else "reduction")
    if any(_is_used(r) for r in list(op.results)[1:]):
        places = None if _is_used(result) else match_position(reader, view)
        return places or Opaque(op, result, "a reduction with several results")
    direct = _direct_factors(reader, view)
    body = view.structure.yielded if direct is not None else reader.body(view)
    out_index, extents = _whole_result(view.structure.maps[len(view.inputs)], view.extents)
    if body is None or permutation_of(out_index, len(extents)) is None:
        return opaque
    if direct is not None:
        return _contraction(view, *direct, out_index, extents, ()) or opaque
    simple = _simple(body[0])
    if simple is not None and simple[0] != "sum":
        return _reduction(view, out_index, extents, *simple)
    product = _added_to_init(body[0])
    if product is None:
        return opaque
    product, through = _behind_layouts(reader, product, view.extents)
    if simple is not None and (not through or _has_window(view)):
        return _reduction(view, out_index, extents, *simple)
    integer = product.op == "muli"
    if product.op not in ("mul", "muli"):
        return opaque
    factors = [_factor(a, integer) for a in product.args]
    if factors[0] is None or factors[1] is None:
        # A product by a number (a dequantize) belongs to the operand.
        return opaque if simple is None else _reduction(view, out_index, extents, *simple)
    return _contraction(view, integer, factors[0], factors[1], out_index, extents, through) or opaque


def _direct_factors(reader: ScalarReader, view: View) -> tuple[bool, _Factor, _Factor] | None:
    """Whether integers are multiplied, and the factors, where the body multiplies elements of two of the operands."""
    found = view.structure.found
    if _direct_factors not in found:
        body = view.structure.yielded
        product = None if body is None else _added_to_init(body[0])
        integer = product is not None and product.op == "muli"
        is_product = product is not None and product.op in ("mul", "muli")
        factors = [_factor(a, integer) for a in product.args] if product is not None and is_product else [None]
        found[_direct_factors] = None if None in factors else (integer, *factors)
    direct = found[_direct_factors]
    if direct is None:
        return None
    integer, *numbered = direct
    values = [view.inputs[f.value] for f in numbered]
    if not all(reader.bindings.is_ranked_tensor(v.type) for v in values):
        return None
    lhs, rhs = (_Factor(v, f.index) for v, f in zip(values, numbered, strict=True))
    return integer, lhs, rhs


def _contraction(
    view: View,
    integer: bool,
    lhs: _Factor,
    rhs: _Factor,
    out_index: Index,
    extents: Extents,
    through: tuple[Operation, ...],
) -> Contraction | None:
    """A contraction of two factors, or None for a repeated or a scaled sum."""
    reduction = view.structure.reduction
    read = dims_of_index(lhs.index), dims_of_index(rhs.index)
    if not set(reduction) <= read[0] | read[1] or not all(dims & set(reduction) for dims in read):
        return None
    if _is_window(rhs.index) and not _is_window(lhs.index):
        lhs, rhs = rhs, lhs
    kind = Convolution if _is_window(lhs.index) else Contraction
    return kind(
        view.op, view.op.results[0], lhs.value, rhs.value, view.inits[0], lhs.index, rhs.index, out_index, extents,
        reduction, integer, through,
    )  # fmt: skip


def _is_used(value: Value) -> bool:
    return next(iter(value.uses), None) is not None


def _simple(scalar: Scalar) -> tuple[str, Scalar] | None:
    """`(kind, element)` of a float sum, maximum or minimum of an element with what was accumulated, or None."""
    kind = {"add": "sum", "max": "max", "min": "min"}.get(scalar.op)
    if kind is None or len(scalar.args) != 2:
        return None
    for position in (0, 1):
        element = scalar.args[1 - position]
        while element.op == "extf":
            element = element.args[0]
        if scalar.args[position].op == "init" and element.op == "elem" and element.type.startswith(("f", "bf")):
            return kind, element
    return None


def _whole_result(out_index: Index, extents: Extents) -> tuple[Index, Extents]:
    """A result that keeps reduced dimensions (written at 0) has a loop of extent 1 for each of them."""
    written: list[Linear] = []
    for expr in out_index:
        if expr == constant(0):
            expr = dim(len(extents))
            extents = (*extents, 1)
        written.append(expr)
    return tuple(written), extents


def _reduction(view: View, out_index: Index, extents: Extents, kind: str, element: Scalar) -> Node:
    operand, index = element.payload
    op = view.op
    reduction = view.structure.reduction
    return Reduction(op, op.results[0], kind, operand, view.inits[0], index, out_index, extents, reduction)


def _behind_layouts(reader: ScalarReader, product: Scalar, extents: Extents) -> tuple[Scalar, tuple[Operation, ...]]:
    """A float product that is an operation of its own, and the operations down to it; else what was given."""
    current = product
    through: list[Operation] = []
    while current.op == "elem" and current.type.startswith(("f", "bf")) and len(through) < 8:
        producer = getattr(current.payload[0].owner, "operation", None)
        expanded = reader.expand(current, extents)
        if producer is None or expanded is None:
            break
        current = expanded
        through.append(producer)
        if current.op == "mul":
            return current, tuple(through)
    return product, ()


def summed(scalar: Scalar) -> Scalar | None:
    """What an integer sum adds to the accumulated value, without casts; None for other bodies."""
    if scalar.op != "addi":
        return None
    for position in (0, 1):
        if scalar.args[position].op == "init":
            return scalar.args[1 - position]
    return None


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


def _has_window(view: View) -> bool:
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
