"""Products of 16 bits in TOSA: matmul takes i16 less a zero point of 0, and adds nothing.

What is missing becomes further terms of the same sum of products, which stays exact in i48:

    sum (x - zx) (y - zy) + c  =  [x, -zx, x, 32767 .. 1] . [y, y, -zy, digits of c]

`x - zx` itself is one tensor where it fits i16, and constant operands are taken less their zero points. Products of two
constants, and the bias, are one number a column (or a row), whose digits are further rows of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import loops_to_dims, out_extents
from qfuse.emit.spec import PlannedContraction
from qfuse.emit.tosa_operand import Operand, held_operand, shifted
from qfuse.emit.tosa_ops import TosaOps
from qfuse.graph import Array
from qfuse.indexing import compose, dims_of, dims_of_index, gather, positions
from qfuse.matchers.nodes import Convolution
from qfuse.qparams import Param, over_extents

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
#: Products of i16 that an i48 sum takes.
_TERMS = 1 << 17


@dataclass(frozen=True, eq=False)
class Part:
    """A tensor of i16: with others it adds up to an operand less its zero point.

    Attributes:
        array: constant integers over the stored tensor's dimensions; or
        number: the same constant everywhere; or
        offset: how much less the stored integers are taken.
    """

    array: Array | None = None
    number: int | None = None
    offset: int = 0

    @property
    def is_known(self) -> bool:
        """Whether it is constant."""
        return self.array is not None or self.number is not None


@dataclass(frozen=True, eq=False)
class Product:
    """A sum of products as matmul takes it.

    Attributes:
        pairs: what is multiplied and added up.
        rows: constant factors of further terms.
        digits: the other factors, one array a row, over the accumulators' groups (batch, rows, columns).
    """

    pairs: tuple[tuple[Part, Part], ...]
    rows: tuple[int, ...]
    digits: tuple[Array, ...]


def plan_product(planned: PlannedContraction, lhs: Operand, rhs: Operand, bias: Array | None = None) -> Product | str:
    """How a product of 16 bits and a bias over the accumulators' dimensions are written, or why they are not."""
    parts = [_parts(lhs), _parts(rhs)]
    left, right = parts
    if isinstance(left, str):
        return left
    if isinstance(right, str):
        return right
    if planned.blocked is not None:
        return "16 bits in groups along the reduction"
    total = np.zeros((1,) * len(planned.out_loops), np.int64) if bias is None else bias.astype(np.int64)
    pairs: list[tuple[Part, Part]] = []
    for a in left:
        for b in right:
            if a.is_known and b.is_known:
                total = total + _known(planned, (a, lhs), (b, rhs))
            else:
                pairs.append((a, b))
    size = int(np.prod([planned.extents[d] or 1 for d in planned.reduction], dtype=np.int64))
    grouped = by_groups(planned, total)
    if grouped.shape[1] != 1 and grouped.shape[2] != 1:
        return "a bias of products of 16 bits varies along rows and columns"
    rows, digits = digits_of(grouped)
    terms = size * len(pairs) + len(rows)
    if terms > _TERMS or len(rows) > size + 16:
        return f"zero points and bias make {terms} products of 16 bits of {size}"
    return Product(tuple(pairs), rows, digits)


def _parts(operand: Operand) -> list[Part] | str:
    """An operand less its zero point as a sum of i16 tensors."""
    side, offset = operand.side, operand.offset
    held = held_operand(side)
    assert held is not None
    if operand.array is not None:
        array = operand.array.astype(np.int64) - operand.zero
        if operand.rest is not None:
            known = None if operand.rest.data is None else shifted(array, operand.rest, side)
            if known is None:
                return "the zero point of a constant operand of 16 bits is known at run time only"
            array = known
        return [Part(array=a) for a in _in_parts(array)]
    zero = operand.zero if operand.rest is None else operand.rest.scalar
    if zero is None:
        return "a zero point of 16 bits varies or is known at run time only"
    zero = int(zero)
    low, high = (n - offset - zero for n in (side.form.low, side.form.high))
    if low >= _LEAST and high <= _MOST:
        return [Part(offset=offset + zero)]
    return [Part(offset=offset), *(Part(number=int(n)) for n in _in_parts(np.asarray(-zero)))]


def _in_parts(array: Array) -> list[Array]:
    """Integers as a sum of ones of i16; at least one."""
    found: list[Array] = []
    rest = array.astype(np.int64)
    while not found or rest.any():
        part = np.clip(rest, _LEAST, _MOST)
        if not found and array.ndim == 0 and abs(int(rest)) > _MOST:
            part = rest // 2
        found.append(part)
        rest = rest - part
    return found


