"""Quantization inside and across blocks, regions, functions and modules, and tensors of unusual shape."""

from __future__ import annotations

from typing import Any

import pytest

import qfuse
from qfuse._mlir import Bindings
from tests.conftest import Parse
from tests.pipeline.samples import dequantize, function, linear_function, matmul, module, quantize

TENSOR = "tensor<4x4xi8>"
ARGUMENTS = f"%c: i1, %qa: {TENSOR}, %qb: {TENSOR}"
INPUTS = dequantize("a", "qa", zero_point=3) + dequantize("b", "qb", scale="0.125")
LINEAR = INPUTS + matmul("m", "a", "b") + quantize("r", "m")

IF_AROUND_ALL = f"""\
    %x = scf.if %c -> {TENSOR} {{
{LINEAR}      scf.yield %r : {TENSOR}
    }} else {{
      scf.yield %qa : {TENSOR}
    }}
"""
IF_AROUND_MATMUL = f"""\
{INPUTS}    %x = scf.if %c -> {TENSOR} {{
{matmul("m", "a", "b") + quantize("r", "m")}      scf.yield %r : {TENSOR}
    }} else {{
      scf.yield %qa : {TENSOR}
    }}
"""
IF_AROUND_QUANTIZE = f"""\
{INPUTS + matmul("m", "a", "b")}    %x = scf.if %c -> {TENSOR} {{
{quantize("r", "m")}      scf.yield %r : {TENSOR}
    }} else {{
{quantize("t", "m", scale="1.0")}      scf.yield %t : {TENSOR}
    }}
"""
FOR = f"""\
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %x = scf.for %i = %c0 to %c4 step %c1 iter_args(%qi = %qa) -> ({TENSOR}) {{
{dequantize("a", "qi", zero_point=3) + dequantize("b", "qb") + matmul("m", "a", "b") + quantize("r", "m")}\
      scf.yield %r : {TENSOR}
    }}
"""
IF_YIELDS_DEQUANTIZED = f"""\
{dequantize("b", "qb")}    %y = scf.if %c -> tensor<4x4xf32> {{
{dequantize("u", "qa", zero_point=3)}      scf.yield %u : tensor<4x4xf32>
    }} else {{
{dequantize("v", "qb")}      scf.yield %v : tensor<4x4xf32>
    }}
{matmul("m", "y", "b") + quantize("x", "m")}"""
BRANCHES = f"""\
{INPUTS + matmul("m", "a", "b")}    cf.cond_br %c, ^bb1, ^bb2
  ^bb1:
{quantize("r", "m")}    return %r : {TENSOR}
  ^bb2:
{quantize("x", "m", scale="1.0")}"""
BLOCK_ARGUMENT = f"""\
    cf.cond_br %c, ^bb1(%qa : {TENSOR}), ^bb1(%qb : {TENSOR})
  ^bb1(%qc: {TENSOR}):
{dequantize("a", "qc", zero_point=3) + dequantize("b", "qb") + matmul("m", "a", "b") + quantize("x", "m")}"""
UNREACHABLE = f"""\
    return %qa : {TENSOR}
  ^bb1:
{LINEAR.replace("%r ", "%x ").replace("%r_e", "%x_e")}"""


def fuse_verified(text: str, bindings: Bindings) -> tuple[Any, qfuse.Report]:
    """Parsed, fused, verified, and fused again without effect."""
    parsed = bindings.parse_source(text, "test.mlir")
    report = qfuse.fuse(parsed)
    assert parsed.operation.verify()
    assert qfuse.fuse(parsed).applied == []
    return parsed, report


