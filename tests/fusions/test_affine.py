"""Named affine operations: raised, lowered and raised again, in text and executed; what cannot be said is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir, passmanager

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations.iree import Program, compile_module
from tests.conftest import Parse
from tests.numerics.interpreter import interpret
from tests.pipeline import samples

NAMES = qfuse.AffineNames("attributes", "acme.quantize", "acme.dequantize")
OWN = qfuse.RaiseAffine(id="acme.raise", names=NAMES)
TARGETS = ("affine", "affine-iree", "own")


def registry() -> qfuse.FusionRegistry:
    own = qfuse.Target("own", fusions=frozenset({OWN.id}))
    return qfuse.FusionRegistry.discover().with_(OWN, own, owner="acme")


def parsed(text: str) -> ir.Module:
    context = ir.Context()
    context.allow_unregistered_dialects = True
    return ir.Module.parse(text, context)


def changed(module: ir.Module, target: str) -> str:
    """The text behind a run, cleaned: of named operations by `cse` only, as `canonicalize` drops a dcast of a qcast."""
    report = qfuse.fuse(module, target, registry())
    assert report.missed == []
    assert module.operation.verify()
    passes = "canonicalize,cse" if target == "affine-generic" else "cse"
    passmanager.PassManager.parse(f"builtin.module({passes})", module.context).run(module.operation)
    return str(module)


@dataclass(frozen=True)
class Kind:
    """A quantized type and what it means, over 4 x 8 elements."""

    text: str
    scale: Any
    zero: Any = 0
    low: int = -128
    high: int = 127
    dtype: Any = np.int8

    def quantize(self, x: np.ndarray) -> np.ndarray:
        scale = np.asarray(self.scale, np.float32)
        return np.clip(np.rint(x / scale) + self.zero, self.low, self.high).astype(self.dtype)

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        return (q.astype(np.int64) - self.zero).astype(np.float32) * np.asarray(self.scale, np.float32)


def column(values: list[float]) -> np.ndarray:
    return np.array(values)[:, None]


def repeated(values: list[list[float]]) -> np.ndarray:
    return np.repeat(np.array(values), 4, axis=1)


KINDS = [
    Kind("i8:f32, 0.5:3", 0.5, 3),
    Kind("i8:f32, 1.0e-3", 1e-3),
    Kind("i8<-127:127>:f32, 0.5", 0.5, low=-127),
    Kind("u8:f32, 0.25:128", 0.25, 128, 0, 255, np.uint8),
    Kind("i16:f32, 0.02", 0.02, 0, -32768, 32767, np.int16),
    Kind("i8:f32:0, {0.5:1, 0.3:-2, 0.1, 7.0:5}", column([0.5, 0.3, 0.1, 7]), column([1, -2, 0, 5]).astype(int)),
    Kind("i8:f32:1, {0.5, 0.3, 0.1, 7.0, 0.01, 1.0, 2.0, 3.0}", np.array([0.5, 0.3, 0.1, 7, 0.01, 1, 2, 3])),
    Kind(
        "i8:f32:{0:1, 1:4}, {{0.5:1, 0.3:2}, {0.1, 1.0}, {2.0, 3.0}, {4.0:3, 5.0:4}}",
        repeated([[0.5, 0.3], [0.1, 1], [2, 3], [4, 5]]),
        repeated([[1, 2], [0, 0], [0, 0], [3, 4]]).astype(int),
    ),
]


def function(kind: Kind) -> str:
    quantized = f"tensor<4x8x!quant.uniform<{kind.text}>>"
    stored = f"tensor<4x8xi{8 * np.dtype(kind.dtype).itemsize}>"
    return f"""
      func.func @quantize(%x: tensor<4x8xf32>) -> {stored} {{
        %q = quant.qcast %x : tensor<4x8xf32> to {quantized}
        %r = quant.scast %q : {quantized} to {stored}
        return %r : {stored}
      }}
      func.func @dequantize(%x: {stored}) -> tensor<4x8xf32> {{
        %q = quant.scast %x : {stored} to {quantized}
        %r = quant.dcast %q : {quantized} to tensor<4x8xf32>
        return %r : tensor<4x8xf32>
      }}"""


def inputs(kind: Kind) -> np.ndarray:
    """Random values, ties, and values far out of range."""
    rng = np.random.default_rng(5)
    x = rng.normal(0, 60, (4, 8)).astype(np.float32) * np.asarray(kind.scale, np.float32)
    halves = (rng.integers(-20, 20, 8) + 0.5).astype(np.float32)
    x[1] = halves * np.broadcast_to(np.asarray(kind.scale, np.float32), (4, 8))[1]
    x[2, :4] = [np.inf, -np.inf, 1e30, -1e30]
    return x


def assert_computes(module: ir.Module, kind: Kind) -> None:
    x = inputs(kind)
    (stored,) = interpret(module, "quantize", [x])
    expected = kind.quantize(x)
    assert np.array_equal(stored.view(kind.dtype), expected)
    signed = np.dtype(kind.dtype).name.removeprefix("u")
    (real,) = interpret(module, "dequantize", [expected.view(signed)])
    assert np.array_equal(real, kind.dequantize(expected))


def expressible(kind: Kind, target: str) -> bool:
    """IREE's operations take parameters along dimensions only."""
    return target != "affine-iree" or "{0:1" not in kind.text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.text)
