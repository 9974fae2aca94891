"""Rescaling by multiplier and shift in the body of an operation: the arithmetic of `qfuse.fixed_point` on i64.

A product of an i32 value and a mantissa of 31 bits, with its rounding, fits i64. `arith.mulsi_extended` would do with
i32 halves, but not every compiler legalizes it. Comparisons are spelled as shifts of the sign.
"""

from __future__ import annotations

from qfuse._mlir import Body, Value
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

    def by_constant(self, value: Value, mantissa: int, shift: int) -> Value:
        """`value` (i64) times a constant multiplier."""
        if not self._bits:
            moved = value if shift >= 0 else self._op("shli", value, self._number(-shift))
            rounding = "single" if self._rounding == "double" else self._rounding
            return self._shifted(moved, max(shift, 0), rounding)
        if self._rounding == "gemmlowp":
            if shift < 31:
                value = self._saturated(self._op("shli", value, self._number(31 - shift)))
            product = self._op("addi", self._op("muli", value, self._number(mantissa)), self._number(1 << 30))
            return self._shifted(self._op("shrsi", product, self._number(31)), max(shift - 31, 0), "gemmlowp")
        product = self._op("muli", value, self._number(mantissa))
        if self._rounding == "double" and shift > 31:
            product = self._op("addi", product, self._signed_half(value))
        return self._shifted(product, shift, "half-even" if self._rounding == "half-even" else "single")

    def by_operand(self, value: Value, mantissa: Value | None, shift: Value) -> Value:
        """`value` (i64) times a multiplier read from tensors: mantissa (None for powers of two) and shift, both i64."""
        zero = self._number(0)
        if mantissa is None:
            left = self._op("maxsi", self._op("subi", zero, shift), zero)
            rounding = "single" if self._rounding == "double" else self._rounding
            return self._shifted_by(self._op("shli", value, left), self._op("maxsi", shift, zero), rounding)
        if self._rounding == "gemmlowp":
            left = self._op("maxsi", self._op("subi", self._number(31), shift), zero)
            value = self._saturated(self._op("shli", value, left))
            product = self._op("addi", self._op("muli", value, mantissa), self._number(1 << 30))
            high = self._op("shrsi", product, self._number(31))
            right = self._op("maxsi", self._op("subi", shift, self._number(31)), zero)
            return self._shifted_by(high, right, "gemmlowp")
        product = self._op("muli", value, mantissa)
        if self._rounding == "double":
            far = self._sign(self._op("subi", self._number(31), shift))
            product = self._op("addi", product, self._op("andi", self._signed_half(value), far))
        return self._shifted_by(product, shift, "half-even" if self._rounding == "half-even" else "single")

    def extended(self, value: Value, element: str) -> Value:
        """A signed integer of printed type `element` as i64."""
        return value if element == I64 else self._inner.op("arith.extsi", I64, value)

    # -- rounding shifts ---------------------------------------------------------------------------------------

    def _shifted(self, x: Value, shift: int, rounding: str) -> Value:
        if not shift:
            return x
        by = self._number(shift)
        half = 1 << (shift - 1)
        if rounding == "half-even":
            odd = self._op("andi", self._op("shrsi", x, by), self._number(1))
            x = self._op("addi", self._op("addi", x, self._number(half - 1)), odd)
            return self._op("shrsi", x, by)
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

    def _signed_half(self, value: Value) -> Value:
        """2^30 with the sign of `value`."""
        sign = self._sign(value)
        return self._op("subi", self._op("xori", self._number(1 << 30), sign), sign)

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


def narrowed(inner: Body, value: Value, low: int, high: int, element: str) -> Value:
    """An i64 clamped to [low, high], as an integer of printed type `element`."""
    value = inner.op("arith.maxsi", I64, value, inner.constant(f"{low} : i64"))
    value = inner.op("arith.minsi", I64, value, inner.constant(f"{high} : i64"))
    return value if element == I64 else inner.op("arith.trunci", element, value)


def rescaled(inner: Body, value: Value, element: str, multiplier: Multiplier, rounding: str) -> Value:
    """`value` of printed integer type `element` times a multiplier that is the same everywhere, as i64."""
    scalar = multiplier.scalar
    assert scalar is not None, "per-channel multipliers are operands: FixedPoint.by_operand"
    fixed = FixedPoint(inner, rounding, multiplier.bits)
    return fixed.by_constant(fixed.extended(value, element), *scalar)