@pytest.mark.parametrize(
    ("body", "requantizes"),
    [
        pytest.param(IF_AROUND_ALL, 1, id="scf.if around all of it"),
        pytest.param(IF_AROUND_MATMUL, 1, id="dequantized outside, used inside scf.if"),
        pytest.param(IF_AROUND_QUANTIZE, 2, id="accumulated outside, quantized twice inside scf.if"),
        pytest.param(FOR, 1, id="scf.for with an integer loop-carried value"),
        pytest.param(BRANCHES, 2, id="accumulated in one block, quantized in two others"),
        pytest.param(BLOCK_ARGUMENT, 1, id="block argument"),
        pytest.param(UNREACHABLE, 1, id="unreachable block"),
    ],
)
def test_a_linear_within_and_across_blocks_is_fused(body: str, requantizes: int, each_bindings: Bindings) -> None:
    """One contraction, and a requantize for each quantize; no float contraction is left."""
    parsed, report = fuse_verified(module(function(body, ARGUMENTS, TENSOR, "x")), each_bindings)
    fusions = [entry["fusion"] for entry in report.applied]
    assert sorted(fusions) == ["qfuse.contraction"] + ["qfuse.requantize"] * requantizes
    assert report.missed == []
    assert "linalg.matmul" not in str(parsed)


def test_no_fuse_when_the_dequantized_value_is_the_result_of_an_if(parse: Parse) -> None:
    """Its two sides have different parameters; the text is unchanged."""
    parsed = parse(module(function(IF_YIELDS_DEQUANTIZED, ARGUMENTS, TENSOR, "x")))
    before = str(parsed)
    report = qfuse.fuse(parsed)
    assert [(entry["op"], entry["reason"]) for entry in report.missed] == [
        ("linalg.matmul", "operand 0 (lhs) is not dequantized")
    ]
    assert str(parsed) == before


def test_blocks_in_another_order_than_that_of_execution(parse: Parse) -> None:
    """Legal IR: a block may be printed before the one that dominates it. Fused, or refused with a true reason."""
    body = (
        "    cf.br ^bb2\n  ^bb1:\n" + matmul("m", "a", "b") + quantize("r", "m") + f"    return %r : {TENSOR}\n"
        "  ^bb2:\n" + INPUTS + "    cf.br ^bb1\n"
    )
    parsed = parse(f"module {{\n  func.func @main({ARGUMENTS}) -> {TENSOR} {{\n{body}  }}\n}}\n")
    report = qfuse.fuse(parsed)
    assert parsed.operation.verify()
    assert all("no registered fusion" not in entry["reason"] for entry in report.missed)


def test_a_function_without_a_body_is_passed_over(each_bindings: Bindings) -> None:
    """Declarations have no block."""
    declaration = f"  func.func private @elsewhere({TENSOR}) -> tensor<4x4xf32>\n"
    parsed, report = fuse_verified(module(declaration, linear_function()), each_bindings)
    assert {entry["function"] for entry in report.applied} == {"main"}
    assert "func.func private @elsewhere" in str(parsed)
    only, report = fuse_verified(module(declaration), each_bindings)
    assert not report.quantization_found
    assert "@elsewhere" in str(only)


def test_nested_modules_are_fused(each_bindings: Bindings) -> None:
    """At every depth; the report names the function."""
    inner = "  module @inner {\n" + linear_function("deep") + "  }\n"
    _, report = fuse_verified(module(inner, linear_function("shallow")), each_bindings)
    assert [(e["fusion"], e["function"]) for e in report.applied] == [
        ("qfuse.contraction", "deep"),
        ("qfuse.requantize", "deep"),
        ("qfuse.contraction", "shallow"),
        ("qfuse.requantize", "shallow"),
    ]


def test_a_call_on_a_dequantized_value_is_missed_with_its_name(parse: Parse) -> None:
    """What the callee does is not known."""
    body = (
        dequantize("a", "qa")
        + "    %t = call @elsewhere(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>\n"
        + quantize("x", "t")
    )
    declaration = "  func.func private @elsewhere(tensor<4x4xf32>) -> tensor<4x4xf32>\n"
    parsed = parse(module(declaration, function(body, ARGUMENTS, TENSOR, "x")))
    before = str(parsed)
    report = qfuse.fuse(parsed)
    assert [e["reason"] for e in report.missed] == ["no fusion is registered for func.call on dequantized values"]
    assert str(parsed) == before


