"""Least and greatest integers that a tensor can hold, from the arithmetic that makes it.

Sums of products of stored integers are bounded by those of the operands, and integer additions, layout moves and clamps
behind them are followed. What is not understood, or could wrap, has the range of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from qfuse._mlir import Bindings, Value
from qfuse.matchers.contraction import loop_extent, summed
from qfuse.matchers.layout import source_index
from qfuse.matchers.nodes import Contraction, Node, Reduction
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.scalar import Scalar
from qfuse.matchers.tosa import match_tosa

Interval: TypeAlias = "tuple[int, int]"
#: What is known of a tensor of so many bits, read as signed or not, or None.
Known: TypeAlias = "Callable[[Value, int, bool], Interval | None]"

#: How many operations are followed.
_DEPTH = 16


def interval_of(value: Value, bits: int, signed: bool, reader: ScalarReader, known: Known) -> Interval:
    """The range of an integer tensor of `bits`, read as signed or unsigned."""
    return _Intervals(reader, known).of_tensor(value, bits, signed, _DEPTH)


def of_type(bits: int, signed: bool) -> Interval:
    """What an integer type holds."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


class _Intervals:
    def __init__(self, reader: ScalarReader, known: Known) -> None:
        self._reader = reader
        self._known = known

    def of_tensor(self, value: Value, bits: int, signed: bool, depth: int) -> Interval:
        found = self._known(value, bits, signed)
        if found is not None:
            return found
        whole = of_type(bits, signed)
        array = self._reader.constants.read(value)
        if array is not None and array.size and array.dtype.kind == "i":
            found = int(array.min()), int(array.max())
            return found if _within(found, whole) else whole
        owner = getattr(value.owner, "operation", None)
        if owner is None or depth == 0:
            return whole
        if source_index(self._reader.bindings, owner) is not None:
            return self.of_tensor(owner.operands[0], bits, signed, depth - 1)
        found = self._made(value, depth - 1)
        return found if found is not None and _within(found, whole) else whole

    def _made(self, value: Value, depth: int) -> Interval | None:
        """The range of what a structured operation computes, or None."""
        reader = self._reader
        owner = value.owner.operation
        if owner.name == "linalg.fill":
            return self._of(reader.outer(owner.operands[0]), True, depth)
        if owner.name.startswith("tosa."):
            found = self._contracted(match_tosa(reader.bindings, owner), depth)
            if found is not None:
                return found
        view = reader.view(owner)
        if view is None:
            return None
        if not view.structure.reduction:
            template = reader.of(value)
            return None if template is None else self._of(template, True, depth)
        body = reader.body(view)
        count = loop_extent(view.extents, view.structure.reduction)
        term = summed(body[0]) if body is not None and len(body) == 1 and len(view.inits) == 1 else None
        if term is None or count is None:
            return None
        low, high = self._of(term, True, depth) or (None, None)
        start = self.of_tensor(view.inits[0], int(term.type[1:]), True, depth)
        if low is None or high is None:
            return None
        return start[0] + min(count * low, 0), start[1] + max(count * high, 0)

    def _contracted(self, node: Node | None, depth: int) -> Interval | None:
        """The range of an integer contraction or sum of TOSA, or None."""
        if not isinstance(node, Contraction | Reduction):
            return None
        count = loop_extent(node.extents, node.reduction)
        bits = _bits(self._reader.bindings, node.result)
        if count is None or bits is None:
            return None
        if isinstance(node, Contraction):
            lhs, rhs = (
                self._factor(v, z) for v, z in zip((node.lhs, node.rhs), list(node.op.operands)[-2:], strict=True)
            )
            start = (0, 0) if node.init is None else self.of_tensor(node.init, bits, True, depth)
            return start[0] - count * lhs * rhs, start[1] + count * lhs * rhs
        if node.kind != "sum" or bits < 32:
            return None
        low, high = self.of_tensor(node.operand, bits, True, depth)
        return count * low, count * high

    def _factor(self, value: Value, zero: Value) -> int:
        """Greatest magnitude of an operand less its zero point, whether bytes are signed or not."""
        bits = _bits(self._reader.bindings, value) or 32
        array, number = self._reader.constants.read(value), self._reader.constants.scalar(zero)
        if array is None or number is None or not array.size:
            return (1 << bits) - 1
        shifted = array.astype(np.int64) - int(number[0])
        return int(np.abs(shifted).max())

    def _of(self, scalar: Scalar, signed: bool, depth: int) -> Interval | None:
        """The range of an expression that is read as signed or unsigned; None where it may wrap or is not known."""
        if not scalar.type.startswith("i") or not scalar.type[1:].isdigit():
            return None
        bits = int(scalar.type[1:])
        found = self._computed(scalar, bits, signed, depth)
        return found if found is not None and _within(found, of_type(bits, signed)) else None

    def _computed(self, scalar: Scalar, bits: int, signed: bool, depth: int) -> Interval | None:
        if scalar.op == "const":
            number = int(scalar.payload)
            return number, number
        if scalar.op == "elem":
            return self.of_tensor(scalar.payload[0], bits, signed, depth)
        if scalar.op in ("extsi", "extui"):
            return self._of(scalar.args[0], scalar.op == "extsi", depth)
        args = [self._of(a, True, depth) for a in scalar.args]
        if len(args) == 1 and scalar.op == "trunci":
            return args[0]
        if len(args) != 2 or args[0] is None or args[1] is None:
            return None
        return _combined(scalar.op, args[0], args[1])


def _bits(bindings: Bindings, value: Value) -> int | None:
    """Width of a tensor's integers, or None where it holds others."""
    element = bindings.element_name(value.type)
    return int(element[1:]) if element[:1] == "i" and element[1:].isdigit() else None


def _combined(op: str, a: Interval, b: Interval) -> Interval | None:
    if op == "addi":
        return a[0] + b[0], a[1] + b[1]
    if op == "subi":
        return a[0] - b[1], a[1] - b[0]
    if op == "muli":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if op in ("maxsi", "minsi"):
        pick = max if op == "maxsi" else min
        return pick(a[0], b[0]), pick(a[1], b[1])
    return None


def _within(found: Interval, whole: Interval) -> bool:
    return whole[0] <= found[0] and found[1] <= whole[1]
