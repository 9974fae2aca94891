"""What the loops of a contraction are to a kernel, a letter each, and how its tensors are brought into a layout.

A matrix product has rows `m`, columns `n`, a reduction `k` and batches `b`. A convolution has batches `n`, positions
`d`, `h`, `w` of the window, input channels `c`, output channels `o` and groups `g`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.spec import PlannedContraction
from qfuse.graph import Array, Refusal
from qfuse.indexing import Extents, Index, as_dim, dims_of_index
from qfuse.matchers.nodes import Convolution

_POSITIONS = ("", "w", "hw", "dhw")


@dataclass(frozen=True)
class Roles:
    """The letters of a contraction.

    Attributes:
        lhs: for each dimension of the first operand its letter, and which of the loops of that letter it is.
        rhs: the same for the second.
        out: the same for the accumulators.
        strides: of the window, in the order of its letters.
        dilations: the same.
    """

    lhs: tuple[tuple[str, int], ...]
    rhs: tuple[tuple[str, int], ...]
    out: tuple[tuple[str, int], ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


def roles_of(planned: PlannedContraction, lhs: Index, rhs: Index) -> Roles | Refusal:
    """The letters of a contraction whose operands are read at these indices over its loops."""
    if isinstance(planned.node, Convolution):
        return _convolution(planned, lhs, rhs)
    left, right = dims_of_index(lhs), dims_of_index(rhs)
    letters: dict[int, tuple[str, int]] = {}
    for loop in (*planned.out_loops, *planned.reduction):
        letter = "k" if loop in planned.reduction else "mnb"[2 if loop in left & right else 0 if loop in left else 1]
        letters[loop] = letter, sum(1 for other, _ in letters.values() if other == letter)
    return _named(planned, lhs, rhs, letters, {})


def _convolution(planned: PlannedContraction, lhs: Index, rhs: Index) -> Roles | Refusal:
    left, right = dims_of_index(lhs), dims_of_index(rhs)
    windows: dict[int, tuple[int, int]] = {}
    strides: dict[int, int] = {}
    dilations: dict[int, int] = {}
    for position, expr in enumerate(lhs):
        if as_dim(expr) is not None or not expr.terms:
            continue
        terms = {atom.position: factor for atom, factor in expr.terms if atom.kind == "d"}
        moved = [loop for loop in terms if loop in planned.out_loops]
        inside = [loop for loop in terms if loop in planned.reduction and loop in right]
        if expr.const or len(terms) != len(expr.terms) or len(moved) != 1 or len(inside) != 1 or len(terms) != 2:
            return Refusal("the window is not one position and one place in it a dimension")
        windows[position] = moved[0], inside[0]
        strides[moved[0]], dilations[moved[0]] = terms[moved[0]], terms[inside[0]]
    if not 0 < len(windows) < len(_POSITIONS):
        return Refusal(f"the window has {len(windows)} dimensions, a kernel has one to three")
    order = sorted((planned.out_loops.index(moved), position) for position, (moved, _) in windows.items())
    letters: dict[int, tuple[str, int]] = {}
    at: dict[int, tuple[str, int]] = {}
    ordered: list[int] = []
    for letter, (_, position) in zip(_POSITIONS[len(windows)], order, strict=True):
        moved, inside = windows[position]
        letters[moved] = letters[inside] = at[position] = letter, 0
        ordered.append(moved)
    for loop in (*planned.out_loops, *planned.reduction):
        if loop in letters:
            continue
        both = loop in left and loop in right
        letter = "c" if loop in planned.reduction else "g" if both else "n" if loop in left else "o"
        letters[loop] = letter, sum(1 for other, _ in letters.values() if other == letter)
    named = _named(planned, lhs, rhs, letters, at)
    if isinstance(named, Refusal):
        return named
    return Roles(
        named.lhs, named.rhs, named.out, tuple(strides[d] for d in ordered), tuple(dilations[d] for d in ordered)
    )


def _named(
    planned: PlannedContraction,
    lhs: Index,
    rhs: Index,
    letters: Mapping[int, tuple[str, int]],
    at: Mapping[int, tuple[str, int]],
) -> Roles | Refusal:
    found: list[tuple[tuple[str, int], ...]] = []
    for role, index in (("lhs", lhs), ("rhs", rhs)):
        known = at if role == "lhs" else dict[int, tuple[str, int]]()
        dims: list[tuple[str, int]] = []
        for position, expr in enumerate(index):
            loop = as_dim(expr)
            if position in known:
                dims.append(known[position])
            elif loop is not None:
                dims.append(letters[loop])
            elif not expr.terms and not expr.const:
                dims.append(("", position))
            else:
                return Refusal(f"dimension {position} of {role} is not read along one loop")
        if len(set(dims)) != len(dims):
            return Refusal(f"{role} is read along a diagonal")
        found.append(tuple(dims))
    return Roles(found[0], found[1], tuple(letters[loop] for loop in planned.out_loops))


# -- layouts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrangement:
    """How a tensor is brought into a layout: its dimensions permuted, then taken together, a letter each.

    Attributes:
        permutation: for each dimension of the permuted tensor the one of the tensor.
        groups: for each letter of the layout its dimensions in the permuted tensor; none for a letter of extent 1.
        permuted: extents of the permuted tensor.
        extents: of the arranged tensor.
    """

    permutation: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    permuted: Extents
    extents: Extents


def arrange(what: str, dims: Sequence[tuple[str, int]], extents: Extents, layout: str) -> Arrangement | Refusal:
    """From dimensions with these letters and extents to a layout."""
    for (letter, _), extent in zip(dims, extents, strict=True):
        if letter not in layout and extent != 1:
            return Refusal(f"{what} has the layout {layout}, found a dimension {letter} of {_shown(extent)}")
    # Dimensions of extent 1 that the layout does not have go to the front, into the first letter's group.
    unit = [i for i, (letter, _) in enumerate(dims) if not letter or letter not in layout]
    groups: list[tuple[int, ...]] = []
    permutation: list[int] = []
    for position, letter in enumerate(layout):
        own = sorted((number, i) for i, (other, number) in enumerate(dims) if other == letter)
        members = [*(unit if not position else []), *(i for _, i in own)]
        groups.append(tuple(range(len(permutation), len(permutation) + len(members))))
        permutation += members
    permuted = tuple(extents[i] for i in permutation)
    arranged: list[int | None] = []
    for letter, group in zip(layout, groups, strict=True):
        sizes = [permuted[i] for i in group]
        known = [n for n in sizes if n is not None]
        if len(known) < len(sizes) and len([n for n in sizes if n != 1]) > 1:
            return Refusal(f"{what} has {len(sizes)} dimensions for {letter}, one of them dynamic")
        arranged.append(prod(known) if len(known) == len(sizes) else None)
    return Arrangement(tuple(permutation), tuple(groups), permuted, tuple(arranged))


def _shown(extent: int | None) -> str:
    return "dynamic extent" if extent is None else f"extent {extent}"


def arranged_constant(array: Array, arrangement: Arrangement) -> Array:
    """A constant in a layout."""
    sizes = [n or 0 for n in arrangement.extents]
    return np.ascontiguousarray(array.transpose(arrangement.permutation).reshape(sizes))


def arranged(value: Value, arrangement: Arrangement, context: BuildContext) -> Value:
    """A tensor in a layout; a transpose that undoes the one it comes from takes what was before."""
    moved = transposed(value, arrangement.permutation, context)
    groups, extents = list(arrangement.groups), arrangement.extents
    element = context.bindings.element_name(value.type)
    full = [g for g in groups if g]
    if not full:
        return context.emitter.expand_shape(moved, [], extents, element) if groups else moved
    if any(len(g) > 1 for g in full):
        sizes = tuple(n for n, g in zip(extents, groups, strict=True) if g)
        moved = _collapsed(moved, full, sizes, element, context)
    if len(full) == len(groups):
        return moved
    ends = _absorbing(groups)
    return context.emitter.expand_shape(moved, ends, extents, element)


def restored(value: Value, arrangement: Arrangement, context: BuildContext) -> Value:
    """The tensor that `arranged` gives `value` for: the way back."""
    groups = list(arrangement.groups)
    element = context.bindings.element_name(value.type)
    full = [g for g in groups if g]
    if len(full) < len(groups):
        sizes = tuple(n for n, g in zip(arrangement.extents, groups, strict=True) if g)
        value = _collapsed(value, _absorbing(groups), sizes, element, context)
    if any(len(g) > 1 for g in full) or not full:
        value = context.emitter.expand_shape(value, full, arrangement.permuted, element)
    inverse = tuple(int(i) for i in np.argsort(arrangement.permutation))
    return transposed(value, inverse, context)


def _absorbing(groups: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Letters without dimensions join the one before them, or the first that has any."""
    joined: list[list[int]] = []
    waiting: list[int] = []
    for position, group in enumerate(groups):
        if group:
            joined.append([*waiting, position])
            waiting = []
        elif joined:
            joined[-1].append(position)
        else:
            waiting.append(position)
    return joined


