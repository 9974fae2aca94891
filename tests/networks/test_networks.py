"""Layers and whole networks as PyTorch and ONNX export them: integer throughout, and each layer within what it states.

The modules come from torchao's, ExecuTorch's and onnxruntime's quantizers through torch-mlir, with random weights;
`io.npz` has the inputs and what PyTorch (onnxruntime for `onnx.*`) gives for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from benchmarks.layers import compare
from qfuse._mlir import Bindings
from qfuse.matchers.nodes import Dequantize, Quantize
from qfuse.matchers.recognizer import Recognizer
from tests.property.executor import execute

HERE = Path(__file__).parent
CASES = sorted(p.stem for p in HERE.glob("*.mlir"))
NETWORKS = [c for c in CASES if c.startswith("model.")]
LAYERS = [c for c in CASES if c not in NETWORKS]
TARGETS = ("linalg", "iree-cpu", "integer-only")
ROUNDINGS = ("double", "gemmlowp", "half-even")

STAYS = "stays in float between a dequantize and a quantize"
#: What the quantizers left in float, or wrote so that no integer form exists.
MISSED: dict[str, set[str]] = {
    # The last hardswish is not quantized before the mean.
    "model.mobilenetv3.xnn_pc": {
        "no quantize reads its result",
        STAYS,
    },
    # The weights of the transposed convolutions are not quantized.
    "model.unet.xnn_pc": {
        "operand 1 (rhs) is not dequantized",
        "not every input of the layout operation is dequantized",
        "a branch of the concat is not dequantized",
        STAYS,
    },
    # The weight has a scale an input channel.
    "tosaq.convT2d_grouped": {"the scale of rhs varies along the reduction without blocks", STAYS},
}


@cache
def text_of(case: str) -> str:
    return (HERE / f"{case}.mlir").read_text()


@cache
def data() -> dict[str, Any]:
    with np.load(HERE / "io.npz") as held:
        return {name: held[name] for name in held.files}


def given(case: str, what: str) -> list[Any]:
    return [a for name, a in sorted(data().items()) if name.startswith(f"{case}/{what}")]


def parsed(case: str) -> Any:
    return ir.Module.parse(text_of(case), ir.Context())


def operations(module: Any) -> list[Any]:
    (function,) = [o.operation for o in module.body.operations if o.operation.name == "func.func"]
    return [o.operation for o in function.regions[0].blocks[0].operations]


@pytest.mark.parametrize("case", CASES)
def test_what_stays_in_float_is_named(case: str) -> None:
    """Nothing for most; else exactly what the quantizer left."""
    report = qfuse.fuse(parsed(case), "integer-only")
    assert {e["reason"] for e in report.missed} == MISSED.get(case, set())


@pytest.mark.parametrize("case", [c for c in CASES if c not in MISSED])
def test_no_float_operation_between_integers(case: str) -> None:
    """No operation on floats, not even inside a body, is both computed from integers and goes into integers."""
    module = parsed(case)
    qfuse.fuse(module, "integer-only")
    assert [op.name for op in between_integers(operations(module)) if computes_on_floats(op)] == []
    assert qfuse.fuse(module, "integer-only").applied == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_every_layer_keeps_what_it_states(case: str, target: str) -> None:
    """On the given inputs, and where layers are ordinary the whole is within one step of PyTorch's result."""
    layers = compare(text_of(case), given(case, "in"), target, {})
    assert [str(layer) for layer in layers if not layer.holds] == []
    module = parsed(case)
    step = last_step(module)
    qfuse.fuse(module, target)
    for found, expected in zip(execute(module, given(case, "in")), given(case, "out"), strict=True):
        limit = 1.001 * step if step else 1e-4 * float(np.abs(expected).max())
        assert np.abs(found.astype(np.float64) - expected).max() <= limit


