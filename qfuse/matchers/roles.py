"""Which part of an expression plays which role in a quantize, dequantize or fake-quantize.

That depends on the form of the expression only, so it is found once for all operations of one structure; the values
of scales, zero points and bounds are read by `qfuse.matchers.quantization`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qfuse.indexing import identity
from qfuse.matchers.scalar import CASTS, EXTENSIONS, FLOAT_CASTS, TO_FLOAT, TO_INT, Scalar

_LEAVES = ("const", "hole", "ssa", "elem")
#: Operations whose result is a whole number.
_WHOLE = ("round", "trunc", "floor", "ceil")
#: How many bounds a quantize may have.
_BOUNDS = 8

#: Steps from a leaf into its producers as long as that leads to one of the wanted operations.
Open = Callable[[Scalar, tuple[str, ...]], Scalar]


class ContradictionError(Exception):
    """The parts of a quantize or dequantize contradict each other."""


@dataclass(eq=False)
class DequantizeShape:
    """The roles in `(ext(storage) - zero_point) * scale`; None for parts that are not there."""

    expressed: str
    storage: Scalar
    signed: bool
    zero_point: Scalar | None
    scale: Scalar | None


@dataclass(eq=False)
class QuantizeShape:
    """The roles in `clamp(round(input / scale) + zero_point)`; None for parts that are not there.

    `inverse` is the factor of a multiplication by 1/scale, `scale` what is divided by. Of the bounds those in
    `inner_lows` and `inner_highs` stand before a conversion that itself rounds and saturates, by the others.
    """

    type: str
    signed: bool
    input: Scalar
    scale: Scalar | None
    inverse: Scalar | None
    zero_point: Scalar | None
    zero_point_first: bool
    lows: tuple[Scalar, ...]
    highs: tuple[Scalar, ...]
    inner_lows: tuple[Scalar, ...] = ()
    inner_highs: tuple[Scalar, ...] = ()


def closed(scalar: Scalar, wanted: tuple[str, ...]) -> Scalar:
    """Looks through float casts only: the expression of one operation by itself."""
    current = scalar
    while current.op in FLOAT_CASTS:
        current = current.args[0]
    return current if current.op in wanted else scalar


def dequantize_shape(scalar: Scalar, open_: Open) -> DequantizeShape | None:
    """The roles in a float expression that is a dequantize, or None."""
    expressed = scalar.type
    scalar = open_(scalar, ("mul", "sitofp", "uitofp", "sub"))
    if scalar.op != "mul":
        return _integer_part(scalar, None, expressed, open_)
    for factor in (0, 1):
        found = _integer_part(scalar.args[factor], scalar.args[1 - factor], expressed, open_)
        if found is not None:
            return found
    return None


def _integer_part(scalar: Scalar, scale: Scalar | None, expressed: str, open_: Open) -> DequantizeShape | None:
    """`float(ext(q) - z)` or `float(q) - float(z)`."""
    scalar = open_(scalar, ("sitofp", "uitofp", "sub"))
    zero_point: Scalar | None = None
    if scalar.op == "sub":
        zero_point = scalar.args[1]
        scalar = open_(scalar.args[0], ("sitofp", "uitofp"))
    if scalar.op not in TO_FLOAT:
        return None
    signed = TO_FLOAT[scalar.op]
    inner = open_(scalar.args[0], ("subi", *EXTENSIONS))
    subtracted = inner.op == "subi"
    if subtracted:
        if zero_point is not None:
            return None
        zero_point = inner.args[1]
        inner = open_(inner.args[0], tuple(EXTENSIONS))
    if inner.op in EXTENSIONS:
        extended = EXTENSIONS[inner.op]
        inner = inner.args[0]
    elif subtracted and inner.type != "i32":
        return None  # a subtraction that wraps in the storage type is not a dequantize
    else:
        extended = signed
    if inner.op != "elem":
        return None
    if not signed and subtracted:
        raise ContradictionError("the zero point is subtracted and the difference, maybe negative, read as unsigned")
    if not signed and extended:
        raise ContradictionError("storage is sign-extended and then converted as unsigned")
    return DequantizeShape(expressed, inner, extended, zero_point, scale)


def quantize_shape(scalar: Scalar, open_: Open) -> QuantizeShape | None:
    """The roles in an integer expression that is a quantize, or None."""
    if scalar.op not in TO_INT or not scalar.type[1:].isdigit():
        return None
    return _rounded(scalar.args[0], scalar.type, TO_INT[scalar.op], open_)


def fake_quantize_shape(scalar: Scalar, open_: Open) -> tuple[QuantizeShape, Scalar | None, Scalar] | None:
    """In `(clamp(round(x / s) + z) - z) * s`: the roles of the quantize, the second `z` and the second `s`."""
    scalar = open_(scalar, ("mul",))
    if scalar.op != "mul":
        return None
    for factor in (0, 1):
        inner = open_(scalar.args[factor], ("sub", "max", "min"))
        zero_point: Scalar | None = None
        if inner.op == "sub":
            inner, zero_point = inner.args
        found = _rounded(inner, scalar.type, True, open_)
        if found is not None and found.lows and found.highs:
            return found, zero_point, scalar.args[1 - factor]
    return None


def _rounded(scalar: Scalar, type_: str, signed: bool, open_: Open) -> QuantizeShape | None:
    """`clamp(round(x / s) + z)`."""
    steps = ("max", "min", "add", *_WHOLE)
    bounds: list[tuple[list[Scalar], list[Scalar]]] = [([], [])]
    scalar = open_(scalar, steps)
    while True:
        while scalar.op in ("max", "min"):
            position = _bound_position(scalar, steps, open_)
            if position is None:
                return None
            bounds[-1][0 if scalar.op == "max" else 1].append(scalar.args[position])
            scalar = open_(scalar.args[1 - position], steps)
        inner = open_(scalar.args[0], steps) if scalar.op in _WHOLE else scalar
        if inner is scalar or not _is_whole(inner, open_):
            break
        if scalar.op == "round":
            bounds.append(([], []))
        scalar = inner
    lows, highs = (tuple(s for part in bounds for s in part[end]) for end in (0, 1))
    inner_lows, inner_highs = (tuple(bounds[-1][end]) if len(bounds) > 1 else () for end in (0, 1))
    zero_point: Scalar | None = None
    if scalar.op == "add":
        split = _split_add(scalar, ("round",), open_)
        if split is None:
            return None
        zero_point, scalar = split
    if scalar.op != "round":
        return None
    inner = open_(scalar.args[0], ("div", "mul", "add"))
    zero_point_first = False
    if inner.op == "add" and zero_point is None:
        split = _split_add(inner, ("div", "mul"), open_)
        if split is not None:
            zero_point, inner = split
            zero_point_first = True
    scaled = _scaled(inner, open_)
    value, scale, inverse = scaled or ((inner if zero_point_first else scalar.args[0]), None, None)
    return QuantizeShape(
        type_, signed, value, scale, inverse, zero_point, zero_point_first, lows, highs, inner_lows, inner_highs
    )  # fmt: skip


def _is_whole(scalar: Scalar, open_: Open, depth: int = 0) -> bool:
    """Whether a float expression is the whole number that a quantize rounds to, so that rounding it does nothing."""
    if scalar.op in _WHOLE:
        return True
    steps = ("max", "min", "add", *_WHOLE)
    if scalar.op == "add":
        return _split_add(scalar, ("round",), open_) is not None
    position = _bound_position(scalar, steps, open_) if scalar.op in ("max", "min") else None
    if position is None or depth > _BOUNDS:
        return False
    return _is_whole(open_(scalar.args[1 - position], steps), open_, depth + 1)


def _bound_position(scalar: Scalar, steps: tuple[str, ...], open_: Open) -> int | None:
    """Which operand of a maximum or minimum is the bound: a number, else the leaf that leads nowhere."""
    for position in (1, 0):
        if scalar.args[position].op in ("const", "hole"):
            return position
    for position in (1, 0):
        if _is_leaf(scalar.args[position]) and open_(scalar.args[position], steps) is scalar.args[position]:
            return position
    return None


def _split_add(scalar: Scalar, wanted: tuple[str, ...], open_: Open) -> tuple[Scalar, Scalar] | None:
    """`(zero point, rest)` of a sum whose rest leads to one of `wanted`."""
    for position in (1, 0):
        other = open_(scalar.args[1 - position], wanted)
        if other.op in wanted and _is_parameter(scalar.args[position]):
            return scalar.args[position], other
    return None


def _scaled(scalar: Scalar, open_: Open) -> tuple[Scalar, Scalar | None, Scalar | None] | None:
    """`(input, scale, inverse scale)` of a division or a multiplication by a parameter."""
    if scalar.op == "div" and _is_parameter(scalar.args[1]):
        return scalar.args[0], scalar.args[1], None
    if scalar.op != "mul":
        return None
    # The parameter is the factor that does not have a value an element; in doubt the second.
    first, second = (_is_parameter(a) for a in scalar.args)
    varied = [a.op == "elem" and a.payload[1] == identity(len(a.payload[1])) for a in scalar.args]
    position = 0 if first and (not second or (varied[1] and not varied[0])) else 1
    if not (first, second)[position]:
        return None
    factor = scalar.args[position]
    opened = open_(factor, ("div",))
    if opened.op == "div" and opened.args[0].op == "const" and float(opened.args[0].payload) == 1.0:
        return scalar.args[1 - position], opened.args[1], factor
    return scalar.args[1 - position], None, factor


def _is_leaf(scalar: Scalar) -> bool:
    while scalar.op in CASTS:
        scalar = scalar.args[0]
    return scalar.op in _LEAVES


def _is_parameter(scalar: Scalar) -> bool:
    """A leaf, a cast of one, or one over one."""
    return _is_leaf(scalar) or (scalar.op == "div" and all(_is_leaf(a) for a in scalar.args))
