"""Multiplier and shift: the numpy arithmetic against big integers, and its bound against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from qfuse.fixed_point import (
    MAX_SHIFT,
    ROUNDINGS,
    Multiplier,
    apply,
    error_bound,
    fits,
    is_power_of_two,
    rounded_up,
    tie_distance,
)

Array = np.ndarray[Any, Any]

I32 = (-(1 << 31), (1 << 31) - 1)
EXTREMES = sorted(
    {s * ((1 << n) + d) for n in (0, 1, 7, 8, 15, 16, 23, 24, 30, 31) for d in (-1, 0, 1) for s in (-1, 1)}
)
VALUES = [v for v in EXTREMES if I32[0] <= v <= I32[1]]
MODES = [(31, r) for r in ROUNDINGS] + [(15, "single"), (15, "half-even"), *((0, r) for r in ROUNDINGS)]


# -- the same, independently, in Python's integers -------------------------------------------------------------------


def truncated(a: int, b: int) -> int:
    """C's division."""
    return abs(a) // b * (1 if a >= 0 else -1)


def reference(value: int, mantissa: int, shift: int, bits: int, rounding: str) -> int:
    """One rescale as the sources of each rounding write it."""
    if bits == 0:
        exact = Fraction(value) / Fraction(2) ** shift
        if rounding == "half-even":
            return round(exact)
        if rounding == "gemmlowp":
            return math.floor(abs(exact) + Fraction(1, 2)) * (1 if value >= 0 else -1)
        return math.floor(exact + Fraction(1, 2))
    if rounding == "half-even":
        return round(Fraction(value * mantissa, 1 << shift))
    if rounding in ("single", "double"):  # TOSA 1.0, apply_scale_32
        add = 1 << (shift - 1)
        if rounding == "double" and shift > 31:
            add = add + (1 << 30) if value >= 0 else add - (1 << 30)
        return (value * mantissa + add) >> shift
    # gemmlowp: SaturatingRoundingDoublingHighMul, RoundingDivideByPOT
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    value = min(max(value << left, I32[0]), I32[1])
    product = value * mantissa
    high = truncated(product + ((1 << 30) if product >= 0 else 1 - (1 << 30)), 1 << 31)
    mask = (1 << right) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> right) + (1 if high & mask > threshold else 0)


