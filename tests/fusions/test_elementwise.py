"""`qfuse.elementwise`: fires, refuses, and gives the integers of the unfused module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import qfuse
from tests.fusions.ir import Function, fused, parse, refused, run

RELU = (
    "    %c = arith.constant 0.0 : f32\n    %g = arith.cmpf ugt, %a, %c : f32\n    %y = arith.select %g, %a, %c : f32"
)


def two(name: str, op: str, **second: Any) -> Function:
    f = Function(name)
    x = f.dequantize(f.argument("i8"))
    y = f.dequantize(f.argument("i8"), **{"scale": 0.031, "zero": -7, **second})
    return f.returns(f.quantize(f.binary(op, x, y)))


def add() -> Function:
    return two("add", "addf")


def sub() -> Function:
    return two("sub", "subf")


def mul() -> Function:
    return two("mul", "mulf")


def maximum() -> Function:
    return two("maximum", "maximumf")


def minimum() -> Function:
    return two("minimum", "minimumf", unsigned=True, zero=120)


def ties() -> Function:
    """Scales that are powers of two: many sums lie halfway between two results."""
    f = Function("ties", (16, 16))
    x = f.dequantize(f.argument("i8"), 0.25, 0)
    y = f.dequantize(f.argument("i8"), 0.25, 1)
    return f.returns(f.quantize(f.binary("addf", x, y), 0.5, 0))


def add_relu() -> Function:
    f = Function("add_relu")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    return f.returns(f.quantize(f.unary(f.binary("addf", x, y), RELU), 0.01, -128))


def clamp_constants() -> Function:
    f = Function("clamp_constants")
    x = f.dequantize(f.argument("i8"))
    low = f.line("arith.constant dense<-1.5> : tensor<f32>")
    body = "    %c = arith.cmpf ogt, %a, %b : f32\n    %y = arith.select %c, %a, %b : f32"
    return f.returns(f.quantize(f.elementwise([(x, f.shape, "f32", "d0, d1"), (low, (), "f32", "")], body)))


def hardswish() -> Function:
    f = Function("hardswish", (16, 16))
    x = f.dequantize(f.argument("i8"))
    body = (
        "    %k = arith.constant 3.0 : f32\n    %n = arith.constant 0.0 : f32\n    %m = arith.constant 6.0 : f32\n"
        "    %p = arith.addf %a, %k : f32\n    %q = arith.maximumf %p, %n : f32\n"
        "    %r = arith.minimumf %q, %m : f32\n    %s = arith.mulf %a, %r : f32\n    %y = arith.divf %s, %m : f32"
    )
    return f.returns(f.quantize(f.unary(x, body)))


def neg_abs() -> Function:
    f = Function("neg_abs")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.5, 0)
    both = f.binary("addf", x, y)
    return f.returns(f.quantize(f.unary(both, "    %b = arith.negf %a : f32\n    %y = math.absf %b : f32")))


def where() -> Function:
    f = Function("where")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    c = f.argument("i1")
    inputs = [(c, f.shape, "i1", "d0, d1"), (x, f.shape, "f32", "d0, d1"), (y, f.shape, "f32", "d0, d1")]
    return f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.select %a, %b, %c : f32")))


def broadcast_row() -> Function:
    f = Function("broadcast_row")
    x = f.dequantize(f.argument("i8"))
    y = f.dequantize(f.argument("i8", (6,)), 0.02, 9, shape=(6,))
    inputs = [(x, f.shape, "f32", "d0, d1"), (y, (6,), "f32", "d1")]
    return f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.addf %a, %b : f32")))


def broadcast_unit() -> Function:
    f = Function("broadcast_unit")
    x = f.dequantize(f.argument("i8"))
    y = f.dequantize(f.argument("i8", (4, 1)), 0.02, 9, shape=(4, 1))
    inputs = [(x, f.shape, "f32", "d0, d1"), (y, (4, 1), "f32", "d0, 0")]
    return f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.mulf %a, %b : f32")))


def transposed() -> Function:
    f = Function("transposed")
    x = f.dequantize(f.argument("i8"))
    y = f.dequantize(f.argument("i8", (6, 4)), 0.02, 9, shape=(6, 4))
    inputs = [(x, f.shape, "f32", "d0, d1"), (y, (6, 4), "f32", "d1, d0")]
    return f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.addf %a, %b : f32")))


def per_axis() -> Function:
    f = Function("per_axis")
    x = f.dequantize(f.argument("i8"), [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], [0, 1, -1, 2, 5, -128])
    y = f.dequantize(f.argument("i8"), 0.02, 9)
    return f.returns(f.quantize(f.binary("addf", x, y)))


def float_tensor() -> Function:
    f = Function("float_tensor")
    x = f.dequantize(f.argument("i8"))
    return f.returns(f.quantize(f.binary("addf", x, f.argument("f32"))))


def constant_tensor() -> Function:
    f = Function("constant_tensor")
    x = f.dequantize(f.argument("i8"))
    c = f.line("arith.constant dense<[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]> : tensor<6xf32>")
    inputs = [(x, f.shape, "f32", "d0, d1"), (c, (6,), "f32", "d1")]
    return f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.mulf %a, %b : f32")))


def scaled(f: Function, x: str, factors: Sequence[float]) -> str:
    """A product by constants that vary along the second dimension."""
    c = f.line(f"arith.constant dense<{list(factors)}> : tensor<6xf32>")
    return f.elementwise([(x, f.shape, "f32", "d0, d1"), (c, (6,), "f32", "d1")], "    %y = arith.mulf %a, %b : f32")


def interpolated() -> Function:
    """As bilinear upsampling does: weights that are 0 where a sample lies on the grid."""
    f = Function("interpolated")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"))
    moved = scaled(f, f.binary("subf", y, x), [0.0, 0.25, 0.75, 1.0, 0.0, 0.3])
    return f.returns(f.quantize(f.binary("addf", x, moved)))


def factors_of_both_signs() -> Function:
    """With a maximum behind them, where the factor is 0, too."""
    f = Function("factors_of_both_signs")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    left = f.unary(scaled(f, x, [0.0, -1.5, 0.7, -0.1, 1.0, 0.0]), RELU)
    return f.returns(f.quantize(f.binary("addf", left, scaled(f, y, [-1.0, 0.0, -0.5, -2.0, -1.0, -0.25]))))


def shared_dequantize() -> Function:
    """One dequantize in two expressions, and twice in one."""
    f = Function("shared_dequantize")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    return f.returns(f.quantize(f.binary("mulf", x, x)), f.quantize(f.binary("addf", x, y), 0.1, 0))


def two_quantizes() -> Function:
    """One sum, quantized twice."""
    f = Function("two_quantizes")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    both = f.binary("addf", x, y)
    return f.returns(f.quantize(both), f.quantize(both, 0.2, 3))


def reshaped() -> Function:
    """A reshape between the sum and the quantize follows on the integers."""
    f = Function("reshaped")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    flat = f.line(f"tensor.collapse_shape {f.binary('addf', x, y)} [[0, 1]] : tensor<4x6xf32> into tensor<24xf32>")
    return f.returns(f.quantize(flat, shape=(24,)), shape=(24,))


def dynamic() -> Function:
    f = Function("dynamic", (None, 6))
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    return f.returns(f.quantize(f.binary("addf", x, y)))


def half() -> Function:
    f = Function("half")
    x, y = f.dequantize(f.argument("i8"), real="f16"), f.dequantize(f.argument("i8"), 0.02, 9, real="f16")
    return f.returns(f.quantize(f.binary("addf", x, y, "f16"), real="f16"))


def double() -> Function:
    f = Function("double")
    x, y = f.dequantize(f.argument("i8"), real="f64"), f.dequantize(f.argument("i8"), 0.02, 9, real="f64")
    return f.returns(f.quantize(f.binary("addf", x, y, "f64"), real="f64"))


def wide() -> Function:
    f = Function("wide")
    x, y = f.dequantize(f.argument("i16"), 0.001, 3, "i16"), f.dequantize(f.argument("i8"), 0.02, 9)
    return f.returns(f.quantize(f.binary("addf", x, y), 0.001, 0, "i16"), element="i16")


FIRES = [
    add, sub, mul, maximum, minimum, ties, add_relu, clamp_constants, hardswish, neg_abs, where, broadcast_row,
    broadcast_unit, transposed, per_axis, float_tensor, constant_tensor, shared_dequantize, two_quantizes, reshaped,
    dynamic, half, double, wide, interpolated, factors_of_both_signs,
]  # fmt: skip
VARIANTS = [("linalg", {}), ("linalg", {"rounding": "magic"})]


@pytest.mark.parametrize("make", FIRES, ids=lambda m: m.__name__)
def test_fires(make: Callable[[], Function]) -> None:
    function = make()
    module, report = fused(function)
    roots = len(function.returned)
    assert [e["fusion"] for e in report.applied] == ["qfuse.elementwise"] * roots
    assert {e["exactness"] for e in report.applied} == {"bit-exact"}
    assert report.missed == []
    assert report.summary["quantized_compute_ops"] == report.summary["integer_ops"] == roots
    assert str(module).count("linalg.generic") == roots


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, list[list[Any]]]]:
    functions = [make() for make in FIRES]
    found = {"unfused": run({f.name: parse(f) for f in functions}, functions)}
    for target, options in VARIANTS:
        texts = {f.name: fused(f, target, **options)[0] for f in functions}
        found[str(options)] = run(texts, functions)
    return found


@pytest.mark.parametrize("variant", [str(options) for _, options in VARIANTS])
@pytest.mark.parametrize("name", [make.__name__ for make in FIRES])
def test_same_integers_as_unfused(name: str, variant: str, results: dict[str, Any]) -> None:
    for before, after in zip(results["unfused"][name], results[variant][name], strict=True):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


# -- fixed point -----------------------------------------------------------------------------------------------------

FIXED = [add, sub, mul, maximum, minimum, ties, add_relu, neg_abs, where, broadcast_row, broadcast_unit, per_axis, wide,
         interpolated, factors_of_both_signs]  # fmt: skip
SCALINGS = ("single", "double", "gemmlowp", "half-even")


@pytest.fixture(scope="module")
def fixed_results() -> dict[str, Any]:
    functions = [make() for make in FIXED]
    return {
        s: run({f.name: fused(f, epilogue="fixed-point", scaling=s)[0] for f in functions}, functions) for s in SCALINGS
    }


@pytest.mark.parametrize("make", FIXED, ids=lambda m: m.__name__)
def test_fixed_point_has_no_float_operation(make: Callable[[], Function]) -> None:
    module, report = fused(make(), epilogue="fixed-point")
    assert [e["fusion"] for e in report.applied] == ["qfuse.elementwise"]
    assert "f32" not in str(module)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("make", FIXED, ids=lambda m: m.__name__)
def test_fixed_point_is_within_its_bound(
    make: Callable[[], Function], scaling: str, fixed_results: dict[str, Any], results: dict[str, Any]
) -> None:
    function = make()
    (entry,) = fused(function, epilogue="fixed-point", scaling=scaling)[1].applied
    steps = 0 if entry["exactness"] == "bit-exact" else int(entry["exactness"].split("-")[1])
    for before, after in zip(results["unfused"][function.name], fixed_results[scaling][function.name], strict=True):
        assert np.abs(before[0].astype(np.int64) - after[0].astype(np.int64)).max() <= steps


def test_equal_parameters_are_compared_exactly() -> None:
    f = Function("equal")
    x, y = f.dequantize(f.argument("i8"), 0.1, 4), f.dequantize(f.argument("i8"), 0.1, 4)
    f.returns(f.quantize(f.binary("maximumf", x, y), 0.1, 4))
    module, report = fused(f, epilogue="fixed-point")
    assert [e["exactness"] for e in report.applied] == ["bit-exact"]
    assert "arith.muli" not in str(module)


# -- accumulators ----------------------------------------------------------------------------------------------------


def product(f: Function) -> str:
    """A product of two dequantized matrices, and a bias."""
    a = f.dequantize(f.argument("i8", (4, 16)), 0.02, 3, shape=(4, 16))
    b = f.dequantize(f.argument("i8", (16, 6)), [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], [0] * 6, shape=(16, 6))
    zero = f.line("arith.constant 0.0 : f32")
    start = f.line(f"linalg.fill ins({zero} : f32) outs({f.empty((4, 6), 'f32')} : tensor<4x6xf32>) -> tensor<4x6xf32>")
    value = f.line(
        f"linalg.matmul ins({a}, {b} : tensor<4x16xf32>, tensor<16x6xf32>) outs({start} : tensor<4x6xf32>)"
        " -> tensor<4x6xf32>"
    )
    bias = f.line("arith.constant dense<[0.1, -0.2, 0.3, 4.0, -5.0, 0.6]> : tensor<6xf32>")
    inputs = [(value, f.shape, "f32", "d0, d1"), (bias, (6,), "f32", "d1")]
    return f.elementwise(inputs, "    %y = arith.addf %a, %b : f32")


def residual() -> Function:
    f = Function("residual")
    both = f.binary("addf", product(f), f.dequantize(f.argument("i8"), 0.04, -7))
    return f.returns(f.quantize(f.unary(both, RELU), 0.15, -128))


def gate() -> Function:
    f = Function("gate")
    return f.returns(f.quantize(f.binary("mulf", product(f), f.dequantize(f.argument("i8"), 0.01, -7)), 0.2, 0))


@pytest.mark.parametrize("make", [residual, gate], ids=lambda m: m.__name__)
@pytest.mark.parametrize("options", [{}, {"rounding": "magic"}, {"epilogue": "fixed-point"}], ids=str)
def test_a_residual_is_read_as_integers(make: Callable[[], Function], options: dict[str, Any]) -> None:
    function = make()
    module, report = fused(function, **options)
    fixed = "epilogue" in options
    last = "qfuse.elementwise" if fixed and make is gate else "qfuse.requantize"
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", last]
    assert report.missed == []
    assert "tensor<4x6xf32>" not in str(module)
    assert ("f32" in str(module)) != fixed
    assert [e["exactness"] for e in report.applied] == ["within-1-lsb"] * 2
    if make is residual:
        assert report.applied[1]["tie_distance"] < 0.01
    before, after = (run({function.name: m}, [function])[function.name] for m in (parse(function), module))
    for a, b in zip(before, after, strict=True):
        assert np.abs(a[0].astype(np.int64) - b[0].astype(np.int64)).max() <= 1


# -- refusals --------------------------------------------------------------------------------------------------------


def test_no_fuse_when_an_operand_is_read_at_a_computed_place() -> None:
    f = Function("strided")
    x = f.dequantize(f.argument("i8"))
    y = f.dequantize(f.argument("i8", (2, 6)), 0.02, 9, shape=(2, 6))
    inputs = [(x, f.shape, "f32", "d0, d1"), (y, (2, 6), "f32", "d0 floordiv 2, d1")]
    f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.addf %a, %b : f32")))
    assert refused(f) == [
        "an operand of the elementwise operation is read at (((d0) floordiv 2), d1), which is not a list of dimensions"
    ]


def test_no_fuse_when_the_target_does_not_take_the_storage() -> None:
    target = qfuse.Target("u8-only", storage=frozenset({"u8"}))
    module = parse(add())
    text = str(module)
    report = qfuse.fuse(module, target)
    assert [e["reason"] for e in report.missed] == ["target u8-only takes storage u8, input is s8 (field storage)"]
    assert str(module) == text


def fixed_reason(reason: str) -> list[str]:
    return [f"the elementwise operation has no integer form: {reason}"]


def test_no_integer_form_of_a_division_by_a_dequantized_value() -> None:
    assert refused(two("quotient", "divf"), epilogue="fixed-point") == fixed_reason("a division by a dequantized value")


def test_no_integer_form_of_a_float_tensor() -> None:
    reason = fixed_reason("it reads a float tensor that is known only at run time")
    assert refused(float_tensor(), epilogue="fixed-point") == reason


def test_no_integer_form_of_a_function_of_two_values() -> None:
    f = Function("function")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    f.returns(f.quantize(f.unary(f.binary("addf", x, y), "    %y = math.tanh %a : f32")))
    assert refused(f, epilogue="fixed-point") == fixed_reason("tanh of a dequantized value")


def test_no_integer_form_of_a_truncation() -> None:
    """The reason names the operation, not a zero point."""
    f = Function("truncation")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    whole = "    %w = arith.fptosi %a : f32 to i32\n    %y = arith.sitofp %w : i32 to f32"
    f.returns(f.quantize(f.unary(f.binary("addf", x, y), whole)))
    assert refused(f, epilogue="fixed-point") == fixed_reason("fptosi of a dequantized value")


def test_no_integer_form_when_scales_are_not_powers_of_two() -> None:
    reason = fixed_reason("the scales are not powers of two apart")
    assert refused(two("scales", "addf"), epilogue="power-of-two") == reason


def test_powers_of_two_are_shifted() -> None:
    module, report = fused(ties(), epilogue="power-of-two")
    assert [e["exactness"] for e in report.applied] == ["within-1-lsb"]
    assert "arith.muli" not in str(module)


def test_a_shifted_value_is_multiplied_by_zero() -> None:
    """A power of two has no multiplier to be 0."""
    f = Function("zero", (16, 6))
    x, y = f.dequantize(f.argument("i8"), 0.25, 0), f.dequantize(f.argument("i8"), 0.5, 1)
    f.returns(f.quantize(f.binary("addf", x, scaled(f, y, [0.0, 0.5, 1.0, 2.0, 0.0, 0.25])), 0.5, 0))
    module, report = fused(f, epilogue="power-of-two")
    assert [e["exactness"] for e in report.applied] == ["within-1-lsb"]
    (before,), (after,) = run({"zero": parse(f)}, [f]).values(), run({"zero": module}, [f]).values()
    for (want,), (got,) in zip(before, after, strict=True):
        assert np.abs(want.astype(np.int64) - got).max() <= 1


def test_a_product_by_zeros_is_a_constant() -> None:
    f = Function("zeros")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    f.returns(f.quantize(f.binary("addf", scaled(f, x, [0.0] * 6), y)))
    module, report = fused(f, epilogue="fixed-point")
    assert [e["exactness"] for e in report.applied] == ["within-1-lsb"]
    assert "f32" not in str(module)


def test_no_integer_form_of_an_infinite_factor() -> None:
    f = Function("infinite")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    c = f.line(
        "arith.constant dense<[0x7F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000]> : tensor<6xf32>"
    )
    inputs = [(x, f.shape, "f32", "d0, d1"), (c, (6,), "f32", "d1")]
    product = f.elementwise(inputs, "    %y = arith.mulf %a, %b : f32")
    f.returns(f.quantize(f.binary("addf", product, y)))
    assert refused(f, epilogue="fixed-point") == fixed_reason("a constant factor is not finite")


def test_no_integer_form_when_the_result_is_much_finer() -> None:
    f = Function("finer")
    x, y = f.dequantize(f.argument("i8"), 1000.0), f.dequantize(f.argument("i8"), 0.02, 9)
    f.returns(f.quantize(f.binary("addf", x, y), 1e-6))
    reason = fixed_reason("an intermediate value exceeds i32 at the step of the result")
    assert refused(f, epilogue="fixed-point") == reason


def test_statistics_stay_in_float() -> None:
    f = Function("softmax")
    x = f.dequantize(f.argument("i8"))
    e = f.unary(x, "    %y = math.exp %a : f32")
    start = f.line("arith.constant dense<0.0> : tensor<4xf32>")
    total = f.line(
        "linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],"
        f' iterator_types = ["parallel", "reduction"]}} ins({e} : tensor<4x6xf32>) outs({start} : tensor<4xf32>) {{\n'
        "  ^bb0(%a: f32, %o: f32):\n    %y = arith.addf %a, %o : f32\n    linalg.yield %y : f32\n  } -> tensor<4xf32>"
    )
    inputs = [(e, f.shape, "f32", "d0, d1"), (total, (4,), "f32", "d0")]
    f.returns(f.quantize(f.elementwise(inputs, "    %y = arith.divf %a, %b : f32")))
    reasons = refused(f)
    assert set(reasons) == {
        "softmax stays in float: it divides by or subtracts a float statistic of the tensor it is applied to"
    }


def test_a_float_user_keeps_the_float_operation() -> None:
    f = Function("float_user")
    x, y = f.dequantize(f.argument("i8")), f.dequantize(f.argument("i8"), 0.02, 9)
    both = f.binary("addf", x, y)
    q = f.quantize(both)
    f.returned = [(q, "tensor<4x6xi8>"), (both, "tensor<4x6xf32>")]
    _, report = fused(f)
    assert [e["fusion"] for e in report.applied] == ["qfuse.elementwise"]
    assert [e["reason"] for e in report.missed] == ["its result is also read as a float value"]
