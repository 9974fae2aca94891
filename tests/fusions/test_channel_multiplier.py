"""Depthwise convolutions with several results a channel in linalg, run in IREE, against real arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import Program, compile_module
from tests.fusions.ir import FLAGS

Array = np.ndarray[Any, Any]

IMAGE = (1, 6, 5, 3)
WEIGHTS = (3, 3, 3, 4)
#: Where the filters' scales are read, and their extents.
VARYING = {
    "each result": ("(d2, d3)", (3, 4)),
    "each channel": ("(d2)", (3,)),
    "each result of a channel": ("(d3)", (4,)),
}
MODULE = """
#m = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#last = affine_map<(d0, d1, d2, d3) -> (d3)>
#s = affine_map<(d0, d1, d2, d3) -> {index}>
module {{
  func.func @main(%q: tensor<1x6x5x3xi8>) -> tensor<1x4x3x12xi8> {{
    %wq = arith.constant dense<{weights}> : tensor<3x3x3x4xi8>
    %scales = arith.constant dense<{scales}> : {type}
    %bias = arith.constant dense<{bias}> : tensor<12xf32>
    %zero = arith.constant 0.0 : f32
    %e0 = tensor.empty() : tensor<1x6x5x3xf32>
    %x = linalg.generic {{indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
        ins(%q : tensor<1x6x5x3xi8>) outs(%e0 : tensor<1x6x5x3xf32>) {{
    ^bb0(%in: i8, %o: f32):
      %z = arith.constant 7 : i32
      %s = arith.constant 0.02 : f32
      %w = arith.extsi %in : i8 to i32
      %d = arith.subi %w, %z : i32
      %f = arith.sitofp %d : i32 to f32
      %y = arith.mulf %f, %s : f32
      linalg.yield %y : f32
    }} -> tensor<1x6x5x3xf32>
    %e1 = tensor.empty() : tensor<3x3x3x4xf32>
    %w = linalg.generic
        {{indexing_maps = [#m, #s, #m], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
        ins(%wq, %scales : tensor<3x3x3x4xi8>, {type}) outs(%e1 : tensor<3x3x3x4xf32>) {{
    ^bb0(%in: i8, %s: f32, %o: f32):
      %f = arith.sitofp %in : i8 to f32
      %y = arith.mulf %f, %s : f32
      linalg.yield %y : f32
    }} -> tensor<3x3x3x4xf32>
    %e2 = tensor.empty() : tensor<1x4x3x3x4xf32>
    %i = linalg.fill ins(%zero : f32) outs(%e2 : tensor<1x4x3x3x4xf32>) -> tensor<1x4x3x3x4xf32>
    %c = linalg.depthwise_conv_2d_nhwc_hwcm {{dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}}
        ins(%x, %w : tensor<1x6x5x3xf32>, tensor<3x3x3x4xf32>) outs(%i : tensor<1x4x3x3x4xf32>) -> tensor<1x4x3x3x4xf32>
    %r = tensor.collapse_shape %c [[0], [1], [2], [3, 4]] : tensor<1x4x3x3x4xf32> into tensor<1x4x3x12xf32>
    %e3 = tensor.empty() : tensor<1x4x3x12xi8>
    %y = linalg.generic
        {{indexing_maps = [#m, #last, #m], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
        ins(%r, %bias : tensor<1x4x3x12xf32>, tensor<12xf32>) outs(%e3 : tensor<1x4x3x12xi8>) {{
    ^bb0(%in: f32, %b: f32, %o: i8):
      %s = arith.constant 0.11 : f32
      %z = arith.constant -9.0 : f32
      %low = arith.constant -128.0 : f32
      %high = arith.constant 127.0 : f32
      %biased = arith.addf %in, %b : f32
      %d = arith.divf %biased, %s : f32
      %n = math.roundeven %d : f32
      %shifted = arith.addf %n, %z : f32
      %lower = arith.maximumf %shifted, %low : f32
      %clamped = arith.minimumf %lower, %high : f32
      %stored = arith.fptosi %clamped : f32 to i8
      linalg.yield %stored : i8
    }} -> tensor<1x4x3x12xi8>
    return %y : tensor<1x4x3x12xi8>
  }}
}}
"""


def convolved(x: Array, w: Array) -> Array:
    """In real arithmetic."""
    windows = [x[:, i : i + 4, j : j + 3, :, None] * w[i, j] for i in range(3) for j in range(3)]
    return np.sum(windows, axis=0).reshape(1, 4, 3, 12)


@pytest.mark.parametrize("epilogue", ["float", "fixed-point"])
@pytest.mark.parametrize("varying", VARYING)
def test_scales(varying: str, epilogue: str) -> None:
    rng = np.random.default_rng(9)
    index, shape = VARYING[varying]
    scales = np.geomspace(0.002, 0.02, int(np.prod(shape))).reshape(shape).astype(np.float32)
    weights = rng.integers(-128, 128, WEIGHTS)
    weights.reshape(-1)[:2] = -128, 127
    bias = rng.normal(0, 2, 12).astype(np.float32)
    text = MODULE.format(
        index=index, weights=weights.tolist(), scales=scales.tolist(), bias=bias.tolist(),
        type=f"tensor<{'x'.join(map(str, shape))}xf32>",
    )  # fmt: skip
    with ir.Context():
        module = ir.Module.parse(text)
        report = qfuse.fuse(module, "linalg", epilogue=epilogue)
        assert report.missed == []
        assert [e["fusion"] for e in report.applied] == ["qfuse.convolution", "qfuse.requantize"]
        program = Program(compile_module(module, flags=FLAGS))
    broadcast = scales[:, None] if varying == "each channel" else scales
    near = 0.5 + report.applied[1].get("tie_distance", 0.0) + 1e-4
    inputs = [rng.integers(-128, 128, IMAGE), rng.choice([-128, 127], IMAGE), np.full(IMAGE, -128), np.full(IMAGE, 7)]
    for q in inputs:
        (got,) = program(q.astype(np.int8))
        real = convolved((q - 7.0) * np.float32(0.02), weights * broadcast.astype(np.float64)) + bias
        want = np.clip(real / np.float64(np.float32(0.11)) - 9, -128, 127)
        assert np.abs(got - want).max() <= near
