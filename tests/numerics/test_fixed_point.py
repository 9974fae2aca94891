"""Fixed-point epilogues, executed: the integers that numpy computes, within the stated bound of real arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.emit.fixed_epilogue import FixedScale, PlannedFixedRequantize
from qfuse.fixed_point import ROUNDINGS
from tests.numerics.harness import Batch, Case, Variant
from tests.strategies import Array, Evaluation, Function, Grid, Stored, Value, unsigned_view

FLOAT_OPERATION = re.compile(r"\b(?:arith\.(?:\w+f|[su]itofp|fpto[su]i)|math\.\w+)\b")
KINDS = ("random", "extremes", "low", "high")
M, K, N = 4, 24, 6

Made = tuple[Function, tuple[Value, ...], Grid]


def layer(
    name: str,
    *,
    k: int = K,
    n: int = N,
    lhs: Grid | None = None,
    rhs: Grid | None = None,
    out: Grid | None = None,
    weights: Any = None,
    steps: Callable[[Function, Value], Value] = lambda _, x: x,
    residual: Grid | None = None,
    kind: str = "add",
    behind: Callable[[Function, Value], Value] = lambda _, x: x,
) -> Made:
    """A quantized matmul: its function, its stored operands and its output grid."""
    f = Function(name, 3)
    lhs = lhs or Grid(scale=np.float32(0.0173), zero=-11)
    rhs = rhs or Grid(axes=(1,), scale=f.rng.uniform(0.002, 0.02, n).astype(np.float32))
    out = out or Grid(scale=np.float32(0.0771), zero=5)
    a, b = f.argument((M, k), lhs), f.weight((k, n), rhs, weights)
    y = steps(f, f.matmul(f.dequantize(a), f.dequantize(b)))
    if residual is None:
        f.results(f.quantize(behind(f, y), out))
        return f, (a, b), out
    c = f.argument((M, n), residual)
    y = f.binary(kind.removeprefix("r"), y, f.dequantize(c), swap=kind == "rsub")
    f.results(f.quantize(behind(f, y), out))
    return f, (a, b, c), out


def bias(f: Function, x: Value) -> Value:
    return f.binary("add", x, f.float_constant(f.rng.normal(size=N)), [1])


def integer_bias(f: Function, x: Value) -> Value:
    scale = np.float32(0.0173) * np.float32(0.01)
    stored = f.weight((N,), Grid(bits=32, scale=scale), f.rng.integers(-4000, 4000, N))
    return f.binary("add", x, f.dequantize(stored), [1])


def per_tensor(scale: Any, zero: Any = None, **more: Any) -> Grid:
    return Grid(scale=np.float32(scale), zero=zero, **more)


def layers() -> list[Made]:
    even = np.exp2(-np.arange(N).astype(np.float32) - 4)
    return [
        layer("plain"),
        layer("bias_relu", steps=lambda f, x: f.relu(bias(f, x))),
        layer("relu6", steps=lambda f, x: f.clamp(bias(f, x), 0.0, 6.0, "scalars")),
        layer("relu_in_the_middle", steps=lambda f, x: bias(f, f.scale_by(f.relu(bias(f, x)), 0.731))),
        layer("negative_factor", steps=lambda f, x: f.relu(f.scale_by(bias(f, x), -0.37))),
        layer("factors_of_both_signs", steps=lambda f, x: bias(f, f.binary(
            "mul", x, f.float_constant(np.array([1.5, -0.3, 0.7, -2.0, 1.0, -1.0])), [1]))),
        layer("integer_bias", rhs=per_tensor(0.01), steps=integer_bias),
        layer("weights_of_minus_128", weights=np.full((K, N), -128), lhs=per_tensor(0.0173, -128)),
        layer("zero_points_at_the_ends", lhs=per_tensor(0.02, 127), rhs=per_tensor(0.01, -128),
              out=per_tensor(0.05, -128)),
        layer("zero_point_of_the_result_high", out=per_tensor(0.05, 127)),
        layer("unsigned", lhs=per_tensor(0.02, 131, signed=False), out=per_tensor(0.05, 255, signed=False)),
        layer("one_product", k=1, rhs=per_tensor(0.01)),
        layer("one_channel", n=1, rhs=Grid(axes=(1,), scale=np.array([0.011], np.float32))),
        layer("narrow_clamp", out=per_tensor(0.05, 3, low=-8, high=7)),
        layer("ties", lhs=per_tensor(2.0**-5, 3), rhs=per_tensor(2.0**-4), out=per_tensor(2.0**-2, 1)),
        layer("ties_by_channel", lhs=per_tensor(2.0**-3), rhs=Grid(axes=(1,), scale=even), out=per_tensor(0.25),
              steps=lambda f, x: f.binary("add", x, f.float_constant(f.rng.integers(-64, 64, N) / 16), [1])),
        layer("all_saturate", out=per_tensor(2.0**-20)),
        layer("scale_above_one", lhs=per_tensor(8.0), rhs=per_tensor(3.0), out=per_tensor(0.5)),
        layer("scale_of_2_20", lhs=per_tensor(2.0**10), rhs=per_tensor(2.0**10), out=per_tensor(1.0)),
        layer("scale_of_2_minus_40", lhs=per_tensor(2.0**-20), rhs=per_tensor(2.0**-20), out=per_tensor(1.0, -3)),
        layer("wide_result", out=per_tensor(1e-5, 100, bits=16)),
        layer("widest_result", out=per_tensor(1e-9, None, bits=32, low=-(1 << 31), high=(1 << 31) - 128)),
        layer("residual", steps=bias, residual=per_tensor(0.031, -7), behind=lambda f, x: f.relu(x)),
        layer("residual_subtracted", residual=per_tensor(0.031, 255, signed=False), kind="sub"),
        layer("subtracted_from_residual", residual=per_tensor(0.031, -128), kind="rsub", behind=bias),
        layer("residual_by_channel", steps=bias, behind=lambda f, x: f.scale_by(x, -0.77),
              residual=Grid(axes=(1,), scale=np.linspace(0.01, 0.2, N).astype(np.float32), zero=np.arange(N) - 3)),
        layer("residual_of_ties", lhs=per_tensor(2.0**-5, 3), rhs=per_tensor(2.0**-4), out=per_tensor(2.0**-2, 1),
              residual=per_tensor(2.0**-3, 5)),
        layer("by_channel_of_the_result",
              out=Grid(axes=(1,), scale=np.linspace(0.02, 0.4, N).astype(np.float32), zero=np.arange(N) * 40 - 128)),
    ]  # fmt: skip


DYADIC = ("ties", "ties_by_channel", "scale_of_2_20", "scale_of_2_minus_40", "residual_of_ties")
VARIANTS = [Variant(f"fixed-point-{r}", "integer-only", {"scaling": r}) for r in ROUNDINGS]
POWERS = [Variant(f"power-of-two-{r}", "integer-only", {"scaling": r, "epilogue": "power-of-two"}) for r in ROUNDINGS]


def scale_of(text: str, variant: Variant) -> FixedScale:
    """The planned arithmetic."""
    plan = qfuse.plan(ir.Module.parse(text, ir.Context()), variant.target, **variant.options)
    (payload,) = [d.payload for d in plan._analysis.live if isinstance(d.payload, PlannedFixedRequantize)]
    return payload.scale


@pytest.mark.parametrize("variant", [*VARIANTS, *POWERS], ids=str)
def test_executed(variant: Variant) -> None:
    """IREE computes what numpy computes, and that is within the bound of the report."""
    made = [m for m in layers() if variant in VARIANTS or m[0].name in DYADIC]
    batch = Batch([Case(f, kinds=KINDS) for f, _, _ in made], variant)
    for function, operands, out in made:
        name = function.name
        fused = batch.fused(name)
        assert not fused.report.missed, (name, str(fused.report))
        assert not FLOAT_OPERATION.search(fused.after), fused.after
        assert not fused.again.applied
        (entry,) = [e for e in fused.report.applied if e["fusion"] == "qfuse.requantize"]
        bound = int(entry["exactness"].split("-")[1])
        channels = np.asarray(bound if entry["channel_bounds"] is None else entry["channel_bounds"])
        assert channels.max() == bound
        scale = scale_of(function.text, variant)
        for inputs in batch.cases[name].inputs():
            (output,) = batch.run(name, inputs)
            run = Evaluation(inputs)
            stored = unsigned_view(output, out)
            reference = run.of(function.returned[0])
            assert isinstance(reference, Stored)
            off = np.abs(stored.astype(np.int64) - reference.value.astype(np.int64))
            assert (off <= channels).all(), (name, off.max(), bound)
            near = reference.distance <= entry["tie_distance"] * 1.01 + 2.0**-30 * reference.magnitude
            assert (near | (off == 0)).all(), (name, entry)
            added = [run.integers(v).astype(np.int64) for v in operands[2:]]
            np.testing.assert_array_equal(stored, scale.apply(accumulators(run, operands[:2]), added), name)


def accumulators(run: Evaluation, operands: tuple[Value, ...]) -> Array:
    """The corrected integer sums, from the stored integers."""
    shifted: list[Array] = []
    for value in operands:
        assert value.grid is not None
        zero = 0 if value.grid.zero is None else value.grid.zero
        shifted.append(run.integers(value).astype(np.int64) - value.grid.spread(zero, value.shape).astype(np.int64))
    return shifted[0] @ shifted[1]
