"""What torch computes beside the values: divisors, masks and counts of ragged windows, positions of maxima.

Also integers that were there before: what they can be is known from the operations that make them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import Program, compile_module
from tests.numerics.harness import FLAGS

QUANTIZE = """
    %q = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}}
        ins(%x : tensor<{shape}xf32>) outs(%out : tensor<{shape}xi8>) {{
    ^bb0(%in: f32, %o: i8):
      %a = arith.divf %in, %step : f32
      %b = math.roundeven %a : f32
      %c = arith.addf %b, %zero : f32
      %d = arith.maximumf %c, %low : f32
      %e = arith.minimumf %d, %high : f32
      %f = arith.fptosi %e : f32 to i8
      linalg.yield %f : i8
    }} -> tensor<{shape}xi8>
    return %q : tensor<{shape}xi8>
"""
NUMBERS = """
    %step = arith.constant {step} : f32
    %zero = arith.constant -7.0 : f32
    %low = arith.constant -128.0 : f32
    %high = arith.constant 127.0 : f32
"""


def quantize(shape: str, rank: int) -> str:
    same = f"affine_map<({', '.join(f'd{i}' for i in range(rank))}) -> ({', '.join(f'd{i}' for i in range(rank))})>"
    loops = ", ".join(['"parallel"'] * rank)
    return QUANTIZE.format(shape=shape, maps=f"{same}, {same}", loops=loops)


#: avg_pool2d with ceil_mode: a window at the end has fewer elements, and its divisor is computed from its position.
WINDOWS = (
    """
#m = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module {
  func.func @main(%arg0: tensor<1x2x8x8xi8>) -> tensor<1x2x4x4xi8> {
    %c2 = arith.constant 2 : i64
    %c3 = arith.constant 3 : i64
    %c8 = arith.constant 8 : i64
    %c0 = arith.constant 0 : i64
    %cz = arith.constant -5 : i32
    %scale = arith.constant 0.0225741025 : f32
    %nil = arith.constant 0.0 : f32
"""
    + NUMBERS.format(step="0.0087215")
    + """
    %e0 = tensor.empty() : tensor<1x2x8x8xf32>
    %dq = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%arg0 : tensor<1x2x8x8xi8>) outs(%e0 : tensor<1x2x8x8xf32>) {
    ^bb0(%in: i8, %o: f32):
      %a = arith.extsi %in : i8 to i32
      %b = arith.subi %a, %cz : i32
      %c = arith.sitofp %b : i32 to f32
      %d = arith.mulf %c, %scale : f32
      linalg.yield %d : f32
    } -> tensor<1x2x8x8xf32>
    %padded = tensor.pad %dq low[0, 0, 0, 0] high[0, 0, 2, 2] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %nil : f32
    } : tensor<1x2x8x8xf32> to tensor<1x2x10x10xf32>
    %e1 = tensor.empty() : tensor<1x2x4x4xf32>
    %init = linalg.fill ins(%nil : f32) outs(%e1 : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %w = tensor.empty() : tensor<3x3xf32>
    %sum = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
        ins(%padded, %w : tensor<1x2x10x10xf32>, tensor<3x3xf32>) outs(%init : tensor<1x2x4x4xf32>)
        -> tensor<1x2x4x4xf32>
    %x = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%sum : tensor<1x2x4x4xf32>) outs(%e1 : tensor<1x2x4x4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %i = linalg.index 2 : index
      %a = arith.index_cast %i : index to i64
      %b = arith.muli %a, %c2 : i64
      %c = arith.addi %b, %c3 : i64
      %d = arith.minsi %c, %c8 : i64
      %e = arith.subi %d, %b : i64
      %f = arith.maxsi %e, %c0 : i64
      %j = linalg.index 3 : index
      %g = arith.index_cast %j : index to i64
      %h = arith.muli %g, %c2 : i64
      %k = arith.addi %h, %c3 : i64
      %l = arith.minsi %k, %c8 : i64
      %n = arith.subi %l, %h : i64
      %p = arith.maxsi %n, %c0 : i64
      %q = arith.muli %f, %p : i64
      %r = arith.sitofp %q : i64 to f32
      %s = arith.divf %in, %r : f32
      linalg.yield %s : f32
    } -> tensor<1x2x4x4xf32>
    %out = tensor.empty() : tensor<1x2x4x4xi8>
