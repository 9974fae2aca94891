"""Random networks on described kernels: every layer is within its stated class, whatever its layout."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from tests.property.contract import TARGETS, examine
from tests.property.executor import execute
from tests.property.graphs import build, random_graph
from tests.property.kernels import registry
from tests.strategies import Function, Grid


@pytest.mark.parametrize("target", ["kernels", "kernels-folded"])
def test_random_networks_on_kernels(target: str) -> None:
    for seed in range(25):
        built = build(random_graph(seed))
        outcome = examine(built, TARGETS[target], built.samples())
        assert outcome.violations == [], seed


def test_the_kernels_are_used() -> None:
    """In these networks matrix products, images, groups and windows with padding are all among what is called."""
    found: set[str] = set()
    for seed in range(25):
        module = ir.Module.parse(build(random_graph(seed)).function.text, ir.Context())
        report = qfuse.fuse(module, "integer-only", registry("single", folded=False))
        found |= {entry["kernel"] for entry in report.applied if "kernel" in entry}
    assert found >= {"matmul_single_plain", "conv_hw_single_plain"}


@pytest.mark.parametrize("kernels", [False, True])
def test_a_pad_between_the_accumulators_and_the_quantize(kernels: bool) -> None:
    """The result is made first and padded by its zero point, by the built-in epilogue and behind a kernel alike."""
    results = []
    for padded in (False, True):
        f = Function("main", 3)
        a = f.argument((4, 8), Grid(scale=np.float32(0.02), zero=-11))
        b = f.weight((8, 6), Grid(scale=np.float32(0.01)))
        y = f.matmul(f.dequantize(a), f.dequantize(b))
        f.results(f.quantize(f.pad(y, (1, 0), (0, 2)) if padded else y, Grid(scale=np.float32(0.05), zero=7)))
        module = ir.Module.parse(f.text, ir.Context())
        chosen = registry("single", folded=False) if kernels else None
        report = qfuse.fuse(module, "integer-only", chosen)
        assert report.missed == []
        assert ("kernel" in report.applied[-1]) == kernels
        x = np.random.default_rng(1).integers(-128, 128, (4, 8)).astype(np.int8)
        results.append(execute(module, [x])[0])
    assert np.array_equal(results[1], np.pad(results[0], ((1, 0), (0, 2)), constant_values=7))


def test_accumulators_of_64_bits_in_a_fixed_point_expression() -> None:
    """The requantize declines them; the elementwise operation that takes them reads 64 bits as they are."""
    f = Function("main", 3)
    wide = {"bits": 16, "low": -32768, "high": 32767}
    a = f.argument((4, 16), Grid(scale=np.float32(2.0**-12), **wide))
    b = f.weight((16, 6), Grid(scale=np.float32(2.0**-14), **wide))
    c = f.weight((6,), Grid(bits=32, low=-(1 << 20), high=1 << 20, scale=np.float32(1e-4)))
    y = f.binary("add", f.matmul(f.dequantize(a), f.dequantize(b)), f.dequantize(c), [1])
    f.results(f.quantize(y, Grid(scale=np.float32(2.0**-8), **wide)))
    plain, fused = (ir.Module.parse(f.text, ir.Context()) for _ in range(2))
    report = qfuse.fuse(fused, "linalg", epilogue="fixed-point")
    assert report.missed == []
    assert report.applied[0]["accumulator"] == "i64"
    x = np.random.default_rng(1).integers(-32768, 32768, (4, 16)).astype(np.int16)
    (expected,), (found,) = execute(plain, [x]), execute(fused, [x])
    assert np.abs(found.astype(np.int64) - expected).max() <= 1
    assert len(np.unique(found)) > 10
