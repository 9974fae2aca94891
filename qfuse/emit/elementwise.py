"""Elementwise expressions from stored integers to stored integers, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse._builder import Body
from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.expression import Inputs, resolved, write
from qfuse.emit.rounding import clamp, round_in_float, round_to_integer
from qfuse.graph import Array
from qfuse.indexing import Extents, affine_map, as_dim, identity
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Quantize
from qfuse.matchers.rounding import MAGIC_LIMIT
from qfuse.matchers.scalar import Scalar


@dataclass(eq=False)
class PlannedElementwise:
    """An expression of stored integers that is quantized.

    Attributes:
        node: the quantize at its end.
        scalar: the stored result, over `extents`; see `qfuse.emit.expression` for its leaves.
        extents: of the operation to build.
        moves: layout operations that follow on the integers.
    """

    node: Quantize
    scalar: Scalar
    extents: Extents
    moves: tuple[Layout, ...] = ()


@dataclass(frozen=True)
class Between:
    """Straight lines between the points of a table.

    Attributes:
        low: the integer of the first point.
        signed: whether stored integers are sign-extended.
        spacing: log2 of how many integers there are to the next point.
        fraction: bits of the entries below a step of the result.
    """

    low: int
    signed: bool
    spacing: int
    fraction: int

    def apply(self, table: Array, values: Array) -> Array:
        """Results before the clamp, as the operation computes them."""
        offset = values.astype(np.int64) - self.low
        place, part = offset >> self.spacing, offset & ((1 << self.spacing) - 1)
        first, second = table.astype(np.int64)[place], table.astype(np.int64)[place + 1]
        shift = self.spacing + self.fraction
        return ((first << self.spacing) + (second - first) * part + (1 << (shift - 1))) >> shift


@dataclass(frozen=True, eq=False)
class Points:
    """Tables of 513 points of i16 that the machine reads with straight lines between them; see `qfuse.fusions.points`.

    Attributes:
        offset: how much less the stored integers are looked up.
        result_offset: how much less the results are.
        spread: by how many bits they are moved up before.
        tables: one, or one of whole results and one of what is left of them in 2^-8; of 2^n equal ranges of integers
            each, a row a range.
        shift: by how many bits what was read is moved down, and rounded half up.
    """

    offset: int
    result_offset: int
    spread: int
    tables: tuple[Array, ...]
    shift: int

    @property
    def finer(self) -> int:
        """Log2 of how many ranges there are."""
        return self.tables[0].shape[0].bit_length() - 1

    @property
    def entries(self) -> int:
        """How many points there are, those between two ranges once."""
        return 512 * self.tables[0].shape[0] + 1

    def apply(self, values: Array) -> Array:
        """Results less their offset for integers less theirs, before the clamp, as the operations compute them."""
        place = (values.astype(np.int64) << self.spread) + (1 << 15)
        row, place = place >> (16 - self.finer), (place << self.finer) & 65535
        index, part = place >> 7, place & 127
        held = [t.astype(np.int64) for t in self.tables]
        lines = [(t[row, index] << 7) + (t[row, index + 1] - t[row, index]) * part for t in held]
        line = lines[0] if len(lines) == 1 else (lines[0] << 8) + lines[1]
        return (line + (1 << (self.shift - 1))) >> self.shift


@dataclass(eq=False)
class PlannedLookup:
    """A function of one stored integer as a table.

    Attributes:
        node: the quantize at its end.
        stored: the integer that is looked up, a leaf over `extents`.
        table: results by the bits of the stored integer, read as unsigned.
        extents: of the operation to build.
        moves: layout operations that follow on the integers.
        between: how to read between the points of a table that has fewer than one for each integer, or None.
        points: tables that the machine itself reads between, or None.
    """

    node: Quantize
    stored: Scalar
    table: Array
    extents: Extents
    moves: tuple[Layout, ...] = ()
    between: Between | None = None
    points: Points | None = None


@dataclass(eq=False)
class Rounded:
    """The parts of `clamp(round(scaled) + zero_point)` in f32.

    Attributes:
        scaled: what is rounded.
        zero_point: what is added to it afterwards, or None.
        known_zero: its value where it is one constant (0 where nothing is added), or None.
    """

    scaled: Scalar
    zero_point: Scalar | None
    known_zero: int | None


def split_rounding(scalar: Scalar) -> Rounded | None:
    """The parts of a stored result that is computed in f32, or None."""
    if scalar.op not in ("fptosi", "fptoui") or scalar.args[0].type != "f32":
        return None
    x = scalar.args[0]
    while x.op in ("max", "min"):
        bound = next((a for a in reversed(x.args) if a.op == "const"), None)
        if bound is None:
            return None
        x = x.args[0] if x.args[1] is bound else x.args[1]
    if x.op == "round":
        return Rounded(x.args[0], None, 0)
    if x.op != "add":
        return None
    for rounded, zero in (x.args, x.args[::-1]):
        if rounded.op == "round":
            known = int(zero.payload) if zero.op == "const" else None
            return Rounded(rounded.args[0], zero, known)
    return None


def elementwise(planned: PlannedElementwise, context: BuildContext) -> Value:
    """The expression in one generic; the rounding at its end is spelled as the options ask."""
    scalar = resolved(planned.scalar, planned.extents, context)
    params, options = planned.node.params, context.options
    parts = split_rounding(scalar)
    magic = options.rounding == "magic" and params.storage.bits <= 16
    inputs = Inputs([scalar], len(planned.extents))

    def body(inner: Body, args: Sequence[Value]) -> Value:
        argument = inputs.argument(args)
        if parts is None:
            return write(inner, scalar, argument)
        x = write(inner, parts.scaled, argument)
        low, high, zero = params.quant_min, params.quant_max, parts.known_zero
        if magic and zero is not None and max(abs(low - zero), abs(high - zero)) < MAGIC_LIMIT:
            return round_to_integer(inner, x, low, high, zero, params.storage.mlir)
        x = round_in_float(inner, x) if magic else inner.op("math.roundeven", "f32", x)
        if parts.zero_point is not None and parts.known_zero != 0:
            x = inner.op("arith.addf", "f32", x, write(inner, parts.zero_point, argument))
        return inner.op(f"arith.{scalar.op}", params.storage.mlir, clamp(inner, x, low, high))

    return _generic(planned, inputs, context, body)


def lookup(planned: PlannedLookup, context: BuildContext) -> Value:
    """The table read at the stored integer, in one generic."""
    stored = resolved(planned.stored, planned.extents, context)
    element = planned.node.params.storage.mlir
    table = context.builder.dense_constant(planned.table)
    inputs = Inputs([stored], len(planned.extents))

    def body(inner: Body, args: Sequence[Value]) -> Value:
        if planned.between is not None:
            return _interpolated(inner, args[0], planned, planned.between, table)
        place = inner.op("arith.index_castui", "index", args[0])
        return inner.op("tensor.extract", element, table, place)

    return _generic(planned, inputs, context, body)


def _interpolated(inner: Body, stored: Value, planned: PlannedLookup, between: Between, table: Value) -> Value:
    """`Between.apply` in a body, and the clamp."""

    def op(name: str, *operands: Value) -> Value:
        return inner.op(f"arith.{name}", "i32", *operands)

    def number(value: int) -> Value:
        return inner.constant(f"{value} : i32")

    params = planned.node.params
    spacing, shift = number(between.spacing), between.spacing + between.fraction
    offset = op("subi", op("extsi" if between.signed else "extui", stored), number(between.low))
    place, part = op("shrui", offset, spacing), op("andi", offset, number((1 << between.spacing) - 1))
    ends = [
        inner.op("tensor.extract", "i32", table, inner.op("arith.index_castui", "index", p))
        for p in (place, op("addi", place, number(1)))
    ]
    line = op("addi", op("shli", ends[0], spacing), op("muli", op("subi", ends[1], ends[0]), part))
    x = op("shrsi", op("addi", line, number(1 << (shift - 1))), number(shift))
    x = op("minsi", op("maxsi", x, number(params.quant_min)), number(params.quant_max))
    return x if params.storage.bits == 32 else inner.op("arith.trunci", params.storage.mlir, x)


def _generic(planned: PlannedElementwise | PlannedLookup, inputs: Inputs, context: BuildContext, body: Any) -> Value:
    """One generic over the planned extents, and the layout operations behind it."""
    node, extents = planned.node, planned.extents
    rank, element = len(extents), node.params.storage.mlir
    outs = list(node.op.operands)[-1] if node.op.name.startswith("linalg.") else None
    if outs is not None and outs.type == context.builder.tensor(extents, element):
        init = context.empty_of(outs)
    else:
        init = context.builder.empty(None, extents, element, [_size(d, inputs, context) for d in _dynamic(extents)])
    maps = [*inputs.maps, affine_map(rank, identity(rank))]
    value = context.builder.generic(inputs.values, init, maps, "p" * rank, body)
    for layout in planned.moves:
        value = context.emitter.move(layout, [value], element, None)
    return value


def _dynamic(extents: Extents) -> list[int]:
    return [d for d, n in enumerate(extents) if n is None]


def _size(loop: int, inputs: Inputs, context: BuildContext) -> Value:
    """The extent of a loop, taken from an input that is read along it."""
    for value, index in zip(inputs.values, inputs.indices, strict=True):
        for position, expr in enumerate(index):
            if as_dim(expr) == loop:
                return context.builder.dim(value, position)
    raise AssertionError("an extent of an elementwise operation belongs to no input")
