"""What follows a contraction: bias, activations, requantize, several users, other float types, chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.numerics.harness import (
    IREE_CPU,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
    parameters,
)
from tests.numerics.interpreter import interpret
from tests.strategies import Function, Grid, Value

Batches = Callable[[Mapping[str, Case], Variant | None], Batch]

M, K, N = 6, 16, 8

# Powers of two: every product, sum and quotient is exact, and about every other result is a tie.
X2 = Grid(scale=2.0**-4, zero=-3)
W2 = Grid(scale=2.0**-3)
ROWS2 = Grid(axes=(0,), scale=2.0 ** -(np.arange(N) % 4 + 2.0), zero=np.zeros(N))
HALF = 2.0**-6  # the product of the scales is half a step of this

# Anything else: results are as near to ties as they happen to be.
X = Grid(scale=0.0231, zero=-7)
W = Grid(axes=(0,), scale=0.004 + 0.0011 * np.arange(N), zero=np.zeros(N))
OUT = Grid(scale=0.043, zero=-20)
GROUPS = Grid(axes=(0, 1), group=4, scale=0.004 + 0.0003 * np.arange(4 * N).reshape(N, 4))


def product(f: Function, x: Grid = X, w: Grid = W, expressed: str = "f32") -> Value:
    """`[M, K]` by the transpose of a constant `[N, K]`, dequantized to `expressed`."""
    a, b = (f.dequantize(q, expressed) for q in (f.argument((M, K), x), f.weight((N, K), w)))
    return f.contract(a, f.transpose(b, (1, 0)), "mk,kn->mn", out=expressed)


def case(name: str, make: Callable[[Function], Value | tuple[Value, ...]], **expected: Any) -> Case:
    """A case whose results `make` builds."""
    f = Function(name)
    results = make(f)
    return Case(f.results(*(results if isinstance(results, tuple) else (results,))), **expected)


def exact(name: str, make: Callable[[Function], Value | tuple[Value, ...]], **expected: Any) -> Case:
    """A case whose every step is exact, so that the results must be."""
    return case(name, make, exact=True, **expected)


def bias(f: Function, x: Value, kind: str = "constant", scale: float = HALF / 2) -> Value:
    """Adds a bias: `constant`, `run_time`, `full` (of the whole shape), `full_run_time` or `first` (bias + x)."""
    shape = (M, N) if kind.startswith("full") else (N,)
    if kind.endswith("run_time"):
        values = f.float_argument(shape, lambda rng: rng.integers(-40, 40, shape) * scale)
    else:
        values = f.float_constant(f.rng.integers(-40, 40, shape) * scale)
    return f.binary("add", x, values, None if kind.startswith("full") else [1], swap=kind == "first")


def integer_bias(f: Function, x: Value, grid: Grid) -> Value:
    """Adds an i32 bias that has a dequantize of its own."""
    stored = f.weight((N,), grid, f.rng.integers(-3000, 3000, N))
    return f.binary("add", x, f.dequantize(stored), [1])


STEPS = Grid(scale=HALF, zero=4)

TIES = [
    exact("ties", lambda f: f.quantize(product(f, X2, W2), STEPS)),
    exact("ties_rows", lambda f: f.quantize(product(f, X2, ROWS2), STEPS)),
    exact("ties_bias", lambda f: f.quantize(bias(f, product(f, X2, W2)), STEPS)),
    exact("ties_bias_first", lambda f: f.quantize(bias(f, product(f, X2, W2), "first"), STEPS)),
    exact("ties_bias_run_time", lambda f: f.quantize(bias(f, product(f, X2, W2), "run_time"), STEPS)),
    exact("ties_bias_full", lambda f: f.quantize(bias(f, product(f, X2, W2), "full"), STEPS)),
    exact("ties_bias_full_run_time", lambda f: f.quantize(bias(f, product(f, X2, W2), "full_run_time"), STEPS)),
    exact("ties_relu", lambda f: f.quantize(f.relu(bias(f, product(f, X2, W2))), STEPS)),
    exact("ties_clamp_off_grid", lambda f: f.quantize(f.clamp(product(f, X2, W2), -HALF * 20.5, HALF * 31.5), STEPS)),
    exact("ties_scaled", lambda f: f.quantize(f.scale_by(product(f, X2, W2), 0.5), STEPS)),
    exact("ties_coarse", lambda f: f.quantize(product(f, X2, W2), Grid(scale=2.0**-1, zero=-1))),
    exact("ties_u8", lambda f: f.quantize(product(f, X2, W2), Grid(signed=False, scale=HALF, zero=128))),
    exact("ties_i16", lambda f: f.quantize(product(f, X2, W2), Grid(bits=16, scale=HALF))),
    exact("ties_i4", lambda f: f.quantize(product(f, X2, W2), Grid(scale=2.0**-1, low=-8, high=7))),
    exact("ties_run_time", lambda f: f.quantize(product(f, X2, W2), Grid(scale=HALF, zero=9, run_time="scalar"))),
    exact("ties_extracted", lambda f: f.quantize(product(f, X2, W2), Grid(scale=HALF, zero=9, run_time="extract"))),
    exact("ties_axis", lambda f: f.quantize(
        product(f, X2, W2), Grid(axes=(1,), scale=2.0 ** -(np.arange(N) % 5 + 3.0), zero=np.arange(N) - 3))),
    exact("ties_axis_m", lambda f: f.quantize(
        product(f, X2, W2), Grid(axes=(0,), scale=2.0 ** -(np.arange(M) % 5 + 3.0), zero=np.arange(M) - 3))),
    exact("ties_axis_relu", lambda f: f.quantize(
        f.relu(product(f, X2, W2)), Grid(axes=(1,), scale=2.0 ** -(np.arange(N) % 5 + 3.0), zero=np.arange(N) - 3))),
    exact("ties_axis_run_time", lambda f: f.quantize(
        product(f, X2, W2),
        Grid(axes=(1,), scale=2.0 ** -(np.arange(N) % 5 + 3.0), zero=np.arange(N) - 3, run_time="tensor"))),
    exact("ties_float", lambda f: bias(f, product(f, X2, W2))),
    exact("ties_integer_bias", lambda f: f.quantize(
        integer_bias(f, product(f, X2, W2), Grid(bits=32, scale=2.0**-7)), STEPS)),
]  # fmt: skip

SATURATED = [
    case("saturated", lambda f: f.quantize(product(f), Grid(scale=0.0005, zero=0))),
    case("saturated_u8", lambda f: f.quantize(product(f), Grid(signed=False, scale=0.0005, zero=128))),
    case("zero_lowest", lambda f: f.quantize(bias(f, product(f)), Grid(scale=0.03, zero=-128))),
    case("zero_highest", lambda f: f.quantize(bias(f, product(f)), Grid(scale=0.03, zero=127))),
    case("zero_lowest_u8", lambda f: f.quantize(f.relu(product(f)), Grid(signed=False, scale=0.03, zero=0))),
    case("zero_highest_u8", lambda f: f.quantize(product(f), Grid(signed=False, scale=0.03, zero=255))),
    case("zero_highest_i16", lambda f: f.quantize(product(f), Grid(bits=16, scale=0.0001, zero=32767))),
    case("zero_lowest_i16", lambda f: f.quantize(f.relu(product(f)), Grid(bits=16, scale=0.0001, zero=-32768))),
    case("huge_scale", lambda f: f.quantize(product(f), Grid(scale=1e6, zero=3))),
    case("tiny_scale", lambda f: f.quantize(product(f), Grid(scale=1e-8, zero=3))),
]

ACTIVATIONS = [
    case(f"{name}_{spelling}_{'u8' if not grid.signed else 's8'}",
         lambda f, a=low, b=high, s=spelling, g=grid: f.quantize(f.clamp(bias(f, product(f)), a, b, s), g))
    for name, low, high in (("relu6", 0.0, 6.0), ("hardtanh", -1.0, 1.0), ("narrow", 0.1, 0.2))
    for spelling, grid in (
        ("tensors", Grid(scale=0.0471, zero=-128)), ("scalars", Grid(scale=0.031, zero=-5)),
        ("minmax", Grid(signed=False, scale=0.029, zero=30)),
    )
] + [
    case("relu", lambda f: f.quantize(f.relu(product(f)), OUT)),
    case("relu_bias", lambda f: f.quantize(f.relu(bias(f, product(f), "run_time")), OUT)),
    case("relu_float", lambda f: f.relu(bias(f, product(f)))),
    case("relu6_float", lambda f: f.clamp(product(f), 0.0, 6.0)),
    case("clamp_below_range", lambda f: f.quantize(f.clamp(product(f), -100.0, -90.0, "minmax"), Grid(scale=0.01))),
    case("clamp_above_range", lambda f: f.quantize(f.clamp(product(f), 90.0, 100.0, "minmax"), Grid(scale=0.01))),
    case("clamp_then_scale", lambda f: f.quantize(f.scale_by(f.clamp(product(f), -1.0, 1.0), 1.7), OUT)),
    case("scale_then_clamp", lambda f: f.quantize(f.clamp(f.scale_by(product(f), -0.37), -1.0, 1.0, "scalars"), OUT)),
    case("scale_then_bias", lambda f: f.quantize(bias(f, f.scale_by(product(f), 0.125)), OUT)),
    case("relu_then_bias", lambda f: f.quantize(bias(f, f.relu(product(f))), OUT)),
    case("relu_twice", lambda f: f.quantize(f.relu(f.clamp(product(f), -0.5, 0.7, "minmax")), OUT)),
    case("clamp_run_time_scale", lambda f: f.quantize(
        f.clamp(product(f), 0.0, 6.0), Grid(scale=0.029, zero=-9, run_time="scalar"))),
    case("integer_bias", lambda f: f.quantize(integer_bias(f, product(f), Grid(bits=32, scale=0.0231 * 0.004)), OUT)),
    case("integer_bias_behind", lambda f: f.quantize(
        integer_bias(f, bias(f, product(f, X, GROUPS), "run_time"), Grid(bits=32, scale=0.0001)), OUT)),
    case("integer_bias_rows", lambda f: f.quantize(f.relu(integer_bias(f, product(f), Grid(
        bits=32, axes=(0,), scale=0.0231 * (0.004 + 0.0011 * np.arange(N)), zero=np.zeros(N), zero_type="i32"))), OUT)),
    case("full_mul", lambda f: f.quantize(
        f.binary("mul", product(f), f.float_argument((M, N), lambda rng: rng.normal(size=(M, N)))), OUT)),
    case("sub_from", lambda f: f.quantize(
        f.binary("sub", product(f), f.float_constant(np.linspace(-1, 1, N)), [1], swap=True), OUT)),
]  # fmt: skip


def initial(kind: str) -> Callable[[Function], Value]:
    """A matmul that accumulates into something else than zeros."""

    def make(f: Function) -> Value:
        a, w = f.dequantize(f.argument((M, K), X)), f.dequantize(f.weight((K, N), Grid(scale=0.01)))
        if kind == "constant":
            init = f.float_constant(f.rng.normal(size=(M, N)))
        elif kind == "broadcast":
            init = f.broadcast(f.float_constant(f.rng.normal(size=N)), (M, N), (1,))
        elif kind == "product":
            init = f.matmul(f.dequantize(f.argument((M, 5), X)), f.dequantize(f.weight((5, N), Grid(scale=0.02))))
        else:
            init = f.float_argument((M, N), lambda rng: rng.normal(size=(M, N)))
        y = f.contract(a, w, "mk,kn->mn", init=init)
        return f.quantize(y, OUT) if kind != "float" else y

    return make


INITIAL = [
    case("init_constant", initial("constant")), case("init_argument", initial("argument")),
    case("init_float", initial("float")), case("init_broadcast", initial("broadcast")),
    case("init_product", initial("product"), contractions=2),
]  # fmt: skip


def two_quantizes(f: Function) -> tuple[Value, ...]:
    """One result, two grids."""
    y = bias(f, product(f))
    return f.quantize(y, OUT), f.quantize(f.relu(y), Grid(signed=False, scale=0.02, zero=7))


def quantize_and_float(f: Function) -> tuple[Value, ...]:
    """One result stored and returned in float."""
    y = bias(f, product(f))
    return f.quantize(y, OUT), y


def quantize_and_operation(f: Function) -> tuple[Value, ...]:
    """One result stored and used by a float operation."""
    y = bias(f, product(f))
    return f.quantize(y, OUT), f.exp_like(y)


def shared_dequantize(f: Function) -> tuple[Value, ...]:
    """A dequantize read by two contractions."""
    x = f.dequantize(f.argument((M, K), X))
    ys = [f.matmul(x, f.transpose(f.dequantize(f.weight((N, K), W)), (1, 0))) for _ in range(2)]
    return f.quantize(ys[0], OUT), f.quantize(ys[1], Grid(scale=0.05, zero=3))


def dequantize_returned(f: Function) -> tuple[Value, ...]:
    """A dequantize that is a result as well."""
    x = f.dequantize(f.argument((M, K), X))
    y = f.matmul(x, f.transpose(f.dequantize(f.weight((N, K), W)), (1, 0)))
    return f.quantize(y, OUT), x


def dequantize_used(f: Function) -> tuple[Value, ...]:
    """A dequantize that a float operation reads as well."""
    x = f.dequantize(f.argument((M, K), X))
    y = f.matmul(x, f.transpose(f.dequantize(f.weight((N, K), W)), (1, 0)))
    return f.quantize(y, OUT), f.exp_like(x)


def same_operand(f: Function) -> Value:
    """x by its own transpose."""
    x = f.dequantize(f.argument((M, K), X))
    return f.quantize(f.matmul(x, f.transpose(x, (1, 0))), OUT)


def sum_of_products(f: Function) -> Value:
    """Two products added: one joins the epilogue of the other as a float tensor."""
    return f.quantize(f.binary("add", product(f), product(f, Grid(scale=0.01, zero=4))), OUT)


def two_in_float(f: Function) -> Value:
    """A product of a product: the second stays in float, also when fused again."""
    y = product(f)
    return f.contract(y, f.dequantize(f.weight((N, 5), Grid(scale=0.02))), "mk,kn->mn")


NO_ADD = "no quantize reads its result"
USERS = [
    case("two_quantizes", two_quantizes), case("quantize_and_float", quantize_and_float),
    case("quantize_and_operation", quantize_and_operation),
    case("shared_dequantize", shared_dequantize, contractions=2),
    case("dequantize_returned", dequantize_returned),
    case("dequantize_used", dequantize_used, missed=(NO_ADD,)),
    case("same_operand", same_operand),
    case("sum_of_products", sum_of_products, contractions=2),
    case("two_in_float", two_in_float, missed=("operand 0 (lhs) is not dequantized",)),
]  # fmt: skip


def half(quantized: bool) -> Callable[[Function], Value]:
    """A model in f16: contraction in f32, everything else in f16."""

    def make(f: Function) -> Value:
        x = f.cast(f.dequantize(f.argument((M, K), X), "f16"), "f32")
        w = f.cast(f.transpose(f.dequantize(f.weight((N, K), W), "f16"), (1, 0)), "f32")
        y = f.cast(f.matmul(x, w), "f16")
        y = f.binary("add", y, f.float_constant(f.rng.normal(size=N), "f16"), [1])
        return f.quantize(f.relu(y), OUT) if quantized else y

    return make


def double(quantized: bool, group: int | None = None, w: Grid | None = None) -> Callable[[Function], Value]:
    """A model in f64."""

    def make(f: Function) -> Value:
        grid = w
        if group is not None:
            grid = Grid(axes=(0, 1), group=group, scale=f.rng.uniform(0.004, 0.02, (N, K // group)))
        y = product(f, X, W if grid is None else grid, "f64")
        y = f.binary("add", y, f.float_constant(f.rng.normal(size=N), "f64"), [1])
        return f.quantize(f.relu(y), OUT) if quantized else y

    return make


TYPES = [
    case("f16", half(True)), case("f16_float", half(False)),
    case("f64", double(True)), case("f64_float", double(False)),
    case("f64_tensor_float", double(False, w=Grid(scale=0.0123, zero=5))),
    case("f64_group_float", double(False, 4)), case("f64_group", double(True, 4)),
]  # fmt: skip


def layer(f: Function, x: Value, out: int, grid: Grid, relu: bool = True, scale: float = 2.0**-5) -> Value:
    """A linear with bias, quantized."""
    k = x.shape[-1]
    w = f.transpose(f.dequantize(f.weight((out, k), Grid(scale=scale))), (1, 0))
    y = f.binary("add", f.matmul(x, w), f.float_constant(f.rng.integers(-20, 20, out) * 0.25), [1])
    return f.quantize(f.relu(y) if relu else y, grid)


def three_layers(
    watch: bool, scales: tuple[float, float, float], weight: float
) -> Callable[[Function], tuple[Value, ...]]:
    """Three linears, the stored results in between returned too or not; float in, float out."""

    def make(f: Function) -> tuple[Value, ...]:
        x = f.quantize(
            f.float_argument((M, K), lambda rng: rng.integers(-90, 90, (M, K)) / 16), Grid(scale=2.0**-4, zero=5)
        )
        stored = [x]
        for number, (width, scale) in enumerate(zip((12, 10, 7), scales, strict=True)):
            grid = Grid(signed=False, scale=scale, zero=0) if number == 1 else Grid(scale=scale, zero=-3)
            stored.append(layer(f, f.dequantize(stored[-1]), width, grid, number < 2, weight))
        y = f.dequantize(stored[-1])
        return (*stored, y) if watch else (y,)

    return make


def cancel(kind: str) -> Callable[[Function], Value]:
    """quantize -> dequantize -> layout -> quantize with equal parameters -> dequantize -> linear."""

    def make(f: Function) -> Value:
        q = layer(f, f.dequantize(f.argument((M, K), X2)), 12, STEPS)
        y = f.dequantize(q)
        if kind == "reshape":
            y = f.collapse(f.expand(y, [[0], [1, 2]], (M, 3, 4)), [[0, 1], [2]])
        elif kind == "transpose":
            y = f.transpose(y, (1, 0))
        again = f.dequantize(f.quantize(y, STEPS))
        return layer(f, again, 5, Grid(scale=2.0**-3), relu=False)

    return make


def not_cancelled(f: Function) -> Value:
    """quantize with other parameters stays: the rounding is part of the model."""
    q = layer(f, f.dequantize(f.argument((M, K), X2)), 12, STEPS)
    again = f.dequantize(f.quantize(f.dequantize(q), Grid(scale=HALF * 3)))
    return layer(f, again, 5, Grid(scale=2.0**-3), relu=False)


CHAINS = [
    exact("three_exact", three_layers(False, (2.0**-1, 2.0**-2, 1.0), 2.0**-5), contractions=3),
    case("three_watched", three_layers(True, (0.31, 0.17, 0.93), 0.0213), contractions=3),
    exact("cancel", cancel("none"), contractions=2),
    exact("cancel_reshape", cancel("reshape"), contractions=2),
    exact("cancel_transpose", cancel("transpose"), contractions=2),
]

AXIS_M = {"axes": (0,), "scale": 0.03 + 0.01 * np.arange(M), "zero": np.arange(M) - 3}
FLAT = Grid(axes=(0,), scale=0.02 + 0.001 * np.arange(M * N), zero=np.arange(M * N) % 7 - 3)


def bias_behind(kind: str) -> Callable[[Function], Value]:
    """A layout operation between the contraction and the rest of its epilogue."""

    def make(f: Function) -> Value:
        y = product(f)
        if kind == "expand":
            y = f.expand(y, [[0], [1, 2]], (M, 2, 4))
            return f.quantize(f.relu(f.binary("add", y, f.float_constant(f.rng.normal(size=(M, 2, 4))))), OUT)
        if kind == "transpose":
            y = f.binary("add", f.transpose(y, (1, 0)), f.float_constant(f.rng.normal(size=N)), [0])
            return f.quantize(f.relu(y), Grid(**{**AXIS_M, "axes": (1,)}))
        if kind == "collapse":
            y = f.collapse(y, [[0, 1]])
            return f.quantize(f.binary("add", y, f.float_argument((M * N,), lambda r: r.normal(size=M * N))), OUT)
        y = f.binary("add", f.expand(y, [[0], [1, 2]], (M, 2, 4)), f.float_constant(f.rng.normal(size=4)), [2])
        return f.collapse(f.transpose(y, (1, 0, 2)), [[0, 1], [2]])

    return make


MOVED = [
    *(case(f"{k}_then_bias", bias_behind(k)) for k in ("expand", "transpose", "collapse", "float")),
    case("axis_after_transpose", lambda f: f.quantize(
        f.transpose(product(f), (1, 0)), Grid(**{**AXIS_M, "axes": (1,)}))),
    case("axis_after_collapse", lambda f: f.quantize(f.collapse(product(f), [[0, 1]]), FLAT)),
    case("axis_after_expand", lambda f: f.quantize(
        f.expand(product(f), [[0], [1, 2]], (M, 2, 4)),
        Grid(axes=(2,), scale=0.02 + 0.01 * np.arange(4), zero=np.arange(4)))),
    case("axis_outer_after_expand", lambda f: f.quantize(
        f.expand(product(f), [[0], [1, 2]], (M, 2, 4)),
        Grid(axes=(1,), scale=np.array([0.02, 0.07]), zero=np.arange(2)))),
    case("token_output", lambda f: f.quantize(
        f.expand(product(f), [[0, 1], [2]], (2, 3, N)),
        Grid(axes=(0, 1), scale=0.02 + 0.01 * np.arange(6).reshape(2, 3), zero=np.arange(6).reshape(2, 3)))),
    case("group_output", lambda f: f.quantize(
        product(f), Grid(axes=(0, 1), group=4, scale=0.02 + 0.01 * np.arange(2 * M).reshape(M, 2)))),
]  # fmt: skip

CASES = {c.name: c for c in [*TIES, *SATURATED, *ACTIVATIONS, *INITIAL, *USERS, *TYPES, *CHAINS, *MOVED]}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(CASES))
def test_epilogue(name: str, variant: Variant, batches: Batches) -> None:
    """It fuses and the numbers hold, interpreted."""
    batch = batches(CASES, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)


@pytest.mark.parametrize("name", parameters(CASES))
def test_epilogue_in_iree(name: str, batches: Batches) -> None:
    """The same, compiled."""
    assert_numbers(batches(CASES, IREE_CPU), name)


@pytest.mark.parametrize("name", ["cancel", "cancel_reshape", "cancel_transpose"])
def test_dequantize_then_quantize_disappears(name: str, batches: Batches) -> None:
    """Equal parameters: one requantize a layer is left and no float tensor."""
    fused = batches(CASES, IREE_CPU).fused(name)
    assert sum(e["fusion"] == "qfuse.cancel" for e in fused.report.applied) == 1
    assert sum(e["fusion"] == "qfuse.requantize" for e in fused.report.applied) == 2
    assert "xf32>" not in fused.after.partition("return")[0].replace("tensor<12xf32>", "").replace("tensor<5xf32>", "")


def test_quantize_of_other_parameters_stays() -> None:
    """A second rounding with another scale is kept, and the result is exactly that of two roundings."""
    batch = Batch([exact("not_cancelled", not_cancelled, contractions=2)], IREE_CPU)
    fused = batch.fused("not_cancelled")
    assert not any(e["fusion"] == "qfuse.cancel" for e in fused.report.applied)
    assert_numbers(batch, "not_cancelled")


def folded(kind: str) -> Case:
    """A float weight with its quantize, as prepared models hold it; the stored weight is a result too."""
    f = Function(f"fold_{kind}")
    # Multiples of half a step of the rounded scale: f32 division decides where each tie falls.
    scale = np.float32(0.1) if kind == "tensor" else (0.01 + 0.007 * np.arange(64)).astype(np.float32)
    steps = f.rng.integers(-300, 300, (64, 128)) / 2
    weights = (steps * (scale if kind == "tensor" else scale[:, None])).astype(np.float32)
    weights = np.nextafter(weights, f.rng.choice([-9, 9], weights.shape) * (f.rng.integers(0, 2, weights.shape) + 0.0))
    axes = () if kind == "tensor" else (0,)
    grid = Grid(axes=axes, scale=scale, zero=3 if kind == "tensor" else np.zeros(64), low=-127)
    q = f.quantize(f.float_constant(weights), grid)
    y = f.matmul(f.dequantize(f.argument((2, 128), X)), f.transpose(f.dequantize(q), (1, 0)))
    return Case(f.results(q, y))


@pytest.mark.parametrize("kind", ["tensor", "rows"])
def test_the_quantize_of_a_constant_is_folded_bit_for_bit(kind: str) -> None:
    """The folded weight is what f32 arithmetic gives, also where that is not what real arithmetic gives."""
    case_ = folded(kind)
    unfused, fused = Batch([case_], None).fused(case_.name), Batch([case_], IREE_CPU).fused(case_.name)
    assert any(e["fusion"] == "qfuse.fold-quantize" for e in fused.report.applied)
    assert "math.roundeven" not in fused.after
    (inputs,) = case_.inputs()[:1]
    before, _ = interpret(unfused.module, case_.name, list(inputs.values()))
    after, _ = interpret(fused.module, case_.name, list(inputs.values()))
    np.testing.assert_array_equal(after, before)
