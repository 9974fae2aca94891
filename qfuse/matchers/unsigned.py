"""Unsigned storage in TOSA, which has signless types and reads all of them as signed.

torch-mlir writes a quantize to uint8 as a clamp to [0, 255] and a cast that saturates at 127, and reads it back with
its sign: the numbers are wrong from 128 on. What was meant is recovered from the clamp and from the zero point, which
for unsigned storage may lie beyond the signed range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qfuse._mlir import Bindings, Operation, Value
from qfuse.matchers.layout import source_index
from qfuse.matchers.roles import ContradictionError
from qfuse.matchers.tosa_layout import KINDS
from qfuse.qparams import Param, StorageType


@dataclass(frozen=True)
class Meant:
    """The storage that was meant.

    Attributes:
        storage: integer type and signedness.
        low: least stored integer.
        high: greatest one.
        repaired: whether the IR reads the storage otherwise.
    """

    storage: StorageType
    low: float
    high: float
    repaired: bool = False


def meant_by_quantize(bits: int, clamp: tuple[float, float], zero_point: Param) -> Meant | None:
    """Unsigned storage where a clamp before a saturating cast, or a zero point, says so; None for signed storage.

    Raises:
        ContradictionError: clamp and zero point contradict each other.
    """
    signed, unsigned = StorageType(bits, True), StorageType(bits, False)
    low, high = clamp
    span = zero_point.span
    if signed.min <= low and high <= signed.max:
        is_whole_range = (low, high) == (signed.min, signed.max)
        if span is None or not is_whole_range or not is_beyond(span, bits):
            return None
        return Meant(unsigned, unsigned.min, unsigned.max, True)
    if low < unsigned.min or high > unsigned.max:
        return None
    if span is not None and span[0] < 0:
        raise ContradictionError(
            f"the clamp [{low:g}, {high:g}] is that of unsigned storage and the zero point {span[0]:g} is negative"
        )
    return Meant(unsigned, low, high, True)


def is_beyond(span: tuple[float, float], bits: int) -> bool:
    """Whether zero points of this span are those of unsigned storage and of no signed one."""
    return span[0] >= 0 and StorageType(bits, True).max < span[1] <= StorageType(bits, False).max


class UnsignedStorage:
    """Which integer tensors of a module hold unsigned values, as far as that is known.

    Attributes:
        of_quantize: for each result of a quantize whether it is unsigned.
    """

    def __init__(self, bindings: Bindings) -> None:
        """Knows nothing yet."""
        self._bindings = bindings
        self.of_quantize: dict[Value, bool] = {}

    def known(self, value: Value) -> bool | None:
        """Whether what `value` holds was quantized to unsigned storage, or None when no quantize is behind it."""
        for _ in range(64):
            found = self.of_quantize.get(value)
            op = getattr(value.owner, "operation", None)
            if found is not None or op is None or not self._moves(op):
                return found
            value = op.operands[0]
        return None

    def _moves(self, op: Operation) -> bool:
        return op.name in KINDS or source_index(self._bindings, op) is not None

    def meant_by_dequantize(self, value: Value, bits: int, zero_point: Param) -> bool:
        """Whether a dequantize that reads `value` with its sign was meant to read it as unsigned.

        Raises:
            ContradictionError: the quantize behind it and the zero point contradict each other.
        """
        made = self.known(value)
        span = zero_point.span
        if span is not None and is_beyond(span, bits):
            if made is False:
                raise ContradictionError(
                    f"the zero point {span[1]:g} is that of unsigned storage, which was quantized to signed integers"
                )
            return True
        if made and span is not None and span[0] < 0:
            raise ContradictionError(
                f"the zero point {span[0]:g} is negative and the storage was quantized as unsigned"
            )
        return bool(made)


Accepts = Callable[[Operation], bool]


def signed_reader(bindings: Bindings, value: Value, accepts: Accepts) -> Operation | None:
    """An operation that reads unsigned integers, also behind moves, and that is not one of those that are corrected."""
    pending, seen = [value], {hash(value)}
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if not len(user.results) or accepts(user):
                continue
            if user.name not in KINDS:
                return user
            result = user.results[0]
            if hash(result) not in seen:
                seen.add(hash(result))
                pending.append(result)
    return None
