"""Choices by a sign that are sums: leaky and parametric relu.

select(x > 0, a * x, b * x)   ->   a * max(x, 0) + b * min(x, 0)
"""

from __future__ import annotations

from qfuse.matchers.evaluate import typed
from qfuse.matchers.scalar import GREATER, LESS, Scalar, same


def two_pieces(scalar: Scalar) -> Scalar | None:
    """A select by the sign of a value between multiples of it, without the select; None for any other."""
    condition, above, below = scalar.args
    if condition.op != "cmpf" or condition.payload not in (*GREATER, *LESS):
        return None
    value, other = condition.args
    crossed = _is_zero(value)
    if crossed:
        value, other = other, value
    if not _is_zero(other):
        return None
    if crossed != (condition.payload in LESS):
        above, below = below, above
    type_ = scalar.type
    zero = Scalar("const", type_, payload=typed(0.0, type_))
    up = _times(above, value, Scalar("max", type_, (value, zero)))
    down = _times(below, value, Scalar("min", type_, (value, zero)))
    return None if up is None or down is None else Scalar("add", type_, (up, down))


def _is_zero(scalar: Scalar) -> bool:
    return scalar.op == "const" and float(scalar.payload) == 0.0


def _times(scalar: Scalar, value: Scalar, part: Scalar) -> Scalar | None:
    """A multiple of `value` with `part` in place of it, or None."""
    if _equal(scalar, value):
        return part
    if scalar.op == "neg":
        inner = _times(scalar.args[0], value, part)
        return None if inner is None else Scalar("neg", scalar.type, (inner,))
    if scalar.op not in ("mul", "div"):
        return None
    for position in (0, 1) if scalar.op == "mul" else (0,):
        inner = _times(scalar.args[position], value, part)
        if inner is not None:
            args = (inner, scalar.args[1]) if position == 0 else (scalar.args[0], inner)
            return Scalar(scalar.op, scalar.type, args)
    return None


def _equal(a: Scalar, b: Scalar) -> bool:
    """Whether two expressions are the same operations on the same leaves."""
    if same(a, b):
        return True
    if not a.args or a.op != b.op or a.type != b.type or len(a.args) != len(b.args) or bool(a.payload != b.payload):
        return False
    return all(map(_equal, a.args, b.args))
