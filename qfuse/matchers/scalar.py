"""Scalar expressions: what one element of a tensor is computed from.

Leaves are numbers, elements of tensors and scalars of the surrounding function; names of operations are those of
`arith` and `math` without their dialect, a few of them called otherwise.
"""

from __future__ import annotations

from typing import Any

from qfuse.indexing import Extents, Index, compose, dim, identity

#: Names of arith and math operations, without their dialect, that are called otherwise here. `round` is half to even.
_CANONICAL = {
    "maximumf": "max", "maxnumf": "max", "minimumf": "min", "minnumf": "min",
    "addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "negf": "neg",
    "roundeven": "round", "round": "round_away",
}  # fmt: skip
#: Casts, and whether they read or make signed integers.
EXTENSIONS = {"extsi": True, "extui": False}
TO_FLOAT = {"sitofp": True, "uitofp": False}
TO_INT = {"fptosi": True, "fptoui": False}
FLOAT_CASTS = ("extf", "truncf")
CASTS = (*FLOAT_CASTS, *TO_FLOAT, *EXTENSIONS, "trunci", "index_cast")
#: Predicates of `arith.cmpf`: ogt, oge, ugt, uge and olt, ole, ult, ule.
GREATER = {2, 3, 9, 10}
LESS = {4, 5, 11, 12}


class Scalar:
    """A node of an expression.

    Attributes:
        op: `const` (payload: number), `elem` (payload: (tensor value, index)), `ssa` (payload: scalar value),
            `init` (payload: result number; the output's old value), `index` (payload: a `Linear`), `array` (payload:
            (constant values, index)), or an operation's name without dialect.
        type: printed type.
        args: operands.
        payload: see `op`; the predicate for comparisons.
    """

    __slots__ = ("args", "op", "payload", "type")

    def __init__(self, op: str, type_: str, args: tuple[Scalar, ...] = (), payload: Any = None) -> None:
        """A node; see the class for its fields."""
        self.op = op
        self.type = type_
        self.args = args
        self.payload = payload

    def __repr__(self) -> str:
        if self.op == "const":
            return str(self.payload)
        if self.op == "elem":
            return f"elem{self.payload[1]}"
        return f"{self.op}({', '.join(map(repr, self.args))})"


def operation(full: str, type_: str, args: tuple[Scalar, ...], extra: Any) -> Scalar:
    """The expression of an operation of a body; `full` is its name with dialect, `extra` its attribute."""
    dialect, _, name = full.partition(".")
    if full == "linalg.index":
        return Scalar("index", type_, payload=dim(extra))
    if dialect not in ("arith", "math"):
        return Scalar("opaque", type_, args, payload=full)
    return simplified(_CANONICAL.get(name, name), type_, args, extra)


def simplified(op: str, type_: str, args: tuple[Scalar, ...], payload: Any) -> Scalar:
    """An operation; a select that is a maximum or minimum becomes one."""
    clamped = _as_clamp(args) if op == "select" else None
    return Scalar(op, type_, args, payload) if clamped is None else Scalar(clamped[0], type_, clamped[1])


def _as_clamp(args: tuple[Scalar, ...]) -> tuple[str, tuple[Scalar, Scalar]] | None:
    """`select(cmpf(a > b), a, b)` is a maximum, with the operands exchanged a minimum."""
    condition, yes, no = args
    if condition.op != "cmpf" or len(condition.args) != 2:
        return None
    left, right = condition.args
    straight = same(left, yes) and same(right, no)
    crossed = same(left, no) and same(right, yes)
    if not straight and not crossed:
        return None
    if condition.payload in GREATER:
        return ("max" if straight else "min"), (yes, no)
    if condition.payload in LESS:
        return ("min" if straight else "max"), (yes, no)
    return None


def same(a: Scalar, b: Scalar) -> bool:
    """Whether two expressions are the same leaf or constant, or the same node."""
    if a is b:
        return True
    if a.op != b.op or a.type != b.type:
        return False
    if a.op == "const":
        return bool(a.payload == b.payload)
    if a.op in ("elem", "ssa", "init", "hole"):
        return bool(a.payload == b.payload)
    return False


def substitute_index(scalar: Scalar, index: Index, extents: Extents) -> Scalar:
    """The expression at other indices: dimension `i` is replaced by `index[i]`."""
    if scalar.op == "elem":
        value, inner = scalar.payload
        return Scalar("elem", scalar.type, payload=(value, compose(inner, index, extents)))
    if scalar.op == "array":
        held, inner = scalar.payload
        return Scalar("array", scalar.type, payload=(held, compose(inner, index, extents)))
    if scalar.op == "index":
        return Scalar("index", scalar.type, payload=compose((scalar.payload,), index, extents)[0])
    if not scalar.args:
        return scalar
    if index == identity(len(index)):
        return scalar
    return Scalar(
        scalar.op, scalar.type, tuple(substitute_index(a, index, extents) for a in scalar.args), scalar.payload
    )


def leaves(scalar: Scalar) -> list[Scalar]:
    """All `elem` leaves, left to right."""
    if scalar.op == "elem":
        return [scalar]
    return [leaf for a in scalar.args for leaf in leaves(a)]
