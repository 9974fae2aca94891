"""Tables in TOSA: of 8 bits, and of 16 bits, where TABLE gives seven bits more than a point has.

%t = tosa.table %x, %points : i16, 513 x i16 -> i32
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
    lines = [ops.elementwise("tosa.table", [value], "i32", extra=[ops.constant(t, "i16")]) for t in points.tables]
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


def _power(shift: int) -> Multiplier:
    """`2^-shift`."""
    return Multiplier(np.asarray(1), np.asarray(shift), 0)
