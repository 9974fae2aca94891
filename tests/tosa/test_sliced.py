"""A convolution in groups, which frontends write as slices: inputs, weights with scales a channel, and bias."""

from __future__ import annotations

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in, quantized

STEP = 0.03


def part(f: Lines, x: str, start: list[int], size: list[int]) -> str:
    result = "x".join(map(str, size)) + "xf32"
    return f.op("slice", [x, f.const_shape(start), f.const_shape(size)], result)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups(groups: int) -> None:
    """Each group reads its own channels' weights, scales and bias; the first slice of each begins at 0."""
    rng = np.random.default_rng(groups)
    n, f = 8 // groups, Lines(x="1x5x5x8xf32")
    x = quantized(f, "%x", 0.02, 5)
    scale = rng.uniform(0.004, 0.02, (8, 1, 1, 1)).astype(np.float32)
    w = f.dequantize(f.const(rng.integers(-127, 128, (8, 3, 3, n)), "i8"), scale)
    bias = f.const(rng.normal(0, 0.5, 8), "f32")
    results: list[str] = []
    for g in range(groups):
        own = part(f, x, [0, 0, 0, g * n], [1, 5, 5, n])
        weights = part(f, w, [g * n, 0, 0, 0], [n, 3, 3, n])
        y = f.conv(
            "conv2d", own, weights, part(f, bias, [g * n], [n]), f"1x5x5x{n}xf32", "pad = array<i64: 1, 1, 1, 1>"
        )
        results.append(quantized(f, y, STEP, -11))
    text = f.module(*results)
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert [e["op"] for e in report.applied if e["fusion"] == "qfuse.convolution"] == ["tosa.conv2d"] * groups
    assert floats_in(str(module)) == []
    tosa.validate(module)
    data = rng.normal(0, 1, (1, 5, 5, 8)).astype(np.float32)
    for want, got in zip(tosa.run(text, [data]), tosa.run(module, [data]), strict=True):
        off = np.round((got - want) / STEP)
        assert np.abs(off).max() <= 1
        assert np.count_nonzero(off) <= off.size // 20
