"""Writes scalar expressions of planning as TOSA operations on whole tensors.

Planned expressions are in i64; their values are proven to fit i32, which is what is written. A stored integer less its
zero point that is rescaled is one RESCALE, and so is a rescaled value that gets a zero point and is narrowed.
"""

from __future__ import annotations

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.expression import nodes
from qfuse.emit.tosa_operand import held_as
from qfuse.emit.tosa_ops import TosaOps, bits_of
from qfuse.emit.tosa_unsigned import as_stored, flip
from qfuse.fixed_point import Multiplier
from qfuse.graph import Array
from qfuse.indexing import Extents, Index, constant
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import StorageType, over_extents

_INTEGER = {"addi": "add", "subi": "sub", "muli": "mul", "maxsi": "maximum", "minsi": "minimum"}
_FLOAT = {"add": "add", "sub": "sub", "mul": "mul", "max": "maximum", "min": "minimum"}
_UNARY = {"exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "rsqrt": "rsqrt", "absf": "abs", "floor": "floor",
          "ceil": "ceil", "sin": "sin", "cos": "cos"}  # fmt: skip
_CASTS = ("extsi", "extui", "trunci", "sitofp", "extf", "truncf")

#: What `write` takes; others are refused when planning.
WRITTEN = frozenset({
    *_INTEGER, *_FLOAT, *_UNARY, *_CASTS, "rescale", "mulshift", "select", "neg", "div", "const", "array", "elem",
    "stored",
})  # fmt: skip


def numbers_of(scalar: Scalar, extents: Extents) -> Array | None:
    """The constant values of a leaf, over dimensions of `extents`, or None."""
    if scalar.op == "const":
        return np.full((1,) * len(extents), scalar.payload)
    if scalar.op == "array":
        array, index = scalar.payload
        return over_extents(array, index, extents)
    return None


