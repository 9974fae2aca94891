"""`qfuse.lookup`: fires, refuses, and gives the integers of the unfused module as far as it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fusions.ir import Function, fused, parse, refused, run

ONE = "    %k = arith.constant 1.0 : f32\n"
SIGMOID = (
    f"{ONE}    %m = arith.negf %a : f32\n    %e = math.exp %m : f32\n"
    "    %p = arith.addf %e, %k : f32\n    %y = arith.divf %k, %p : f32"
)
SILU = SIGMOID.replace("%y = arith.divf %k, %p : f32", "%g = arith.divf %k, %p : f32\n    %y = arith.mulf %a, %g : f32")
GELU = (
    f"{ONE}    %s = arith.constant 1.41421354 : f32\n    %h = arith.constant 0.5 : f32\n"
    "    %d = arith.divf %a, %s : f32\n    %e = math.erf %d : f32\n    %p = arith.addf %e, %k : f32\n"
    "    %m = arith.mulf %p, %h : f32\n    %y = arith.mulf %a, %m : f32"
)
GELU_TANH = (
    f"{ONE}    %t = arith.constant 3 : i64\n    %u = math.fpowi %a, %t : f32, i64\n"
    "    %c = arith.constant 4.471500e-02 : f32\n    %v = arith.mulf %u, %c : f32\n"
    "    %w = arith.addf %a, %v : f32\n    %n = math.tanh %w : f32\n    %p = arith.addf %n, %k : f32\n"
    "    %y = arith.mulf %a, %p : f32"
)
ELU = (
    f"{ONE}    %z = arith.constant 0.0 : f32\n    %e = math.exp %a : f32\n    %m = arith.subf %e, %k : f32\n"
    "    %g = arith.cmpf ogt, %a, %z : f32\n    %y = arith.select %g, %a, %m : f32"
)
RECIPROCAL = (
    f"{ONE}    %b = arith.constant 9.0 : f32\n    %c = arith.addf %a, %b : f32\n    %y = arith.divf %k, %c : f32"
)
BODIES = {
    "sigmoid": SIGMOID,
    "silu": SILU,
    "gelu": GELU,
    "gelu_tanh": GELU_TANH,
    "elu": ELU,
    "tanh": "    %y = math.tanh %a : f32",
    "exp": "    %y = math.exp %a : f32",
    "log": "    %y = math.log %a : f32",
    "rsqrt": "    %y = math.rsqrt %a : f32",
    "sin_cos": "    %s = math.sin %a : f32\n    %c = math.cos %a : f32\n    %y = arith.mulf %s, %c : f32",
    "pow": "    %b = arith.constant 1.5 : f32\n    %n = math.absf %a : f32\n    %y = math.powf %n, %b : f32",
    "sqrt": "    %n = math.absf %a : f32\n    %y = math.sqrt %n : f32",
    "reciprocal": RECIPROCAL,
}
EXACT = {"sqrt", "reciprocal"}
#: Chains whose QDQ form is poison for some inputs: the logarithm of a negative number.
POISON = {"log", "rsqrt"}


def unary(name: str) -> Function:
    f = Function(name, (16, 16))
    return f.returns(f.quantize(f.unary(f.dequantize(f.argument("i8"), 0.05, 4), BODIES[name]), 0.021, -3))


def unsigned() -> Function:
    f = Function("unsigned", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 100, unsigned=True)
    return f.returns(f.quantize(f.unary(x, SIGMOID), 1 / 256, 0, low=0, high=255))


def chain() -> Function:
    """Two operations of their own."""
    f = Function("chain", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 4)
    gate = f.unary(x, SIGMOID)
    return f.returns(f.quantize(f.binary("mulf", x, gate), 0.03, 9))


def dynamic() -> Function:
    f = Function("dynamic", (None, 6))
    return f.returns(f.quantize(f.unary(f.dequantize(f.argument("i8"), 0.05, 4), SIGMOID), 1 / 256, -128))


def shared() -> Function:
    """One dequantize, two functions; one function quantized twice."""
    f = Function("shared", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 4)
    gate = f.unary(x, SIGMOID)
    return f.returns(f.quantize(gate, 1 / 256, -128), f.quantize(gate, 1 / 100, 0), f.quantize(f.unary(x, GELU)))


def transposed() -> Function:
    """A transpose between dequantize and function is done on the integers."""
    f = Function("transposed")
    x = f.dequantize(f.argument("i8"), 0.05, 4)
    out = f.empty((6, 4), "f32")
    moved = f.line(f"linalg.transpose ins({x} : tensor<4x6xf32>) outs({out} : tensor<6x4xf32>) permutation = [1, 0]")
    f.shape = (6, 4)
    return f.returns(f.quantize(f.unary(moved, SIGMOID), 1 / 256, -128))


def wide_result() -> Function:
    f = Function("wide_result", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 4)
    return f.returns(f.quantize(f.unary(x, SIGMOID), 1 / 30000, 0, "i16"), element="i16")


OTHERS = [unsigned, chain, dynamic, shared, transposed, wide_result]
ALL: list[Function] = [*(unary(name) for name in BODIES), *(make() for make in OTHERS)]


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.name)
def test_fires(function: Function) -> None:
    module, report = fused(function)
    roots = len(function.returned)
    assert [e["fusion"] for e in report.applied] == ["qfuse.lookup"] * roots
    assert {e["exactness"] for e in report.applied} == {"bit-exact" if function.name in EXACT else "within-1-lsb"}
    assert {e["entries"] for e in report.applied} == {256}
    assert report.missed == []
    assert report.summary["quantized_compute_ops"] == report.summary["integer_ops"] == roots
    text = str(module)
    assert text.count("tensor.extract ") == roots
    assert "f32" not in text


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, Any], dict[str, Any]]:
    before = run({f.name: parse(f) for f in ALL}, ALL)
    return before, run({f.name: fused(f)[0] for f in ALL}, ALL)


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.name)
def test_integers_of_unfused(function: Function, results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    before, after = (r[function.name] for r in results)
    most = 0 if function.name in EXACT else 1
    for inputs, first, second in zip(function.inputs(), before, after, strict=True):
        for a, b in zip(first, second, strict=True):
            off = np.abs(a.astype(np.int64) - b.astype(np.int64))
            if function.name in POISON:
                off = off[inputs[0] > 4]
            assert off.max(initial=0) <= most


def test_nan_gives_the_lower_bound() -> None:
    function = unary("log")
    found = run({"log": fused(function)[0]}, [function])["log"]
    values = function.inputs()[0][0]
    assert (found[0][0][values < 4] == -128).all()


def test_a_jump_is_stated_as_it_is() -> None:
    """The f32 product is a whole number where the real one is a little less: the reference is a whole step below."""
    f = Function("jump", (16, 16))
    body = "    %f = math.floor %a : f32\n    %y = math.tanh %f : f32"
    f.returns(f.quantize(f.unary(f.dequantize(f.argument("i8"), 0.05, 4), body), 0.01, 0))
    module, report = fused(f)
    (entry,) = report.applied
    assert int(entry["exactness"].split("-")[1]) > 10
    for before, after in zip(run({"jump": parse(f)}, [f])["jump"], run({"jump": module}, [f])["jump"], strict=True):
        assert np.abs(before[0].astype(np.int64) - after[0]).max() <= 1


def test_a_cheap_chain_is_a_table_with_a_fixed_point_epilogue() -> None:
    f = Function("relu", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 4)
    body = "    %c = arith.constant 0.0 : f32\n    %y = arith.maximumf %a, %c : f32"
    f.returns(f.quantize(f.unary(x, body)))
    assert [e["fusion"] for e in fused(f)[1].applied] == ["qfuse.elementwise"]
    module, report = fused(f, epilogue="fixed-point")
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.lookup", "bit-exact")]
    np.testing.assert_array_equal(run({"relu": parse(f)}, [f])["relu"], run({"relu": module}, [f])["relu"])


# -- 16 bits ---------------------------------------------------------------------------------------------------------


def sixteen(name: str, body: str, out: str) -> Function:
    f = Function(name, (64, 128))
    x = f.dequantize(f.argument("i16"), 0.0003, 40, "i16")
    scale = 1 / 256 if out == "i8" else 1 / 32768
    return f.returns(f.quantize(f.unary(x, body), scale, 0, out), element=out)


SIXTEEN: list[Callable[[], Function]] = [
    lambda: sixteen("sigmoid16", SIGMOID, "i16"),
    lambda: sixteen("tanh16", "    %y = math.tanh %a : f32", "i16"),
    lambda: sixteen("gelu16", GELU, "i8"),
]


def test_sixteen_bits_are_read_between_points() -> None:
    functions = [make() for make in SIXTEEN]
    before = run({f.name: parse(f) for f in functions}, functions)
    modules = {}
    for f in functions:
        modules[f.name], report = fused(f, lookup16="true")
        assert [(e["fusion"], e["entries"]) for e in report.applied] == [("qfuse.lookup", 513)]
        f.steps = int(report.applied[0]["exactness"].split("-")[1])  # type: ignore[attr-defined]
    after = run(modules, functions)
    for f in functions:
        for a, b in zip(before[f.name], after[f.name], strict=True):
            off = np.abs(a[0].astype(np.int64) - b[0].astype(np.int64)).max()
            # The float arithmetic of the unfused module is itself up to one step from the reference.
            assert off <= f.steps + 1  # type: ignore[attr-defined]
            assert f.steps <= 8  # type: ignore[attr-defined]


def test_no_table_of_sixteen_bits_unless_asked_for() -> None:
    assert refused(SIXTEEN[0](), disable="qfuse.elementwise") == [
        "a lookup table takes at most 8 bits, the input has 16"
    ]


def test_no_table_between_points_of_a_wider_result() -> None:
    f = sixteen("wider", SIGMOID, "i32")
    reason = "a lookup table between points gives at most 16 bits, the result has 32"
    assert refused(f, lookup16=True, disable="qfuse.elementwise") == [reason]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_no_table_when_the_scale_varies() -> None:
    f = Function("varies")
    x = f.dequantize(f.argument("i8"), [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], 0)
    f.returns(f.quantize(f.unary(x, SIGMOID)))
    assert [e["fusion"] for e in fused(f)[1].applied] == ["qfuse.elementwise"]
    reason = "a lookup table needs one set of parameters, the input is per-axis(1)"
    assert refused(f, disable="qfuse.elementwise") == [reason]
    assert refused(f, epilogue="fixed-point", disable="qfuse.elementwise") == [reason]


def test_no_table_when_parameters_are_known_at_run_time_only() -> None:
    f = Function("run_time")
    q, s = f.argument("i8"), f.argument("f32", ())
    body = "    %f = arith.sitofp %a : i8 to f32\n    %y = arith.mulf %f, %b : f32"
    x = f.elementwise([(q, f.shape, "i8", "d0, d1"), (s, (), "f32", "")], body)
    f.returns(f.quantize(f.unary(x, SIGMOID)))
    assert refused(f, disable="qfuse.elementwise") == [
        "a lookup table needs constant parameters, those of the input are known at run time only"
    ]


def test_no_table_of_two_inputs() -> None:
    f = Function("two")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    f.returns(f.quantize(f.unary(f.binary("addf", x, y), SIGMOID)))
    assert [e["fusion"] for e in fused(f)[1].applied] == ["qfuse.elementwise"]
