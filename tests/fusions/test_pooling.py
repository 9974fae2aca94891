"""`qfuse.maximum` behind an epilogue: maxima of a convolution's float value are taken of the quantized integers.

Each layer has a twin without pooling. The fused layer must give the maximum of what the fused twin gives, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse import KernelCall, KernelFusion
from qfuse import KernelValue as V
from tests.cost.machines import NORMAL, THROUGHPUT
from tests.fusions.ir import Function, fused, parse, run, tensor

Array = np.ndarray[Any, Any]

IN, OUT = (1, 3, 8, 8), (1, 4, 6, 6)
RELU = "    %c = arith.constant 0.0 : f32\n    %y = arith.maximumf %a, %c : f32"
RELU6 = (
    "    %c = arith.constant 0.0 : f32\n    %h = arith.constant 6.0 : f32\n    %t = arith.maximumf %a, %c : f32\n"
    "    %y = arith.minimumf %t, %h : f32"
)
SHIFTED = "    %c = arith.constant 0.75 : f32\n    %y = arith.addf %a, %c : f32"
SCALED = "    %c = arith.constant 1.5 : f32\n    %y = arith.mulf %a, %c : f32"
BIAS = "    %y = arith.addf %a, %b : f32"
NEGATED = "    %y = arith.negf %a : f32"


@dataclass(frozen=True)
class Layer:
    """A convolution by three, what follows, a pooling, what follows that, and a quantize.

    Attributes:
        name: of the function.
        kind: `max` or `min`.
        before: bodies between the convolution and the pooling; `BIAS` adds a constant a channel.
        behind: bodies between the pooling and the quantize.
        pad: elements around each channel, and what they are; None for no pad at all.
        kernel: of the pooling, which moves by two.
        over: dimensions of a reduction in place of windows.
        weight: scale and zero point of the weights.
        scale: of the result.
        zero: likewise.
        ends: least and greatest stored integer.
        pooled: without it the layer is a twin.
    """

    name: str
    kind: str = "max"
    before: tuple[str, ...] = (BIAS, RELU)
    behind: tuple[str, ...] = ()
    pad: tuple[int, float] | None = (1, -np.inf)
    kernel: int = 3
    over: tuple[int, ...] = ()
    weight: tuple[Any, Any] = ((0.02, 0.03, 0.011, 0.04), 0)
    scale: float = 0.0513
    zero: int = -5
    ends: tuple[int, int] = (-128, 127)
    pooled: bool = True

    @property
    def twin(self) -> Layer:
        return replace(self, name=f"{self.name}_twin", pooled=False)

    @property
    def function(self) -> Function:
        f, x = self.started()
        for body in self.behind:
            x = f.unary(x, body)
        return f.returns(f.quantize(x, self.scale, self.zero, low=self.ends[0], high=self.ends[1]))

    def started(self) -> tuple[Function, str]:
        """Up to the pooling; and its result."""
        f = Function(self.name, OUT)
        x = f.dequantize(f.argument("i8", IN), 0.0625, 3, shape=IN)
        w = f.dequantize(f.argument("i8", (4, 3, 3, 3)), *self.weight, shape=(4, 3, 3, 3), axis=0)
        y = convolution(f, x, w)
        for body in self.before:
            y = biased(f, y) if body == BIAS else f.unary(y, body)
        if not self.pooled:
            return f, y
        return f, reduced(f, y, self.kind, self.over) if self.over else self.windows(f, y)

    def windows(self, f: Function, y: str) -> str:
        amount, number = self.pad or (0, 0.0)
        side = 6 + 2 * amount
        shape = (1, 4, side, side)
        if self.pad is not None:
            y = padded(f, y, amount, shape, number)
        f.shape = (1, 4, *[(side - self.kernel) // 2 + 1] * 2)
        return pooling(f, y, shape, self.kind, self.kernel)

    def expected(self, stored: Array, neutral: int) -> Array:
        """What the pooling makes of the twin's integers, `neutral` where there are none."""
        take = np.max if self.kind == "max" else np.min
        if self.over:
            return take(stored, axis=self.over)
        amount = 0 if self.pad is None else self.pad[0]
        fill = neutral if self.pad is None or np.isinf(self.pad[1]) else self.zero
        around = np.pad(stored, ((0, 0), (0, 0), (amount, amount), (amount, amount)), constant_values=fill)
        found = np.lib.stride_tricks.sliding_window_view(around, (self.kernel, self.kernel), axis=(2, 3))
        return take(found[:, :, ::2, ::2], axis=(-2, -1))