def random_scales(count: int, bits: int, seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    exponents = rng.uniform(-40, min(20, bits - 3) if bits else 20, count)
    scales = np.exp2(np.floor(exponents) if not bits else exponents)
    if bits:
        scales = scales.astype(np.float32).astype(np.float64)
        scales[: count // 4] *= np.float64(np.float32(0.1))  # more digits than f32 has
    return scales


@pytest.mark.parametrize(("bits", "rounding"), MODES)
def test_against_big_integers(bits: int, rounding: str) -> None:
    """10 000 scales from 2^-40 to 2^20, extreme and random values, and values next to ties."""
    scales = random_scales(10_000, bits)
    multiplier = Multiplier.of(scales, bits)
    rng = np.random.default_rng(2)
    columns = [np.full(scales.shape, v) for v in rng.choice(VALUES, 6)]
    columns += [rng.integers(I32[0], I32[1] + 1, scales.shape) for _ in range(3)]
    # The value nearest to a tie of the output: (n + 1/2) / scale.
    steps = rng.integers(-300, 300, scales.shape) + 0.5
    columns.append(np.clip(np.rint(steps / scales), *I32).astype(np.int64))
    values = np.stack(columns, axis=-1)
    per_row = Multiplier(multiplier.mantissa[:, None], multiplier.shift[:, None], bits)
    found = apply(values, per_row, rounding)
    bound = error_bound(multiplier, scales, np.abs(values).max(axis=-1), rounding)
    distance = tie_distance(multiplier, scales, np.abs(values).max(axis=-1), rounding)
    for i in range(scales.size):
        m, s = int(multiplier.mantissa[i]), int(multiplier.shift[i])
        real = Fraction(float(scales[i]))
        for j in range(values.shape[1]):
            v, got = int(values[i, j]), int(found[i, j])
            assert got == reference(v, m, s, bits, rounding), (v, m, s)
            exact = v * real
            assert abs(got - round(exact)) <= bound[i], (v, float(scales[i]))
            if got != round(exact):
                to_tie = abs(exact - math.floor(exact) - Fraction(1, 2))
                assert to_tie <= Fraction(float(distance[i])), (v, float(scales[i]))


@pytest.mark.parametrize(("bits", "rounding"), MODES)
@pytest.mark.parametrize("exponent", [-33, -32, -31, -20, -4, -1, 0, 1, 4])
def test_ties_at_every_step(bits: int, rounding: str, exponent: int) -> None:
    """Exact ties of the output, and of the first rounding of those that have two."""
    scales = np.asarray(2.0**exponent)
    multiplier = Multiplier.of(scales, bits)
    ties = [n << max(-exponent - 1, 0) for n in (-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5)]
    values = [v + d for v in ties for d in (-1, 0, 1) if I32[0] <= v + d <= I32[1]]
    found = apply(values, multiplier, rounding)
    m, s = int(multiplier.mantissa), int(multiplier.shift)
    assert found.tolist() == [reference(v, m, s, bits, rounding) for v in values]
    bound = error_bound(multiplier, scales, max(map(abs, values)), rounding)
    exact = [Fraction(v) * Fraction(float(scales)) for v in values]
    assert max(abs(int(f) - round(x)) for f, x in zip(found, exact, strict=True)) <= bound


def test_first_roundings_are_ties_too() -> None:
    """Products that are exactly half of 2^31, with either sign: the high multiply's own rounding."""
    for shift in (31, 32, 40, 62):
        for mantissa in (1 << 30, (1 << 30) + 1, (3 << 29), (1 << 31) - 1):
            multiplier = Multiplier(np.asarray(mantissa), np.asarray(shift))
            values = [s * v for v in (1, 2, 3, 1 << 29, 1 << 30, (1 << 31) - 1) for s in (1, -1)]
            for rounding in ROUNDINGS:
                expected = [reference(v, mantissa, shift, 31, rounding) for v in values]
                assert apply(values, multiplier, rounding).tolist() == expected


def test_powers_of_two_are_exact_with_ties_to_even() -> None:
    scales = np.exp2(np.arange(-31, 15).astype(float))
    for bits in (31, 0):
        multiplier = Multiplier.of(scales, bits)
        assert (error_bound(multiplier, scales, 1 << 31, "half-even") == 0).all()
        assert (error_bound(multiplier, scales, 1 << 31, "single") == 1).all()
    assert is_power_of_two(scales)
    assert not is_power_of_two(scales * 3)


def test_mantissas_are_normalised() -> None:
    scales = random_scales(1000, 31)
    multiplier = Multiplier.of(scales)
    whole = multiplier.shift < MAX_SHIFT
    assert whole.sum() > 500
    assert (multiplier.mantissa[whole] >= 1 << 30).all()
    assert (multiplier.mantissa < 1 << 31).all()
    assert (np.abs(multiplier.real - scales)[whole] <= scales[whole] * 2.0**-31).all()
    carried = Multiplier.of(np.asarray(1 - 2.0**-40))
    assert carried.scalar == (1 << 30, 30)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**29, 2.0**29 * (1 - 2.0**-33)])
def test_no_multiplier_for(scale: float) -> None:
    assert not fits(scale)
    with pytest.raises(ValueError, match="range of a multiplier of 31 bits"):
        Multiplier.of(scale)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="not 16"):
        fits(1.0, 16)
    with pytest.raises(ValueError, match="rounding is one of"):
        apply([1], Multiplier.of(0.5), "up")
    with pytest.raises(ValueError, match="31 bits"):
        apply([1], Multiplier.of(0.5, 15), "double")
    with pytest.raises(ValueError, match="at most"):
        apply([1 << 32], Multiplier.of(0.5), "single")
    assert not fits(0.75, 0)
    assert not fits(2.0**31, 0)


def test_gemmlowp_saturates_shifts_to_the_left() -> None:
    scale = 2.0**20
    multiplier = Multiplier.of(scale)
    values = [I32[0], -(1 << 12), 0, 1 << 12, I32[1]]
    m, s = int(multiplier.mantissa), int(multiplier.shift)
    found = apply(values, multiplier, "gemmlowp")
    assert found.tolist() == [reference(v, m, s, 31, "gemmlowp") for v in values]
    bound = error_bound(multiplier, scale, 1 << 31, "gemmlowp")
    assert all(abs(int(f) - v * (1 << 20)) <= bound for f, v in zip(found, values, strict=True))


def test_bounds_in_reports_are_rounded_up() -> None:
    assert [rounded_up(x) for x in (0.0, 0.5, 0.1, 0.12341, 22900.4)] == [0.0, 0.5, 0.1, 0.124, 23000.0]
    rng = np.random.default_rng(5)
    for value in (2.0 ** rng.uniform(-60, 40, 1000)).tolist():
        assert value <= rounded_up(value) <= value * 1.011
