"""Accumulators never wrap: proven from values, widened, split, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import qfuse
from tests.numerics.harness import (
    IREE_CPU,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
    parameters,
)
from tests.strategies import Array, Function, Grid

Batches = Callable[[Mapping[str, Case], Variant | None], Batch]

NARROW = qfuse.Target("narrow", accumulators=(32,), split_reduction=True)
UNSPLIT = qfuse.Target("unsplit", accumulators=(32,), split_reduction=False)
SPLIT = Variant("split", NARROW)
REFUSES = Variant("refuses", UNSPLIT)

HINT = "use narrower storage, a smaller reduction or a target with wider accumulators"


def linear(
    name: str,
    k: int,
    x: Grid,
    w: Grid,
    values: Array | None = None,
    *,
    constant: bool = True,
    quantized: bool = True,
    n: int = 3,
    check: Callable[[qfuse.Report], None] | None = None,
) -> Case:
    """`[2, k]` by `[k, n]`, with constant weights of these values (or an argument)."""
    f = Function(name)
    a = f.argument((2, k), x)
    b = f.weight((k, n), w, values) if constant else f.argument((k, n), w)
    y = f.matmul(f.dequantize(a), f.dequantize(b))
    if quantized:
        y = f.quantize(y, Grid(scale=float(k), zero=1))
    # Long reductions: the extremes are what matters, and einsum in float64 is exact on them.
    return Case(
        f.results(y),
        kinds=("extremes", "low", "high", "random") if k > 1000 else ("random", "low", "high"),
        check=check,
    )


def clamped(name: str, limit: int, k: int, check: Callable[[qfuse.Report], None]) -> Case:
    """16-bit activations that a quantize clamps to [-limit, limit], by 8-bit weights that one clamps to [-100, 100]."""
    f = Function(name)
    a, b = (f.float_argument(shape, lambda rng: rng.normal(0, 50, ())) for shape in ((1, k), (k, 2)))
    q = f.dequantize(f.quantize(a, Grid(bits=16, scale=2.0**-6, low=-limit, high=limit)))
    w = f.dequantize(f.quantize(b, Grid(scale=2.0**-2, low=-100, high=100)))
    return Case(f.results(f.quantize(f.matmul(q, w), Grid(scale=float(k)))), kinds=("random",) * 4, check=check)


def accumulator(bits: int, bound: int | None = None, block: int | None = None) -> Callable[[qfuse.Report], None]:
    """Asserts what the report says of the accumulator."""

    def check(report: qfuse.Report) -> None:
        entry = next(e for e in report.applied if e["fusion"] == "qfuse.contraction")
        assert entry["accumulator"] == f"i{bits}"
        assert entry["block_size"] == block
        if bound is not None:
            assert entry["accumulator_bound"] == bound

    return check


def small_weights(k: int, n: int, total: int) -> Array:
    """Weights whose absolute values sum to `total` in each column, in a few rows."""
    weights = np.zeros((k, n), np.int64)
    weights[: total // 100] = 100
    weights[: total // 200] *= -1
    return weights


S16 = Grid(bits=16, scale=2.0**-8)
S8 = Grid(scale=2.0**-6)
LONG = 70000

FITS = {
    case.name: case
    for case in [
        # 600 * 2^15 * 2^7 > 2^31, but sum |w| = 20000 and 2^15 * 20000 < 2^31.
        linear("s16_small_weights", 600, S16, S8, small_weights(600, 3, 20000), check=accumulator(32, 20000 << 15)),
        linear("s16_any_weights", 600, S16, S8, constant=False, check=accumulator(64, 600 << 22)),
        linear("s16_large_weights", 600, S16, S8, np.full((600, 3), -128), check=accumulator(64, 600 << 22)),
        linear("s16_boundary", 511, S16, S8, np.full((511, 3), -128), check=accumulator(32, 511 << 22)),
        linear("s16_s16", 8, S16, S16, constant=False, check=accumulator(64, 8 << 30)),
        linear("s16_s16_one", 1, S16, S16, constant=False, check=accumulator(32, 1 << 30)),
    ]
}  # fmt: skip

U8 = Grid(signed=False, scale=2.0**-6, zero=128)
U8_LOW = Grid(signed=False, scale=2.0**-6, zero=0)
U8_HIGH = Grid(signed=False, scale=2.0**-6, zero=255)
EXTREME = {
    case.name: case
    for case in [
        linear("long_s8", LONG, S8, S8, np.full((LONG, 2), -128), n=2, check=accumulator(32, LONG << 14)),
        linear("long_u8", LONG, U8, S8, np.full((LONG, 2), -128), n=2, check=accumulator(32, LONG << 14)),
        linear("long_u8_argument", LONG, U8, S8, constant=False, n=2, check=accumulator(32, LONG << 14)),
        linear("long_u8_zero_low", LONG, U8_LOW, S8, np.full((LONG, 2), -128), n=2,
               check=accumulator(64, LONG * 255 * 128)),
        linear("long_u8_zero_high", LONG, U8_HIGH, S8, np.full((LONG, 2), 127), n=2, quantized=False,
               check=accumulator(64)),
        linear("long_u8_u8", LONG, U8, U8_LOW, constant=False, n=2, check=accumulator(64)),
        linear("long_s8_mixed", LONG, S8, S8, n=2, quantized=False, check=accumulator(32)),
        linear("long_s8_asymmetric", LONG, Grid(scale=0.5, zero=-128), S8, n=2, check=accumulator(32)),
        linear("wide_zero_points", 40000, Grid(scale=0.5, zero=127), Grid(scale=0.25, zero=-128), constant=False, n=2,
               check=accumulator(64, 40000 * 255 * 255)),
    ]
}  # fmt: skip

SPLITTABLE = {
    case.name: case
    for case in [
        linear("split_s16", 1024, S16, S8, constant=False, check=accumulator(32, block=256)),
        linear("split_s16_constant", 1024, S16, S8, np.full((1024, 3), -128), check=accumulator(32, block=256)),
        linear("split_s16_zero", 1024, Grid(bits=16, scale=2.0**-8, zero=-300), S8, quantized=False,
               constant=False, check=accumulator(32, block=256)),
        clamped("split_clamped", 5000, 100000, check=accumulator(32, block=4000)),
    ]
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(FITS))
def test_the_narrowest_proven_accumulator(name: str, variant: Variant, batches: Batches) -> None:
    """Constant weights are bounded by their values, a column at a time; what does not fit i32 takes i64."""
    batch = batches(FITS, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)


@pytest.mark.parametrize("name", parameters(FITS))
def test_the_narrowest_proven_accumulator_in_iree(name: str, batches: Batches) -> None:
    """The same, compiled."""
    assert_numbers(batches(FITS, IREE_CPU), name)


@pytest.mark.parametrize("name", parameters(EXTREME))
def test_long_reductions_do_not_wrap(name: str, batches: Batches) -> None:
    """Up to 70000 products of extreme values, exact to the last bit where the scales are powers of two."""
    batch = batches(EXTREME, IREE_CPU)
    assert_fused(batch, name)
    assert_numbers(batch, name)


@pytest.mark.parametrize("name", parameters(SPLITTABLE))
def test_a_split_reduction(name: str, batches: Batches) -> None:
    """With i32 only, the reduction is split so that each part fits."""
    batch = batches(SPLITTABLE, SPLIT)
    assert_fused(batch, name)
    if "clamped" not in name:  # long
        assert_interpreted(batch, name)
    assert_numbers(batch, name)


@pytest.mark.parametrize(
    ("name", "bound"), [("split_s16", 1024 << 22), ("split_s16_constant", 1024 << 22), ("split_s16_zero", None)]
)
def test_no_fuse_when_the_accumulator_may_overflow(name: str, bound: int | None, batches: Batches) -> None:
    """Without i64 and without splitting it is refused, and the text is unchanged."""
    fused = batches(SPLITTABLE, REFUSES).fused(name)
    (missed,) = fused.report.missed
    found = missed["reason"]
    if bound is not None:
        assert found == f"the accumulator can reach {bound}, which does not fit i32 (field accumulators)"
    assert found.startswith("the accumulator can reach ")
    assert missed["hint"] == HINT
    assert fused.report.applied == []
    assert fused.after == fused.before


def test_no_split_of_a_prime_reduction() -> None:
    """A reduction that has no divisor to split at is refused."""
    case = linear("prime", 1031, S16, S8, constant=False)
    fused = Batch([case], SPLIT).fused("prime")
    assert [e["reason"] for e in fused.report.missed] == [
        f"the accumulator can reach {1031 << 22}, which does not fit i32 (field accumulators)"
    ]
    assert fused.after == fused.before
