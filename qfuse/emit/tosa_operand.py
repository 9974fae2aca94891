"""Operands of TOSA's contractions: which integers are handed over, and where their zero points go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfuse.emit.fixed_epilogue import FixedScale
from qfuse.emit.spec import Side
from qfuse.graph import Array
from qfuse.indexing import dims_of_index, positions
from qfuse.qparams import Param, StorageType, over_extents


@dataclass(eq=False)
class Operand:
    """One operand as TOSA takes it.

    Attributes:
        side: the planned operand.
        storage: type of the integers that are handed over, signed.
        array: constant integers, over the stored tensor's dimensions, or None.
        zero: what goes into the zero-point operand.
        rest: the zero point that does not, or None.
        offset: how much less the stored integers are handed over: 128 of unsigned bytes.
    """

    side: Side
    storage: StorageType
    array: Array | None
    zero: int = 0
    rest: Param | None = None
    offset: int = 0


def accumulator_of(lhs: StorageType, rhs: StorageType) -> int:
    """Width of the accumulators of operands of these types."""
    return 48 if max(lhs.bits, rhs.bits) > 8 else 32


def multiplier_bits_of(accumulator: int) -> int:
    """Bits of the multipliers that rescale accumulators of this width."""
    return 15 if accumulator == 48 else 31


def held_as(storage: StorageType, low: int, high: int) -> tuple[StorageType, int] | None:
    """The signed type of 8 or 16 bits that stored integers from `low` to `high` are computed in, less an offset.

    16 bits may be kept in i32, unsigned ones too: their type is found from the range. None where they do not fit.
    """
    if storage.bits <= 8:
        return StorageType(8, True), 0 if storage.signed or storage.bits < 8 else 128
    if storage.bits == 16:
        return (storage, 0) if storage.signed else None
    half = 1 << 15
    offset = 0 if -half <= low and high < half else half if low >= 0 else low + half
    return (StorageType(16, True), offset) if high - offset < half and storage.bits == 32 else None


def held_operand(side: Side) -> tuple[StorageType, int] | None:
    """`held_as` of an operand, whose integers may be constant."""
    storage, array = side.storage, side.array
    if array is None or storage.bits <= 8 or not array.size:
        return held_as(storage, side.form.low, side.form.high)
    low, high = int(array.min()), int(array.max())
    return (StorageType(8, True), 0) if low >= -128 and high <= 127 else held_as(storage, low, high)


def operand_of(side: Side) -> Operand:
    """How an operand is handed over, which `held_operand` says it can be; nothing is built."""
    array, zero = side.array, side.params.zero_point
    held = held_operand(side)
    assert held is not None
    storage, offset = held
    if array is not None:
        array = (array.astype(np.int64) - offset).astype(f"i{storage.bits // 8}")
    if offset and zero.data is not None:
        zero = Param(zero.index, zero.data.astype(np.int64) - offset, element="i64")
    if zero.is_zero:
        return Operand(side, storage, array, offset=offset)
    number = zero.scalar
    if number is not None and storage.bits == 8 and -128 <= number <= 127:
        return Operand(side, storage, array, int(number), offset=offset)
    if array is not None and zero.data is not None:
        less = shifted(array, zero, side)
        if less is not None and storage.min <= less.min(initial=0) and less.max(initial=0) <= storage.max:
            return Operand(side, storage, less.astype(f"i{storage.bits // 8}"), offset=offset)
    return Operand(side, storage, array, 0, zero, offset)


def shifted(array: Array, zero: Param, side: Side) -> Array | None:
    """A constant operand less its zero points, over the loops; None where one integer is read with several of them."""
    assert zero.data is not None
    index = side.index
    loops = side.params.extents
    read = dims_of_index(index)
    if not dims_of_index(zero.index) <= read:
        return None
    sizes = tuple((n or 0) if d in read else 1 for d, n in enumerate(loops))
    zeros = over_extents(zero.data.astype(np.int64), zero.index, sizes)
    if zeros is None:
        return None
    places = tuple(positions(e, sizes) for e in index)
    less = np.zeros(array.shape, np.int64)
    less[places] = zeros
    return array.astype(np.int64) - less if bool((less[places] == zeros).all()) else None


def fits_operand(storage: StorageType, zero: int) -> bool:
    """Whether a zero point can be the operand of a RESCALE to this signed type."""
    return storage.min <= zero <= storage.max if storage.bits == 8 else zero == 0


def held_result(storage: StorageType, scale: FixedScale) -> tuple[StorageType, int]:
    """The signed type that a result is made in and how much less it is made: see `held_as`; itself where it is wide."""
    held = held_as(storage, int(scale.low.min(initial=storage.max)), int(scale.high.max(initial=storage.min)))
    return (StorageType(storage.bits, True), 0) if held is None else held


def uniform(array: Array) -> int | None:
    """The one integer of an array, or None."""
    flat = array.reshape(-1)
    return int(flat[0]) if flat.size and bool((flat == flat[0]).all()) else None