@pytest.mark.parametrize("scaling", ROUNDINGS)
@pytest.mark.parametrize("case", NETWORKS)
def test_every_layer_keeps_what_it_states_however_scaled(case: str, scaling: str) -> None:
    layers = compare(text_of(case), given(case, "in"), "integer-only", {"scaling": scaling})
    assert [str(layer) for layer in layers if not layer.holds] == []


@pytest.mark.parametrize("target", ["linalg", "integer-only"])
@pytest.mark.parametrize("case", LAYERS)
def test_adversarial_inputs(case: str, target: str) -> None:
    """Saturation at both ends, ties of the first quantize, infinities, all elements alike, and the ends of integers."""
    for inputs in adversarial(case):
        layers = compare(text_of(case), inputs, target, {})
        assert [str(layer) for layer in layers if not layer.holds] == []


def adversarial(case: str) -> Iterator[list[Any]]:
    shapes = given(case, "in")
    scales = [n.params.scale.scalar for n in nodes(parsed(case)) if isinstance(n, Quantize)]
    scale = float(next((s for s in scales if s is not None), 0.5))
    rng = np.random.default_rng(7)

    def each(values: Any) -> list[Any]:
        return [values(a).astype(a.dtype) if a.dtype.kind == "f" else integers(a, values) for a in shapes]

    def integers(a: Any, values: Any) -> Any:
        ends = np.iinfo(a.dtype)
        return np.clip(np.rint(values(a) / scale), ends.min, ends.max).astype(a.dtype)

    yield each(lambda a: rng.choice([-1e30, 1e30], a.shape))
    yield each(lambda a: rng.choice([-np.inf, np.inf, 0.0], a.shape) if a.dtype.kind == "f" else np.zeros(a.shape))
    yield each(lambda a: (rng.integers(-140, 140, a.shape) + 0.5) * scale)
    yield each(lambda a: np.full(a.shape, 37.0 * scale))
    yield each(lambda a: np.full(a.shape, -1e9))


def nodes(module: Any) -> list[Any]:
    recognizer = Recognizer(Bindings.of(module))
    return [n for n in map(recognizer.node, operations(module)) if n is not None]


def last_step(module: Any) -> float:
    """The scale of the dequantize that gives the result; 1 where integers are returned, 0 where neither is known."""
    (end,) = operations(module)[-1].operands
    found = [n for n in nodes(module) if n.result == end]
    if found and isinstance(found[0], Dequantize) and found[0].params.scale.span is not None:
        return float(found[0].params.scale.span[1])
    return 1.0 if "xi" in str(end.type) or "xui" in str(end.type) else 0.0


def between_integers(every: list[Any]) -> list[Any]:
    """Operations on paths from integers that are known at run time only to integers."""
    computed: set[Any] = set()
    for op in every:
        constant = op.name == "arith.constant" or (op.name != "tensor.empty" and not len(op.operands))
        if not constant and any(v in computed or (is_integer(v) and is_computed(v)) for v in op.operands):
            computed.update(op.results)
    read: set[Any] = set()
    for op in reversed(every):
        if any(r in read or is_integer(r) for r in op.results):
            read.update(op.operands)
    return [op for op in every if any(r in computed and (r in read or is_integer(r)) for r in op.results)]


def is_integer(value: Any) -> bool:
    return str(value.type).startswith("tensor<") and str(value.type).endswith(("i8>", "i16>", "i32>", "i64>"))


def is_computed(value: Any) -> bool:
    """Whether a tensor is neither a constant nor made of constants."""
    op = getattr(value.owner, "operation", None)
    if op is None:
        return True
    return op.name not in ("tensor.empty", "arith.constant") and any(map(is_computed, op.operands))


def computes_on_floats(op: Any) -> bool:
    inside = [o.operation for region in op.regions for block in region.blocks for o in block.operations]
    values = [v for o in (op, *inside) for v in (*o.operands, *o.results)]
    return any(str(v.type).endswith(("f32", "f32>", "f16", "f16>", "f64", "f64>")) for v in values)
