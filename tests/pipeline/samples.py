"""Modules that several tests share, as text."""

from __future__ import annotations

DEQUANTIZE = """\
    %{name} = linalg.generic {{
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%{source} : tensor<{shape}xi8>) outs(%{name}_e : tensor<{shape}xf32>) {{
    ^bb0(%vq: i8, %vo: f32):
      %vw = {extend} %vq : i8 to i32
      %vz = arith.constant {zero_point} : i32
      %vd = arith.subi %vw, %vz : i32
      %vf = arith.sitofp %vd : i32 to f32
      %vs = arith.constant {scale} : f32
      %vr = arith.mulf %vf, %vs : f32
      linalg.yield %vr : f32
    }} -> tensor<{shape}xf32>
"""

QUANTIZE = """\
    %{name} = linalg.generic {{
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%{source} : tensor<{shape}xf32>) outs(%{name}_e : tensor<{shape}xi8>) {{
    ^bb0(%vx: f32, %vo: i8):
      %vs = arith.constant {scale} : f32
      %vd = arith.divf %vx, %vs : f32
      %vr = math.roundeven %vd : f32
      %vz = arith.constant {zero_point}.0 : f32
      %vp = arith.addf %vr, %vz : f32
      %vl = arith.constant {low}.0 : f32
      %va = arith.maximumf %vp, %vl : f32
      %vh = arith.constant {high}.0 : f32
      %vb = arith.minimumf %va, %vh : f32
      %vc = {cast} %vb : f32 to i8
      linalg.yield %vc : i8
    }} -> tensor<{shape}xi8>
"""


def dequantize(
    name: str,
    source: str,
    shape: str = "4x4",
    *,
    scale: str = "0.5",
    zero_point: int = 0,
    extend: str = "arith.extsi",
) -> str:
    """A per-tensor dequantize of an i8 tensor of rank 2, with its `tensor.empty`."""
    empty = f"    %{name}_e = tensor.empty() : tensor<{shape}xf32>\n"
    return empty + DEQUANTIZE.format(
        name=name, source=source, shape=shape, scale=scale, zero_point=zero_point, extend=extend
    )


def quantize(
    name: str,
    source: str,
    shape: str = "4x4",
    *,
    scale: str = "0.25",
    zero_point: int = 0,
    low: int = -128,
    high: int = 127,
    cast: str = "arith.fptosi",
) -> str:
    """A per-tensor quantize of an f32 tensor of rank 2 to i8, with its `tensor.empty`."""
    empty = f"    %{name}_e = tensor.empty() : tensor<{shape}xi8>\n"
    return empty + QUANTIZE.format(
        name=name, source=source, shape=shape, scale=scale, zero_point=zero_point, low=low, high=high, cast=cast
    )


def matmul(name: str, lhs: str, rhs: str, m: int = 4, k: int = 4, n: int = 4) -> str:
    """A float matmul into zeros."""
    return (
        f"    %{name}_0 = arith.constant 0.0 : f32\n"
        f"    %{name}_e = tensor.empty() : tensor<{m}x{n}xf32>\n"
        f"    %{name}_f = linalg.fill ins(%{name}_0 : f32) outs(%{name}_e : tensor<{m}x{n}xf32>)"
        f" -> tensor<{m}x{n}xf32>\n"
        f"    %{name} = linalg.matmul ins(%{lhs}, %{rhs} : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)"
        f" outs(%{name}_f : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>\n"
    )


def function(body: str, arguments: str, result: str, returned: str, name: str = "main") -> str:
    """A `func.func` around `body`."""
    return f"  func.func @{name}({arguments}) -> {result} {{\n{body}    return %{returned} : {result}\n  }}\n"


def module(*functions: str) -> str:
    """A module of functions."""
    return "module {\n" + "".join(functions) + "}\n"


def linear_function(name: str = "main", **quantized: str | int) -> str:
    """dequantize, dequantize, matmul, quantize; `quantized` changes the quantize."""
    body = (
        dequantize("a", "qa", zero_point=3)
        + dequantize("b", "qb", scale="0.125")
        + matmul("m", "a", "b")
        + quantize("r", "m", **quantized)  # type: ignore[arg-type]
    )
    return function(body, "%qa: tensor<4x4xi8>, %qb: tensor<4x4xi8>", "tensor<4x4xi8>", "r", name)


#: dequantize, dequantize, matmul, quantize: one contraction and one requantize.
LINEAR = module(linear_function())

#: Float only.
FLOAT_ONLY = module(function(matmul("m", "a", "b"), "%a: tensor<4x4xf32>, %b: tensor<4x4xf32>", "tensor<4x4xf32>", "m"))

#: A matmul of a dequantized and a float operand: missed.
WEIGHT_ONLY = module(
    function(
        dequantize("b", "qb") + matmul("m", "a", "b"),
        "%a: tensor<4x4xf32>, %qb: tensor<4x4xi8>",
        "tensor<4x4xf32>",
        "m",
    )
)

_PER_AXIS_DEQUANTIZE = """\
    %b_e = tensor.empty() : tensor<4x4xf32>
    %b = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
                       affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%qb, %sc, %zp : tensor<4x4xi8>, tensor<4xf32>, tensor<4xi64>) outs(%b_e : tensor<4x4xf32>) {
    ^bb0(%vq: i8, %vs: f32, %vz: i64, %vo: f32):
      %vw = arith.extsi %vq : i8 to i64
      %vd = arith.subi %vw, %vz : i64
      %vf = arith.sitofp %vd : i64 to f32
      %vr = arith.mulf %vf, %vs : f32
      linalg.yield %vr : f32
    } -> tensor<4x4xf32>
"""


def per_axis_linear(
    scales: str = "dense<[0.5, 0.25, 0.125, 1.0]>",
    zero_points: str = "dense<0>",
    weight: str = "dense<[[1, -2, 3, 4], [5, 6, -7, 8], [9, 10, 11, -12], [13, -14, 15, 16]]>",
    resources: str = "",
) -> str:
    """A module: matmul by a constant weight with one scale a column; the constants are attributes as text."""
    constants = (
        f"    %sc = arith.constant {scales} : tensor<4xf32>\n"
        f"    %zp = arith.constant {zero_points} : tensor<4xi64>\n"
        f"    %qb = arith.constant {weight} : tensor<4x4xi8>\n"
    )
    body = constants + dequantize("a", "qa", zero_point=3) + _PER_AXIS_DEQUANTIZE + matmul("m", "a", "b")
    text = module(function(body, "%qa: tensor<4x4xi8>", "tensor<4x4xf32>", "m"))
    if not resources:
        return text
    return text + "{-# dialect_resources: { builtin: { " + resources + " } } #-}\n"


#: matmul by a constant weight with one scale a column; ends in a float value.
PER_AXIS = per_axis_linear()

#: The same, followed by a quantize: its result is stored again.
PER_AXIS_REQUANTIZED = PER_AXIS.replace(
    "    return %m : tensor<4x4xf32>", quantize("r", "m") + "    return %r : tensor<4x4xi8>"
).replace("-> tensor<4x4xf32> {\n    %sc", "-> tensor<4x4xi8> {\n    %sc")
