"""Tables in TOSA: of 8 bits, and of 16 bits, where TABLE gives seven bits more than a point has.

%t = tosa.table %x, %points : i16, 513 x i16 -> i32    several where the integers are in ranges, and a `select`
%r = tosa.rescale %t {2^-7} : i32 -> i16
"""

from __future__ import annotations

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.elementwise import PlannedLookup, Points
from qfuse.emit.tosa_operand import held_as
from qfuse.emit.tosa_ops import TosaOps, bits_of
from qfuse.emit.tosa_unsigned import as_held, as_stored, unflip, unflipped
from qfuse.fixed_point import Multiplier
from qfuse.qparams import QuantParams, StorageType


def looked_up(ops: TosaOps, value: Value, planned: PlannedLookup) -> Value:
    """A function of stored integers."""
    params = planned.node.params
    if planned.points is not None:
        return interpolated(ops, value, params, planned.points)
    held, unsigned = np.asarray(planned.table).astype(np.int64), not params.storage.signed
    if unsigned:
        held = (held & 255) - 128
    # Entries are by the bits of the integer; TOSA's begin with the least signed one.
    signed = unflipped(ops, value)
    entries = ops.constant(np.roll(held, 128) if signed is None else held, "i8")
    value = ops.elementwise("tosa.table", [value if signed is None else signed], "i8", extra=[entries])
    return unflip(ops, value) if unsigned else value


def interpolated(ops: TosaOps, value: Value, params: QuantParams, points: Points) -> Value:
    """A function of stored integers, read between points; see `Points.apply`."""
    value = as_held(ops, value, StorageType(bits_of(ops.element(value)), not points.offset), points.offset)
    if points.spread:
        value = ops.rescale(value, _power(-points.spread), "single", "i16")
    lines = _lines(ops, value, points)
    line = lines[0]
    if len(lines) > 1:
        finer = ops.binary("mul", line, ops.number(256, len(ops.shape(line)), "i32"))
        line = ops.binary("add", finer, lines[1])
    found = held_as(params.storage, params.quant_min, params.quant_max)
    assert found is not None
    held, offset = found
    result = ops.rescale(line, _power(points.shift), "single", held.mlir)
    return as_stored(
        ops, ops.clamp(result, params.quant_min - offset, params.quant_max - offset), params.storage, offset
    )


def _lines(ops: TosaOps, value: Value, points: Points) -> list[Value]:
    """What is read of each table of points; of several ranges, that of the range that an integer is in.

    A range has 2^(16 - n) integers: moved up by n bits, all that is left of an integer is its place there.
    """
    rank, finer = len(ops.shape(value)), points.finer
    place = value
    if finer:
        place = ops.elementwise("tosa.logical_left_shift", [value, ops.number(finer, rank, "i16")], "i16")
        place = ops.elementwise("tosa.bitwise_xor", [place, ops.number(-(1 << 15), rank, "i16")], "i16")
        value = ops.cast(value, "i32")
    starts = [(k << (16 - finer)) - (1 << 15) for k in range(1 << finer)]
    within = [ops.elementwise("tosa.greater_equal", [value, ops.number(s, rank, "i32")], "i1") for s in starts[1:]]
    lines: list[Value] = []
    for rows in points.tables:
        first, *others = (ops.elementwise("tosa.table", [place], "i32", extra=[ops.constant(t, "i16")]) for t in rows)
        for there, other in zip(within, others, strict=True):
            first = ops.elementwise("tosa.select", [there, other, first], "i32")
        lines.append(first)
    return lines


def _power(shift: int) -> Multiplier:
    """`2^-shift`."""
    return Multiplier(np.asarray(1), np.asarray(shift), 0)