@pytest.mark.parametrize(
    ("results", "types"),
    [
        pytest.param("%x, %y", "(tensor<4x4xf32>) -> (index, tensor<4x4xf32>)", id="first result no tensor"),
        pytest.param("%x", "(tensor<4x4xf32>) -> tensor<*xf32>", id="unranked result"),
        pytest.param("%x", "(tensor<4x4xf32>) -> f32", id="scalar result"),
    ],
)
def test_an_unknown_operation_on_a_dequantized_value_is_missed(results: str, types: str, parse: Parse) -> None:
    """Whatever its results are."""
    body = dequantize("a", "qa") + f'    {results} = "acme.unknown"(%a) : {types}\n'
    parsed = parse(module(function(body, ARGUMENTS, TENSOR, "qa")))
    report = qfuse.fuse(parsed)
    assert [(e["op"], e["reason"]) for e in report.missed] == [
        ("acme.unknown", "no fusion is registered for acme.unknown on dequantized values")
    ]


@pytest.mark.parametrize("sizes", [(0, 4, 4), (4, 0, 4), (4, 4, 0), (0, 0, 0), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("constant", [False, True], ids=["argument", "constant weight"])
def test_empty_and_unit_tensors_are_fused(sizes: tuple[int, int, int], constant: bool, each_bindings: Bindings) -> None:
    """A sum over nothing is 0 and fits any accumulator."""
    m, k, n = sizes
    weight = "7" if k * n else ""
    body = f"    %qb = arith.constant dense<{weight}> : tensor<{k}x{n}xi8>\n" if constant else ""
    body += dequantize("a", "qa", f"{m}x{k}", zero_point=3) + dequantize("b", "qb", f"{k}x{n}", scale="0.125")
    body += matmul("m", "a", "b", m, k, n) + quantize("r", "m", f"{m}x{n}")
    arguments = f"%qa: tensor<{m}x{k}xi8>" + ("" if constant else f", %qb: tensor<{k}x{n}xi8>")
    _, report = fuse_verified(module(function(body, arguments, f"tensor<{m}x{n}xi8>", "r")), each_bindings)
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction", "qfuse.requantize"]


RANK_ZERO = """\
module {
  func.func @main(%q: tensor<i8>) -> tensor<i8> {
    %s = arith.constant 0.5 : f32
    %e = tensor.empty() : tensor<f32>
    %a = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%q : tensor<i8>) outs(%e : tensor<f32>) {
    ^bb0(%i: i8, %o: f32):
      %f = arith.sitofp %i : i8 to f32
      %r = arith.mulf %f, %s : f32
      linalg.yield %r : f32
    } -> tensor<f32>
    %e2 = tensor.empty() : tensor<i8>
    %b = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%a : tensor<f32>) outs(%e2 : tensor<i8>) {
    ^bb0(%x: f32, %o: i8):
      %d = arith.divf %x, %s : f32
      %r = math.roundeven %d : f32
      %l = arith.constant -128.0 : f32
      %h = arith.constant 127.0 : f32
      %m = arith.maximumf %r, %l : f32
      %n = arith.minimumf %m, %h : f32
      %c = arith.fptosi %n : f32 to i8
      linalg.yield %c : i8
    } -> tensor<i8>
    return %b : tensor<i8>
  }
}
"""


def test_rank_zero_tensors(each_bindings: Bindings) -> None:
    """A dequantize and a quantize of one element cancel."""
    parsed, report = fuse_verified(RANK_ZERO, each_bindings)
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.cancel"]
    assert "math.roundeven" not in str(parsed)


def test_unranked_tensors_are_left_alone(parse: Parse) -> None:
    """A cast to an unranked tensor behind a dequantize changes nothing."""
    body = dequantize("a", "qa") + "    %x = tensor.cast %a : tensor<4x4xf32> to tensor<*xf32>\n"
    parsed = parse(module(function(body, ARGUMENTS, "tensor<*xf32>", "x")))
    before = str(parsed)
    assert qfuse.fuse(parsed).applied == []
    assert str(parsed) == before


def test_dead_quantization_does_no_harm(each_bindings: Bindings) -> None:
    """A linear whose result nobody reads."""
    parsed, _ = fuse_verified(module(function(LINEAR, ARGUMENTS, TENSOR, "qa")), each_bindings)
    assert "return %arg1" in str(parsed)
