"""Writes scalar expressions into the body of an operation.

Besides the leaves of `qfuse.matchers.scalar` an expression may hold two that only planning makes: `stored` (payload:
(`QValue`, index), one element of an integer tensor that may still have to be made) and `array` (payload: (constant
values, index)); `resolved` turns both into elements of SSA values. The operation `rescale` (payload: (rounding, bits))
multiplies an i64 by a mantissa and a shift, see `qfuse.fixed_point`; `mulshift` (payload: rounding) multiplies two and
divides by a power of two, whose exponent is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from qfuse._builder import Body
from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.fixed_point import FixedPoint
from qfuse.graph import Array, QValue
from qfuse.indexing import Extents, Index, affine_map
from qfuse.matchers.scalar import Scalar

#: How operations are spelled. Others cannot be repeated.
SPELLED: Mapping[str, str] = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf", "neg": "arith.negf",
    "max": "arith.maximumf", "min": "arith.minimumf", "round": "math.roundeven", "round_away": "math.round",
    **{
        name: f"arith.{name}"
        for name in (
            "extf", "truncf", "sitofp", "uitofp", "extsi", "extui", "trunci", "fptosi", "fptoui", "remf",
            "addi", "subi", "muli", "maxsi", "minsi", "andi", "ori", "xori", "cmpf", "cmpi", "select",
        )
    },
    **{
        name: f"math.{name}"
        for name in (
            "absf", "floor", "ceil", "trunc", "sqrt", "copysign", "exp", "exp2", "expm1", "log", "log2", "log10",
            "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh",
            "atanh", "cbrt", "rsqrt", "powf", "fpowi", "erf", "erfc",
        )
    },
}  # fmt: skip


def nodes(*roots: Scalar) -> Iterator[Scalar]:
    """All nodes of expressions, each once, arguments before what they are arguments of."""
    seen: set[int] = set()

    def walk(scalar: Scalar) -> Iterator[Scalar]:
        if id(scalar) in seen:
            return
        seen.add(id(scalar))
        for arg in scalar.args:
            yield from walk(arg)
        yield scalar

    for root in roots:
        yield from walk(root)


def stored_tensors(*roots: Scalar) -> tuple[QValue, ...]:
    """The integer tensors that expressions read, each once."""
    return tuple(dict.fromkeys(s.payload[0] for s in nodes(*roots) if s.op == "stored"))


def rebuilt(scalar: Scalar, replace: Callable[[Scalar], Scalar]) -> Scalar:
    """An expression with its leaves replaced; what is shared stays shared."""
    known: dict[int, Scalar] = {}
    for node in nodes(scalar):
        if not node.args:
            known[id(node)] = replace(node)
            continue
        args = tuple(known[id(a)] for a in node.args)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        known[id(node)] = node if same else Scalar(node.op, node.type, args, node.payload)
    return known[id(scalar)]


def resolved(scalar: Scalar, extents: Extents, context: BuildContext) -> Scalar:
    """An expression over dimensions of `extents` whose leaves are elements of SSA values.

    Makes the integer tensors and constants it needs.
    """
    constants: dict[int, Value] = {}
    read: dict[tuple[QValue, Index], tuple[Value, Index]] = {}

    def replace(leaf: Scalar) -> Scalar:
        if leaf.op == "stored":
            tensor, index = leaf.payload
            if leaf.payload not in read:
                read[leaf.payload] = context.regrouped(context.q(tensor), index, extents)
            return Scalar("elem", leaf.type, payload=read[leaf.payload])
        if leaf.op == "array":
            array, index = leaf.payload
            if id(array) not in constants:
                constants[id(array)] = context.builder.dense_constant(array)
            return Scalar("elem", leaf.type, payload=(constants[id(array)], index))
        return leaf

    return rebuilt(scalar, replace)


class Inputs:
    """The tensors that resolved expressions read, as operands of one operation, each index of each once."""

    def __init__(self, scalars: Sequence[Scalar], rank: int) -> None:
        """Operands of an operation of `rank` loops."""
        self._positions: dict[tuple[Value, Index], int] = {}
        for node in nodes(*scalars):
            if node.op == "elem":
                self._positions.setdefault(node.payload, len(self._positions))
        self.values = [value for value, _ in self._positions]
        self.indices = [index for _, index in self._positions]
        self.maps = [affine_map(rank, index) for index in self.indices]

    def argument(self, args: Sequence[Value]) -> Callable[[tuple[Value, Index]], Value]:
        """Which of the block arguments `args` holds an element."""
        return lambda key: args[self._positions[key]]


def write(inner: Body, scalar: Scalar, argument: Callable[[tuple[Value, Index]], Value]) -> Value:
    """The operations of a resolved expression, equal ones once.

    Args:
        inner: the body to write into.
        scalar: the expression.
        argument: the value that holds an element of a tensor.
    """
    known: dict[int, Value] = {}
    spelled: dict[object, Value] = {}
    for node in nodes(scalar):
        if node.op == "elem":
            known[id(node)] = argument(node.payload)
        elif node.op == "ssa":
            known[id(node)] = node.payload
        else:
            text = literal(node.payload, node.type) if node.op == "const" else None
            args = [known[id(a)] for a in node.args]
            key = text or (node.op, node.type, *args, node.payload)
            if key not in spelled:
                spelled[key] = inner.constant(text) if text else _operation(inner, node, args)
            known[id(node)] = spelled[key]
    return known[id(scalar)]


def _operation(inner: Body, node: Scalar, args: Sequence[Value]) -> Value:
    if node.op == "rescale":
        numbers = [int(a.payload) if a.op == "const" else v for a, v in zip(node.args[1:], args[1:], strict=True)]
        return FixedPoint(inner, *node.payload).times(args[0], *numbers)
    if node.op == "mulshift":
        product = inner.op("arith.muli", node.type, *args[:2])
        return FixedPoint(inner, node.payload, 0).times(product, 1, int(node.args[2].payload))
    if node.op in ("cmpf", "cmpi"):
        return inner.compare(SPELLED[node.op], node.payload, *args)
    return inner.op(SPELLED[node.op], node.type, *args)


def literal(number: object, type_: str) -> str:
    """The printed attribute of a number, floats bit by bit."""
    if type_ == "i1":
        return "true" if number else "false"
    if type_.startswith("i"):
        return f"{int(number)} : {type_}"  # type: ignore[call-overload]
    if type_ == "bf16":
        bits = int(np.asarray(number, np.float32).view(np.uint32)[()]) >> 16
        return f"0x{bits:04X} : bf16"
    width = int(type_[1:])
    pattern = np.asarray(number, f"f{width // 8}").view(f"u{width // 8}")[()]
    return f"0x{int(pattern):0{width // 4}X} : {type_}"


def number(value: float | Array, type_: str) -> Scalar:
    """A constant leaf of a float or integer type."""
    kinds = {"f16": np.float16, "f64": np.float64}
    return Scalar("const", type_, payload=value if type_[0] == "i" else kinds.get(type_, np.float32)(value))