def test_round_trip(kind: Kind, target: str) -> None:
    """Lowered it computes what the type means; raised and lowered again the texts are the same, and so are results."""
    if not expressible(kind, target):
        return
    module = parsed(function(kind))
    plain = changed(module, "affine-generic")
    assert "quant." not in plain
    assert plain.count("linalg.generic") == 2
    assert_computes(module, kind)
    named = changed(module, target)
    assert "linalg.generic" not in named
    assert changed(module, "affine-generic") == plain
    assert_computes(module, kind)
    assert changed(module, target) == named


@pytest.mark.parametrize("kind", [k for k in KINDS if expressible(k, "affine-iree")], ids=lambda k: k.text)
def test_irees_operations_compute_the_same(kind: Kind) -> None:
    """In IREE's own binding, where the dialect verifies them, compiled and run by IREE."""
    module = Bindings("iree.compiler").parse_source(function(kind), "test.mlir")
    qfuse.fuse(module, "affine-generic")
    report = qfuse.fuse(module, "affine-iree")
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.raise-iree"] * 2
    program = Program(compile_module(module))
    x = inputs(kind)
    expected = kind.quantize(x)
    (stored,) = program(x, entry="quantize")
    assert np.array_equal(stored.view(kind.dtype), expected)
    signed = np.dtype(kind.dtype).name.removeprefix("u")
    (real,) = program(expected.view(signed), entry="dequantize")
    assert np.array_equal(real, kind.dequantize(expected))


def test_the_quantized_type_that_comes_back_is_the_one_that_was() -> None:
    """Where its scales are numbers of f32; others are rounded to f32, which is what they were computed with.

    Bounds are those of a quantize only: the arithmetic of a dequantize has none.
    """
    exact = [k for k in KINDS if "<" not in k.text and np.array_equal(np.asarray(k.scale, np.float32), k.scale)]
    assert len(exact) >= 2
    for kind in exact:
        module = parsed(function(kind))
        before = str(module)
        changed(module, "affine-generic")
        assert changed(module, "affine") == before


def test_the_attributes_of_an_operation_of_any_name() -> None:
    module = parsed(function(KINDS[-1]))
    changed(module, "affine-generic")
    changed(module, "own")
    op = module.body.operations[0].operation.regions[0].blocks[0].operations[0].operation
    assert op.name == "acme.quantize"
    assert op.attributes["qfuse.affine"].value == "quantize"
    assert op.attributes["storage"].value == "s8"
    assert list(op.attributes["block_sizes"]) == [1, 4]
    assert np.array(op.attributes["scales"]).shape == (4, 2)
    assert np.array(op.attributes["zero_points"]).tolist() == [[1, 2], [0, 0], [0, 0], [3, 4]]


def test_named_operations_are_fused_as_the_arithmetic_is(parse: Parse) -> None:
    """A linear layer, raised in each way, becomes the same integers."""
    plain = parse(samples.LINEAR)
    qfuse.fuse(plain)
    for target in TARGETS:
        module = parse(samples.LINEAR)
        qfuse.fuse(module, target, registry())
        assert "arith.sitofp" not in str(module)
        report = qfuse.fuse(module)
        assert report.summary["integer_ops"] == 1, target
        assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "qfuse.requantize"]


