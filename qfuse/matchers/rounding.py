"""Reads rounding by additions as what it stands for, so that the matchers meet one spelling of a quantize.

    trunci(bitcast(clamp(x, low - z, high - z) + M) - (bits of M - z))  ->  fptosi(clamp(round(x) + z, low, high))
    select(|x| < 2^22, (x + M) - M, x)                                  ->  round(x)

with M = 1.5 * 2^23: the low mantissa bits of x + M hold x rounded to nearest even.
"""

from __future__ import annotations

from qfuse.matchers.scalar import Scalar, same

MAGIC = 12582912.0
MAGIC_BITS = 0x4B400000
#: Up to here `x + MAGIC` is exact in its last place with room to spare.
MAGIC_LIMIT = 1 << 21


def is_rounded_by_additions(scalar: Scalar) -> bool:
    """Whether an integer expression ends like the first form; constants need not be known yet."""
    inner = scalar.args[0] if scalar.op == "trunci" else scalar
    return inner.op == "subi" and inner.args[0].op == "bitcast"


def plain(scalar: Scalar) -> Scalar:
    """The expression with both forms replaced by what they stand for."""
    if is_rounded_by_additions(scalar):
        return _plain_integer(scalar) or scalar
    if scalar.op == "select":
        return _plain_float(scalar) or scalar
    args = tuple(plain(a) for a in scalar.args)
    unchanged = all(a is b for a, b in zip(args, scalar.args, strict=True))
    return scalar if unchanged else Scalar(scalar.op, scalar.type, args, scalar.payload)


def _plain_integer(scalar: Scalar) -> Scalar | None:
    difference = scalar.args[0] if scalar.op == "trunci" else scalar
    total, offset = difference.args[0].args[0], difference.args[1]
    if difference.type != "i32" or total.op != "add" or total.type != "f32" or offset.op != "const":
        return None
    if not _is_number(total.args[1], MAGIC):
        return None
    zero = MAGIC_BITS - int(offset.payload)
    value, bounds = total.args[0], list[tuple[str, float]]()
    while value.op in ("max", "min") and value.args[1].op == "const":
        bounds.append((value.op, float(value.args[1].payload)))
        value = value.args[0]
    if {op for op, _ in bounds} != {"max", "min"} or not all(
        b.is_integer() and abs(b) <= MAGIC_LIMIT for _, b in bounds
    ):
        return None
    most = min(b for op, b in bounds if op == "min") + zero
    least = max(b for op, b in bounds if op == "max") + zero
    signed = least < 0 or most < 1 << (int(scalar.type[1:]) - 1)
    rounded = Scalar("round", "f32", (value,))
    if zero:
        rounded = Scalar("add", "f32", (rounded, Scalar("const", "f32", payload=float(zero))))
    for op, bound in reversed(bounds):
        rounded = Scalar(op, "f32", (rounded, Scalar("const", "f32", payload=bound + zero)))
    return Scalar("fptosi" if signed else "fptoui", scalar.type, (rounded,))


def _plain_float(scalar: Scalar) -> Scalar | None:
    condition, rounded, value = scalar.args
    if condition.op != "cmpf" or rounded.op != "sub" or rounded.args[0].op != "add" or scalar.type != "f32":
        return None
    total, size = rounded.args[0], condition.args[0]
    by_additions = _is_number(total.args[1], MAGIC) and _is_number(rounded.args[1], MAGIC)
    below = condition.payload == 4 and size.op == "absf" and _is_number(condition.args[1], 2 * MAGIC_LIMIT)
    if not (by_additions and below and _is_same(total.args[0], value) and _is_same(size.args[0], value)):
        return None
    return Scalar("round", "f32", (value,))


def _is_number(scalar: Scalar, number: float) -> bool:
    return scalar.op == "const" and float(scalar.payload) == number


def _is_same(a: Scalar, b: Scalar) -> bool:
    if same(a, b):
        return True
    if a.op != b.op or a.type != b.type or not a.args or a.payload != b.payload:
        return False
    return all(_is_same(x, y) for x, y in zip(a.args, b.args, strict=True))
