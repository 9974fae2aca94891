"""Unsigned storage in TOSA, which has signless types and reads all of them as signed.

torch-mlir writes a quantize to uint8 as a clamp to [0, 255] and a cast that saturates at 127, and reads it back with
its sign: the numbers are wrong from 128 on. What was meant is recovered from the clamp and from the zero point, which
for unsigned storage may lie beyond the signed range.

Its ONNX importer writes the signed bounds for both. Where a zero point beyond 127 says so, quantizes of the same block
whose zero points fit both are taken as unsigned, unless a negative one says that there are signed ones, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfuse._mlir import Bindings, Operation, Value
from qfuse.matchers.constants import ConstantReader
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


@dataclass(frozen=True)
class Bounds:
    """What the quantizes of a block with bounds of signed bytes stand for, as far as their zero points say so.

    Attributes:
        unsigned: whether one can only be unsigned.
        signed: whether one can only be signed.
    """

    unsigned: bool = False
    signed: bool = False


def meant_by_quantize(bits: int, clamp: tuple[float, float], zero_point: Param, others: Bounds) -> Meant | None:
    """Unsigned storage where a clamp before a saturating cast, or a zero point, says so; None for signed storage.

    Args:
        bits: of the storage.
        clamp: bounds of what is cast.
        zero_point: of the quantize.
        others: what quantizes with bounds of signed bytes are around it.

    Raises:
        ContradictionError: clamp and zero point contradict each other.
    """
    signed, unsigned = StorageType(bits, True), StorageType(bits, False)
    low, high = clamp
    span = zero_point.span
    if signed.min <= low and high <= signed.max:
        is_whole_range = (low, high) == (signed.min, signed.max)
        if span is None or not is_whole_range:
            return None
        if not is_beyond(span, bits):
            if span[0] < 0 or not others.unsigned:
                return None
            if others.signed:
                raise ContradictionError(
                    f"the clamp [{low:g}, {high:g}] stands for signed and for unsigned storage in the function, and the"
                    f" zero point {span[0]:g} fits both"
                )
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
        around: what the quantizes of the block that was surveyed last say.
    """

    def __init__(self, bindings: Bindings, constants: ConstantReader) -> None:
        """Knows nothing yet."""
        self._bindings = bindings
        self._constants = constants
        self.of_quantize: dict[Value, bool] = {}
        self.around = Bounds()
        self._surveyed: dict[Value, Bounds] = {}

    def survey(self, op: Operation) -> None:
        """Reads the quantizes of the block that `op` is in, so that `around` speaks of these."""
        if self._bindings.element_name(op.results[0].type) != "i8":
            return
        operations = op.block.operations
        first = operations[0].operation.results
        key = first[0] if len(first) else op.results[0]
        if key not in self._surveyed:
            zeros = [z for o in operations if (z := self._zero_of_signed_bounds(o.operation)) is not None]
            self._surveyed[key] = Bounds(any(z > 127 for z in zeros), any(z < 0 for z in zeros))
        self.around = self._surveyed[key]

    def _zero_of_signed_bounds(self, op: Operation) -> float | None:
        """The zero point of a quantize that clamps to the bounds of signed bytes, or None for other operations."""
        if op.name != "tosa.clamp":
            return None
        bounds = op.attributes["min_val"].value, op.attributes["max_val"].value
        users = [use.owner.operation for use in op.results[0].uses]
        if bounds != (-128.0, 127.0) or not any(u.name in ("tosa.cast", "tosa.ceil") for u in users):
            return None
        source = getattr(op.operands[0].owner, "operation", None)
        if source is None or source.name != "tosa.add":
            return 0.0
        numbers = [self._constants.scalar(v) for v in source.operands]
        return next((float(n[0]) for n in numbers if n is not None), None)

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
