"""Fifteen small models, imported by torch-mlir in both dialects: their integer modules agree.

`models/` holds them as imported. The TOSA ones run on the reference model and, lowered by MLIR's own passes, in IREE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import iree, tosa

MODELS = Path(__file__).parent / "models"
NAMES = sorted(path.name.removesuffix(".tosa.mlir") for path in MODELS.glob("*.tosa.mlir"))

Array = np.ndarray[Any, Any]


def fused(name: str, dialect: str) -> tuple[Any, qfuse.Report]:
    module = Bindings("torch_mlir").parse_source((MODELS / f"{name}.{dialect}.mlir").read_text(), name)
    if dialect == "tosa":
        return module, qfuse.fuse(module, "tosa-int")
    return module, qfuse.fuse(module, "linalg", epilogue="fixed-point")


def inputs_of(module: Any) -> list[Array]:
    """Normal values that reach the ends of the ranges."""
    rng = np.random.default_rng(3)
    function = next(op for op in module.body.operations if op.operation.name == "func.func")
    shapes = [tuple(a.type.shape) for a in function.regions[0].blocks[0].arguments]
    return [rng.normal(0, 1.2, shape).astype(np.float32) for shape in shapes]


def run_in_iree(module: Any, inputs: list[Array]) -> Array:
    (result,) = iree.Program(iree.compile_module(module))(*inputs)
    return result


def grid(values: Array) -> float:
    """The step between the values of a dequantized tensor."""
    return float(np.diff(np.unique(values)).min())


def test_none_is_missing() -> None:
    assert len(NAMES) == 15


@pytest.mark.parametrize("name", NAMES)
def test_both_dialects_agree(name: str) -> None:
    """And so does what MLIR lowers from the integer TOSA module."""
    tosa_module, report = fused(name, "tosa")
    linalg_module, linalg_report = fused(name, "linalg")
    for found in (report, linalg_report):
        assert found.summary["quantized_compute_ops"] == found.summary["integer_ops"] > 0
        assert found.missed == []
    tosa.validate(tosa_module)
    inputs = inputs_of(tosa_module)
    (reference,) = tosa.run(tosa_module, inputs)
    lowered = Bindings("torch_mlir").parse_source(tosa.to_linalg(tosa_module), name)
    assert np.array_equal(run_in_iree(lowered, inputs), reference)
    other = run_in_iree(linalg_module, inputs)
    assert other.shape == reference.shape
    off = np.abs(np.round((other - reference) / grid(reference)))
    assert off.max() <= 1
    assert np.count_nonzero(off) <= off.size // 50
