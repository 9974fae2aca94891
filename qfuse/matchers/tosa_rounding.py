"""Rounding as TOSA has to spell it, which has no operation for it.

f = floor x ; c = ceil x ; d = x - f ; even = equal(f, 2 * floor(0.5 * f))
select(d < 0.5 or (d == 0.5 and even), f, c)         ->  round(x), halves to even
select(x < 0, c, f)                                  ->  trunc(x)
"""

from __future__ import annotations

from collections.abc import Iterator

from qfuse._mlir import Operation, Value
from qfuse.matchers.constants import ConstantReader


def match_rounding(constants: ConstantReader, op: Operation) -> tuple[str, Value] | None:
    """`("round" or "trunc", x)` for a `tosa.select` that ends the rounding of `x`, or None."""
    condition, yes, no = op.operands
    floor, ceil = _operand_of(yes, "tosa.floor"), _operand_of(no, "tosa.ceil")
    if floor is not None and ceil is not None and floor == ceil:
        return ("round", floor) if _keeps_floor(constants, condition, floor, yes) else None
    ceil, floor = _operand_of(yes, "tosa.ceil"), _operand_of(no, "tosa.floor")
    if floor is None or ceil is None or floor != ceil:
        return None
    below = _operands_of(condition, "tosa.greater")
    is_negative = below is not None and _is_number(constants, below[0], 0.0) and below[1] == floor
    return ("trunc", floor) if is_negative else None


def _keeps_floor(constants: ConstantReader, condition: Value, x: Value, floor: Value) -> bool:
    """Whether `condition` says that `x` is nearer to its floor, or as near and the floor is even."""
    for nearer, tied in _both_orders(_operands_of(condition, "tosa.logical_or")):
        parts = _operands_of(nearer, "tosa.greater")
        if parts is None or not _is_number(constants, parts[0], 0.5) or not _is_rest(parts[1], x, floor):
            continue
        for half, even in _both_orders(_operands_of(tied, "tosa.logical_and")):
            if _is_half(constants, half, x, floor) and _is_even(constants, even, floor):
                return True
    return False


def _is_half(constants: ConstantReader, condition: Value, x: Value, floor: Value) -> bool:
    pairs = _both_orders(_operands_of(condition, "tosa.equal"))
    return any(_is_rest(rest, x, floor) and _is_number(constants, half, 0.5) for rest, half in pairs)


def _is_even(constants: ConstantReader, condition: Value, floor: Value) -> bool:
    for whole, doubled in _both_orders(_operands_of(condition, "tosa.equal")):
        if not _is_same(whole, floor):
            continue
        inner = _factor(constants, doubled, 2.0)
        halved = None if inner is None else _operand_of(inner, "tosa.floor")
        value = None if halved is None else _factor(constants, halved, 0.5)
        if value is not None and _is_same(value, floor):
            return True
    return False


def _factor(constants: ConstantReader, product: Value, number: float) -> Value | None:
    """The other factor of a product with a number, or None."""
    for value, factor in _both_orders(_operands_of(product, "tosa.mul")):
        if _is_number(constants, factor, number):
            return value
    return None


def _is_rest(value: Value, x: Value, floor: Value) -> bool:
    parts = _operands_of(value, "tosa.sub")
    return parts is not None and parts[0] == x and _is_same(parts[1], floor)


def _is_same(value: Value, floor: Value) -> bool:
    """Whether a value is `floor`, maybe computed twice."""
    if value == floor:
        return True
    inner = _operand_of(value, "tosa.floor")
    return inner is not None and inner == _operand_of(floor, "tosa.floor")


def _operand_of(value: Value, name: str) -> Value | None:
    op = getattr(value.owner, "operation", None)
    return op.operands[0] if op is not None and op.name == name else None


def _operands_of(value: Value, name: str) -> tuple[Value, Value] | None:
    op = getattr(value.owner, "operation", None)
    return (op.operands[0], op.operands[1]) if op is not None and op.name == name else None


def _both_orders(pair: tuple[Value, Value] | None) -> Iterator[tuple[Value, Value]]:
    if pair is not None:
        yield pair
        yield pair[1], pair[0]


def _is_number(constants: ConstantReader, value: Value, number: float) -> bool:
    found = constants.scalar(value)
    return found is not None and float(found[0]) == number
