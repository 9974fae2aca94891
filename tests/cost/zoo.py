"""One function for each kind of operation that a target can limit, in one module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.fusions.ir import Function, tensor

RELU = "    %z = arith.constant 0.0 : f32\n    %y = arith.maximumf %a, %z : f32"
SIGMOID = (
    "    %k = arith.constant 1.0 : f32\n    %m = arith.negf %a : f32\n    %e = math.exp %m : f32\n"
    "    %p = arith.addf %e, %k : f32\n    %y = arith.divf %k, %p : f32"
)
HARDTANH = (
    "    %l = arith.constant -0.5 : f32\n    %h = arith.constant 0.5 : f32\n"
    "    %m = arith.maximumf %a, %l : f32\n    %y = arith.minimumf %m, %h : f32"
)


def filled(f: Function, shape: Sequence[int], value: str = "0.0") -> str:
    """A tensor of one number."""
    number = f.line(f"arith.constant {value} : f32")
    empty = f.empty(shape, "f32")
    kind = tensor(shape, "f32")
    return f.line(f"linalg.fill ins({number} : f32) outs({empty} : {kind}) -> {kind}")


def weight(f: Function, shape: Sequence[int]) -> str:
    """Constant random s8."""
    values = np.random.default_rng(len(shape)).integers(-127, 128, shape)
    text = str(values.tolist())
    return f.line(f"arith.constant dense<{text}> : {tensor(shape, 'i8')}")


def named(f: Function, op: str, x: str, w: str, shapes: tuple[Sequence[int], ...], attributes: str = "") -> str:
    """A named contraction or convolution into zeros."""
    lhs, rhs, out = (tensor(s, "f32") for s in shapes)
    init = filled(f, shapes[2])
    return f.line(f"linalg.{op} {attributes} ins({x}, {w} : {lhs}, {rhs}) outs({init} : {out}) -> {out}")


def contraction(name: str = "contraction", activation: str = RELU, **result: int | float) -> Function:
    """[8, 20] by [20, 6]: per-tensor input with a zero point, per-axis constant weight, relu."""
    f = Function(name, (8, 20))
    x = f.dequantize(f.argument("i8"), 0.05, 3)
    w = f.dequantize(weight(f, (20, 6)), [0.01 * (i + 1) for i in range(6)], 0, shape=(20, 6))
    m = named(f, "matmul", x, w, ((8, 20), (20, 6), (8, 6)))
    f.shape = (8, 6)
    return f.returns(f.quantize(f.unary(m, activation), **{"scale": 0.1, "zero": -5, **result}))  # type: ignore[arg-type]


def attention() -> Function:
    """Two tensors known at run time, one of them with a zero point, in batches."""
    f = Function("attention", (2, 4, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 0)
    y = f.dequantize(f.argument("i8", (2, 16, 4)), 0.02, 7, shape=(2, 16, 4))
    m = named(f, "batch_matmul", x, y, ((2, 4, 16), (2, 16, 4), (2, 4, 4)))
    f.shape = (2, 4, 4)
    return f.returns(f.quantize(m, 0.1, 0))


def grouped() -> Function:
    """Groups of 8 along K: [4, 32] by [32, 6]."""
    f = Function("grouped", (4, 32))
    x = f.dequantize(f.argument("i8"), 0.05, 0)
    shape = (32, 6)
    factors = [[0.125 * (1 + 6 * i + j) for j in range(6)] for i in range(4)]
    scales = f.line(f"arith.constant dense<{factors}> : tensor<4x6xf32>")
    body = "    %f = arith.sitofp %a : i8 to f32\n    %y = arith.mulf %f, %b : f32"
    places: list[tuple[str, Sequence[int | None], str, str]] = [
        (weight(f, shape), shape, "i8", "d0, d1"),
        (scales, (4, 6), "f32", "d0 floordiv 8, d1"),
    ]
    w = f.elementwise(places, body, "f32", shape)
    m = named(f, "matmul", x, w, ((4, 32), shape, (4, 6)))
    return f.returns(m, element="f32", shape=(4, 6))


_STEPS = "{{dilations = dense<{d}> : tensor<2xi64>, strides = dense<{s}> : tensor<2xi64>}}"


def convolution() -> Function:
    """3x3, stride 2, NCHW, unsigned input."""
    f = Function("convolution", (1, 4, 9, 9))
    x = f.dequantize(f.argument("i8"), 0.05, 128, unsigned=True)
    w = f.dequantize(weight(f, (8, 4, 3, 3)), 0.02, 0, shape=(8, 4, 3, 3))
    steps = _STEPS.format(d=1, s=2)
    m = named(f, "conv_2d_nchw_fchw", x, w, ((1, 4, 9, 9), (8, 4, 3, 3), (1, 8, 4, 4)), steps)
    f.shape = (1, 8, 4, 4)
    return f.returns(f.quantize(m, 0.1, 4))


def depthwise() -> Function:
    """3x3, dilation 2, NHWC."""
    f = Function("depthwise", (1, 8, 8, 6))
    x = f.dequantize(f.argument("i8"), 0.05, 3)
    w = f.dequantize(weight(f, (3, 3, 6)), 0.02, 0, shape=(3, 3, 6))
    steps = _STEPS.format(d=2, s=1)
    m = named(f, "depthwise_conv_2d_nhwc_hwc", x, w, ((1, 8, 8, 6), (3, 3, 6), (1, 4, 4, 6)), steps)
    f.shape = (1, 4, 4, 6)
    return f.returns(f.quantize(f.unary(m, HARDTANH), 0.01, 4))


def reduced(name: str, combine: str, start: str, **result: float) -> Function:
    """Over the last dimension of [4, 24]."""
    f = Function(name, (4, 24))
    x = f.dequantize(f.argument("i8"), 0.05, 3)
    init = filled(f, (4,), start)
    maps = "[affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>]"
    m = f.line(
        f'linalg.generic {{indexing_maps = {maps}, iterator_types = ["parallel", "reduction"]}}\n'
        f"  ins({x} : tensor<4x24xf32>) outs({init} : tensor<4xf32>) {{\n  ^bb0(%a: f32, %b: f32):\n"
        f"    %c = arith.{combine} %a, %b : f32\n    linalg.yield %c : f32\n  }} -> tensor<4xf32>"
    )
    f.shape = (4,)
    return f.returns(f.quantize(m, **result))  # type: ignore[arg-type]


def elementwise() -> Function:
    """The sum of two tensors, clamped."""
    f = Function("elementwise", (4, 6))
    x, y = f.dequantize(f.argument("i8"), 0.05, 3), f.dequantize(f.argument("i8"), 0.03, 0)
    return f.returns(f.quantize(f.binary("addf", x, y), 0.1, 0))


def lookup() -> Function:
    """Sigmoid."""
    f = Function("lookup", (4, 6))
    return f.returns(f.quantize(f.unary(f.dequantize(f.argument("i8"), 0.05, 4), SIGMOID), 0.0039, -128))


def concat() -> Function:
    """Two tensors of different parameters."""
    f = Function("concat", (4, 6))
    x, y = f.dequantize(f.argument("i8"), 0.05, 3), f.dequantize(f.argument("i8"), 0.03, 0)
    joined = f.line(f"tensor.concat dim(0) {x}, {y} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>")
    f.shape = (8, 6)
    return f.returns(f.quantize(joined, 0.1, 0))


def rescale() -> Function:
    """s8 to u8 of another scale."""
    f = Function("rescale", (4, 6))
    x = f.dequantize(f.argument("i8"), 0.05, 3)
    return f.returns(f.quantize(x, 0.03, 128, low=0, high=255))


def functions() -> list[Function]:
    """Every one of them."""
    return [
        contraction(),
        attention(),
        grouped(),
        convolution(),
        depthwise(),
        reduced("sum", "addf", "0.0", scale=0.5, zero=0),
        reduced("maximum", "maximumf", "0xFF800000", scale=0.05, zero=3),
        elementwise(),
        lookup(),
        concat(),
        rescale(),
    ]


def text(chosen: Sequence[Function] | None = None) -> str:
    """The module."""
    return "".join(f.text for f in (functions() if chosen is None else chosen))
