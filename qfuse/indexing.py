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
from typing import Any, NamedTuple, TypeAlias

import numpy as np

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
    if any(atom.kind != "d" for atom in terms):
        const, terms = _merged(const, terms)
    return Linear(const, tuple(sorted((a, c) for a, c in terms.items() if c)))


def _merged(const: int, terms: dict[Atom, int]) -> tuple[int, dict[Atom, int]]:
    """Takes remainders together with what they are the remainders of.

    m * (x floordiv m) + x mod m  ==  x        and        m * (x floordiv m mod k) + x mod m  ==  x mod (m * k)
    """
    for atom, factor in list(terms.items()):
        if atom.kind != "%" or not factor or atom.arg is None:
            continue
        quotient = floordiv(atom.arg, atom.divisor, ())
        parts = [(a, c) for a, c in quotient.terms if a.kind == "/"]
        if parts and all(terms.get(a) == factor * atom.divisor * c for a, c in parts):
            whole = _plain_sum((atom.arg, factor), (quotient, -factor * atom.divisor))
        else:
            other = _finer_remainder(atom, factor, terms)
            if other is None:
                continue
            inner, finer = other
            rest = _plain_sum((atom.arg, inner.divisor), (Linear(0, ((inner, 1),)), -inner.divisor))
            assert inner.arg is not None
            joined = mod(plus(rest, inner.arg), inner.divisor * atom.divisor, ())
            finer_factor = factor // inner.divisor
            whole = _plain_sum((joined, finer_factor), (Linear(0, ((finer, 1),)), -finer_factor))
        left = Linear(const, tuple((a, c) for a, c in terms.items() if a != atom))
        sum_ = _plain_sum((left, 1), (whole, 1))
        return _merged(sum_.const, dict(sum_.terms))
    return const, terms


def _finer_remainder(atom: Atom, factor: int, terms: Mapping[Atom, int]) -> tuple[Atom, Atom] | None:
    """For `x floordiv m mod k`: the quotient in it, and the term that is `x mod m` with the factor that fits."""
    assert atom.arg is not None
    for inner, coefficient in atom.arg.terms:
        if inner.kind != "/" or coefficient != 1 or factor % inner.divisor:
            continue
        finer = Atom("%", 0, inner.arg, inner.divisor)
        if terms.get(finer) == factor // inner.divisor:
            return inner, finer
    return None


def _plain_sum(*parts: tuple[Linear, int]) -> Linear:
    """A sum of multiples, with nothing taken together beyond equal terms."""
    const = 0
    terms: dict[Atom, int] = {}
    for part, factor in parts:
        const += factor * part.const
        for atom, coefficient in part.terms:
            terms[atom] = terms.get(atom, 0) + factor * coefficient
    return Linear(const, tuple((a, c) for a, c in terms.items() if c))


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
        if span is not None and span[0] >= 0 and span[1] < step:
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
    for atom, coefficient in rest.terms:
        if atom.kind == "/" and coefficient == 1 and atom.arg is not None:
            # (y + x floordiv m) floordiv d  ==  (m * y + x) floordiv (m * d)
            others = _plain_sum((rest, atom.divisor), (Linear(0, ((atom, 1),)), -atom.divisor))
            return plus(quotient, floordiv(plus(others, atom.arg), atom.divisor * divisor, extents))
    if rest.const == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if atom.kind == "%" and atom.arg is not None and atom.divisor % divisor == 0:
            # x mod (d * k) floordiv d  ==  x floordiv d mod k
            return plus(quotient, mod(floordiv(atom.arg, divisor, extents), atom.divisor // divisor, extents))
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
    for atom, coefficient in rest.terms:
        if atom.kind == "%" and atom.arg is not None and coefficient * atom.divisor % divisor == 0:
            # (y + c * (x mod m)) mod d  ==  (y + c * x) mod d  when d divides c * m
            others = _plain_sum((rest, 1), (Linear(0, ((atom, 1),)), -coefficient))
            return mod(plus(others, times(atom.arg, coefficient)), divisor, extents)
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
    return _settled(result, extents)


def _settled(a: Linear, extents: Extents) -> Linear:
    """What the extents make of remainders that were taken together without knowing them."""
    for _ in range(4):
        for atom, factor in a.terms:
            if atom.kind != "%" or atom.arg is None:
                continue
            known = mod(atom.arg, atom.divisor, extents)
            if known.terms != ((atom, 1),):
                a = plus(_plain_sum((a, 1), (Linear(0, ((atom, 1),)), -factor)), times(known, factor))
                break
        else:
            break
    return a


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


def is_plain(index: Index) -> bool:
    """Whether an index is a list of distinct dimensions and constants, which an indexing map can say."""
    found = [as_dim(e) for e in index if e.terms]
    return None not in found and len(set(found)) == len(found)


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


def printed(index: Index) -> str:
    """An index as an affine map prints it: `(d0, 4 + d1)`."""
    return f"({', '.join(to_affine(e) for e in index)})"


@lru_cache(maxsize=4096)
def affine_map(rank: int, index: Index) -> str:
    """The printed affine map attribute of an index over `rank` dimensions."""
    dims = ", ".join(f"d{i}" for i in range(rank))
    return f"affine_map<({dims}) -> {printed(index)}>"


def gather(array: np.ndarray[Any, Any], index: Index, extents: Sequence[int]) -> np.ndarray[Any, Any]:
    """`array[index(d)]` for all `d` in the box, as an array that broadcasts to it."""
    if not index:
        return array
    if index == identity(len(extents)):
        return first_of(array, extents)
    return array[tuple(positions(e, extents) for e in index)]


def first_of(array: np.ndarray[Any, Any], sizes: Extents | Sequence[int]) -> np.ndarray[Any, Any]:
    """The first elements along dimensions that are longer than these sizes, as a slice that begins at 0 reads them."""
    longer = any(n is not None and 0 < n < own for own, n in zip(array.shape, sizes, strict=False))
    return array[tuple(slice(n or None) for n in sizes)] if longer else array


def positions(expr: Linear, extents: Sequence[int]) -> Any:
    """What an index expression is at each place of the box, as an array that broadcasts to it."""
    return _evaluate_linear(expr, np.ogrid[tuple(slice(0, n) for n in extents)])


def _evaluate_linear(expr: Linear, grid: Sequence[np.ndarray[Any, Any]]) -> Any:
    total: Any = np.asarray(expr.const)
    for atom, coefficient in expr.terms:
        if atom.kind == "d":
            part = grid[atom.position]
        else:
            assert atom.arg is not None
            inner = _evaluate_linear(atom.arg, grid)
            part = inner // atom.divisor if atom.kind == "/" else inner % atom.divisor
        total = total + coefficient * part
    return total
