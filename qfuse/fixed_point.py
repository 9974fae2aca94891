"""Scales as integers: multiplier and shift, the exact arithmetic of rescaling by them, and how far that is from real.

    value * scale  ~  round(value * mantissa / 2^shift)

Four ways to round, all in exact integer arithmetic:

    single      half up:  (value * mantissa + 2^(shift - 1)) >> shift              TOSA RESCALE, SINGLE_ROUND
    double      the same, with 2^30 added (subtracted below zero) beforehand where shift > 31: DOUBLE_ROUND
    gemmlowp    saturating rounding doubling high multiply, then a rounding shift (half away from zero)
    half-even   half to even, of the exact quotient

and `inexact`, for which a machine may do either of the first two, or compute in f32: TOSA's INEXACT_ROUND. It has a
bound and no arithmetic.

A multiplier of `bits` 0 is a power of two: mantissa 1 and a shift, which may be negative (to the left).
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROUNDINGS = ("single", "double", "gemmlowp", "half-even")
#: Left to the machine.
INEXACT = "inexact"

#: Shifts that TOSA's RESCALE takes.
MIN_SHIFT, MAX_SHIFT = 2, 62
#: The farthest shift to the left of a power of two.
MAX_LEFT = 30

_I32_MAX = (1 << 31) - 1
#: Relative error of a value, a multiplier and their product, each rounded to f32, and of the sum with one half.
_IN_FLOAT = 2.0**-22


@dataclass(eq=False)
class Multiplier:
    """Scales as `mantissa / 2^shift`, element by element.

    Attributes:
        mantissa: int64, not negative: of `bits` bits with the highest set, fewer where the shift would exceed 62.
        shift: int64, of the same shape: 2 to 62; of a power of two -30 to 62.
        bits: 31, 15 (TOSA with `scale32=false`), or 0 for powers of two.
    """

    mantissa: Array
    shift: Array
    bits: int = 31

    @staticmethod
    def of(scales: Any, bits: int = 31) -> Multiplier:
        """The nearest multipliers of positive scales.

        Raises:
            ValueError: a scale that `fits` does not take.
        """
        real = np.asarray(scales, np.float64)
        if not fits(real, bits):
            raise ValueError(f"scales must be positive, finite and in the range of a multiplier of {bits} bits")
        fraction, exponent = np.frexp(real)
        if not bits:
            return Multiplier(np.ones(real.shape, np.int64), 1 - exponent.astype(np.int64), 0)
        mantissa = np.rint(np.ldexp(fraction, bits)).astype(np.int64)
        shift = bits - exponent.astype(np.int64)
        carried = mantissa == 1 << bits
        mantissa, shift = np.where(carried, mantissa >> 1, mantissa), np.where(carried, shift - 1, shift)
        excess = np.clip(shift - MAX_SHIFT, 0, 40)
        mantissa = np.where(excess > 0, (mantissa + ((np.int64(1) << excess) >> 1)) >> excess, mantissa)
        return Multiplier(mantissa, np.minimum(shift, MAX_SHIFT), bits)

    @property
    def real(self) -> Array:
        """The scales that it stands for, exactly."""
        return np.ldexp(self.mantissa.astype(np.float64), -self.shift)

    @property
    def scalar(self) -> tuple[int, int] | None:
        """Mantissa and shift where they are the same everywhere, or None."""
        mantissa, shift = self.mantissa.reshape(-1), self.shift.reshape(-1)
        if not mantissa.size or bool((mantissa != mantissa[0]).any() or (shift != shift[0]).any()):
            return None
        return int(mantissa[0]), int(shift[0])


def is_power_of_two(scales: Any) -> bool:
    """Whether all scales are powers of two."""
    fraction, _ = np.frexp(np.asarray(scales, np.float64))
    return bool((fraction == 0.5).all())


def greatest_scale(bits: int) -> float:
    """What scales must be less than to have a multiplier (with `bits` 0: the greatest power of two is half of it)."""
    return 2.0 ** (MAX_LEFT + 1) if not bits else 2.0 ** (bits - MIN_SHIFT)


def fits(scales: Any, bits: int = 31) -> bool:
    """Whether there is a multiplier for each of the scales; with `bits` 0 they must be powers of two."""
    if bits not in (0, 15, 31):
        raise ValueError(f"a multiplier has 31, 15 or 0 bits, not {bits}")
    real = np.asarray(scales, np.float64)
    if not bool((np.isfinite(real) & (real > 0)).all()):
        return False
    if not bits:
        return is_power_of_two(real) and bool(((real < greatest_scale(0)) & (real >= 2.0**-MAX_SHIFT)).all())
    # Half of a unit below the limit rounds up to it.
    return bool((real < greatest_scale(bits) * (1 - 2.0 ** -(bits + 1))).all())


def is_within_shift(scales: Any, largest: float) -> bool:
    """Whether values of this magnitude may be rescaled by TOSA's rule: below half of what the shift divides by.

    A mantissa of 31 bits is at least 2^30: so is what the shift divides by at least 2^30 divided by the scale.
    """
    _, exponent = np.frexp(np.asarray(scales, np.float64))
    return bool((largest < np.ldexp(1.0, 30 - np.minimum(exponent, 1 << 10))).all())


def largest_value(bits: int = 31) -> int:
    """The greatest magnitude of a value that may be rescaled: the product and its rounding stay within i64."""
    return 1 << 47 if bits == 15 else 1 << 31


def apply(values: Any, multiplier: Multiplier, rounding: str = "single") -> Array:
    """`round(values * mantissa / 2^shift)` as int64, exactly as `rounding` says; shapes broadcast.

    Raises:
        ValueError: an unknown rounding, one that is left to the machine, or a value beyond `largest_value`.
    """
    if rounding == INEXACT:
        raise ValueError("what inexact rounding gives is left to the machine")
    check_rounding(rounding, multiplier.bits)
    x = np.asarray(values, np.int64)
    limit = largest_value(multiplier.bits)
    if x.size and (int(x.max()) > limit or int(x.min()) < -limit):
        raise ValueError(f"values must be at most {limit} in magnitude")
    mantissa, shift = multiplier.mantissa, multiplier.shift
    one = np.int64(1)
    if not multiplier.bits:
        return _shifted(
            x << np.maximum(-shift, 0), np.maximum(shift, 0), "single" if rounding == "double" else rounding
        )
    if rounding != "gemmlowp":
        product = x * mantissa
        if rounding == "double":
            product = product + np.where(shift > 31, np.where(x >= 0, one << 30, -(one << 30)), 0)
        return _shifted(product, shift, "half-even" if rounding == "half-even" else "single")
    x = np.clip(x << np.maximum(31 - shift, 0), -_I32_MAX - 1, _I32_MAX)
    high = (x * mantissa + (one << 30)) >> 31
    return _shifted(high, np.maximum(shift - 31, 0), rounding)


def _shifted(x: Array, shift: Array, rounding: str) -> Array:
    """`x / 2^shift`, a tie up (`single`), away from zero (`gemmlowp`) or to even."""
    half = (np.int64(1) << shift) >> 1
    if rounding == "gemmlowp":
        half = half - np.where((x < 0) & (shift > 0), 1, 0)
    if rounding == "half-even":
        half = np.where(shift > 0, half - 1 + ((x >> shift) & 1), 0)
    return (x + half) >> shift


def check_rounding(rounding: str, bits: int) -> None:
    """Raises ValueError for an unknown rounding and for one that a mantissa of 15 bits does not have."""
    if rounding not in (*ROUNDINGS, INEXACT):
        raise ValueError(f"rounding is one of {', '.join((*ROUNDINGS, INEXACT))}, not {rounding!r}")
    if bits == 15 and rounding in ("double", "gemmlowp"):
        raise ValueError(f"rounding {rounding} takes a mantissa of 31 bits")


def tie_distance(
    multiplier: Multiplier, scale: Any, largest: Any, rounding: str = "single", uncertainty: float = 0.0
) -> Array:
    """How near to a half-integer `value * scale` must be for the result to differ from its rounding half to even.

    It is  |value| * |scale - mantissa / 2^shift|,  plus what a first rounding loses (`double`, `gemmlowp`: at most
    half of 2^31 / 2^shift), plus what saturates, plus what f32 loses (`inexact`). A distance of 0 still lets ties be
    rounded the other way.

    Args:
        multiplier: what stands for the scale.
        scale: the real scales.
        largest: greatest magnitude of the values, one number or one a scale.
        rounding: see the module.
        uncertainty: relative error of `scale` itself, where it was computed in float.
    """
    check_rounding(rounding, multiplier.bits)
    real = np.asarray(scale, np.float64)
    limit = np.asarray(largest, np.float64)
    shift = multiplier.shift
    # Near each other, the difference of two f64 numbers is exact; the last factor covers the products.
    distance = limit * (np.abs(real - multiplier.real) + real * uncertainty) * (1 + 2.0**-50)
    if rounding == INEXACT and multiplier.bits:
        distance = distance + limit * real * _IN_FLOAT
    if multiplier.bits == 31 and rounding in ("double", "gemmlowp", INEXACT):
        distance = distance + np.where(shift > 31, np.ldexp(1.0, 30 - shift), 0.0)
    if multiplier.bits == 31 and rounding == "gemmlowp":
        beyond = np.maximum(np.ldexp(limit, np.maximum(31 - shift, 0)) - _I32_MAX, 0)
        distance = distance + beyond * (multiplier.mantissa / 2.0**31) * (1 + 2.0**-50)
    return distance


def rounded_up(distance: float) -> float:
    """A bound with three digits, for the report: no less than what was given."""
    nearest = float(f"{distance:.3g}")
    up = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
    return nearest if nearest >= distance else float(up.create_decimal(distance))


def error_bound(
    multiplier: Multiplier, scale: Any, largest: Any, rounding: str = "single", uncertainty: float = 0.0
) -> Array:
    """The greatest number of steps between the result and `value * scale` rounded half to even; arguments as above.

    Both are whole, the first within 1/2 + d of the real value and the second within 1/2, d being `tie_distance`: they
    differ by at most 1 + d, rounded down. They are equal where the multiplier is the scale and ties go to even.
    """
    distance = tie_distance(multiplier, scale, largest, rounding, uncertainty)
    exact = (distance == 0) if rounding == "half-even" else np.zeros(distance.shape, np.bool_)
    return np.where(exact, 0.0, 1.0 + np.floor(distance))
