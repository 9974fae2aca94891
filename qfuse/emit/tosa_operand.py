"""Operands of TOSA's contractions: which integers are handed over, and where their zero points go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfuse.emit.spec import Side
from qfuse.graph import Array
from qfuse.indexing import Index, as_dim
from qfuse.qparams import Param, StorageType, broadcast_to_dims


@dataclass(eq=False)
class Operand:
    """One operand as TOSA takes it.

    Attributes:
        side: the planned operand.
        storage: type of the integers that are handed over, signed.
        array: constant integers, over the stored tensor's dimensions, or None.
        zero: what goes into the zero-point operand.
        rest: the zero point that does not, or None.
        flipped: whether unsigned bytes are handed over 128 less.
    """

    side: Side
    storage: StorageType
    array: Array | None
    zero: int = 0
    rest: Param | None = None
    flipped: bool = False


def operand_of(side: Side) -> Operand:
    """How an operand is handed over; nothing is built."""
    storage, array, zero = side.storage, side.array, side.params.zero_point
    flipped = not storage.signed and storage.bits == 8
    if flipped:
        storage = StorageType(8, True)
        array = None if array is None else (array.astype(np.int16) - 128).astype(np.int8)
        if zero.data is not None:
            zero = Param(zero.index, zero.data.astype(np.int64) - 128, element="i64")
    if array is not None and storage.bits < 8:
        storage = StorageType(8, True)
    if zero.is_zero:
        return Operand(side, storage, array, flipped=flipped)
    number = zero.scalar
    if number is not None and storage.bits == 8 and -128 <= number <= 127:
        return Operand(side, storage, array, int(number), flipped=flipped)
    if array is not None and zero.data is not None:
        shifted = _shifted(array, zero, side.index)
        if shifted is not None and storage.min <= shifted.min(initial=0) and shifted.max(initial=0) <= storage.max:
            return Operand(side, storage, shifted.astype(f"i{storage.bits // 8}"), flipped=flipped)
    return Operand(side, storage, array, 0, zero, flipped)


def _shifted(array: Array, zero: Param, index: Index) -> Array | None:
    """A constant operand less its zero points, which run along whole dimensions of it."""
    dims = [as_dim(e) for e in index]
    if any(d is None and n != 1 for d, n in zip(dims, array.shape, strict=True)):
        return None
    unread = 1 + max((d for d in dims if d is not None), default=0)
    found = broadcast_to_dims(zero, [unread + i if d is None else d for i, d in enumerate(dims)])
    return None if found is None else array.astype(np.int64) - found.astype(np.int64)
