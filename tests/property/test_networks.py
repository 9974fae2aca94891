"""Random networks keep what the report states of them: a short run of `run.py`, and seeds that once did not."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from tests.property.contract import TARGETS, examine
from tests.property.executor import execute
from tests.property.graphs import build, random_graph
from tests.property.run import one, summary
from tests.strategies import Function, Grid

BUILT_IN = ("linalg", "iree-cpu", "integer-only")


@pytest.mark.parametrize("block", range(4))
def test_random_networks(block: int) -> None:
    """Stored integers within the stated class, a second run idle, nothing poison, on every built-in target."""
    for seed in range(3000 + 25 * block, 3025 + 25 * block):
        for target, result in zip(BUILT_IN, one(seed, BUILT_IN), strict=True):
            assert result.finding is None, f"seed {seed}\n{summary(target, [result])}\n{result.finding}"


@pytest.mark.parametrize("target", ["double", "gemmlowp", "half-even", "power-of-two", "linalg-magic"])
def test_random_networks_by_option(target: str) -> None:
    for seed in range(4000, 4008):
        (result,) = one(seed, (target,))
        assert result.finding is None, f"seed {seed}\n{summary(target, [result])}\n{result.finding}"


#: 1494 and 1701: a zero-point correction of millions of steps in a float bias. 1950: the same before a division.
@pytest.mark.parametrize("seed", [1494, 1701, 1950])
@pytest.mark.parametrize("target", BUILT_IN)
def test_networks_whose_steps_are_fine(seed: int, target: str) -> None:
    built = build(random_graph(seed))
    outcome = examine(built, TARGETS[target], built.samples())
    assert outcome.violations == []


@pytest.mark.parametrize(("scale", "folded"), [(0.05, True), (2.0**-22, False)])
def test_corrections_join_the_bias_only_where_steps_are_coarse(scale: float, folded: bool) -> None:
    """With steps far below those of the accumulators the correction is added to these, and the distance stays small."""
    f = Function("main", 11)
    a = f.argument((8, 96), Grid(scale=2.0**-6, zero=-120))
    b = f.weight((96, 4), Grid(scale=2.0**-7))
    y = f.matmul(f.dequantize(a), f.dequantize(b))
    f.results(f.quantize(y, Grid(scale=scale)))
    plain, fused = (ir.Module.parse(f.text, ir.Context()) for _ in range(2))
    (entry,) = [e for e in qfuse.fuse(fused, "linalg").applied if e["fusion"] == "qfuse.requantize"]
    assert ("arith.addi %in" in str(fused)) is not folded
    assert entry["exactness"] == "within-1-lsb"
    assert entry["tie_distance"] < 1 / 16
    x = f.arguments[0].sample(np.random.default_rng(2), "random")
    (expected,), (found,) = execute(plain, [x]), execute(fused, [x])
    assert abs(found.astype(int) - expected).max() <= 1
