"""Terms of elementwise expressions in integers, and what they start from: stored integers and constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfuse.emit.expression import nodes
from qfuse.emit.spec import PlannedContraction
from qfuse.graph import Array, Environment, Made
from qfuse.indexing import Extents
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import StorageType, over_extents

I64 = "i64"


class NotIntegerError(Exception):
    """An expression has no form in integers.

    Attributes:
        reason: as in a `Refusal`.
        hint: as in a `Refusal`.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        """With its reason."""
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, eq=False)
class Term:
    """`scale * (integer ± error)`.

    Attributes:
        integer: i64 expression over the operation's dimensions.
        scale: f64 array that broadcasts over the dimensions.
        bound: greatest magnitude of the integer.
        error: how far the integer may be from the real value, in its own steps.
    """

    integer: Scalar
    scale: Array
    bound: float
    error: float


def constant_values(scalar: Scalar, extents: Extents, env: Environment) -> Array:
    """The values of an expression without stored integers, as f64 over the dimensions."""
    if any(n.op == "array" for n in nodes(scalar)):
        if scalar.op in ("extf", "truncf"):
            return constant_values(scalar.args[0], extents, env)
        if scalar.op == "array":
            array, index = scalar.payload
            found = over_extents(array, index, extents)
            if found is not None:
                return found.astype(np.float64)
        raise NotIntegerError("a parameter varies in blocks along dynamic extents", "static shapes")
    if scalar.op == "const":
        return np.full((1,) * len(extents), scalar.payload, np.float64)
    if scalar.op == "elem":
        value, index = scalar.payload
        array = env.reader.constants.read(value)
        found = None if array is None else over_extents(array, index, extents)
        if found is not None:
            return found.astype(np.float64)
    array = env.reader.evaluate_over(scalar, extents)
    if array is not None:
        return array.astype(np.float64)
    raise NotIntegerError("it reads a float tensor that is known only at run time", "quantize that tensor")


def stored_term(x: Scalar, signed: bool, rank: int, env: Environment) -> Term:
    """A stored integer, less its zero point."""
    low, high = _range(x, signed, env)
    return Term(_widened(x, signed), np.ones((1,) * rank), float(max(abs(low), abs(high), 1)), 0.0)


def _range(x: Scalar, signed: bool, env: Environment) -> tuple[int, int]:
    if x.op == "stored":
        bits, tensor = int(x.type[1:]), x.payload[0]
        if isinstance(tensor, Made) and isinstance(tensor.decision.payload, PlannedContraction):
            bound = tensor.decision.payload.bound
            return -bound, bound
        return env.stored_range(tensor, StorageType(bits, signed))
    if x.op in ("extsi", "extui"):
        return _range(x.args[0], x.op == "extsi", env)
    if x.op == "subi":
        low, high = _range(x.args[0], True, env)
        zero = x.args[1]
        if zero.op == "const":
            return low - int(zero.payload), high - int(zero.payload)
        if zero.op == "array":
            return low - int(zero.payload[0].max()), high - int(zero.payload[0].min())
        raise NotIntegerError("a zero point is known only at run time", "quantize statically")
    raise NotIntegerError(f"{x.op} of a dequantized value")


def _widened(x: Scalar, signed: bool) -> Scalar:
    """An integer expression of a stored integer in i64."""
    if x.op == "subi":
        return Scalar("subi", I64, (_widened(x.args[0], True), _widened(x.args[1], True)))
    if x.op in ("extsi", "extui"):
        return Scalar(x.op, I64, x.args)
    if x.op == "const":
        return leaf(int(x.payload))
    if x.op == "array":
        return Scalar("array", I64, payload=(x.payload[0].astype(np.int64), x.payload[1]))
    return x if x.type == I64 else Scalar("extsi" if signed else "extui", I64, (x,))


def leaf(value: int) -> Scalar:
    """A constant integer."""
    return Scalar("const", I64, payload=value)
