"""Multipliers and shifts of RESCALE against formulas written down here, and results against the reference model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from qfuse.fixed_point import MAX_SHIFT, Multiplier, apply, tie_distance
from qfuse.integrations import tosa
from tests.tosa.ir import rescale

Array = np.ndarray[Any, Any]

COUNT = 10_000


def scales(low: float, high: float, count: int = COUNT) -> Array:
    """Random positive numbers in [2^low, 2^high), with powers of two and their neighbours among them."""
    rng = np.random.default_rng(8)
    found = np.exp2(rng.uniform(low, high, count))
    powers = np.exp2(np.arange(math.ceil(low) + 1, math.floor(high) - 1, dtype=np.float64))
    exact = np.concatenate([powers, np.nextafter(powers, 0), np.nextafter(powers, 2 * powers)])
    found[: exact.size] = exact[:count]
    return found


def multiplier_and_shift(scale: float, bits: int) -> tuple[int, int]:
    """As tools that write TOSA compute them: the mantissa rounded half to even, carried where it is a power of two."""
    fraction, exponent = math.frexp(scale)
    mantissa = round(fraction * (1 << bits))
    if mantissa == 1 << bits:
        mantissa, exponent = mantissa // 2, exponent + 1
    return mantissa, bits - exponent


@pytest.mark.parametrize("bits", [31, 15])
def test_multipliers_of_random_scales(bits: int) -> None:
    real = scales(bits - 61, bits - 3)
    found = Multiplier.of(real, bits)
    expected = [multiplier_and_shift(float(s), bits) for s in real]
    assert found.mantissa.tolist() == [m for m, _ in expected]
    assert found.shift.tolist() == [s for _, s in expected]
    assert found.shift.min() >= 2
    assert found.shift.max() <= MAX_SHIFT
    assert (np.abs(found.real - real) <= real * 2.0**-bits).all()


def test_multipliers_of_scales_too_small_for_the_shift_are_the_nearest() -> None:
    real = scales(-70, -33)
    found = Multiplier.of(real)
    nearest = [round(math.ldexp(float(s), MAX_SHIFT)) for s in real]
    small = [multiplier_and_shift(float(s), 31)[1] > MAX_SHIFT for s in real]
    assert any(small)
    for mantissa, shift, expected, is_small in zip(found.mantissa, found.shift, nearest, small, strict=True):
        if is_small:
            assert shift == MAX_SHIFT
            assert abs(int(mantissa) - expected) <= 1


def specified(value: int, mantissa: int, shift: int, mode: str) -> int:
    """`apply_scale_32` and `apply_scale_16` of the specification, in Python's integers."""
    add = 1 << (shift - 1)
    if mode == "DOUBLE_ROUND" and shift > 31:
        add += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * mantissa + add) >> shift


def values(shift: Array, limit: int) -> Array:
    """Values that the specification allows for each shift: random ones, extremes and those near ties."""
    rng = np.random.default_rng(9)
    largest = np.minimum(np.int64(1) << np.minimum(shift - 1, 40), limit) - 1
    found = (rng.uniform(-1, 1, shift.size) * largest).astype(np.int64)
    found[::7], found[1::7], found[2::7] = largest[::7], -largest[1::7], 0
    return found


@pytest.mark.parametrize(("mode", "rounding"), [("SINGLE_ROUND", "single"), ("DOUBLE_ROUND", "double")])
def test_results_are_those_of_the_reference_model(mode: str, rounding: str) -> None:
    multiplier = Multiplier.of(scales(-40, 28))
    x = values(multiplier.shift, 1 << 31)
    (found,) = tosa.run(
        rescale(multiplier.mantissa.tolist(), multiplier.shift.tolist(), mode=mode), [x.astype(np.int32)]
    )
    ours = apply(x, multiplier, rounding)
    assert np.array_equal(found, ours)
    triples = zip(x.tolist(), multiplier.mantissa.tolist(), multiplier.shift.tolist(), strict=True)
    assert ours.tolist() == [specified(*t, mode) for t in triples]


@pytest.mark.parametrize(
    ("element", "result", "zeros"), [("i8", "i8", (-7, 11)), ("i32", "i8", (0, -128)), ("i8", "i32", (5, 0))]
)
def test_zero_points_and_saturation_are_those_of_the_reference_model(
    element: str, result: str, zeros: tuple[int, int]
) -> None:
    multiplier = Multiplier.of(scales(-20, 5, 4096))
    bits = int(element[1:])
    rng = np.random.default_rng(3)
    x = rng.integers(-(1 << (min(bits, 20) - 1)), 1 << (min(bits, 20) - 1), multiplier.shift.size)
    text = rescale(
        multiplier.mantissa.tolist(), multiplier.shift.tolist(), element=element, result=result, zero=zeros[0],
        result_zero=zeros[1],
    )  # fmt: skip
    (found,) = tosa.run(text, [x.astype(f"i{bits // 8}")])
    low, high = -(1 << (int(result[1:]) - 1)), (1 << (int(result[1:]) - 1)) - 1
    assert np.array_equal(found, np.clip(apply(x - zeros[0], multiplier) + zeros[1], low, high))


def test_multipliers_of_16_bits_give_the_results_of_the_reference_model() -> None:
    multiplier = Multiplier.of(scales(-40, 12), 15)
    x = np.random.default_rng(4).integers(-(1 << 15), 1 << 15, COUNT)
    text = rescale(multiplier.mantissa.tolist(), multiplier.shift.tolist(), element="i16", scale32=False)
    (found,) = tosa.run(text, [x.astype(np.int16)])
    assert np.array_equal(found, apply(x, multiplier))


def test_inexact_rounding_stays_within_its_stated_distance() -> None:
    real = scales(-40, 24)
    multiplier = Multiplier.of(real)
    x = values(multiplier.shift, 1 << 31)
    text = rescale(multiplier.mantissa.tolist(), multiplier.shift.tolist(), mode="INEXACT_ROUND")
    (found,) = tosa.run(text, [x.astype(np.int32)])
    distance = tie_distance(multiplier, real, np.abs(x), "inexact")
    assert (np.abs(found - x * real) <= 0.5 + distance).all()
    assert not np.array_equal(found, apply(x, multiplier)), "exact: a test that cannot fail"


def test_inexact_rounding_has_no_arithmetic_of_its_own() -> None:
    with pytest.raises(ValueError, match="inexact"):
        apply([1], Multiplier.of([0.5]), "inexact")
