"""TOSA modules as text, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def stored_bytes(shape: Sequence[int], zero: int, seed: int) -> list[Array]:
    """i8 tensors: random, of extremes, small around the zero point (means are often ties), and the least everywhere."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-128, 128, shape).astype(np.int8),
        rng.choice(np.asarray([-128, 127], np.int8), shape),
        (rng.integers(0, 2, shape) + zero).astype(np.int8),
        np.full(shape, -128, np.int8),
    ]


def const(name: str, array: Array, element: str) -> str:
    """A `tosa.const` named `%name`."""
    shape = "x".join(map(str, array.shape))
    type_ = f"tensor<{shape}x{element}>"
    values = array.tolist() if array.size > 1 else array.reshape(-1)[0].item()
    return f'%{name} = "tosa.const"() <{{values = dense<{values}> : {type_}}}> : () -> {type_}'


def rescale(
    mantissa: Sequence[int],
    shift: Sequence[int],
    *,
    element: str = "i32",
    result: str = "i32",
    mode: str = "SINGLE_ROUND",
    zero: int = 0,
    result_zero: int = 0,
    scale32: bool = True,
) -> str:
    """A module with one RESCALE of a vector by a multiplier an element."""
    n, held = len(mantissa), "i32" if scale32 else "i16"
    types = f"(tensor<{n}x{element}>, tensor<{n}x{held}>, tensor<{n}xi8>, tensor<1x{element}>, tensor<1x{result}>)"
    how = (
        "input_unsigned = false, output_unsigned = false, per_channel = true,"
        f" rounding_mode = {mode}, scale32 = {str(scale32).lower()}"
    )
    lines = [
        const("m", np.asarray(mantissa), held),
        const("s", np.asarray(shift), "i8"),
        const("zi", np.asarray([zero]), element),
        const("zo", np.asarray([result_zero]), result),
        f"%r = tosa.rescale %a, %m, %s, %zi, %zo {{{how}}} : {types} -> tensor<{n}x{result}>",
        f"return %r : tensor<{n}x{result}>",
    ]
    body = "\n    ".join(lines)
    return f"module {{\n  func.func @main(%a: tensor<{n}x{element}>) -> tensor<{n}x{result}> {{\n    {body}\n  }}\n}}\n"


