"""Conversions of scalars between types, the base of every emitter in linalg."""

from __future__ import annotations

from qfuse._builder import Body, Builder
from qfuse._mlir import Value
from qfuse.cost.options import Options


class Casts:
    """Creates operations with a builder, and converts scalars inside them."""

    def __init__(self, builder: Builder, options: Options) -> None:
        """An emitter that creates operations with `builder`."""
        self.builder = builder
        self.options = options

    @staticmethod
    def extend(inner: Body, value: Value, bits: int, signed: bool, wide: str) -> Value:
        """`value` of `bits` bits as `wide`."""
        if bits == int(wide[1:]):
            return value
        return inner.op("arith.extsi" if signed else "arith.extui", wide, value)

    def convert(self, inner: Body | Builder, value: Value, element: str, want: str, signed: bool) -> Value:
        """A scalar of type `element` as `want` (integer or float)."""
        if element == want:
            return value
        from_float, to_float = element.startswith(("f", "bf")), want.startswith(("f", "bf"))
        if from_float and to_float:
            return self.cast_float(inner, value, element, want)
        if from_float:
            return inner.op("arith.fptosi", want, value)
        if element == "index":
            value, element = inner.op("arith.index_cast", "i64", value), "i64"
            if want == "i64":
                return value
        if to_float:
            return inner.op("arith.sitofp" if signed else "arith.uitofp", want, value)
        if int(element[1:]) > int(want[1:]):
            return inner.op("arith.trunci", want, value)
        return inner.op("arith.extsi" if signed else "arith.extui", want, value)

    @staticmethod
    def cast_float(inner: Body | Builder, value: Value, element: str, want: str) -> Value:
        """A float of another width."""
        if element == want:
            return value
        widths = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
        return inner.op("arith.extf" if widths[want] > widths[element] else "arith.truncf", want, value)