class TosaExpression:
    """The tensors of one expression's nodes, over dimensions of `extents`."""

    def __init__(self, ops: TosaOps, extents: Extents, context: BuildContext, unsigned: bool = False) -> None:
        """Writes nothing yet; with `unsigned` bytes are narrowed to unsigned ones."""
        self._unsigned_result = unsigned
        self._ops = ops
        self._rank = len(extents)
        self._extents = extents
        self._context = context
        self._known: dict[int, Value] = {}

    def result(self, scalar: Scalar) -> Value:
        """The expression as a tensor of the whole shape."""
        return self._ops.tiled(self.value(scalar), [n or 0 for n in self._extents])

    def value(self, scalar: Scalar) -> Value:
        """The expression as a tensor, extent 1 where it does not vary."""
        found = self._known.get(id(scalar))
        if found is None:
            found = self._known[id(scalar)] = self._write(scalar)
        return found

    def _write(self, scalar: Scalar) -> Value:
        element = _element(scalar.type)
        numbers = numbers_of(scalar, self._extents)
        if numbers is not None:
            held = numbers if element[0] == "f" else np.clip(numbers, -(1 << 31), (1 << 31) - 1)
            return self._ops.constant(held, element)
        if scalar.op == "stored":
            tensor, index = scalar.payload
            return self._read(self._context.q(tensor), index)
        if scalar.op == "elem":
            tensor, index = scalar.payload
            return self._read(self._ops.computed(tensor), index)
        if scalar.op == "rescale":
            return self._rescale(scalar)
        if scalar.op == "trunci":
            return self._narrowed(scalar)
        if scalar.op == "mulshift":
            shift = self._ops.constant(np.asarray([scalar.args[2].payload]), "i8")
            return self._ops.elementwise("tosa.mul", [self.value(a) for a in scalar.args[:2]], "i32", extra=[shift])
        return self._operation(scalar, element)

    def _read(self, value: Value, index: Index) -> Value:
        value, index = _at_places(self._ops, value, index)
        value, index = self._context.regrouped(value, index, self._extents)
        return self._ops.aligned(value, index, self._rank)

    def _operation(self, scalar: Scalar, element: str) -> Value:
        ops = self._ops
        if scalar.op == "extui":
            return self._unsigned(scalar.args[0])
        args = [self.value(a) for a in scalar.args]
        if scalar.op in _CASTS:
            return ops.cast(args[0], element)
        name = _INTEGER.get(scalar.op) or _FLOAT.get(scalar.op)
        if name is not None:
            return ops.binary(name, *args)
        if scalar.op == "select":
            return ops.elementwise("tosa.select", args, element)
        if scalar.op == "neg":
            return ops.binary("sub", ops.number(0.0, self._rank, element), args[0])
        if scalar.op == "div":
            return ops.binary("mul", args[0], ops.elementwise("tosa.reciprocal", [args[1]], element))
        return ops.elementwise(f"tosa.{_UNARY[scalar.op]}", args, element)

    def _unsigned(self, stored: Scalar) -> Value:
        """Unsigned bytes as i32."""
        shifted = self._ops.cast(flip(self._ops, self.value(stored)), "i32")
        return self._ops.binary("add", shifted, self._ops.number(128, self._rank, "i32"))

    # -- RESCALE -----------------------------------------------------------------------------------------------

    def _rescale(self, scalar: Scalar, element: str = "i32", zero: int = 0) -> Value:
        """A rescale to `element`, with a zero point of the result."""
        rounding, bits = scalar.payload
        mantissa, shift = (numbers_of(a, self._extents) for a in scalar.args[1:])
        assert mantissa is not None
        assert shift is not None
        multiplier = Multiplier(mantissa.astype(np.int64), shift.astype(np.int64), bits)
        source, own_zero = self._stored(scalar.args[0])
        return self._ops.rescale(source, multiplier, rounding, element, own_zero, zero)

    def _stored(self, scalar: Scalar) -> tuple[Value, int]:
        """Signed bytes and their zero point, where an expression is these; else its value and 0."""
        inner, zero = scalar, 0
        if inner.op == "subi" and inner.args[1].op == "const":
            inner, zero = inner.args[0], int(inner.args[1].payload)
        if inner.op == "extui" and inner.args[0].op == "stored" and 0 <= zero <= 255:
            return flip(self._ops, self.value(inner.args[0])), zero - 128
        if inner.op == "extsi" and inner.args[0].op == "stored" and inner.args[0].type == "i8" and -128 <= zero <= 127:
            return self.value(inner.args[0]), zero
        return self.value(scalar), 0

    def _narrowed(self, scalar: Scalar) -> Value:
        """`trunci(clamp(x + zero point))`, whose clamp is within the type."""
        ops, element = self._ops, _element(scalar.type)
        unsigned = self._unsigned_result and element == "i8"
        x, low, high = scalar.args[0], *((0, 255) if unsigned else _range(element))
        while x.op in ("maxsi", "minsi") and x.args[1].op == "const":
            bound = int(x.args[1].payload)
            low, high = (max(low, bound), high) if x.op == "maxsi" else (low, min(high, bound))
            x = x.args[0]
        inner, zero = x, 0
        if x.op == "addi" and x.args[1].op == "const":
            inner, zero = x.args[0], int(x.args[1].payload)
        storage = StorageType(bits_of(element), not unsigned)
        found = held_as(storage, low, high)
        held, offset = (storage, 0) if found is None else found
        zero, low, high = zero - offset, low - offset, high - offset
        if inner.op == "rescale" and (held.min <= zero <= held.max if held.bits == 8 else zero == 0):
            result = ops.clamp(self._rescale(inner, held.mlir, zero), low, high)
            return as_stored(ops, result, storage, offset)
        value = ops.plus(self.value(x), -offset)
        return as_stored(ops, ops.cast(ops.clamp(value, low, high), held.mlir), storage, offset)


def _at_places(ops: TosaOps, value: Value, index: Index) -> tuple[Value, Index]:
    """A tensor that is read at constant places of dimensions as a slice of it, and where that is read."""
    shape = ops.shape(value)
    fixed = [not e.terms and n != 1 for e, n in zip(index, shape, strict=True)]
    if not any(fixed):
        return value, index
    starts = [e.const if f else 0 for e, f in zip(index, fixed, strict=True)]
    sizes = [1 if f else n for f, n in zip(fixed, shape, strict=True)]
    return ops.sliced(value, starts, sizes), tuple(constant(0) if f else e for e, f in zip(index, fixed, strict=True))


def _range(element: str) -> tuple[int, int]:
    half = 1 << (int(element[1:]) - 1)
    return -half, half - 1


def _element(type_: str) -> str:
    return "i32" if type_ == "i64" else type_


def reads_float(scalar: Scalar) -> bool:
    """Whether an expression computes in floats."""
    return any(n.type.startswith(("f", "bf")) for n in nodes(scalar))
