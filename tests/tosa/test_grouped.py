"""A convolution in groups whose concatenated result is quantized as a whole, as torch-mlir exports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in, quantized
from tests.tosa.test_sliced import part

STEP = 0.05
Behind = Callable[[Lines, str], str]


def nothing(f: Lines, x: str) -> str:
    return x


def relu6(f: Lines, x: str) -> str:
    float_ = f.types[x]
    return f.op("minimum", [f.op("maximum", [x, f.number(0.0, x, "f32")], float_), f.number(6.0, x, "f32")], float_)


def factors(f: Lines, x: str) -> str:
    """A factor for each channel, which each group takes its own part of."""
    scale = np.linspace(0.5, 2.0, f.shape(x)[1]).reshape(1, -1, 1, 1)
    return f.mul(x, f.const(scale, "f32"), f.types[x])


def hardswish(f: Lines, x: str) -> str:
    float_ = f.types[x]
    gate = f.op("add", [x, f.number(3.0, x, "f32")], float_)
    gate = f.op("clamp", [gate], float_, "min_val = 0.0 : f32, max_val = 6.0 : f32")
    return f.mul(f.mul(x, gate, float_), f.number(1 / 6, x, "f32"), float_)


def grouped(sizes: tuple[int, ...], behind: Behind, users: int = 1, branch: Behind | None = None) -> str:
    """Groups with `sizes` results each, concatenated, transposed to NCHW, and quantized once for each user."""
    groups, channels = len(sizes), sum(sizes)
    rng = np.random.default_rng(sizes)
    f = Lines(x=f"1x{2 * groups}x5x5xf32")
    x = f.op("transpose", [quantized(f, "%x", 0.02, 5)], f"1x5x5x{2 * groups}xf32", "perms = array<i32: 0, 2, 3, 1>")
    scale = rng.uniform(0.004, 0.02, (channels, 1, 1, 1)).astype(np.float32)
    w = f.dequantize(f.const(rng.integers(-127, 128, (channels, 3, 3, 2)), "i8"), scale)
    bias = f.const(rng.normal(0, 0.5, channels), "f32")
    parts: list[str] = []
    for g, n in enumerate(sizes):
        start = sum(sizes[:g])
        own = part(f, x, [0, 0, 0, 2 * g], [1, 5, 5, 2])
        filters = part(f, w, [start, 0, 0, 0], [n, 3, 3, 2])
        y = f.conv(
            "conv2d", own, filters, part(f, bias, [start], [n]), f"1x5x5x{n}xf32", "pad = array<i64: 1, 1, 1, 1>"
        )
        parts.append(y if branch is None or g else branch(f, y))
    y = f.op("concat", parts, f"1x5x5x{channels}xf32", "axis = 3 : i32")
    y = behind(f, f.op("transpose", [y], f"1x{channels}x5x5xf32", "perms = array<i32: 0, 3, 1, 2>"))
    return f.module(*(quantized(f, y, STEP * (1 + u), -11) for u in range(users)))


def inputs(text: str) -> list[Any]:
    """Random ones, ones beyond the quantized range, and zeros."""
    rng = np.random.default_rng(3)
    shape = [int(n) for n in text.split("%x: tensor<")[1].split("xf32>")[0].split("x")]
    return [rng.normal(0, 1, shape), rng.choice([-9.0, 9.0], shape), np.zeros(shape)]


def fused(text: str) -> tuple[Any, qfuse.Report]:
    module = Bindings.first_available().parse_source(text, "module")
    return module, qfuse.fuse(module, "tosa-int")


@pytest.mark.parametrize("behind", [nothing, relu6, factors, hardswish], ids=lambda b: b.__name__)
@pytest.mark.parametrize("sizes", [(4, 4), (2, 2, 2, 2), (1, 2, 5)], ids=str)
@pytest.mark.parametrize("users", [1, 2])
def test_groups(behind: Behind, sizes: tuple[int, ...], users: int) -> None:
    """Integers are concatenated and transposed; each group has its part of scales, bias and factors."""
    text = grouped(sizes, behind, users)
    module, report = fused(text)
    assert report.missed == []
    assert [e["fusion"] for e in report.applied].count("qfuse.concat") == users
    assert floats_in(str(module)) == []
    tosa.validate(module)
    for number, data in enumerate(inputs(text)):
        x = data.astype(np.float32)
        for u, (want, got) in enumerate(zip(tosa.run(text, [x]), tosa.run(module, [x]), strict=True)):
            off = np.round((got - want) / (STEP * (1 + u)))
            assert np.abs(off).max() <= 1
            assert number or np.count_nonzero(off) <= off.size // 20
    before = str(module)
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == before


def test_no_fuse_of_a_float_branch() -> None:
    """One branch goes through a function that has no integer form: nothing of the concat is rewritten."""
    text = grouped((4, 4), nothing, branch=lambda f, y: f.op("exp", [y], f.types[y]))
    module, report = fused(text)
    reasons = {e["op"]: e["reason"] for e in report.missed}
    assert "the elementwise operation has no integer form: exp of a dequantized value" in reasons["tosa.cast"]
    assert any("tosa.concat" in line for line in floats_in(str(module)))
