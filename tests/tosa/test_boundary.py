"""Functions of integers from TOSA, signed and unsigned, and how a repair is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qfuse
from qfuse import cli
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines

SCALE, RESULT = np.float32(0.02), np.float32(0.01)


def model(zero: int, low: int, high: int) -> str:
    """A quantized matmul."""
    f = Lines(x="1x4x8xf32")
    x = f.dequantize(f.quantize("%x", SCALE, zero, low, high), SCALE, zero)
    w = f.dequantize(f.const(np.random.default_rng(1).integers(-127, 128, (1, 8, 3)), "i8"), 0.01)
    none = f.const(0.0, "f32")
    y = f.op("matmul", [x, w, none, none], "1x4x3xf32")
    return f.module(f.dequantize(f.quantize(y, RESULT, zero, low, high), RESULT, zero))


@pytest.mark.parametrize(("zero", "low", "high"), [(5, -128, 127), (140, 0, 255), (7, 0, 255), (140, -128, 127)])
def test_dropped_boundaries(zero: int, low: int, high: int) -> None:
    """Nothing of floats is left, and integers in and out are those that the float function stands for."""
    unsigned = high == 255 or zero > 127
    parse = Bindings.first_available().parse_source
    dropped, kept = (parse(model(zero, low, high), "module") for _ in range(2))
    report = qfuse.fuse(dropped, "tosa-int", boundary="drop")
    qfuse.fuse(kept, "tosa-int")
    assert report.missed == []
    assert tosa.validate(dropped).profiles == ("pro_int",)
    text = str(dropped)
    assert text.count("input_unsigned = true") == text.count("output_unsigned = true") == int(unsigned)
    assert text.count(f'qfuse.storage = "{"u8" if unsigned else "s8"}"') == 2
    stored = np.random.default_rng(2).integers(0, 256, (1, 4, 8)) - (0 if unsigned else 128)
    (want,) = tosa.run(kept, [((stored - zero) * SCALE).astype(np.float32)])
    (got,) = tosa.run(dropped, [stored.astype(np.uint8).view(np.int8)])
    numbers = (got.view(np.uint8) if unsigned else got).astype(np.float32)
    assert np.array_equal((numbers - zero) * RESULT, want)


def test_unsigned_results_are_those_of_the_model() -> None:
    """Of numpy, which the unfused module is far from."""
    text = model(140, 0, 255)
    module = Bindings.first_available().parse_source(text, "module")
    qfuse.fuse(module, "tosa-int")
    x = np.random.default_rng(3).normal(0, 1, (1, 4, 8)).astype(np.float32)
    weights = np.random.default_rng(1).integers(-127, 128, (1, 8, 3)) * 0.01
    stored = np.clip(np.round(x.astype(np.float64) / SCALE) + 140, 0, 255)
    exact = np.round(((stored - 140) * SCALE) @ weights / RESULT) + 140
    want = (np.clip(exact, 0, 255) - 140) * RESULT
    (got,), (unfused,) = tosa.run(module, [x]), tosa.run(text, [x])
    assert np.abs(got - want).max() < 1.5 * RESULT
    assert np.abs(unfused - want).max() > 20 * RESULT


def test_a_repair_is_a_remark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with what follows from it."""
    source = tmp_path / "model.tosa.mlir"
    source.write_text(model(140, 0, 255))
    arguments = [str(source), "--target=tosa-int", "--remarks", "-o", str(tmp_path / "out.mlir")]
    assert cli.opt_main(arguments) == 0
    remarks = [line for line in capsys.readouterr().err.splitlines() if "repaired" in line]
    assert len(remarks) == 4  # quantize and dequantize at both ends
    assert all(line.endswith("results differ from the unfused module's)") for line in remarks)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_other_targets_say_what_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    """In one line, and nothing is written."""
    source = tmp_path / "model.tosa.mlir"
    source.write_text(model(5, -128, 127))
    assert cli.opt_main([str(source), "--target", target, "-o", str(tmp_path / "out.mlir")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("this module is written in tosa: use target tosa-int")
    assert not (tmp_path / "out.mlir").exists()