def test_nothing_is_raised_unless_asked_for(parse: Parse) -> None:
    """By a target or by the option `fusions`."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module)
    assert {e["fusion"] for e in report.applied} == {"qfuse.contraction", "qfuse.requantize"}
    module = parse(samples.LINEAR)
    qfuse.fuse(module, fusions="qfuse.raise-quant")
    assert str(module).count("quant.dcast") == 2
    assert str(module).count("quant.qcast") == 1


# -- refusals --------------------------------------------------------------------------------------------------------


def reasons(text: str, target: str) -> set[str]:
    """Why what stays is not raised; its text stays, too."""
    module = parsed(text)
    before = str(module)
    report = qfuse.fuse(module, target, registry())
    assert str(module) == before
    return {e["reason"] for e in report.missed}


def quantize(**changes: Any) -> str:
    return samples.module(
        samples.function(samples.quantize("r", "x", **changes), "%x: tensor<4x4xf32>", "tensor<4x4xi8>", "r")
    )


def test_no_raise_of_groups_to_iree() -> None:
    module = parsed(function(KINDS[-1]))
    changed(module, "affine-generic")
    found = reasons(str(module), "affine-iree")
    assert found == {"iree_linalg_ext.quantize_affine takes parameters along dimensions, found per-group(4)"}


def test_no_raise_of_a_reciprocal() -> None:
    text = quantize().replace("arith.divf %vx, %vs", "arith.mulf %vx, %vs")
    assert reasons(text, "affine") == {"the quantize multiplies by the reciprocal scale, a named quantize divides"}


def test_no_raise_of_a_quantize_that_computes_its_input() -> None:
    text = quantize().replace("arith.divf %vx, %vs", "arith.divf %vn, %vs")
    text = text.replace("%vd = ", "%vn = arith.negf %vx : f32\n      %vd = ", 1)
    assert reasons(text, "affine") == {"the quantize computes or moves its input in the same operation"}


def test_no_raise_of_run_time_parameters_to_a_type() -> None:
    """IREE's operation takes them as operands."""
    text = quantize().replace("%x: tensor<4x4xf32>", "%x: tensor<4x4xf32>, %scale: f32")
    text = text.replace("%vs = arith.constant 0.25 : f32\n", "").replace("%vx, %vs", "%vx, %scale")
    expected = {"quant.qcast carries constant parameters, these are known only at run time"}
    assert reasons(text, "affine") == expected
    module = parsed(text)
    named = changed(module, "affine-iree")
    assert "%arg1" in named
    plain = changed(module, "affine-generic")
    assert changed(module, "affine-iree") == named
    assert changed(module, "affine-generic") == plain


def test_no_raise_of_integers_of_32_bits_with_a_zero_point() -> None:
    text = function(Kind("i32:f32, 0.5:3", 0.5, 3, dtype=np.int32))
    assert reasons(text, "affine-generic") == {"s32 with its zero point is not exact in f32"}


def test_no_raise_where_the_dialect_is_not_there() -> None:
    module = ir.Module.parse(quantize(), ir.Context())
    report = qfuse.fuse(module, "own", registry())
    assert [e["reason"] for e in report.missed] == ["operation acme.quantize is not registered in the module's context"]


def test_marked_operations_that_contradict_themselves_are_left_alone() -> None:
    module = parsed(function(KINDS[0]))
    changed(module, "affine-generic")
    text = changed(module, "own").replace(
        'storage = "s8", zero_points = dense<3>', 'storage = "s8", zero_points = dense<300>'
    )
    found = reasons(text, "affine-generic")
    assert found == {"the zero point 300 is outside the storage range [-128, 127]"}


def test_an_unknown_schema_is_an_error() -> None:
    with pytest.raises(qfuse.UsageError, match="schema is one of iree, quant, attributes"):
        qfuse.RaiseAffine(id="acme.raise", names=qfuse.AffineNames("json", "a.q", "a.d"))
    with pytest.raises(qfuse.UsageError, match=r"operation's name is dialect\.name, not 'quantize'"):
        qfuse.RaiseAffine(id="acme.raise", names=qfuse.AffineNames("attributes", "quantize", "a.d"))
