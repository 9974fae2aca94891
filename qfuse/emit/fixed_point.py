"""Rescaling by multiplier and shift in the body of an operation: the arithmetic of `qfuse.fixed_point` on i64.

A product of an i32 value and a mantissa of 31 bits, with its rounding, fits i64. `arith.mulsi_extended` would do with
i32 halves, but not every compiler legalizes it. Comparisons are spelled as shifts of the sign.
"""

from __future__ import annotations

from qfuse._builder import Body
from qfuse._mlir import Value
from qfuse.fixed_point import Multiplier, check_rounding

I64 = "i64"


class FixedPoint:
    """Emits `qfuse.fixed_point.apply` on scalars; results are i64."""

    def __init__(self, inner: Body, rounding: str, bits: int = 31) -> None:
        """An emitter into `inner` for multipliers of `bits` bits."""
        check_rounding(rounding, bits)
        self._inner = inner
        self._rounding = rounding
        self._bits = bits

    def times(self, value: Value, mantissa: Value | int, shift: Value | int) -> Value:
        """`value` (i64) times a multiplier: numbers, or i64 values read from tensors. Powers of two have mantissa 1."""
        if not self._bits:
            rounding = "single" if self._rounding == "double" else self._rounding
            left = self._left(0, shift)
            moved = value if left is None else self._op("shli", value, left)
            return self._shifted(moved, self._right(0, shift), rounding)
        factor = self._number(mantissa) if isinstance(mantissa, int) else mantissa
        if self._rounding == "gemmlowp":
            left = self._left(31, shift)
            if left is not None:
                value = self._saturated(self._op("shli", value, left))
            product = self._op("addi", self._op("muli", value, factor), self._number(1 << 30))
            return self._shifted(self._op("shrsi", product, self._number(31)), self._right(31, shift), "gemmlowp")
        product = self._op("muli", value, factor)
        if self._rounding == "double":
            product = self._first_rounded(product, value, shift)
        return self._shifted(product, shift, "half-even" if self._rounding == "half-even" else "single")

    def _left(self, start: int, shift: Value | int) -> Value | None:
        """How far a shift is below `start`, or None where it is not."""
        if isinstance(shift, int):
            return self._number(start - shift) if shift < start else None
        return self._op("maxsi", self._op("subi", self._number(start), shift), self._number(0))

    def _right(self, start: int, shift: Value | int) -> Value | int:
        """How far a shift is above `start`."""
        if isinstance(shift, int):
            return max(shift - start, 0)
        beyond = shift if not start else self._op("subi", shift, self._number(start))
        return self._op("maxsi", beyond, self._number(0))

    def _first_rounded(self, product: Value, value: Value, shift: Value | int) -> Value:
        """2^30 with the sign of `value` added, where the shift exceeds 31."""
        if isinstance(shift, int) and shift <= 31:
            return product
        sign = self._sign(value)
        nudge = self._op("subi", self._op("xori", self._number(1 << 30), sign), sign)
        if not isinstance(shift, int):
            nudge = self._op("andi", nudge, self._sign(self._op("subi", self._number(31), shift)))
        return self._op("addi", product, nudge)

    def extended(self, value: Value, element: str) -> Value:
        """A signed integer of printed type `element` as i64."""
        return value if element == I64 else self._inner.op("arith.extsi", I64, value)

    # -- rounding shifts ---------------------------------------------------------------------------------------

    def _shifted(self, x: Value, shift: Value | int, rounding: str) -> Value:
        if not isinstance(shift, int):
            return self._shifted_by(x, shift, rounding)
        if not shift:
            return x
        by = self._number(shift)
        half = 1 << (shift - 1)
        if rounding == "half-even":
            odd = self._op("andi", self._op("shrsi", x, by), self._number(1))
            return self._op("shrsi", self._op("addi", self._op("addi", x, self._number(half - 1)), odd), by)
        added = self._op("addi", x, self._number(half))
        if rounding == "gemmlowp":
            added = self._op("addi", added, self._sign(x))
        return self._op("shrsi", added, by)

    def _shifted_by(self, x: Value, shift: Value, rounding: str) -> Value:
        one = self._number(1)
        half = self._op("shrsi", self._op("shli", one, shift), one)
        if rounding == "single":
            return self._op("shrsi", self._op("addi", x, half), shift)
        some = self._sign(self._op("subi", self._number(0), shift))  # all ones where there is a shift
        if rounding == "gemmlowp":
            half = self._op("addi", half, self._op("andi", self._sign(x), some))
        else:
            odd = self._op("andi", self._op("shrsi", x, shift), one)
            half = self._op("andi", self._op("addi", self._op("subi", half, one), odd), some)
        return self._op("shrsi", self._op("addi", x, half), shift)

    def _saturated(self, x: Value) -> Value:
        low, high = self._number(-(1 << 31)), self._number((1 << 31) - 1)
        return self._op("minsi", self._op("maxsi", x, low), high)

    def _sign(self, x: Value) -> Value:
        """All ones where `x` is negative, else 0."""
        return self._op("shrsi", x, self._number(63))

    def _op(self, name: str, *operands: Value) -> Value:
        return self._inner.op(f"arith.{name}", I64, *operands)

    def _number(self, number: int) -> Value:
        return self._inner.constant(f"{number} : i64")


def rescaled(inner: Body, value: Value, element: str, multiplier: Multiplier, rounding: str) -> Value:
    """`value` of printed integer type `element` times a multiplier that is the same everywhere, as i64."""
    scalar = multiplier.scalar
    assert scalar is not None, "per-channel multipliers are operands: FixedPoint.times"
    fixed = FixedPoint(inner, rounding, multiplier.bits)
    return fixed.times(fixed.extended(value, element), *scalar)


def narrowed(inner: Body, value: Value, low: Value | int, high: Value | int, element: str) -> Value:
    """An i64 clamped to [low, high], as an integer of printed type `element`."""
    least = inner.constant(f"{low} : i64") if isinstance(low, int) else low
    greatest = inner.constant(f"{high} : i64") if isinstance(high, int) else high
    value = inner.op("arith.minsi", I64, inner.op("arith.maxsi", I64, value, least), greatest)
    return value if element == I64 else inner.op("arith.trunci", element, value)
