"""Integer-only functions: refusals of fixed point, what is named, rescales, and integer arguments and results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.fixed_point import Multiplier, apply
from qfuse.integrations.iree import Program, compile_module
from tests.numerics.harness import FLAGS
from tests.strategies import Evaluation, Function, Grid, Value

FLOATS = re.compile(r"\bx?f(?:16|32|64)\b(?! loc)")


def grid(scale: float, zero: Any = None, **more: Any) -> Grid:
    return Grid(scale=np.float32(scale), zero=zero, **more)


def parsed(function: Function | str) -> Any:
    return ir.Module.parse(function if isinstance(function, str) else function.text, ir.Context())


def matmul(
    name: str,
    out: Grid | None = None,
    lhs: Grid | None = None,
    rhs: Grid | None = None,
    steps: Callable[[Function, Value], Value] = lambda _, x: x,
) -> Function:
    f = Function(name)
    a = f.dequantize(f.argument((4, 8), lhs or grid(0.02, 3)))
    b = f.dequantize(f.weight((8, 4), rhs or grid(0.01)))
    return f.results(f.quantize(steps(f, f.matmul(a, b)), out or grid(0.05, 1)))


def reasons(function: Function, **options: Any) -> list[str]:
    module = parsed(function)
    before = str(module)
    report = qfuse.plan(module, "integer-only", **options).report
    assert str(module) == before
    return [e["reason"] for e in report.missed]


AT_RUN_TIME = "is known only at run time"


def test_no_fuse_when_a_scale_is_known_at_run_time() -> None:
    assert reasons(matmul("f", lhs=grid(0.02, run_time="scalar"))) == [f"the scale of lhs {AT_RUN_TIME}"]
    assert reasons(matmul("f", rhs=grid(0.02, run_time="one"))) == [f"the scale of rhs {AT_RUN_TIME}"]
    assert reasons(matmul("f", out=grid(0.02, run_time="scalar"))) == [f"the scale of the result {AT_RUN_TIME}"]


def test_no_fuse_when_a_float_tensor_is_added_at_run_time() -> None:
    function = matmul(
        "f", steps=lambda f, x: f.binary("add", x, f.float_argument((4,), lambda r: r.normal(size=4)), [1])
    )
    assert reasons(function) == ["the epilogue has an addition of a float tensor that is known only at run time"]


def test_no_fuse_when_groups_run_along_the_reduction() -> None:
    by_group = Grid(axes=(1, 0), group=4, scale=np.full((4, 2), 0.5, np.float32) * np.array([1, 2], np.float32))
    assert reasons(matmul("f", rhs=by_group)) == [
        "groups along the reduction are summed in float, which a fixed-point epilogue does not do"
    ]


def test_no_fuse_when_the_bias_does_not_fit() -> None:
    function = matmul("f", steps=lambda f, x: f.binary("add", x, f.float_constant(np.full(4, 1e9)), [1]))
    (reason,) = reasons(function)
    assert re.fullmatch(r"accumulator and bias can reach \d+, which does not fit i32", reason)


def test_no_fuse_when_the_multiplier_is_too_large() -> None:
    (reason,) = reasons(matmul("f", out=grid(1e-15)))
    assert reason.startswith("the scale to the result must be positive and less than 536870912, found 2e+11")


def test_no_fuse_when_it_multiplies_by_zero() -> None:
    assert reasons(matmul("f", steps=lambda f, x: f.scale_by(x, 0.0))) == [
        "a constant that the epilogue adds, multiplies or divides by is zero or infinite"
    ]


def test_power_of_two_takes_powers_of_two() -> None:
    (reason,) = reasons(matmul("f"), epilogue="power-of-two")
    assert reason.startswith("the scale to the result must be a power of two, found 0.00")
    (reason,) = reasons(matmul("f", lhs=grid(2.0**-70), rhs=grid(1.0), out=grid(1.0)), epilogue="power-of-two")
    assert reason.startswith("the scale to the result must lie in [2^-62, 2^30], found 8.47")
    assert reasons(matmul("f", lhs=grid(2.0**-7), rhs=grid(0.5), out=grid(0.25)), epilogue="power-of-two") == []


def test_both_operands_by_channel_have_a_multiplier_each() -> None:
    rows = Grid(axes=(0,), scale=np.linspace(0.01, 0.1, 4).astype(np.float32))
    columns = Grid(axes=(1,), scale=np.linspace(0.02, 0.1, 4).astype(np.float32))
    report = qfuse.plan(parsed(matmul("f", lhs=rows, rhs=columns)), "integer-only").report
    assert not report.missed
    (entry,) = [e for e in report.applied if e["fusion"] == "qfuse.requantize"]
    assert entry["multiplier"] == "16 channels"


@pytest.mark.parametrize("option", ["epilogue", "scaling", "boundary"])
def test_unknown_values_are_errors(option: str) -> None:
    with pytest.raises(qfuse.UsageError, match=f"option {option} takes one of .*, got 'x'"):
        qfuse.plan(parsed(matmul("f")), **{option: "x"})


# -- rescale ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["single", "double", "gemmlowp", "half-even"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (grid(0.5, 3), grid(0.25, -7)),
        (grid(0.013, -128), grid(0.37, 127)),
        (grid(0.9, 200, signed=False), grid(0.31, -5)),
        (grid(0.0001, 77, bits=16), grid(0.013, 255, signed=False)),
        (Grid(axes=(1,), scale=np.linspace(0.1, 2, 64).astype(np.float32)), grid(0.4, 9)),
    ],
)
def test_rescale_executed(first: Grid, second: Grid, scaling: str) -> None:
    f = Function("rescale")
    q = f.argument((4, 64), first)
    result = f.quantize(f.dequantize(q), second)
    f.results(result)
    module = parsed(f)
    report = qfuse.fuse(module, "integer-only", scaling=scaling)
    (entry,) = report.applied
    assert entry["fusion"] == "qfuse.rescale"
    assert not FLOATS.search(str(module))
    program = Program(compile_module(module, flags=FLAGS))
    low, high = second.range
    for kind in ("random", "extremes", "low", "high"):
        inputs = f.sample(np.random.default_rng(5), kind)
        (output,) = program(*inputs.values(), entry="rescale")
        run = Evaluation(inputs)
        stored = second.storage_values(np.zeros(())).dtype
        ratio = first.spread(first.scale, q.shape) / np.float64(second.scale)
        shifted = run.integers(q).astype(np.int64) - first.spread(first.zero or 0, q.shape).astype(np.int64)
        exact = apply(shifted, Multiplier.of(ratio), scaling) + (second.zero or 0)
        np.testing.assert_array_equal(output, np.clip(exact, low, high).astype(output.dtype))
        assert output.dtype == stored
        off = np.abs(np.clip(exact, low, high) - run.integers(result))
        assert off.max() <= int(entry["exactness"].split("-")[1])


# -- what is named ---------------------------------------------------------------------------------------------------


def test_each_float_operation_between_is_named() -> None:
    """Two operations that nothing takes: both are named, the boundary is not."""
    f = Function("between")
    x = f.dequantize(f.quantize(f.float_argument((4, 8), lambda r: r.normal(size=(4, 8))), grid(0.05)))
    y = f.matmul(x, f.dequantize(f.weight((8, 4), grid(0.01))))
    z = f.binary("add", y, f.float_argument((4,), lambda r: r.normal(size=4)), [1])
    last = f.matmul(f.dequantize(f.quantize(z, grid(0.1))), f.dequantize(f.weight((4, 4), grid(0.01))))
    f.results(f.dequantize(f.quantize(last, grid(0.2))))
    report = qfuse.plan(parsed(f), "integer-only").report
    assert [e["reason"] for e in report.missed] == [
        "the epilogue has an addition of a float tensor that is known only at run time"
    ]
    assert report.summary["float_ops_left"] == 1
    both = qfuse.plan(parsed(f), "integer-only", disable="qfuse.epilogue").report
    named = {e["reason"] for e in both.missed}
    assert named & {
        "no fusion is registered for elementwise add on dequantized values",
        "stays in float between a dequantize and a quantize",
    }


# -- boundaries ------------------------------------------------------------------------------------------------------


def network(name: str = "net") -> tuple[Function, Grid, Grid]:
    f = Function(name)
    first, last = grid(0.05, -3), grid(0.11, 4)
    x = f.dequantize(f.quantize(f.float_argument((4, 8), lambda r: r.normal(size=(4, 8))), first))
    y = f.matmul(x, f.dequantize(f.weight((8, 4), Grid(axes=(1,), scale=np.full(4, 0.01, np.float32)))))
    f.results(f.dequantize(f.quantize(f.relu(y), last)))
    return f, first, last


@pytest.mark.parametrize("target", ["integer-only", "linalg", "iree-cpu"])
def test_dropped_boundaries(target: str) -> None:
    """The same numbers, between integers that the attributes describe."""
    f, _, last = network()
    keep, drop = parsed(f), parsed(f)
    qfuse.fuse(keep, target)
    plan = qfuse.plan(drop, target, boundary="drop").to_json()
    report = qfuse.fuse(drop, target, boundary="drop")
    assert report.to_json() == plan
    assert not report.missed
    assert sum(e["fusion"] == "qfuse.boundary" for e in report.applied) == 2
    assert drop.operation.verify()
    text = str(drop)
    assert "tensor<4x8xi8> {qfuse.scale = 5.000000e-02 : f32" in text
    assert 'qfuse.storage = "s8", qfuse.zero_point = 4 : i64}' in text
    if target == "integer-only":
        assert not FLOATS.search(text.replace(": f32, qfuse", "").replace(": f32}", ""))
    again = qfuse.fuse(drop, target, boundary="drop")
    assert again.applied == []
    assert str(drop) == text
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    (kept,) = Program(compile_module(keep, flags=FLAGS))(x, entry="net")
    stored = np.clip(np.rint(x / np.float32(0.05)) - 3, -128, 127).astype(np.int8)
    (dropped,) = Program(compile_module(drop, flags=FLAGS))(stored, entry="net")
    assert dropped.dtype == np.int8
    np.testing.assert_allclose((dropped.astype(np.float64) - 4) * np.float32(last.scale), kept, rtol=1e-6)


def boundary_reasons(f: Function | str) -> list[str]:
    module = parsed(f)
    report = qfuse.fuse(module, "integer-only", boundary="drop")
    assert module.operation.verify()
    return [e["reason"] for e in report.missed if e["op"] == "func.func"]


def test_boundaries_that_stay() -> None:
    f = Function("twice")
    x = f.float_argument((4, 8), lambda r: r.normal(size=(4, 8)))
    a = f.dequantize(f.quantize(x, grid(0.05)))
    b = f.dequantize(f.quantize(x, grid(0.07)))
    f.results(a, b)
    assert boundary_reasons(f) == ["argument 0 is quantized in two ways"]

    f = Function("other")
    x = f.float_argument((4, 8), lambda r: r.normal(size=(4, 8)))
    f.results(f.dequantize(f.quantize(x, grid(0.05))), f.relu(x))
    assert boundary_reasons(f) == [
        "argument 0 has another use than its quantize",
        "result 1 is not dequantized, so it stays a float",
    ]

    f = Function("plain")
    x = f.float_argument((4, 8), lambda r: r.normal(size=(4, 8)))
    y = f.dequantize(f.argument((4, 8), grid(0.05, run_time="scalar")))
    f.results(f.relu(x), y)
    assert boundary_reasons(f) == [
        "argument 0 is not quantized, so it stays a float",
        "result 0 is not dequantized, so it stays a float",
        "the parameters of result 1 are known only at run time or vary in blocks",
    ]


def test_the_boundary_of_a_called_function_stays() -> None:
    f, _, _ = network()
    caller = """
      func.func @caller(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
        %y = func.call @net(%x) : (tensor<4x8xf32>) -> tensor<4x4xf32>
        return %y : tensor<4x4xf32>
      }"""
    text = f.text.rstrip()
    inner = text[text.index("{") + 1 : text.rindex("}")] if text.startswith("module") else text
    assert "the function is called in the module, so its type has to stay" in boundary_reasons(
        f"module {{ {inner} {caller} }}"
    )