def filled(f: Function, shape: tuple[int, ...], number: float) -> str:
    kind = tensor(shape, "f32")
    start = f.line(f"arith.constant 0x{int(np.float32(number).view(np.uint32)):08X} : f32")
    return f.line(f"linalg.fill ins({start} : f32) outs({f.empty(shape, 'f32')} : {kind}) -> {kind}")


def convolution(f: Function, x: str, w: str) -> str:
    return f.line(
        "linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}"
        f" ins({x}, {w} : {tensor(IN, 'f32')}, tensor<4x3x3x3xf32>)"
        f" outs({filled(f, OUT, 0.0)} : {tensor(OUT, 'f32')}) -> {tensor(OUT, 'f32')}"
    )


def biased(f: Function, y: str) -> str:
    b = f.line("arith.constant dense<[0.5, -1.25, 0.0, 3.0]> : tensor<4xf32>")
    return f.elementwise([(y, OUT, "f32", "d0, d1, d2, d3"), (b, (4,), "f32", "d1")], BIAS)


def padded(f: Function, y: str, amount: int, shape: tuple[int, ...], number: float) -> str:
    value = f.line(f"arith.constant 0x{int(np.float32(number).view(np.uint32)):08X} : f32")
    return f.line(
        f"tensor.pad {y} low[0, 0, {amount}, {amount}] high[0, 0, {amount}, {amount}] {{\n"
        f"  ^bb0(%i: index, %j: index, %k: index, %l: index):\n    tensor.yield {value} : f32\n"
        f"  }} : {tensor(OUT, 'f32')} to {tensor(shape, 'f32')}"
    )


def pooling(f: Function, y: str, shape: tuple[int, ...], kind: str, kernel: int, start: float | None = None) -> str:
    init = filled(f, f.shape, (-np.inf if kind == "max" else np.inf) if start is None else start)  # type: ignore[arg-type]
    window, result = f.empty((kernel, kernel), "f32"), tensor(f.shape, "f32")
    if kind == "min":  # has no named operation in this layout
        maps = ("d0, d1, d2 * 2 + d4, d3 * 2 + d5", "d4, d5", "d0, d1, d2, d3")
        return combined(f, [(y, tensor(shape, "f32")), (window, f"tensor<{kernel}x{kernel}xf32>")], init, maps, 4, kind)
    return f.line(
        f"linalg.pooling_nchw_max {{dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}}"
        f" ins({y}, {window} : {tensor(shape, 'f32')}, tensor<{kernel}x{kernel}xf32>)"
        f" outs({init} : {result}) -> {result}"
    )


def combined(
    f: Function,
    inputs: list[tuple[str, str]],
    init: str,
    maps: tuple[str, ...],
    kept: int,
    kind: str,
    over: tuple[int, ...] = (4, 5),
) -> str:
    """A generic that takes the greatest or least of its first input."""
    dims = ", ".join(f"d{d}" for d in range(kept + len(over)))
    printed = ", ".join(f"affine_map<({dims}) -> ({m})>" for m in maps)
    kinds = ", ".join('"reduction"' if d in over else '"parallel"' for d in range(kept + len(over)))
    result = tensor(f.shape, "f32")
    arguments = ", ".join(f"%a{i}: f32" for i in range(len(inputs)))
    return f.line(
        f"linalg.generic {{indexing_maps = [{printed}], iterator_types = [{kinds}]}}"
        f" ins({', '.join(v for v, _ in inputs)} : {', '.join(k for _, k in inputs)})"
        f" outs({init} : {result}) {{\n  ^bb0({arguments}, %o: f32):\n    %m = arith.{kind}imumf %a0, %o : f32\n"
        f"    linalg.yield %m : f32\n  }} -> {result}"
    )


def reduced(f: Function, y: str, kind: str, over: tuple[int, ...]) -> str:
    kept = [d for d in range(4) if d not in over]
    f.shape = tuple(OUT[d] for d in kept)
    init = filled(f, f.shape, -np.inf if kind == "max" else np.inf)  # type: ignore[arg-type]
    maps = ("d0, d1, d2, d3", ", ".join(f"d{d}" for d in kept))
    return combined(f, [(y, tensor(OUT, "f32"))], init, maps, len(kept), kind, over)


