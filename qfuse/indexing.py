"""Index arithmetic: which element of one tensor does an element of another come from?

Layout operations, indexing maps and quantization granularities are all functions from the indices of one tensor to
those of another. Here such a function is an `Index`: one `Linear` a result. A `Linear` is `const + sum(coeff * atom)`
where an atom is a dimension, a floor division or a remainder by a constant. Knowing the extents of the dimensions,
`(d0 * 8 + d1) floordiv 8` becomes `d0`, so that a chain of reshapes between a weight and its use vanishes.

`extents` arguments give the extent of each dimension, `None` for dynamic; a shorter tuple means "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple, TypeAlias

Extents: TypeAlias = tuple["int | None", ...]


class Atom(NamedTuple):
    """A dimension (`kind` 'd', `position`), or `arg floordiv divisor` ('/'), or `arg mod divisor` ('%')."""

    kind: str
    position: int
    arg: Linear | None = None
    divisor: int = 1


class Linear(NamedTuple):
    """`const + sum(coefficient * atom)`, terms sorted, no zero coefficients."""

    const: int
    terms: tuple[tuple[Atom, int], ...]


Index: TypeAlias = tuple[Linear, ...]


@lru_cache(maxsize=256)
def dim(position: int) -> Linear:
    """The dimension `position`."""
    return Linear(0, ((Atom("d", position), 1),))


def constant(value: int) -> Linear:
    """A constant."""
    return Linear(value, ())


@lru_cache(maxsize=64)
def identity(rank: int) -> Index:
    """The identity of `rank` dimensions."""
    return tuple(dim(i) for i in range(rank))


def _make(const: int, terms: dict[Atom, int]) -> Linear:
    for atom in [a for a in terms if a.kind == "/"]:
        # c * (x floordiv d) + (c / d) * (x mod d)  ==  (c / d) * x
        coefficient = terms.get(atom, 0)
        rest = Atom("%", 0, atom.arg, atom.divisor)
        part = terms.get(rest, 0)
        if part == 0 or coefficient != part * atom.divisor or atom.arg is None:
            continue
        del terms[atom], terms[rest]
        const += part * atom.arg.const
        for inner, factor in atom.arg.terms:
            terms[inner] = terms.get(inner, 0) + part * factor
    return Linear(const, tuple(sorted((a, c) for a, c in terms.items() if c)))


def plus(a: Linear, b: Linear) -> Linear:
    """The sum of two expressions."""
    terms = dict(a.terms)
    for atom, coefficient in b.terms:
        terms[atom] = terms.get(atom, 0) + coefficient
    return _make(a.const + b.const, terms)


def times(a: Linear, factor: int) -> Linear:
    """An expression times a constant."""
    return Linear(a.const * factor, tuple((t, c * factor) for t, c in a.terms if factor))


def bounds(a: Linear, extents: Extents) -> tuple[int, int] | None:
    """Least and greatest value over the box of `extents`, or None when a needed extent is not known."""
    low = high = a.const
    for atom, coefficient in a.terms:
        if atom.kind == "d":
            extent = extents[atom.position] if atom.position < len(extents) else None
            if extent is None:
                return None
            least, most = 0, max(extent - 1, 0)
        elif atom.kind == "%":
            least, most = 0, atom.divisor - 1
        else:
            inner = None if atom.arg is None else bounds(atom.arg, extents)
            if inner is None:
                return None
            least, most = inner[0] // atom.divisor, inner[1] // atom.divisor
        low += min(coefficient * least, coefficient * most)
        high += max(coefficient * least, coefficient * most)
    return low, high


def _split(a: Linear, divisor: int) -> tuple[Linear, Linear]:
    """`a == divisor * quotient + rest`, taking only what divides exactly into the quotient."""
    whole = tuple((t, c // divisor) for t, c in a.terms if c % divisor == 0)
    rest = tuple((t, c) for t, c in a.terms if c % divisor != 0)
    return Linear(a.const // divisor, whole), Linear(a.const % divisor, rest)


def _coarser(a: Linear, divisor: int, extents: Extents) -> tuple[int, Linear, Linear] | None:
    """`(step, whole, part)` with `a == step * whole + part`, 0 <= part < step, step dividing `divisor`; None if none.

    `(2 * b + k) floordiv 4` with k < 2 is then `b floordiv 2`.
    """
    for step in sorted({gcd(divisor, c) for _, c in a.terms}, reverse=True):
        if not 1 < step < divisor:
            continue
        whole, part = _split(a, step)
        span = bounds(part, extents)
        if span is not None and 0 <= span[0] and span[1] < step:
            return step, whole, part
    return None


def floordiv(a: Linear, divisor: int, extents: Extents) -> Linear:
    """`a floordiv divisor` for a positive divisor."""
    if divisor == 1:
        return a
    quotient, rest = _split(a, divisor)
    span = bounds(rest, extents)
    if span is not None and span[0] // divisor == span[1] // divisor:
        return plus(quotient, constant(span[0] // divisor))
    coarse = _coarser(rest, divisor, extents)
    if coarse is not None:
        step, whole, _ = coarse
        return plus(quotient, floordiv(whole, divisor // step, extents))
    return plus(quotient, Linear(0, ((Atom("/", 0, rest, divisor), 1),)))


def mod(a: Linear, divisor: int, extents: Extents) -> Linear:
    """`a mod divisor` for a positive divisor."""
    if divisor == 1:
        return constant(0)
    _, rest = _split(a, divisor)
    span = bounds(rest, extents)
    if span is not None and span[0] // divisor == span[1] // divisor:
        return plus(rest, constant(-(span[0] // divisor) * divisor))
    coarse = _coarser(rest, divisor, extents)
    if coarse is not None:
        step, whole, part = coarse
        return plus(times(mod(whole, divisor // step, extents), step), part)
    return Linear(0, ((Atom("%", 0, rest, divisor), 1),))


def substitute(a: Linear, replacement: Sequence[Linear] | Mapping[int, Linear], extents: Extents) -> Linear:
    """Replaces dimension `i` by `replacement[i]`; `extents` are those of the new dimensions."""
    result = constant(a.const)
    for atom, coefficient in a.terms:
        if atom.kind == "d":
            part = replacement[atom.position]
        else:
            assert atom.arg is not None
            inner = substitute(atom.arg, replacement, extents)
            part = (floordiv if atom.kind == "/" else mod)(inner, atom.divisor, extents)
        result = plus(result, times(part, coefficient))
    return result


def compose(outer: Index, inner: Index, extents: Extents) -> Index:
    """`outer` after `inner`: an index into the first tensor from the dimensions of the last.

    `extents` are those of `inner`'s dimensions.
    """
    if outer is identity(len(inner)):
        return inner
    return _composed(outer, inner, extents)


@lru_cache(maxsize=1 << 14)
def _composed(outer: Index, inner: Index, extents: Extents) -> Index:
    if outer == identity(len(inner)):
        return inner
    return tuple(substitute(e, inner, extents) for e in outer)


def dims_of(a: Linear) -> frozenset[int]:
    """The dimensions that an expression depends on."""
    found: set[int] = set()
    for atom, _ in a.terms:
        if atom.kind == "d":
            found.add(atom.position)
        elif atom.arg is not None:
            found |= dims_of(atom.arg)
    return frozenset(found)


@lru_cache(maxsize=1 << 12)
def dims_of_index(index: Index) -> frozenset[int]:
    """The dimensions that any result depends on."""
    return frozenset[int]().union(*(dims_of(e) for e in index))


def as_dim(a: Linear) -> int | None:
    """The dimension that an expression is, or None."""
    if a.const == 0 and len(a.terms) == 1 and a.terms[0][1] == 1 and a.terms[0][0].kind == "d":
        return a.terms[0][0].position
    return None


def as_block(a: Linear) -> tuple[int, int] | None:
    """`(dimension, block size)` for `d` or `d floordiv g`, or None."""
    position = as_dim(a)
    if position is not None:
        return position, 1
    if a.const == 0 and len(a.terms) == 1 and a.terms[0][1] == 1 and a.terms[0][0].kind == "/":
        atom = a.terms[0][0]
        inner = None if atom.arg is None else as_dim(atom.arg)
        return None if inner is None else (inner, atom.divisor)
    return None


def drop_unit(index: Index, extents: Extents) -> Index:
    """Replaces dimensions of extent 1 by 0, and quotients that the extents make constant by that constant.

    Two indices are then equal when they read the same elements.
    """
    if 1 not in extents and all(atom.kind == "d" for e in index for atom, _ in e.terms):
        return index
    unit = [constant(0) if n == 1 else dim(i) for i, n in enumerate(extents)]
    return tuple(substitute(e, unit, extents) for e in index)


def is_identity(index: Index, extents: Extents) -> bool:
    """Whether `index` reads each element from its own place (dimensions of extent 1 may be written as 0)."""
    rank = len(extents)
    if index is identity(rank):
        return True
    if len(index) != rank:
        return False
    return index == identity(rank) or drop_unit(index, extents) == drop_unit(identity(rank), extents)


@lru_cache(maxsize=1 << 12)
def permutation_of(index: Index, rank: int) -> tuple[int, ...] | None:
    """Positions for an index whose results are distinct dimensions (a projected permutation), or None."""
    positions = [as_dim(e) for e in index]
    if any(p is None or p >= rank for p in positions) or len(set(positions)) != len(positions):
        return None
    return tuple(p for p in positions if p is not None)


def to_affine(a: Linear) -> str:
    """The printed affine expression."""
    parts = [str(a.const)] if a.const or not a.terms else []
    for atom, coefficient in a.terms:
        if atom.kind == "d":
            text = f"d{atom.position}"
        else:
            assert atom.arg is not None
            text = f"(({to_affine(atom.arg)}) {'floordiv' if atom.kind == '/' else 'mod'} {atom.divisor})"
        parts.append(text if coefficient == 1 else f"{text} * {coefficient}")
    return " + ".join(parts)


@lru_cache(maxsize=4096)
def affine_map(rank: int, index: Index) -> str:
    """The printed affine map attribute of an index over `rank` dimensions."""
    dims = ", ".join(f"d{i}" for i in range(rank))
    return f"affine_map<({dims}) -> ({', '.join(to_affine(e) for e in index)})>"
