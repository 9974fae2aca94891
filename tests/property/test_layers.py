"""`benchmarks/layers.py` tells a layer that breaks its promise from one that only follows a hidden step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch_mlir import ir

import benchmarks.layers
from benchmarks.layers import compare, return_quantized
from tests.property.executor import execute
from tests.property.graphs import build, random_graph

CNN = Path(__file__).resolve().parents[2] / "examples/digits"


@pytest.mark.parametrize("target", ["linalg", "integer-only"])
def test_every_layer_of_the_digits_network(target: str) -> None:
    """Alone each layer is within a step; the network as a whole is too."""
    text = (CNN / "cnn.linalg.mlir").read_text()
    images = np.load(CNN / "test.npz")["x"]
    function = ir.Module.parse(text, ir.Context()).body.operations[0]
    shape = list(ir.RankedTensorType(function.type.inputs[0]).shape)
    layers = compare(text, [images[: shape[0]].reshape(shape).astype(np.float32)], target, {})
    assert len(layers) > 8
    assert all(layer.holds for layer in layers)
    assert all(layer.allowed <= 1 for layer in layers if layer.type.endswith("xi8>"))
    assert any(layer.chained.any() for layer in layers)


def test_a_layer_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other integers in one layer, that layer alone is reported, not those behind it."""
    built = build(random_graph(3))
    inputs = list(built.samples()[0].values())
    layers = compare(built.function.text, inputs, "linalg", {})
    assert all(layer.holds for layer in layers)
    module = ir.Module.parse(built.function.text, ir.Context())
    hidden, _ = return_quantized(module)
    wrong = len(hidden) - 1
    runs: list[object] = []

    def execute_wrongly(module: object, arguments: object, observed: object = None) -> tuple[object, ...]:
        found = list(execute(module, arguments, observed=observed))  # type: ignore[arg-type]
        runs.append(module)
        if len(runs) == 1:  # the fused module
            found[wrong] = np.where(found[wrong] > 100, found[wrong] - 3, found[wrong] + 3)
        return tuple(found)

    monkeypatch.setattr(benchmarks.layers, "execute", execute_wrongly)
    again = compare(built.function.text, inputs, "linalg", {})
    assert [layer.name for layer in again if not layer.holds] == [layers[wrong].name]