ALL = [
    Layer("relu"),
    Layer("unpadded", pad=None, kernel=2),
    Layer("no_relu", before=(BIAS,)),
    Layer("bare", before=()),
    Layer("relu6", before=(RELU6,), scale=0.03, zero=-128),
    Layer("relu_behind", before=(BIAS,), behind=(RELU,)),
    Layer("steps_behind", before=(BIAS,), behind=(SCALED, SHIFTED, RELU6)),
    Layer("pads_of_zero", before=(BIAS,), pad=(1, 0.0)),
    Layer("least_float", pad=(1, float(np.finfo(np.float32).min))),
    Layer("windows_of_padding", pad=(4, -np.inf), kernel=2),
    Layer("clamped_windows_of_padding", pad=(4, -np.inf), kernel=2, before=(), behind=(RELU,)),
    Layer("turned_before", before=(BIAS, NEGATED)),
    Layer("per_tensor", weight=(0.025, 0)),
    Layer("asymmetric", weight=((0.02, 0.03, 0.011, 0.04), (5, -3, 0, 7))),
    Layer("unsigned", scale=0.02, zero=0, ends=(0, 255)),
    Layer("narrow", pad=(4, -np.inf), kernel=2, zero=0, ends=(-127, 127)),
    Layer("ties", weight=(0.5, 0), before=(), scale=0.0625, zero=1),
    Layer("least", kind="min", pad=(1, np.inf)),
    Layer("least_of_padding", kind="min", pad=(4, np.inf), kernel=2, ends=(-127, 126)),
    Layer("over_rows", over=(2, 3)),
    Layer("over_channels", over=(1,), before=(BIAS,)),
    Layer("least_over_all", over=(0, 2, 3), kind="min", behind=(SHIFTED,)),
]  # fmt: skip
#: What windows of nothing but padding are: the least integer, or that of the clamp behind; for a minimum the greatest.
NEUTRAL = {"clamped_windows_of_padding": -5, "unsigned": 0, "narrow": -127, "least": 127, "least_of_padding": 126}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "linalg": ("linalg", {}),
    "iree-cpu": ("iree-cpu", {}),
    "integer-only": ("integer-only", {}),
    "half-even": ("linalg", {"epilogue": "fixed-point", "scaling": "half-even"}),
}


@cache
def found(way: str) -> dict[str, list[list[Any]]]:
    """Results of the fused layers and of their twins, compiled together."""
    target, options = WAYS[way]
    functions: list[Function] = []
    for layer in ALL:
        function, twin = layer.function, layer.twin.function
        twin.inputs = function.inputs  # type: ignore[method-assign]
        functions += [function, twin]
    return run({f.name: fused(f, target, **options)[0] for f in functions}, functions)


@cache
def floats() -> dict[str, list[list[Any]]]:
    functions = [layer.function for layer in ALL]
    return run({f.name: parse(f) for f in functions}, functions)


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
@pytest.mark.parametrize("way", WAYS)
def test_fires(layer: Layer, way: str) -> None:
    target, options = WAYS[way]
    module, report = fused(layer.function, target, **options)
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.convolution", "qfuse.maximum", "qfuse.requantize"]
    entry = report.applied[1]
    assert [entry[key] for key in ("exactness", "result")] == [
        report.applied[2][key] for key in ("exactness", "result")
    ]
    assert report.summary["integer_ops"] == report.summary["quantized_compute_ops"] == 2
    text = str(module)
    assert "linalg.pooling" not in text
    unsigned_storage = layer.ends[0] == 0
    assert f"arith.{layer.kind}{'ui' if unsigned_storage else 'si'}" in text
    if way in ("integer-only", "half-even"):
        assert "arith.maximumf" not in text
        assert "arith.minimumf" not in text


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_maximum_of_what_the_quantize_gives(layer: Layer, way: str) -> None:
    """Exactly; and within a step of the float module, on random and extreme inputs and on ties."""
    results, before = found(way), floats()
    pairs = zip(results[layer.name], results[layer.twin.name], before[layer.name], strict=True)
    for (got,), (stored,), (real,) in pairs:
        assert np.array_equal(
            got, layer.expected(unsigned(stored, layer), NEUTRAL.get(layer.name, -128)).astype(got.dtype)
        )
        off = unsigned(got, layer).astype(np.int64) - unsigned(real, layer)
        assert np.abs(off).max() <= 1