"""
    + quantize("1x2x4x4", 4)
    + "  }\n}\n"
)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_a_divisor_that_is_computed_from_the_position(target: str) -> None:
    """It is a constant: a factor of the epilogue a position, and the numbers are within the stated class."""
    found, report, text = fused(WINDOWS, target, (1, 2, 8, 8))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.sum", "qfuse.requantize"]
    assert report.applied[1]["exactness"] == "within-1-lsb"
    assert report.applied[1]["tie_distance"] < 0.01
    assert "linalg.index" not in text
    assert found <= 1


#: Integers times integers plus zero points, dequantized by the product of the scales, a bias, and a quantize.
GEMM = (
    """
#m = affine_map<(d0, d1) -> (d0, d1)>
#n = affine_map<(d0, d1) -> (d1)>
module {{
  func.func @main(%arg0: tensor<4x16xi8>) -> tensor<4x3xi8> {{
    %w = arith.constant dense<{weights}> : tensor<16x3xi8>
    %whole = arith.constant dense<[3080, -6242, 433]> : tensor<3xi32>
    %za = arith.constant 11 : i32
    %zb = arith.constant 0 : i32
    %scale = arith.constant 4.3735269E-4 : f32
    %nil = arith.constant {start} : i32
    %e2 = tensor.empty() : tensor<3xf32>
    %bias = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}} ins(%whole : tensor<3xi32>) outs(%e2 : tensor<3xf32>) {{
    ^bb0(%in: i32, %o: f32):
      %a = arith.sitofp %in : i32 to f32
      %b = arith.mulf %a, %scale : f32
      linalg.yield %b : f32
    }} -> tensor<3xf32>
"""
    + NUMBERS.format(step="0.0464895293")
    + """
    %e0 = tensor.empty() : tensor<4x3xi32>
    %init = linalg.fill ins(%nil : i32) outs(%e0 : tensor<4x3xi32>) -> tensor<4x3xi32>
    %acc = linalg.quantized_matmul ins(%arg0, %w, %za, %zb : tensor<4x16xi8>, tensor<16x3xi8>, i32, i32)
        outs(%init : tensor<4x3xi32>) -> tensor<4x3xi32>
    %e1 = tensor.empty() : tensor<4x3xf32>
    %dq = linalg.generic {{indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}}
        ins(%acc : tensor<4x3xi32>) outs(%e1 : tensor<4x3xf32>) {{
    ^bb0(%in: i32, %o: f32):
      %a = arith.sitofp %in : i32 to f32
      %b = arith.mulf %a, %scale : f32
      linalg.yield %b : f32
    }} -> tensor<4x3xf32>
    %x = linalg.generic {{indexing_maps = [#m, #n, #m], iterator_types = ["parallel", "parallel"]}}
        ins(%dq, %bias : tensor<4x3xf32>, tensor<3xf32>) outs(%e1 : tensor<4x3xf32>) {{
    ^bb0(%in: f32, %add: f32, %o: f32):
      %a = arith.addf %in, %add : f32
      linalg.yield %a : f32
    }} -> tensor<4x3xf32>
    %out = tensor.empty() : tensor<4x3xi8>
"""
)


def gemm(start: int = 0) -> str:
    weights = np.random.default_rng(3).integers(-127, 128, (16, 3)).tolist()
    return GEMM.format(weights=weights, start=start) + quantize("4x3", 2) + "  }\n}\n"


@pytest.mark.parametrize("target", ["linalg", "integer-only"])
def test_sums_that_are_integers_already(target: str) -> None:
    """What the products can add up to is known, so the bias is added in i32."""
    found, report, _ = fused(gemm(), target, (4, 16))
    assert report.missed == []
    assert len(report.already_integer) == 1
    assert found <= (0 if target == "linalg" else 1)


def test_sums_that_may_overflow_are_added_on_the_grid_of_the_result() -> None:
    """Sums that start near the end of i32 have its whole range, since they may wrap."""
    found, report, _ = fused(gemm((1 << 31) - 2), "integer-only", (4, 16))
    assert [(e["fusion"], e["guard_bits"]) for e in report.applied] == [("qfuse.elementwise", 4)]
    assert report.missed == []
    assert found <= 1


DEQUANTIZED = """
    %cz = arith.constant -5 : i32
    %scale = arith.constant 0.0225741025 : f32
    %e0 = tensor.empty() : tensor<2x3x4xf32>
    %dq = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%arg0 : tensor<2x3x4xi8>) outs(%e0 : tensor<2x3x4xf32>) {
    ^bb0(%in: i8, %o: f32):
      %a = arith.extsi %in : i8 to i32
      %b = arith.subi %a, %cz : i32
      %c = arith.sitofp %b : i32 to f32
      %d = arith.mulf %c, %scale : f32
      linalg.yield %d : f32
    } -> tensor<2x3x4xf32>
"""

#: amax: torch's reduction also gives the position, which nothing reads here.
POSITION = (
    """
#m = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#r = affine_map<(d0, d1, d2) -> (d0, d2)>
module {
  func.func @main(%arg0: tensor<2x3x4xi8>) -> RESULT {
    %inf = arith.constant 0xFF800000 : f32
    %none = arith.constant 0 : i64
"""
    + NUMBERS.format(step="0.0118909162")
    + DEQUANTIZED
    + """
    %e1 = tensor.empty() : tensor<2x4xi64>
    %n = linalg.fill ins(%none : i64) outs(%e1 : tensor<2x4xi64>) -> tensor<2x4xi64>
    %e2 = tensor.empty() : tensor<2x4xf32>
    %i = linalg.fill ins(%inf : f32) outs(%e2 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %both:2 = linalg.generic {indexing_maps = [#m, #r, #r], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%dq : tensor<2x3x4xf32>) outs(%i, %n : tensor<2x4xf32>, tensor<2x4xi64>) {
    ^bb0(%in: f32, %o: f32, %at: i64):
      %j = linalg.index 1 : index
      %k = arith.index_cast %j : index to i64
      %a = arith.maximumf %in, %o : f32
      %b = arith.cmpf ogt, %in, %o : f32
      %c = arith.select %b, %k, %at : i64
      linalg.yield %a, %c : f32, i64
    } -> (tensor<2x4xf32>, tensor<2x4xi64>)
    %out = tensor.empty() : tensor<2x4xi8>
"""
)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_a_maximum_whose_position_is_not_read(target: str) -> None:
    maximum = quantize("2x4", 2).replace("ins(%x :", "ins(%both#0 :") + "  }\n}\n"
    found, report, text = fused(POSITION.replace("RESULT", "tensor<2x4xi8>") + maximum, target, (2, 3, 4))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.maximum", "qfuse.rescale"]
    assert "maxsi" in text
    assert found <= (0 if target != "integer-only" else 1)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_the_position_of_a_maximum_is_that_of_the_integers(target: str) -> None:
    text = POSITION.replace("RESULT", "tensor<2x4xi64>") + "    return %both#1 : tensor<2x4xi64>\n  }\n}\n"
    found, report, _ = fused(text, target, (2, 3, 4))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.argmax"]
    assert found == 0


#: Adaptive pooling over ragged windows: what is behind a window's end is masked, and each has its own count.
RAGGED = (
    """
#m = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#k = affine_map<(d0, d1, d2) -> (d2)>
#p = affine_map<(d0) -> (d0)>
module {
  func.func @main(%arg0: tensor<2x3x4xi8>) -> tensor<2x3x4xi8> {
    %two = arith.constant 2 : i64
    %three = arith.constant 3 : i64
    %nil = arith.constant dense<0.0> : tensor<f32>
"""
    + NUMBERS.format(step="0.0157421")
    + DEQUANTIZED
    + """
    %e1 = tensor.empty() : tensor<4xi64>
    %places = linalg.generic {indexing_maps = [#p], iterator_types = ["parallel"]} outs(%e1 : tensor<4xi64>) {
    ^bb0(%o: i64):
      %i = linalg.index 0 : index
      %a = arith.index_cast %i : index to i64
      linalg.yield %a : i64
    } -> tensor<4xi64>
    %e2 = tensor.empty() : tensor<4xi1>
    %mask = linalg.generic {indexing_maps = [#p, #p], iterator_types = ["parallel"]}
        ins(%places : tensor<4xi64>) outs(%e2 : tensor<4xi1>) {
    ^bb0(%in: i64, %o: i1):
      %a = arith.cmpi sge, %in, %three : i64
      linalg.yield %a : i1
    } -> tensor<4xi1>
    %counts = linalg.generic {indexing_maps = [#p, #p], iterator_types = ["parallel"]}
        ins(%places : tensor<4xi64>) outs(%e1 : tensor<4xi64>) {
    ^bb0(%in: i64, %o: i64):
      %a = arith.addi %in, %three : i64
      %b = arith.divsi %a, %two : i64
      linalg.yield %b : i64
    } -> tensor<4xi64>
    %kept = linalg.generic {indexing_maps = [#k, affine_map<(d0, d1, d2) -> ()>, #m, #m],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%mask, %nil, %dq : tensor<4xi1>, tensor<f32>, tensor<2x3x4xf32>) outs(%e0 : tensor<2x3x4xf32>) {
    ^bb0(%c: i1, %z: f32, %in: f32, %o: f32):
      %a = arith.select %c, %z, %in : f32
      linalg.yield %a : f32
    } -> tensor<2x3x4xf32>
    %sum = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%kept, %dq : tensor<2x3x4xf32>, tensor<2x3x4xf32>) outs(%e0 : tensor<2x3x4xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %a = arith.addf %x, %y : f32
      linalg.yield %a : f32
    } -> tensor<2x3x4xf32>
    %x = linalg.generic {indexing_maps = [#m, #k, #m], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%sum, %counts : tensor<2x3x4xf32>, tensor<4xi64>) outs(%e0 : tensor<2x3x4xf32>) {
    ^bb0(%in: f32, %n: i64, %o: f32):
      %a = arith.sitofp %n : i64 to f32
      %b = arith.divf %in, %a : f32
      linalg.yield %b : f32
    } -> tensor<2x3x4xf32>
    %out = tensor.empty() : tensor<2x3x4xi8>
"""
    + quantize("2x3x4", 3)
    + "  }\n}\n"
)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_masks_and_counts_that_are_computed(target: str) -> None:
    found, report, _ = fused(RAGGED, target, (2, 3, 4))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.elementwise"]
    assert found <= (0 if target != "integer-only" else 1)


def fused(text: str, target: str, shape: tuple[int, ...]) -> tuple[int, Any, str]:
    """The greatest difference to the unfused function on random and extreme integers, the report, the fused text."""
    plain, module = (ir.Module.parse(text, ir.Context()) for _ in range(2))
    report = qfuse.fuse(module, target)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, shape), rng.choice([-128, 127], shape), np.full(shape, -128), np.full(shape, 127)]
    programs = [Program(compile_module(m, flags=FLAGS)) for m in (plain, module)]
    differences: list[int] = []
    for x in inputs:
        x = x.astype(np.int8)
        (expected,), (got,) = (run(x) for run in programs)
        differences.append(int(np.abs(expected.astype(int) - got).max()))
        assert len(np.unique(expected)) > 1 or len(np.unique(x)) == 1
    again = qfuse.fuse(module, target)
    assert again.applied == []
    return max(differences), report, str(module)


#: Interpolation as one operation: two elements at places that its body computes, with weights of the position.
EXTRACTED = (
    """
#m = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @main(%arg0: tensor<4x6xi8>) -> tensor<4x6xi8> {
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1 : index
    %last = arith.constant 5 : index
    %e0 = tensor.empty() : tensor<4x6xf32>
    %dq = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}
        ins(%arg0 : tensor<4x6xi8>) outs(%e0 : tensor<4x6xf32>) {
    ^bb0(%in: i8, %o: f32):
      %a = arith.sitofp %in : i8 to f32
      %b = arith.mulf %a, %half : f32
      linalg.yield %b : f32
    } -> tensor<4x6xf32>
    %e1 = tensor.empty() : tensor<4x6xf32>
    %x = linalg.generic {indexing_maps = [#m], iterator_types = ["parallel", "parallel"]} outs(%e1 : tensor<4x6xf32>) {
    ^bb0(%o: f32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %k = arith.addi %j, %one : index
      %l = arith.minsi %k, %last : index
      %a = tensor.extract %dq[%i, %j] : tensor<4x6xf32>
      %b = tensor.extract %dq[%i, %l] : tensor<4x6xf32>
      %c = arith.addf %a, %b : f32
      %d = arith.mulf %c, %half : f32
      linalg.yield %d : f32
    } -> tensor<4x6xf32>
    %out = tensor.empty() : tensor<4x6xi8>
"""
    + NUMBERS.format(step="0.0371")
    + quantize("4x6", 2)
    + "  }\n}\n"
)


@pytest.mark.parametrize("target", ["linalg", "integer-only"])
def test_no_fuse_when_a_body_reads_at_places_that_it_computes(target: str) -> None:
    """The tensor is no operand; the operation is named all the same."""
    module = ir.Module.parse(EXTRACTED, ir.Context())
    before = str(module)
    report = qfuse.fuse(module, target)
    assert str(module) == before
    reason = "its body reads a dequantized tensor at places that it computes"
    assert [e["reason"] for e in report.missed] == [reason]


#: A mean of means, as two sums with a division behind each.
MEAN_OF_MEANS = (
    """
#m = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#s = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
#v = affine_map<(d0) -> (d0)>
module {
  func.func @main(%arg0: tensor<2x3x4xi8>) -> tensor<4xi8> {
    %nil = arith.constant 0.0 : f32
    %three = arith.constant 3.0 : f32
    %half = arith.constant 0.5 : f32
"""
    + NUMBERS.format(step="0.0118909162")
    + DEQUANTIZED
    + """
    %e1 = tensor.empty() : tensor<2x4xf32>
    %f1 = linalg.fill ins(%nil : f32) outs(%e1 : tensor<2x4xf32>) -> tensor<2x4xf32>
    %r1 = linalg.generic {indexing_maps = [#m, #a], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%dq : tensor<2x3x4xf32>) outs(%f1 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %p = arith.addf %in, %o : f32
      linalg.yield %p : f32
    } -> tensor<2x4xf32>
    %d1 = linalg.generic {indexing_maps = [#s, #s], iterator_types = ["parallel", "parallel"]}
        ins(%r1 : tensor<2x4xf32>) outs(%e1 : tensor<2x4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %p = arith.divf %in, %three : f32
      linalg.yield %p : f32
    } -> tensor<2x4xf32>
    %e2 = tensor.empty() : tensor<4xf32>
    %f2 = linalg.fill ins(%nil : f32) outs(%e2 : tensor<4xf32>) -> tensor<4xf32>
    %r2 = linalg.generic {indexing_maps = [#s, #b], iterator_types = ["reduction", "parallel"]}
        ins(%d1 : tensor<2x4xf32>) outs(%f2 : tensor<4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %p = arith.addf %in, %o : f32
      linalg.yield %p : f32
    } -> tensor<4xf32>
    %x = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]}
        ins(%r2 : tensor<4xf32>) outs(%e2 : tensor<4xf32>) {
    ^bb0(%in: f32, %o: f32):
      %p = arith.mulf %in, %half : f32
      linalg.yield %p : f32
    } -> tensor<4xf32>
    %out = tensor.empty() : tensor<4xi8>
"""
    + quantize("4", 1)
    + "  }\n}\n"
)


@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_a_mean_of_means_is_one_sum(target: str) -> None:
    found, report, text = fused(MEAN_OF_MEANS, target, (2, 3, 4))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.sum", "qfuse.requantize"]
    assert report.summary["quantized_compute_ops"] == report.summary["integer_ops"] == 1
    assert text.count('"reduction"') == 2  # both loops of one operation
    assert found <= 1
