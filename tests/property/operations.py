"""Operations of whole networks, as torch-mlir spells them, each with its reference in real arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.strategies import Array, Evaluation, Function, Grid, Real, Value, float_literal, round_to, tensor_type


class Network(Function):
    """A function that also has convolutions, pooling, means and activations.

    One evaluation of the reference goes along while it is built, as an observer does when a model is quantized.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        """An empty network."""
        super().__init__(name, seed)
        self.seen = Evaluation({})

    def observed(self, value: Value) -> Real:
        """What a float value is on the inputs that are tried while building."""
        for argument in self.arguments:
            if argument.ssa not in self.seen.inputs:
                self.seen.inputs = {
                    **self.seen.inputs,
                    argument.ssa: argument.sample(np.random.default_rng(5), "random"),
                }
        return self.seen.real(value)

    # -- contractions ------------------------------------------------------------------------------------------

    def conv(
        self, x: Value, w: Value, bias: Value | None, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> Value:
        """A 2-D convolution of `[n, c, h, w]` with `[o, c / groups, kh, kw]`; depthwise if each group is a channel."""
        n, c, *size = x.shape
        o, per_group, *kernel = w.shape
        extents = [(s - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(size, kernel, strict=True)]
        shape = (n, o, *extents)
        init = self._bias_init(shape, bias)
        type_ = _type(shape)
        attributes = f"{{dilations = dense<{dilation}> : vector<2xi64>, strides = dense<{stride}> : vector<2xi64>}}"

        def spelled(name: str, a: Value, b: Value, out: str, out_type: str) -> str:
            result = self.fresh("conv")
            self.line(
                f"{result} = linalg.{name} {attributes} ins({a.ssa}, {b.ssa} : {a.type}, {b.type}) "
                f"outs({out} : {out_type}) -> {out_type}"
            )
            return result

        if groups == 1:
            name = spelled("conv_2d_nchw_fchw", x, w, init, type_)
        elif groups == c == o:
            thin = self.collapse(w, [[0, 1], [2], [3]])
            name = spelled("depthwise_conv_2d_nchw_chw", x, thin, init, type_)
        else:
            split = [[0], [1, 2], [3], [4]]
            inner = self.expand(x, split, (n, groups, c // groups, *size))
            weight = self.expand(w, [[0, 1], [2], [3], [4]], (groups, o // groups, per_group, *kernel))
            grouped = (n, groups, o // groups, *extents)
            out = self.fresh("l")
            self.line(
                f"{out} = tensor.expand_shape {init} {split} output_shape {list(grouped)} "
                f": {type_} into {_type(grouped)}"
            )
            whole = spelled("conv_2d_ngchw_gfchw", inner, weight, out, _type(grouped))
            name = self.fresh("l")
            self.line(f"{name} = tensor.collapse_shape {whole} {split} : {_type(grouped)} into {type_}")

        def evaluate(run: Evaluation) -> Real:
            a, b = run.real(x), run.real(w)
            value = _convolved(a.value, b.value, stride, dilation, groups)
            magnitude = _convolved(_spread(a), _spread(b), stride, dilation, groups)
            if bias is not None:
                added = run.real(bias)
                value = value + added.value.reshape(-1, 1, 1)
                magnitude = magnitude + _spread(added).reshape(-1, 1, 1)
            return Real(value, magnitude)

        return Value(name, "f32", shape, (None,) * 4, evaluate)

    def _bias_init(self, shape: Sequence[int], bias: Value | None) -> str:
        none = (None,) * len(shape)
        if bias is None:
            return self.zeros(shape, none, "f32")
        init = self.empty(shape, none, "f32")
        name = self.fresh("l")
        self.line(
            f"{name} = linalg.broadcast ins({bias.ssa} : {bias.type}) outs({init} : {_type(shape)}) "
            f"dimensions = [0, 2, 3]"
        )
        return name

    # -- pooling -----------------------------------------------------------------------------------------------

    def pool(self, x: Value, kind: str, kernel: int, stride: int) -> Value:
        """`max` or `sum` over windows of `[n, c, h, w]`."""
        n, c, *size = x.shape
        shape = (n, c, *((s - kernel) // stride + 1 for s in size))
        start = self.scalar(float_literal(-np.inf if kind == "max" else 0.0, "f32"))
        init, filled = self.empty(shape, (None,) * 4, "f32"), self.fresh("l")
        self.line(f"{filled} = linalg.fill ins({start} : f32) outs({init} : {_type(shape)}) -> {_type(shape)}")
        window, result = self.empty((kernel, kernel), (None, None), "f32"), self.fresh("pool")
        self.line(
            f"{result} = linalg.pooling_nchw_{kind} {{dilations = dense<1> : vector<2xi64>, "
            f"strides = dense<{stride}> : vector<2xi64>}} ins({x.ssa}, {window} : {x.type}, "
            f"tensor<{kernel}x{kernel}xf32>) outs({filled} : {_type(shape)}) -> {_type(shape)}"
        )

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            over = (-2, -1)
            reduce = np.max if kind == "max" else np.sum
            return Real(
                reduce(_windows(real.value, kernel, kernel, stride, 1), axis=over),
                reduce(_windows(_spread(real), kernel, kernel, stride, 1), axis=over),
            )

        return Value(result, "f32", shape, (None,) * 4, evaluate)

    def mean_sum(self, x: Value, kept: int) -> Value:
        """The sum over all dimensions but the first `kept`."""
        shape = x.shape[:kept]
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        out = (self.zeros(shape, (None,) * kept, "f32"), _type(shape))
        reads = ", ".join(f"d{i}" for i in range(kept))
        name = self.generic(
            [(x.ssa, x.type, f"({dims}) -> ({dims})")], (*out, f"({dims}) -> ({reads})"),
            "p" * kept + "r" * (x.rank - kept), lambda emit, a: emit(f"arith.addf {a[0]}, {a[1]} : f32"),
        )  # fmt: skip
        axes = tuple(range(kept, x.rank))

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            return Real(real.value.sum(axis=axes), _spread(real).sum(axis=axes))

        return Value(name, "f32", shape, (None,) * kept, evaluate)

    def divide_by(self, x: Value, number: float) -> Value:
        """Divided by a scalar constant."""
        constant = self.scalar(float_literal(number, "f32"))

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            return Real(real.value / number, real.magnitude / number)

        return self._elementwise(x, None, lambda emit, a: emit(f"arith.divf {a[0]}, {constant} : f32"), evaluate)

    # -- activations -------------------------------------------------------------------------------------------

    def sigmoid(self, x: Value) -> Value:
        """`1 / (1 + exp(-x))`."""
        one = self.scalar("1.000000e+00 : f32")

        def body(emit: Callable[[str], str], a: Sequence[str]) -> str:
            power = emit(f"math.exp {emit(f'arith.negf {a[0]} : f32')} : f32")
            return emit(f"arith.divf {one}, {emit(f'arith.addf {power}, {one} : f32')} : f32")

        def evaluate(run: Evaluation) -> Real:
            value = 1.0 / (1.0 + np.exp(-np.clip(run.real(x).value, -700, 700)))
            return Real(value, np.ones(()))

        return self._elementwise(x, None, body, evaluate)

    def hardswish(self, x: Value) -> Value:
        """`x * clamp(x + 3, 0, 6) / 6`, an operation a step."""
        three = self.scalar("3.000000e+00 : f32")

        def plus_three(run: Evaluation) -> Real:
            real = run.real(x)
            return Real(real.value + 3.0, real.magnitude + 3.0)

        y = self._elementwise(x, None, lambda emit, a: emit(f"arith.addf {a[0]}, {three} : f32"), plus_three)
        y = self.clamp(self.clamp(y, 0.0, np.inf, "scalars"), -np.inf, 6.0, "scalars")
        return self.divide_by(self.binary("mul", x, y), 6.0)

    def linear_bias(self, x: Value, bias: Value) -> Value:
        """Adds a vector along the last dimension."""
        return self.binary("add", x, bias, [x.rank - 1])

    def lines_of(self, values: Sequence[Value]) -> list[int]:
        """The lines of the text that make values, counted from 1."""
        made = {line.split(" = ")[0].strip(): i for i, line in enumerate(self.text.splitlines(), 1) if " = " in line}
        return [made[v.ssa] for v in values]


def stored_scale(numbers: Array | float) -> Array:
    """Scales as the f32 numbers that the IR holds."""
    return round_to(numbers, "f32")


def _type(shape: Sequence[int]) -> str:
    return tensor_type(shape, (None,) * len(shape), "f32")


def _spread(real: Real) -> Array:
    return np.broadcast_to(real.magnitude, real.value.shape)


def _windows(x: Array, kh: int, kw: int, stride: int, dilation: int) -> Array:
    """All windows of the last two dimensions, as two more."""
    reach = ((kh - 1) * dilation + 1, (kw - 1) * dilation + 1)
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(-2, -1))
    return views[..., ::stride, ::stride, ::dilation, ::dilation]


def _convolved(x: Array, w: Array, stride: int, dilation: int, groups: int) -> Array:
    n, c, *_ = x.shape
    o, per_group, kh, kw = w.shape
    views = _windows(x, kh, kw, stride, dilation)
    views = views.reshape(n, groups, c // groups, *views.shape[2:])
    weight = w.reshape(groups, o // groups, per_group, kh, kw)
    found = np.einsum("ngchwij,gocij->ngohw", views, weight, optimize=True)
    return found.reshape(n, o, *found.shape[3:])


__all__ = ["Grid", "Network", "stored_scale"]