def unsigned(stored: Array, layer: Layer) -> Array:
    return stored.view(np.uint8) if layer.ends[0] == 0 else stored


# -- refusals ----------------------------------------------------------------------------------------------------


def as_without(f: Function, **options: Any) -> list[tuple[str, str]]:
    """The missed entries; the module is what it is where the fusion is disabled."""
    module, report = fused(f, **options)
    other, _ = fused(f, disable=["qfuse.maximum"], **options)
    assert str(module) == str(other)
    assert "qfuse.maximum" not in [e["fusion"] for e in report.applied]
    return [(e["op"], e["reason"]) for e in report.missed]


SEVERAL = "several operations read the result, so that it would be taken of integers and of floats"
POOL = "linalg.pooling_nchw_max"


def test_no_fuse_of_a_pooling_that_others_read_as_a_float() -> None:
    f, x = Layer("float_reader").started()
    f.returns(f.quantize(x), x)
    f.returned[1] = (x, tensor(f.shape, "f32"))
    assert as_without(f) == [(POOL, SEVERAL)]


def test_no_fuse_of_a_pooling_that_two_quantizes_read() -> None:
    f, x = Layer("two_quantizes").started()
    assert as_without(f.returns(f.quantize(x, 0.1), f.quantize(x, 0.2))) == [(POOL, SEVERAL)]


def test_no_fuse_when_what_follows_is_read_as_a_float() -> None:
    f, x = Layer("float_reader_behind").started()
    relu = f.unary(x, RELU)
    f.returns(f.quantize(relu), relu)
    f.returned[1] = (relu, tensor(f.shape, "f32"))
    assert (POOL, SEVERAL) in as_without(f)


def test_no_fuse_without_a_quantize() -> None:
    f, x = Layer("no_quantize").started()
    f.returns(x, element="f32")
    assert as_without(f) == [(POOL, "no quantize reads its result")]


TURNED = {
    "a negation": NEGATED,
    "a product with -2": "    %c = arith.constant -2.0 : f32\n    %y = arith.mulf %a, %c : f32",
    "a product with 0": "    %c = arith.constant 0.0 : f32\n    %y = arith.mulf %a, %c : f32",
    "a division by -4": "    %c = arith.constant -4.0 : f32\n    %y = arith.divf %a, %c : f32",
}


@pytest.mark.parametrize("finding", TURNED)
def test_no_fuse_when_the_order_is_turned_behind(finding: str) -> None:
    layer = Layer("turned", behind=(TURNED[finding],))
    reason = f"what follows a maximum must keep the order of numbers, found {finding}"
    assert (POOL, reason) in as_without(layer.function)


def test_no_fuse_when_the_difference_is_turned_behind() -> None:
    layer = Layer("rest", behind=("    %c = arith.constant 1.0 : f32\n    %y = arith.subf %c, %a : f32",))
    reason = "what follows a maximum must keep the order of numbers, found a negation"
    assert (POOL, reason) in as_without(layer.function)


def test_no_fuse_when_a_factor_is_known_at_run_time_only() -> None:
    f, x = Layer("run_time_factor").started()
    factor = f.argument("f32", ())
    shape = f.shape
    body = "    %y = arith.mulf %a, %b : f32"
    y = f.elementwise([(x, shape, "f32", "d0, d1, d2, d3"), (factor, (), "f32", "")], body)
    reason = "what follows a maximum must keep the order of numbers, found a product with a number that is known at run"
    reason += " time only"
    assert (POOL, reason) in as_without(f.returns(f.quantize(y)))


def test_no_fuse_when_the_clamp_that_padding_becomes_is_known_at_run_time_only() -> None:
    f, x = Layer("run_time_clamp").started()
    bound = f.argument("f32", ())
    body = "    %y = arith.maximumf %a, %b : f32"
    y = f.elementwise([(x, f.shape, "f32", "d0, d1, d2, d3"), (bound, (), "f32", "")], body)
    missed = as_without(f.returns(f.quantize(y)))
    assert "the integer that a maximum or minimum starts from is known at run time only" in [r for _, r in missed]


