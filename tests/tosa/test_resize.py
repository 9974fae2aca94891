"""`tosa.resize` of dequantized values: integers by integer weights, against real arithmetic, and nearest elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import iree, tosa
from tests.tosa.ir import Lines, stored_bytes

Array = np.ndarray[Any, Any]

SCALE, ZERO = 0.02, 5
SHAPE = (1, 4, 3, 2)
#: Name: scale (y, x: numerator, denominator), offset, border, extents of the result.
SIZES = {
    "twice": ((4, 2, 4, 2), (-1, -1), (1, 1), (8, 6)),
    "corners": ((7, 3, 5, 2), (0, 0), (0, 0), (8, 6)),
    "one way": ((4, 2, 1, 1), (-1, 0), (1, 0), (8, 3)),
    "smaller": ((1, 2, 2, 3), (0, 0), (-1, -1), (2, 2)),
}


def resize(f: Lines, x: str, size: str, mode: str) -> str:
    scale, offset, border, out = SIZES[size]
    n, _, _, c = f.shape(x)
    operands = [x, *(f.const_shape(v) for v in (scale, offset, border))]
    return f.op("resize", operands, f"{n}x{out[0]}x{out[1]}x{c}xf32", f"mode = {mode}")


def inputs() -> list[Array]:
    """Random ones, extremes, ties of halves, and one number everywhere."""
    return stored_bytes(SHAPE, ZERO, 4)


def places(out: int, own: int, n: int, d: int, offset: int) -> list[tuple[int, int, float]]:
    """For each place of a result its two neighbours and how far it is from the first."""
    found: list[tuple[int, int, float]] = []
    for o in range(out):
        whole, part = divmod(o * d + offset, n)
        found.append((max(whole, 0), min(whole + 1, own - 1), part / n))
    return found


def interpolated(values: Array, size: str) -> Array:
    """In real arithmetic."""
    (yn, yd, xn, xd), (oy, ox), _, out = SIZES[size]
    result = np.empty((1, *out, SHAPE[3]))
    for i, (y0, y1, dy) in enumerate(places(out[0], SHAPE[1], yn, yd, oy)):
        for j, (x0, x1, dx) in enumerate(places(out[1], SHAPE[2], xn, xd, ox)):
            upper = values[:, y0, x0] * (1 - dx) + values[:, y0, x1] * dx
            lower = values[:, y1, x0] * (1 - dx) + values[:, y1, x1] * dx
            result[:, i, j] = upper * (1 - dy) + lower * dy
    return result


def fused(text: str) -> tuple[str, qfuse.Report]:
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == after
    return after, report


@pytest.mark.parametrize("result", [(0.0071, -11), (SCALE, ZERO), (0.04, 3)], ids=["finer", "same", "coarser"])
@pytest.mark.parametrize("size", SIZES)
def test_bilinear(size: str, result: tuple[float, int]) -> None:
    f = Lines(q="1x4x3x2xi8")
    y = resize(f, f.dequantize("%q", SCALE, ZERO), size, "BILINEAR")
    after, report = fused(f.module(f.quantize(y, *result)))
    assert [e["fusion"] for e in report.applied] == ["qfuse.resize", "qfuse.requantize"]
    assert report.applied[1]["exactness"] == "within-1-lsb"
    assert report.missed == []
    assert report.summary["quantized_compute_ops"] == report.summary["integer_ops"] == 1
    assert "f32" not in after
    assert after.count("tosa.rescale") == 1
    assert set(tosa.validate(after).extensions) == set()
    for q in inputs():
        (got,) = tosa.run(after, [q])
        real = interpolated(q.astype(np.float64) - ZERO, size) * SCALE / np.float32(result[0]) + result[1]
        assert np.abs(got - np.clip(real, -128, 127)).max() <= 0.5 + 1e-5


def test_bilinear_of_unsigned_bytes_with_a_float_result() -> None:
    """They are kept 128 less; without a quantize behind it the sums become floats."""
    f = Lines(x="1x4x3x2xf32")
    x = f.dequantize(f.quantize("%x", SCALE, 140, 0, 255), SCALE, 140)
    quantized = f.quantize(resize(f, x, "twice", "BILINEAR"), SCALE, 140, 0, 255)
    module = Bindings.first_available().parse_source(f.module(f.dequantize(quantized, SCALE, 140)), "module")
    assert qfuse.fuse(module, "tosa-int").missed == []
    assert "xi8>, !tosa.shape<4>" in next(line for line in str(module).splitlines() if "tosa.resize" in line)
    for q in inputs():
        real = interpolated((q.astype(np.float64) - 12) * SCALE, "twice")
        (got,) = tosa.run(module, [(q.astype(np.float32) - 12) * np.float32(SCALE)])
        assert np.abs(got - real).max() <= SCALE * 0.501


@pytest.mark.parametrize("size", SIZES)
def test_the_nearest_element(size: str) -> None:
    f = Lines(q="1x4x3x2xi8")
    y = resize(f, f.dequantize("%q", SCALE, ZERO), size, "NEAREST_NEIGHBOR")
    text = f.module(f.quantize(y, SCALE, ZERO))
    after, report = fused(text)
    assert report.missed == []
    assert "f32" not in after
    assert "tosa.rescale" not in after
    for q in inputs():
        (want,), (got,) = tosa.run(text, [q]), tosa.run(after, [q])
        np.testing.assert_array_equal(want, got)


def refused(text: str) -> list[str]:
    module = Bindings.first_available().parse_source(text, "module")
    before = str(module)
    report = qfuse.fuse(module, "tosa-int", fusions=("qfuse.resize", "qfuse.requantize"))
    assert report.applied == []
    assert str(module) == before
    return [e["reason"] for e in report.missed if e["op"] == "tosa.resize"]


def test_no_fuse_when_the_scale_varies_along_a_resized_dimension() -> None:
    f = Lines(q="1x4x3x2xi8")
    x = f.dequantize("%q", np.reshape([0.1, 0.2, 0.3, 0.4], (1, 4, 1, 1)).astype(np.float32))
    text = f.module(f.quantize(resize(f, x, "twice", "BILINEAR"), SCALE, ZERO))
    assert refused(text) == ["the parameters vary along a resized dimension"]


def test_scales_of_channels() -> None:
    f = Lines(q="1x4x3x2xi8")
    x = f.dequantize("%q", np.reshape([0.01, 0.02], (1, 1, 1, 2)).astype(np.float32), ZERO)
    after, report = fused(f.module(f.quantize(resize(f, x, "twice", "BILINEAR"), SCALE, ZERO)))
    assert report.missed == []
    assert "f32" not in after
    for q in inputs():
        (got,) = tosa.run(after, [q])
        real = interpolated(q.astype(np.float64) - ZERO, "twice") * [0.5, 1.0] + ZERO
        assert np.abs(got - np.clip(real, -128, 127)).max() <= 0.5 + 1e-5


#: Container, bounds and zero point.
SIXTEEN = {
    "signed": ("i16", -32768, 32767, 0),
    "signed with a zero point": ("i16", -32768, 32767, 20000),
    "unsigned": ("i32", 0, 65535, 30000),
    "unsigned from zero": ("i32", 0, 65535, 0),
}


@pytest.mark.parametrize("scaling", ["single", "double", "inexact"])
@pytest.mark.parametrize("kind", SIXTEEN)
def test_sixteen_bits(kind: str, scaling: str) -> None:
    """Sums of i48 are narrowed to i32, and corrected there."""
    element, low, high, zero = SIXTEEN[kind]
    step, out = 2.0**-12, np.float32(0.00031)
    f = Lines(x="1x4x3x2xf32")
    x = f.dequantize(f.quantize("%x", step, zero, low, high, element), step, zero)
    results = [f.quantize(resize(f, x, size, "BILINEAR"), out, -7, -32768, 32767, "i16") for size in SIZES]
    module = Bindings.first_available().parse_source(f.module(*(f.dequantize(q, out, -7) for q in results)), "module")
    report = qfuse.fuse(module, "tosa-int", scaling=scaling)
    after = str(module)
    assert report.missed == []
    sums, ends = ([e for e in report.applied if e["fusion"] == name] for name in ("qfuse.resize", "qfuse.requantize"))
    assert {e["accumulator"] for e in sums} == {"i32"}
    assert {e["exactness"] for e in ends} == {"within-1-lsb"}
    lines = [line for line in after.splitlines() if "tosa.resize" in line]
    assert len(lines) == len(SIZES)
    assert all("xi16>" in line and "xi48>" in line for line in lines)
    assert "int16" in tosa.validate(after).extensions
    rng = np.random.default_rng(1)
    near = zero + rng.integers(0, 2, SHAPE) * (1 if zero < high else -1)
    for q in (rng.integers(low, high + 1, SHAPE), rng.choice([low, high], SHAPE), np.full(SHAPE, low), near):
        real = (q - zero) * step
        values = real.astype(np.float32)
        got = tosa.run(after, [values])
        for size, entry, result in zip(SIZES, ends, got, strict=True):
            want = np.clip(interpolated(real, size) / np.float64(out), -32761, 32774)
            steps = np.rint(result.astype(np.float64) / np.float64(out))
            assert np.abs(steps - want).max() <= 0.5 + entry["tie_distance"]
        if scaling != "inexact":
            program = iree.Program(
                iree.compile_module(Bindings("torch_mlir").parse_source(tosa.to_linalg(after), "after"))
            )
            for first, second in zip(got, program(values), strict=True):
                np.testing.assert_array_equal(first, second)


def test_no_fuse_of_sixteen_bits_by_weights_that_exceed_i32() -> None:
    f = Lines(q="1x4x3x2xi16")
    scale = [512, 512, 128, 128]
    operands = [f.dequantize("%q", SCALE), *(f.const_shape(v) for v in (scale, [0, 0], [0, 0]))]
    y = f.op("resize", operands, "1x4x3x2xf32", "mode = BILINEAR")
    text = f.module(f.quantize(y, SCALE, 0, -32768, 32767, "i16"))
    assert refused(text) == ["TOSA has no operation for it: a sum can reach 2147483648, which does not fit i32"]
