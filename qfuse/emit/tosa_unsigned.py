"""Unsigned bytes in TOSA, whose types are signless: they are kept 128 less, as signed ones, wherever they are read.

RESCALE says which of its sides is unsigned. Where one of the two conversions meets the other, they cancel.
"""

from __future__ import annotations

from qfuse._mlir import Value
from qfuse.emit.tosa_ops import TosaOps
from qfuse.fixed_point import Multiplier
from qfuse.qparams import StorageType

_SAME = Multiplier.of(1.0, 0)


def flip(ops: TosaOps, value: Value) -> Value:
    """Unsigned bytes as signed ones, 128 less."""
    known = unflipped(ops, value)
    return ops.rescale(value, _SAME, "single", "i8", 0, -128, (True, False)) if known is None else known


def as_held(ops: TosaOps, value: Value, storage: StorageType, offset: int) -> Value:
    """Stored integers in the signed type that they are computed in, `offset` less; see `held_as`."""
    if storage.bits == 32:
        return ops.narrow(value, offset)
    return flip(ops, value) if offset else value


def as_stored(ops: TosaOps, value: Value, storage: StorageType, offset: int) -> Value:
    """The stored integers of signed ones that are `offset` less."""
    if storage.bits == 32:
        return ops.widen(value, offset)
    return unflip(ops, value) if offset else value


def unflip(ops: TosaOps, value: Value) -> Value:
    """Signed bytes as unsigned ones, 128 more."""
    return ops.rescale(value, _SAME, "single", "i8", -128, 0, (False, True))


def unflipped(ops: TosaOps, value: Value) -> Value | None:
    """The signed bytes that unsigned ones were made from, in the same order, or None."""
    op = getattr(value.owner, "operation", None)
    if op is None:
        return None
    if op.name == "tosa.rescale":
        return op.operands[0] if _is_unflip(ops, op) else None
    if op.name not in ("tosa.transpose", "tosa.reshape"):
        return None
    source = unflipped(ops, op.operands[0])
    if source is None:
        return None
    if op.name == "tosa.transpose":
        return ops.transpose(source, [int(p) for p in op.attributes["perms"]])
    return ops.reshape(source, ops.shape(value))


def _is_unflip(ops: TosaOps, op: object) -> bool:
    flags = op.attributes  # type: ignore[attr-defined]
    if not flags["output_unsigned"].value or ops.element(op.operands[0]) != "i8":  # type: ignore[attr-defined]
        return False
    numbers = [ops.read(v) for v in list(op.operands)[1:]]  # type: ignore[attr-defined]
    if any(n is None or n.size != 1 for n in numbers):
        return False
    mantissa, shift, zero, result = (int(n.reshape(-1)[0]) for n in numbers if n is not None)
    return mantissa == 1 << shift and (zero, result) == (-128, 0)