@pytest.mark.parametrize("number", [-1.0, 2.5, np.inf])
def test_no_fuse_of_other_padding(number: float) -> None:
    layer = Layer("padding", pad=(1, number))
    assert as_without(layer.function)[0] == (POOL, f"padding must be the neutral infinity or 0, found {number:g}")


def test_no_fuse_when_it_starts_from_a_number() -> None:
    f, x = replace(Layer("starts"), pooled=False).started()
    f.shape = (1, 4, 3, 3)
    y = pooling(f, x, OUT, "max", 2, start=1.5)
    reason = "the reduction does not start from the neutral infinity"
    assert as_without(f.returns(f.quantize(y))) == [(POOL, reason)]


def test_a_quantize_with_several_readers_and_a_shared_dequantize() -> None:
    """The quantized maximum is read twice; the dequantized input by two convolutions."""
    f = Function("shared", OUT)
    x = f.dequantize(f.argument("i8", IN), 0.0625, 3, shape=IN)
    w = f.dequantize(f.argument("i8", (4, 3, 3, 3)), 0.02, 0, shape=(4, 3, 3, 3))
    pooled: list[str] = []
    for _ in range(2):
        f.shape = OUT
        y = convolution(f, x, w)
        f.shape = (1, 4, 3, 3)
        pooled.append(f.quantize(pooling(f, y, OUT, "max", 2)))
    module, report = fused(f.returns(pooled[0], pooled[0], pooled[1]))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied].count("qfuse.maximum") == 2
    before, after = run({f.name: parse(f)}, [f])[f.name], run({f.name: module}, [f])[f.name]
    for wanted, got in zip(before, after, strict=True):
        assert np.array_equal(got[0], got[1])
        assert all(np.abs(w.astype(np.int64) - g).max() <= 1 for w, g in zip(wanted, got, strict=True))


def test_the_float_value_before_is_read_too() -> None:
    """The convolution's own value stays a float for another reader, the maximum is one of integers."""
    layer = Layer("before")
    f, x = layer.started()
    (relu,) = [line.split(" = ")[0] for line in f.lines if RELU.splitlines()[1] in line]
    f.returns(f.quantize(x), relu)
    f.returned[1] = (relu, tensor(OUT, "f32"))
    module, report = fused(f)
    assert "qfuse.maximum" in [e["fusion"] for e in report.applied]
    before, after = run({f.name: parse(f)}, [f])[f.name], run({f.name: module}, [f])[f.name]
    for wanted, got in zip(before, after, strict=True):
        assert np.abs(wanted[0].astype(np.int64) - got[0]).max() <= 1
        assert np.allclose(wanted[1], got[1], rtol=1e-5, atol=1e-4)


# -- with others -------------------------------------------------------------------------------------------------


def of_rows(f: Function, x: str, rows: int | None) -> str:
    """The greatest of each row."""
    f.shape = (rows,)
    kind = tensor(f.shape, "f32")
    start = f.line("arith.constant 0xFF800000 : f32")
    init = f.line(f"linalg.fill ins({start} : f32) outs({f.empty(f.shape, 'f32')} : {kind}) -> {kind}")
    return combined(f, [(x, tensor((rows, 6), "f32"))], init, ("d0, d1", "d0"), 1, "max", (1,))


def multiplied(f: Function, rows: int | None, scale: float = 0.02) -> str:
    """A dequantized argument times six columns of run-time weights."""
    shape = (rows, 6)
    f.shape = shape
    x = f.dequantize(f.argument("i8", shape), 0.05, 3, shape=shape)
    w = f.dequantize(f.argument("i8", (6, 6)), scale, -4, shape=(6, 6))
    kind = tensor(shape, "f32")
    zero = f.line("arith.constant 0.0 : f32")
    init = f.line(f"linalg.fill ins({zero} : f32) outs({f.empty(shape, 'f32')} : {kind}) -> {kind}")
    return f.line(f"linalg.matmul ins({x}, {w} : {kind}, tensor<6x6xf32>) outs({init} : {kind}) -> {kind}")


def is_within_a_step(f: Function, module: Any) -> bool:
    before, after = run({f.name: parse(f)}, [f])[f.name], run({f.name: module}, [f])[f.name]
    pairs = [(w, g) for wanted, got in zip(before, after, strict=True) for w, g in zip(wanted, got, strict=True)]
    return all(np.abs(w.astype(np.int64) - g).max() <= 1 for w, g in pairs)