def _known(planned: PlannedContraction, left: tuple[Part, Operand], right: tuple[Part, Operand]) -> Array:
    """The sum of products of two constants, over the accumulators' dimensions."""
    factors: list[Array] = []
    read: set[int] = set()
    for part, operand in (left, right):
        loops = dims_of_index(operand.side.index) if part.array is not None else frozenset[int]()
        sizes = [(n or 1) if d in loops else 1 for d, n in enumerate(planned.extents)]
        array = np.full(sizes, part.number, np.int64) if part.array is None else gather(
            part.array.astype(np.int64), operand.side.index, sizes
        )  # fmt: skip
        factors.append(np.broadcast_to(array, sizes))
        read |= loops
    product = factors[0] * factors[1]
    times = int(np.prod([planned.extents[d] or 1 for d in planned.reduction if d not in read], dtype=np.int64))
    return _summed(planned, product) * times


def filter_sums(planned: PlannedContraction, filters: Operand, within: bool) -> Array:
    """Sums of constant filters, less their zero point, over the accumulators' dimensions; extent 1 where all are equal.

    Args:
        planned: a contraction.
        filters: its second operand.
        within: whether what a window reads of the padding is left out of its sum.
    """
    node = planned.node
    assert filters.array is not None
    read = dims_of_index(filters.side.index)
    sizes = [(n or 1) if d in read else 1 for d, n in enumerate(planned.extents)]
    sums = gather(filters.array, filters.side.index, sizes).astype(np.int64) - filters.zero
    sums = np.broadcast_to(sums, sizes)
    if within and isinstance(node, Convolution):
        inner = planned.lhs.form.params.extents
        for place, extent, padding in zip(node.lhs_index, inner, node.padding, strict=True):
            if any(padding):
                loops = dims_of(place)
                at = positions(place, [(n or 1) if d in loops else 1 for d, n in enumerate(planned.extents)])
                taps = tuple(loops & set(planned.reduction))
                sums = (sums * ((at >= 0) & (at < (extent or 0)))).sum(axis=taps, keepdims=True)
    return _summed(planned, sums)


def _summed(planned: PlannedContraction, array: Array) -> Array:
    """What is over the loops, summed up over those that are none of the accumulators' dimensions."""
    rest = [d for d in range(array.ndim) if d not in planned.out_loops]
    sums = array.sum(axis=tuple(rest), keepdims=True)
    return sums.transpose([*planned.out_loops, *rest]).reshape([sums.shape[d] for d in planned.out_loops])


def by_groups(planned: PlannedContraction, array: Array) -> Array:
    """What is over the accumulators' dimensions, over (batch, rows, columns): extent 1 where it does not vary."""
    rank = len(planned.out_loops)
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    groups = groups_of(planned)
    shape: list[int] = []
    target = list(array.shape)
    order: list[int] = []
    for group in groups:
        places = [planned.out_loops.index(d) for d in group]
        varies = any(array.shape[p] != 1 for p in places)
        for p in places:
            target[p] = (planned.extents[planned.out_loops[p]] or 1) if varies else 1
        order += places
        shape.append(int(np.prod([target[p] for p in places], dtype=np.int64)))
    rest = [p for p in range(rank) if p not in order]
    return np.broadcast_to(array, target).transpose([*rest, *order]).reshape(shape)


def groups_of(planned: PlannedContraction) -> tuple[list[int], list[int], list[int]]:
    """The result's loops that both operands are read along, the first only, and the second only."""
    left, right = dims_of_index(planned.lhs.index), dims_of_index(planned.rhs.index)
    out = planned.out_loops
    return (
        [d for d in out if d in left and d in right],
        [d for d in out if d in left and d not in right],
        [d for d in out if d in right and d not in left],
    )


def over_dims(ops: TosaOps, planned: PlannedContraction, param: Param, element: str) -> Value:
    """A parameter over the accumulators' dimensions, extent 1 where it does not vary."""
    to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
    extents = out_extents(planned.extents, planned.out_loops)
    index = compose(param.index, to_dims, extents)
    if param.data is not None:
        found = over_extents(param.data, index, extents)
        assert found is not None
        return ops.constant(found, element)
    value = ops.cast(param.value, element)
    return ops.aligned(value, index, len(extents))


def digits_of(total: Array) -> tuple[tuple[int, ...], tuple[Array, ...]]:
    """`total = sum_j rows[j] * digits[j]`, everything of i16."""
    if not total.any():
        return (), ()
    if int(np.abs(total).max()) <= _MOST:
        return (1,), (total,)
    high = np.rint(total / _MOST).astype(np.int64)
    low = total - high * _MOST
    rows: list[int] = []
    digits: list[Array] = []
    while high.any():
        part = np.clip(high, -_MOST, _MOST)
        rows.append(_MOST)
        digits.append(part)
        high = high - part
    if low.any():
        rows.append(1)
        digits.append(low)
    return tuple(rows), tuple(digits)


__all__ = ["Part", "Product", "by_groups", "digits_of", "filter_sums", "groups_of", "over_dims", "plan_product"]