def _collapsed(
    value: Value, groups: Sequence[Sequence[int]], extents: Extents, element: str, context: BuildContext
) -> Value:
    builder = context.builder
    attributes = {"reassociation": builder.attribute("[" + ", ".join(f"{list(g)}" for g in groups) + "]")}
    type_ = builder.tensor(extents, element)
    return builder.create("tensor.collapse_shape", [type_], [value], attributes).results[0]


def transposed(value: Value, permutation: Sequence[int], context: BuildContext) -> Value:
    """`value` with its dimensions permuted, from what a transpose before it reads."""
    while value in context.replaced:
        value = context.replaced[value]
    op = getattr(value.owner, "operation", None)
    whole = tuple(permutation)
    if op is not None and op.name == "linalg.transpose":
        before = context.bindings.integers(op.attributes["permutation"])
        value, whole = op.operands[0], tuple(before[i] for i in permutation)
    if whole == tuple(range(len(whole))):
        return value
    bindings, builder = context.bindings, context.builder
    extents = bindings.extents(value.type)
    moved = tuple(extents[i] for i in whole)
    sizes = [builder.dim(value, whole[i]) for i, n in enumerate(moved) if n is None]
    init = builder.empty(None, moved, bindings.element_name(value.type), sizes)
    return builder.transpose(value, init, whole)


__all__ = ["Arrangement", "Roles", "arrange", "arranged", "arranged_constant", "restored", "roles_of", "transposed"]