@pytest.mark.parametrize("rows", [4, None])
@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_product(rows: int | None, way: str) -> None:
    """Also of a number that is known at run time only."""
    f = Function(f"rows_{rows}")
    y = of_rows(f, multiplied(f, rows), rows)
    f.returns(f.quantize(y))
    target, options = WAYS[way]
    module, report = fused(f, target, **options)
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "qfuse.maximum", "qfuse.requantize"]
    assert is_within_a_step(f, module)


def test_branches_of_a_concat() -> None:
    f = Function("branches")
    parts = [of_rows(f, multiplied(f, 4, scale), 4) for scale in (0.02, 0.007)]
    joined = f.line(f"tensor.concat dim(0) {', '.join(parts)} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>")
    f.shape = (8,)
    module, report = fused(f.returns(f.quantize(joined)))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied].count("qfuse.maximum") == 2
    assert is_within_a_step(f, module)


def test_maxima_of_maxima() -> None:
    """Windows, then what is left of each channel."""
    f, x = Layer("twice", pad=None, kernel=2).started()
    shape, f.shape = f.shape, (1, 4)
    init = filled(f, (1, 4), -np.inf)
    y = combined(f, [(x, tensor(shape, "f32"))], init, ("d0, d1, d2, d3", "d0, d1"), 2, "max", (2, 3))
    module, report = fused(f.returns(f.quantize(y)))
    assert report.missed == []
    assert [e["fusion"] for e in report.applied].count("qfuse.maximum") == 2
    assert is_within_a_step(f, module)


def test_a_maximum_behind_a_kernel() -> None:
    """A vendor's kernel makes the integers, of which the maximum is taken."""
    values = (
        "lhs_zero_point",
        "rhs_zero_point",
        "multiplier",
        "shift",
        "result_zero_point",
        "result_min",
        "result_max",
    )
    call = KernelCall("acme_product", (V("lhs", "mk"), V("rhs", "kn"), *map(V, values)), "mn")
    kernel = KernelFusion(id="acme.product", call=call, doc="product and requantize -> acme_product")
    f = Function("kernel")
    f.returns(f.quantize(of_rows(f, multiplied(f, 4), 4)))
    module = parse(f)
    report = qfuse.fuse(module, registry=qfuse.FusionRegistry.discover().with_(kernel, owner="acme"))
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "qfuse.maximum", "acme.product"]
    text = str(module)
    assert text.index("call @acme_product") < text.index("arith.maxsi")
    assert module.operation.verify()


SLOW = replace(NORMAL, name="slow", throughput={**THROUGHPUT, "s8xs8": 1e6})


@pytest.mark.parametrize("machine", [NORMAL, SLOW], ids=lambda m: m.name)
def test_costs(machine: qfuse.Target) -> None:
    """Where integers are slow neither the convolution nor the maximum behind it is one of integers."""
    module = parse(Layer("priced").function)
    report = qfuse.fuse(module, machine, policy="profitable")
    assert [e["unknown"] for e in report.cost] == [None]
    assert ("qfuse.maximum" in [e["fusion"] for e in report.applied]) == (machine is NORMAL)
    assert ("linalg.pooling_nchw_max" in str(module)) == (machine is SLOW)


@pytest.mark.parametrize("storage", ["s8", "u8"])
def test_limits_of_a_target(storage: str) -> None:
    """The input of the maximum is what the quantize gives."""
    limits = {"maximum": qfuse.Limits(operands={"input": qfuse.OperandLimits(storage={storage})})}
    target = qfuse.Target("limited", limits=limits)
    module = parse(Layer("limited").function)
    report = qfuse.fuse(module, target)
    if storage == "s8":
        assert report.missed == []
        return
    reason = "target limited takes storage u8, input is s8 (field maximum.input.storage)"
    assert [(e["op"], e["reason"]) for e in report.missed] == [(POOL, reason), ("linalg.generic", reason)]
    assert [e["fusion"] for e in report.applied] == ["qfuse.convolution"]
    assert POOL in str(module)


def test_two_quantizes_of_equal_parameters_are_two() -> None:
    f, x = Layer("two_alike").started()
    assert as_without(f.returns(f.quantize(x), f.quantize(x))) == [(POOL, SEVERAL)]
