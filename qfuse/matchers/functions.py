"""What the functions of `arith` and `math` give, for values that are known now.

Two tables. Those of `EXACT` are defined to the last bit (IEEE 754, or comparisons). Those of `LIBRARY` are not: a
target's mathematical library may differ from another's in the last bits. They are computed in f64 and rounded to the
type of the operation, which is the nearest number in all but a few cases in a billion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _away(x: Array) -> Array:
    """Halves are rounded away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of one number on arrays."""
    applied = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(applied(x), np.float64)


EXACT: Mapping[str, Callable[..., Any]] = {
    "absf": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round_away": _away, "sqrt": np.sqrt,
    "remf": np.fmod, "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor, "select": np.where,
    "copysign": np.copysign,
}  # fmt: skip

LIBRARY: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt, "rsqrt": _rsqrt, "powf": np.power, "fpowi": np.power,
    "erf": _each(math.erf), "erfc": _each(math.erfc),
}  # fmt: skip

#: `arith.cmpf` predicates without "ordered" and "unordered": what is compared, and whether NaN gives true.
_COMPARED: Mapping[int, tuple[Callable[..., Any], bool]] = {
    1: (np.equal, False), 2: (np.greater, False), 3: (np.greater_equal, False), 4: (np.less, False),
    5: (np.less_equal, False), 6: (np.not_equal, False), 8: (np.equal, True), 9: (np.greater, True),
    10: (np.greater_equal, True), 11: (np.less, True), 12: (np.less_equal, True), 13: (np.not_equal, True),
}  # fmt: skip


def compare(predicate: int, a: Array, b: Array) -> Array | None:
    """`arith.cmpf` of this predicate."""
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in (0, 15):
        return np.full(unordered.shape, predicate == 15)
    if predicate in (7, 14):
        return unordered if predicate == 14 else ~unordered
    found = _COMPARED.get(predicate)
    return None if found is None else np.where(unordered, found[1], found[0](a, b))


#: Signed `arith.cmpi` predicates.
_COMPARED_INTEGERS: Mapping[int, Callable[..., Any]] = {
    0: np.equal, 1: np.not_equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal,
}  # fmt: skip


def _divided(a: Array, b: Array) -> Array | None:
    """`arith.divsi`, which rounds towards zero; None where it is undefined."""
    if not b.all() or ((b == -1) & (a == np.iinfo(a.dtype).min)).any():
        return None
    whole = np.floor_divide(a, b)
    return whole + ((whole * b != a) & ((a < 0) != (b < 0)))


def apply(name: str, predicate: Any, args: list[Array]) -> Array | None:
    """What an operation gives before it is rounded to its type, or None when it is not known."""
    if name == "cmpf":
        return compare(predicate, *args)
    if name == "cmpi":
        integers = _COMPARED_INTEGERS.get(predicate)
        return None if integers is None else integers(*args)
    if name == "divsi":
        return _divided(*args)
    exact = EXACT.get(name)
    if exact is not None:
        return np.asarray(exact(*args))
    library = LIBRARY.get(name)
    if library is None:
        return None
    return np.asarray(library(*(np.asarray(a, np.float64) for a in args)))
