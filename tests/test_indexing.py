"""Index arithmetic: every rewriting keeps the values on the box, and chains of reshapes vanish."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfuse._mlir import Bindings
from qfuse.indexing import (
    Index,
    Linear,
    affine_map,
    as_block,
    as_dim,
    bounds,
    compose,
    constant,
    dim,
    dims_of,
    dims_of_index,
    drop_unit,
    floordiv,
    gather,
    identity,
    is_identity,
    mod,
    permutation_of,
    plus,
    substitute,
    times,
    to_affine,
)

Box = tuple[int, ...]

boxes = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


def value(expression: Linear, point: Sequence[int]) -> int:
    """What an expression is at a point, by its definition."""
    total = expression.const
    for atom, coefficient in expression.terms:
        if atom.kind == "d":
            part = point[atom.position]
        else:
            assert atom.arg is not None
            inner = value(atom.arg, point)
            part = inner // atom.divisor if atom.kind == "/" else inner % atom.divisor
        total += coefficient * part
    return total


def values(expression: Linear, box: Box) -> list[int]:
    """Values at all points of a box."""
    return [value(expression, point) for point in itertools.product(*map(range, box))]


@st.composite
def expressions(draw: st.DrawFn, rank: int, box: Box = ()) -> Linear:
    """Sums, multiples, quotients and remainders of dimensions, built by the functions under test."""
    current = plus(dim(draw(st.integers(0, rank - 1))), constant(draw(st.integers(-4, 8))))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["plus", "times", "floordiv", "mod"]))
        if kind == "plus":
            other = times(dim(draw(st.integers(0, rank - 1))), draw(st.integers(-3, 6)))
            current = plus(current, plus(other, constant(draw(st.integers(-4, 8)))))
        elif kind == "times":
            current = times(current, draw(st.integers(-3, 6)))
        else:
            current = (floordiv if kind == "floordiv" else mod)(current, draw(st.integers(1, 8)), box)
    return current


@st.composite
def boxed(draw: st.DrawFn) -> tuple[Box, Linear]:
    """A box and an expression over it."""
    box = draw(boxes)
    return box, draw(expressions(len(box), draw(st.sampled_from([(), box]))))


# -- one expression --------------------------------------------------------------------------------------------


@given(boxed(), st.integers(1, 12), st.booleans())
def test_floordiv_and_mod(sample: tuple[Box, Linear], divisor: int, known: bool) -> None:
    """Quotient and remainder are those of Python, with and without knowing the extents."""
    box, expression = sample
    extents = box if known else ()
    expected = values(expression, box)
    assert values(floordiv(expression, divisor, extents), box) == [v // divisor for v in expected]
    assert values(mod(expression, divisor, extents), box) == [v % divisor for v in expected]


@given(boxed(), boxed(), st.integers(-5, 5))
def test_sums_and_multiples(first: tuple[Box, Linear], second: tuple[Box, Linear], factor: int) -> None:
    """A sum is the sum of the values, a multiple the multiple."""
    box = max(first[0], second[0], key=len)
    expected = [a + b for a, b in zip(values(first[1], box), values(second[1], box), strict=True)]
    assert values(plus(first[1], second[1]), box) == expected
    assert values(times(first[1], factor), box) == [factor * v for v in values(first[1], box)]


@given(boxed(), st.integers(1, 12))
def test_quotient_and_remainder_give_the_whole(sample: tuple[Box, Linear], divisor: int) -> None:
    """d * (x floordiv d) + x mod d is x, also as an expression."""
    box, expression = sample
    whole = plus(times(floordiv(expression, divisor, ()), divisor), mod(expression, divisor, ()))
    assert values(whole, box) == values(expression, box)
    if all(atom.kind == "d" for atom, _ in expression.terms):
        assert whole == expression


@given(boxed())
def test_bounds_hold(sample: tuple[Box, Linear]) -> None:
    """No value lies outside the bounds; they are exact for sums of dimensions."""
    box, expression = sample
    found = bounds(expression, box)
    assert found is not None
    seen = values(expression, box)
    assert found[0] <= min(seen)
    assert max(seen) <= found[1]
    if all(atom.kind == "d" for atom, _ in expression.terms):
        assert found == (min(seen), max(seen))


@given(boxed(), st.data())
def test_substitution(sample: tuple[Box, Linear], data: st.DataObject) -> None:
    """Replacing dimensions is evaluating at the replacements."""
    _, expression = sample
    rank = max(dims_of(expression), default=0) + 1
    box = data.draw(boxes)
    replacement = [data.draw(expressions(len(box))) for _ in range(rank)]
    found = substitute(expression, replacement, data.draw(st.sampled_from([(), box])))
    expected = [
        value(expression, [value(r, point) for r in replacement]) for point in itertools.product(*map(range, box))
    ]
    assert values(found, box) == expected


@given(boxed())
def test_units_are_dropped(sample: tuple[Box, Linear]) -> None:
    """An index without its dimensions of extent one reads the same elements."""
    box, expression = sample
    (found,) = drop_unit((expression,), box)
    assert values(found, box) == values(expression, box)
    assert all(box[d] != 1 for d in dims_of(found))


@settings(max_examples=25)
@given(boxed())
def test_printed_map_reads_back(torch_bindings: Bindings, sample: tuple[Box, Linear]) -> None:
    """The printed affine map is the index, as MLIR understands it."""
    box, expression = sample
    ir = torch_bindings.ir
    with ir.Context():
        attribute = ir.Attribute.parse(affine_map(len(box), (expression,)))
        index = Bindings(torch_bindings.package).index_map(attribute.value)
    assert values(index[0], box) == values(expression, box)


# -- reshapes --------------------------------------------------------------------------------------------------


def split(shape: Box) -> Index:
    """The index into a flat tensor from the dimensions of one of `shape`."""
    total = constant(0)
    for position, extent in enumerate(shape):
        total = plus(times(total, extent), dim(position))
    return (total,)


def flatten(shape: Box) -> Index:
    """The index into a tensor of `shape` from the flat one."""
    size = math.prod(shape)
    found: list[Linear] = []
    stride = size
    for extent in shape:
        stride //= extent
        found.append(mod(floordiv(dim(0), stride, (size,)), extent, (size,)))
    return tuple(found)


@st.composite
def shapes_of_one_size(draw: st.DrawFn, aligned: bool = True) -> list[Box]:
    """Some shapes with equally many elements; aligned ones cut one sequence of factors at different places."""
    primes = draw(st.lists(st.sampled_from([2, 2, 3, 5]), min_size=0, max_size=5))
    shapes: list[Box] = []
    for _ in range(draw(st.integers(1, 4))):
        shape: list[int] = []
        for prime in primes if aligned else draw(st.permutations(primes)):
            if shape and draw(st.booleans()):
                shape[-1] *= prime
            else:
                shape.append(prime)
        position = draw(st.integers(0, len(shape)))
        shapes.append((*shape[:position], *[1] * draw(st.integers(0, 2)), *shape[position:]) or (1,))
    return shapes


@settings(max_examples=60)
@given(shapes_of_one_size())
def test_reshape_chains_vanish(shapes: list[Box]) -> None:
    """Through shapes that cut the same factors and back: the index is the identity."""
    first = shapes[0]
    index: Index = identity(len(first))
    for other in shapes[1:]:
        # from `first` to flat to `other` to flat to `first`, read from the back
        back = compose(flatten(other), split(first), first)
        there = compose(flatten(first), split(other), other)
        index = compose(index, compose(there, back, first), first)
    assert is_identity(index, first)


@given(shapes_of_one_size())
def test_flat_chains_vanish(shapes: list[Box]) -> None:
    """A flat tensor seen through any shape is itself."""
    size = math.prod(shapes[0])
    index: Index = identity(1)
    for shape in shapes:
        index = compose(index, compose(split(shape), flatten(shape), (size,)), (size,))
    assert is_identity(index, (size,))


@given(shapes_of_one_size())
def test_splitting_a_flat_tensor_vanishes(shapes: list[Box]) -> None:
    """flatten after split is the identity of the shape."""
    for shape in shapes:
        assert is_identity(compose(flatten(shape), split(shape), shape), shape)


@settings(max_examples=60)
@given(shapes_of_one_size(aligned=False), st.data())
def test_reshape_through_another_is_the_direct_one(shapes: list[Box], data: st.DataObject) -> None:
    """Two ways from one shape to another read the same elements (compared by value)."""
    source, target = shapes[0], shapes[-1]
    direct = compose(flatten(source), split(target), target)
    through = data.draw(st.sampled_from(shapes))
    middle = compose(flatten(through), split(target), target)
    first = compose(flatten(source), split(through), through)
    indirect = compose(first, middle, target)
    for point in itertools.product(*map(range, target)):
        assert [value(e, point) for e in direct] == [value(e, point) for e in indirect]
        flat = np.ravel_multi_index(point, target)
        assert [value(e, point) for e in direct] == [int(i) for i in np.unravel_index(flat, source)]


def test_refined_splits_vanish() -> None:
    """64 -> 2x4x8 -> 8x8 -> 64: quotients of quotients meet remainders of quotients."""
    index = compose(split((8, 8)), compose(flatten((8, 8)), split((2, 4, 8)), (2, 4, 8)), (2, 4, 8))
    assert is_identity(compose(index, flatten((2, 4, 8)), (64,)), (64,))
    fine = flatten((2, 4, 8))
    assert compose(split((2, 4, 8)), fine, (64,)) == identity(1)
    assert compose(split((2, 4, 8)), fine, ()) == identity(1)


# -- reading an index ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected_dim", "expected_block"),
    [
        (dim(1), 1, (1, 1)),
        (floordiv(dim(0), 4, ()), None, (0, 4)),
        (mod(dim(0), 4, ()), None, None),
        (plus(dim(0), constant(1)), None, None),
        (times(dim(0), 2), None, None),
        (plus(dim(0), dim(1)), None, None),
        (constant(0), None, None),
        (floordiv(plus(dim(0), dim(1)), 4, ()), None, None),
        (times(floordiv(dim(0), 4, ()), 2), None, None),
    ],
)
def test_dimensions_and_blocks(
    expression: Linear, expected_dim: int | None, expected_block: tuple[int, int] | None
) -> None:
    """A dimension is a block of one; a quotient of a dimension is a block; nothing else is."""
    assert as_dim(expression) == expected_dim
    assert as_block(expression) == expected_block


def test_permutations() -> None:
    """Distinct dimensions in any order, all or some of them."""
    assert permutation_of((dim(1), dim(0)), 2) == (1, 0)
    assert permutation_of((dim(2),), 3) == (2,)
    assert permutation_of((), 3) == ()
    assert permutation_of((dim(0), dim(0)), 2) is None
    assert permutation_of((constant(0), dim(0)), 2) is None
    assert permutation_of((dim(3),), 2) is None


def test_identities() -> None:
    """Dimensions of extent one may be written as 0; nothing else may be left out."""
    assert is_identity(identity(2), (None, 4))
    assert is_identity((dim(0), constant(0)), (4, 1))
    assert not is_identity((dim(0), constant(0)), (4, 2))
    assert not is_identity((dim(1), dim(0)), (4, 4))
    assert not is_identity((dim(0),), (4, 1))
    assert is_identity((), ())


def test_dependence() -> None:
    """Dimensions within quotients and remainders count."""
    assert dims_of(plus(floordiv(dim(2), 4, ()), mod(dim(0), 3, ()))) == {0, 2}
    assert dims_of_index((dim(1), constant(3))) == {1}
    assert dims_of_index(()) == frozenset()


def test_blocks_of_the_whole_extent_vanish() -> None:
    """d floordiv g is 0 when the extent is g or less, and d mod g is d."""
    assert floordiv(dim(0), 8, (8,)) == constant(0)
    assert mod(dim(0), 8, (8,)) == dim(0)
    assert drop_unit((floordiv(dim(0), 8, ()),), (8,)) == (constant(0),)
    assert floordiv(dim(0), 8, (9,)) != constant(0)


def test_printed_expressions() -> None:
    """What stands in an affine map."""
    assert to_affine(plus(times(dim(0), 4), plus(dim(1), constant(2)))) == "2 + d0 * 4 + d1"
    assert to_affine(constant(0)) == "0"
    assert to_affine(floordiv(dim(0), 4, ())) == "((d0) floordiv 4)"
    assert affine_map(2, (dim(1), dim(0))) == "affine_map<(d0, d1) -> (d1, d0)>"
    assert affine_map(0, ()) == "affine_map<() -> ()>"


def test_gather_of_the_first_elements() -> None:
    """The identity over smaller extents: a slice that begins at 0."""
    array = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(gather(array, identity(2), (2, 3)), array[:2])
    assert gather(array, identity(2), (4, 3)) is array
    assert gather(array[:1], identity(2), (4, 3)).shape == (1, 3)
