"""Rounds to nearest even by additions: a small float plus 1.5 * 2^23 holds the rounded number in its low bits.

Two forms, both exact. With a zero point that is known, clamping comes first and the integer is taken from the sum:

    trunci(bitcast(clamp(x, low - z, high - z) + M) - (bits of M - z))

With one that is not, the rounding is done in float and leaves large numbers, which are whole, as they are:

    select(|x| < 2^22, (x + M) - M, x)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qfuse._builder import Body
from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.indexing import Index, affine_map, identity
from qfuse.matchers.nodes import Quantize
from qfuse.matchers.rounding import MAGIC, MAGIC_BITS, MAGIC_LIMIT
from qfuse.matchers.scalar import Scalar, leaves

#: What a scaled value may be computed by, and how it is spelled.
SPELLED: Mapping[str, str] = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf", "neg": "arith.negf",
    **{name: f"arith.{name}" for name in ("extf", "truncf", "sitofp", "uitofp", "extsi", "extui", "trunci")},
}  # fmt: skip


@dataclass(eq=False)
class PlannedQuantize:
    """A quantize that stays, to be written as one operation.

    Attributes:
        node: the quantize.
        scaled: what the IR rounds, operation by operation.
        zero_point: what the IR adds to it after rounding, or None.
        known_zero: its value where it is one constant (0 where nothing is added), or None.
    """

    node: Quantize
    scaled: Scalar
    zero_point: Scalar | None
    known_zero: int | None


def clamp(inner: Body, x: Value, low: float, high: float) -> Value:
    """`x` within [low, high] in f32; NaN becomes `low`."""
    x = inner.op("arith.maxnumf", "f32", x, inner.constant(f32(low)))
    return inner.op("arith.minnumf", "f32", x, inner.constant(f32(high)))


def round_to_integer(inner: Body, x: Value, low: int, high: int, zero: int, element: str) -> Value:
    """`clamp(round(x) + zero, low, high)` as an integer of type `element`; see `MAGIC_LIMIT` for the bounds."""
    x = inner.op("arith.addf", "f32", clamp(inner, x, low - zero, high - zero), inner.constant(f32(MAGIC)))
    bits = inner.op("arith.bitcast", "i32", x)
    bits = inner.op("arith.subi", "i32", bits, inner.constant(f"{MAGIC_BITS - zero} : i32"))
    return bits if element == "i32" else inner.op("arith.trunci", element, bits)


def round_in_float(inner: Body, x: Value) -> Value:
    """`round(x)` in f32 for any `x`."""
    magic = inner.constant(f32(MAGIC))
    rounded = inner.op("arith.subf", "f32", inner.op("arith.addf", "f32", x, magic), magic)
    size = inner.op("math.absf", "f32", x)
    is_small = inner.is_less(size, inner.constant(f32(2 * MAGIC_LIMIT)))
    return inner.op("arith.select", "f32", is_small, rounded, x)


def f32(number: float) -> str:
    """A float constant's attribute, bit by bit."""
    return f"0x{int(np.asarray(number, np.float32).view(np.uint32)[()]):08X} : f32"


def respelled(planned: PlannedQuantize, context: BuildContext) -> Value:
    """The quantize as one generic that rounds by additions, in the IR's own arithmetic before that."""
    builder, params = context.builder, planned.node.params
    rank = len(params.extents)
    inputs: dict[tuple[Value, Index], int] = {}
    for scalar in (planned.scaled, planned.zero_point):
        for leaf in [] if scalar is None else leaves(scalar):
            inputs.setdefault(leaf.payload, len(inputs))

    def body(inner: Body, args: Sequence[Value]) -> Value:
        x = _expression(inner, planned.scaled, lambda key: args[inputs[key]])
        if planned.known_zero is not None:
            low, high = params.quant_min, params.quant_max
            return round_to_integer(inner, x, low, high, planned.known_zero, params.storage.mlir)
        x = round_in_float(inner, x)
        if planned.zero_point is not None:
            zero = _expression(inner, planned.zero_point, lambda key: args[inputs[key]])
            x = inner.op("arith.addf", "f32", x, zero)
        x = clamp(inner, x, params.quant_min, params.quant_max)
        return inner.op("arith.fptosi" if params.storage.signed else "arith.fptoui", params.storage.mlir, x)

    maps = [affine_map(rank, index) for index in (*(i for _, i in inputs), identity(rank))]
    init = context.empty_of(planned.node.result)
    return builder.generic([v for v, _ in inputs], init, maps, "p" * rank, body)


def is_spellable(scalar: Scalar) -> bool:
    """Whether `respelled` can write an expression."""
    if scalar.op in ("elem", "ssa"):
        return True
    if scalar.op == "const":
        return scalar.type in ("f32", "f64", "f16") or scalar.type[1:].isdigit()
    return scalar.op in SPELLED and all(is_spellable(a) for a in scalar.args)


def _expression(inner: Body, scalar: Scalar, argument: Callable[[tuple[Value, Index]], Value]) -> Value:
    if scalar.op == "elem":
        return argument(scalar.payload)
    if scalar.op == "ssa":
        return scalar.payload
    if scalar.op == "const":
        return inner.constant(_constant(scalar))
    args = [_expression(inner, a, argument) for a in scalar.args]
    return inner.op(SPELLED[scalar.op], scalar.type, *args)


def _constant(scalar: Scalar) -> str:
    if scalar.type.startswith("i"):
        return f"{int(scalar.payload)} : {scalar.type}"
    bits = int(scalar.type[1:])
    pattern = np.asarray(scalar.payload, f"f{bits // 8}").view(f"u{bits // 8}")[()]
    return f"0x{int(pattern):0{bits // 4}X} : {scalar.type}"
