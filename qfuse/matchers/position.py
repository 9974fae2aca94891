"""Recognises the place of a maximum or minimum: a reduction with two results, the values and where they were found.

m' = max(x, m) ; at' = select(x > m, index, at)
"""

from __future__ import annotations

from qfuse.indexing import dim, permutation_of
from qfuse.matchers.nodes import Node, Reduction
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.scalar import Scalar
from qfuse.matchers.structure import View

#: `arith.cmpf` predicates, ordered and unordered; what each is with operands exchanged, and negated.
_PREDICATES = {2: ">", 9: ">", 3: ">=", 10: ">=", 4: "<", 11: "<", 5: "<=", 12: "<="}
_EXCHANGED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_NEGATED = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


def match_position(reader: ScalarReader, view: View) -> Node | None:
    """The place of the first greatest or least element along one loop, or None."""
    body, op = reader.body(view), view.op
    if body is None or len(body) != 2 or len(view.inits) != 2 or len(view.structure.reduction) != 1:
        return None
    first, second = view.structure.maps[len(view.inputs) :]
    (loop,) = view.structure.reduction
    if first != second or permutation_of(first, len(view.extents)) is None:
        return None
    value, place = body
    element = _other(value, 0) if value.op in ("max", "min") else None
    if element is None or element.op != "elem" or not element.type.startswith(("f", "bf")):
        return None
    if _relation(place, element, loop) != {"max": ">", "min": "<"}[value.op]:
        return None
    operand, index = element.payload
    return Reduction(
        op, op.results[0], f"arg{value.op}", operand, view.inits[0], index, first, view.extents, (loop,),
        position=op.results[1],
    )  # fmt: skip


def _other(scalar: Scalar, number: int) -> Scalar | None:
    """The operand beside the old value of result `number`, or None."""
    for mine, other in (scalar.args, scalar.args[::-1]):
        if other.op == "init" and other.payload == number:
            return mine
    return None


def _relation(place: Scalar, element: Scalar, loop: int) -> str | None:
    """How an element must compare with the old value for its place to be taken, or None for other expressions."""
    if place.op != "select" or place.args[0].op != "cmpf":
        return None
    condition, yes, no = place.args
    relation = _PREDICATES.get(condition.payload)
    left, right = condition.args
    if relation is None or _other(condition, 0) is None or element.payload not in (left.payload, right.payload):
        return None
    if left.op == "init":
        relation = _EXCHANGED[relation]
    if _is_place(yes, loop) and _is_old(no):
        return relation
    return _NEGATED[relation] if _is_place(no, loop) and _is_old(yes) else None


def _is_old(scalar: Scalar) -> bool:
    return scalar.op == "init" and scalar.payload == 1


def _is_place(scalar: Scalar, loop: int) -> bool:
    while scalar.op == "index_cast":
        scalar = scalar.args[0]
    return scalar.op == "index" and scalar.payload == dim(loop)