class Lines:
    """The body of a function in TOSA, spelled as torch-mlir spells it; methods return names of values."""

    def __init__(self, **arguments: str) -> None:
        """A function with these arguments, by name: `3x4xf32`."""
        self.arguments = {f"%{name}": type_ for name, type_ in arguments.items()}
        self.types = dict(self.arguments)
        self.lines: list[str] = []

    def module(self, *results: str) -> str:
        """The whole module, returning `results`."""
        arguments = ", ".join(f"{name}: tensor<{type_}>" for name, type_ in self.arguments.items())
        types = ", ".join(f"tensor<{self.types[r]}>" for r in results)
        body = "\n    ".join([*self.lines, f"return {', '.join(results)} : {types}"])
        return f"module {{\n  func.func @main({arguments}) -> ({types}) {{\n    {body}\n  }}\n}}\n"

    def const(self, array: Any, element: str) -> str:
        """A constant; a number is one of shape [1]."""
        name = self._new()
        held = np.asarray(array)
        held = (held.reshape(1) if held.ndim == 0 else held).astype(np.float64 if element[0] == "f" else np.int64)
        self.lines.append(const(name[1:], held, element))
        self.types[name] = "x".join(map(str, (*held.shape, element)))
        return name

    def op(self, name: str, operands: Sequence[str], result: str, attributes: str = "") -> str:
        """Any operation."""
        value = self._new()
        types = ", ".join(self._type(o) for o in operands)
        dictionary = f" {{{attributes}}}" if attributes else ""
        self.lines.append(f"{value} = tosa.{name} {', '.join(operands)}{dictionary} : ({types}) -> tensor<{result}>")
        self.types[value] = result
        return value

    def shape(self, value: str) -> list[int]:
        """Extents of a value."""
        return [int(n) for n in self.types[value].split("x")[:-1]]

    def number(self, number: float, like: str, element: str) -> str:
        """A constant of one element and the rank of `like`."""
        return self.const(np.full([1] * len(self.shape(like)), number), element)

    def mul(self, a: str, b: str, result: str) -> str:
        """A product."""
        return self.op("mul", [a, b, self.const(0, "i8")], result)

    def like(self, value: str, element: str) -> str:
        """The type of `value` with another element."""
        return "x".join([*map(str, self.shape(value)), element])

    def round(self, x: str) -> str:
        """Rounding to nearest even as twelve operations."""
        float_, bool_ = self.like(x, "f32"), self.like(x, "i1")
        half, two = self.number(0.5, x, "f32"), self.number(2.0, x, "f32")
        floor = self.op("floor", [x], float_)
        rest = self.op("sub", [x, floor], float_)
        ceil = self.op("ceil", [x], float_)
        halved = self.op("floor", [self.mul(floor, half, float_)], float_)
        even = self.op("equal", [floor, self.mul(halved, two, float_)], bool_)
        tie = self.op("equal", [rest, half], bool_)
        below = self.op("greater", [half, rest], bool_)
        down = self.op("logical_or", [below, self.op("logical_and", [tie, even], bool_)], bool_)
        return self.op("select", [down, floor, ceil], float_)

    def quantize(
        self,
        x: str,
        scale: Any,
        zero: Any = 0,
        low: float = -128,
        high: float = 127,
        element: str = "i8",
        truncated: bool = False,
    ) -> str:
        """The product with the reciprocal, rounding, zero point, clamp and cast (through `trunc` if `truncated`)."""
        float_ = self.types[x]
        value = self.round(self.mul(x, self._parameter(1 / np.float32(scale), x, "f32"), float_))
        if np.any(zero):
            value = self.op("add", [value, self._parameter(zero, x, "f32")], float_)
        bounds = f"max_val = {float(high)} : f32, min_val = {float(low)} : f32"
        value = self.op("clamp", [value], float_, bounds)
        if truncated:
            positive = self.op("greater", [self.number(0.0, x, "f32"), value], self.like(x, "i1"))
            up, down = self.op("ceil", [value], float_), self.op("floor", [value], float_)
            value = self.op("select", [positive, up, down], float_)
        return self.op("cast", [value], self.like(x, element))

    def dequantize(self, q: str, scale: Any, zero: Any = 0) -> str:
        """Cast, subtraction, cast, product; without the first two where the zero point is 0."""
        if np.any(zero):
            wide = q if self.types[q].endswith("i32") else self.op("cast", [q], self.like(q, "i32"))
            q = self.op("sub", [wide, self._parameter(zero, q, "i32")], self.like(q, "i32"))
        value = self.op("cast", [q], self.like(q, "f32"))
        return self.mul(value, self._parameter(np.float32(scale), q, "f32"), self.like(q, "f32"))

    def const_shape(self, extents: Sequence[int]) -> str:
        """The operand of a reshape."""
        name, type_ = self._new(), f"!tosa.shape<{len(extents)}>"
        values = f"dense<{list(extents)}> : tensor<{len(extents)}xindex>"
        self.lines.append(f"{name} = tosa.const_shape {{values = {values}}} : () -> {type_}")
        self.types[name] = type_
        return name

    def conv(self, name: str, x: str, w: str, bias: str, result: str, pad: str) -> str:
        """A convolution with steps of 1 and zero points of 0."""
        zero = self.const(0.0, "f32")
        steps = len(self.shape(x)) - 2
        ones = ", ".join(["1"] * steps)
        dilation = "" if name == "transpose_conv2d" else f"dilation = array<i64: {ones}>, "
        attributes = f"acc_type = f32, {dilation}{pad}, stride = array<i64: {ones}>"
        return self.op(name, [x, w, bias, zero, zero], result, attributes)

    def _parameter(self, number: Any, like: str, element: str) -> str:
        held = np.asarray(number)
        return self.number(held, like, element) if held.ndim == 0 else self.const(held, element)

    def _type(self, value: str) -> str:
        type_ = self.types[value]
        return type_ if type_.startswith("!") else f"tensor<{type_}>"

    def _new(self) -> str:
        return f"%v{len(self.lines)}"
