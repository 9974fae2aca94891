"""Average pooling as TOSA's own operation, where the result has the parameters of what is pooled.

    %r = tosa.avg_pool2d %q, %z, %z {acc_type = i32} : i8, i8, i8 -> i8

It divides by the elements of each window that are not padding, by multiplier and shift, and rounds once.
"""

from __future__ import annotations

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.fixed_epilogue import PlannedFixedRequantize
from qfuse.emit.spec import PlannedContraction, PlannedPooling
from qfuse.emit.tosa_contraction import POOLS
from qfuse.emit.tosa_operand import held_as, operand_of
from qfuse.emit.tosa_ops import TosaOps
from qfuse.emit.tosa_unsigned import as_held, flip, unflip
from qfuse.fixed_point import Multiplier
from qfuse.graph import AccumForm, Array
from qfuse.matchers.nodes import Reduction
from qfuse.qparams import Param, QuantParams, StorageType, broadcast_to_dims


def held_input(ops: TosaOps, planned: PlannedPooling, context: BuildContext) -> tuple[Value, StorageType, int]:
    """The integers of which the greatest is taken, in the signed type that they are held in, and how much less."""
    form = planned.form
    held = held_as(planned.storage, form.low, form.high)
    assert held is not None
    return as_held(ops, context.stored(form), planned.storage, held[1]), *held


def held_result_of(ops: TosaOps, value: Value, params: QuantParams) -> tuple[Value, int]:
    """Stored integers of these parameters in the signed type that they are held in, and how much less."""
    held = held_as(params.storage, params.quant_min, params.quant_max)
    assert held is not None
    return as_held(ops, value, params.storage, held[1]), held[1]


def mean_multiplier(form: AccumForm, params: QuantParams) -> Multiplier | None:
    """What `avg_pool2d` multiplies sums by, where a form that is quantized with these parameters is one; else None."""
    planned, counts = form.decision.payload, _divisors(form)
    if counts is None or not isinstance(planned, PlannedContraction) or not planned.unit:
        return None
    node, side = planned.node, planned.lhs
    if not isinstance(node, Reduction) or node.op.name not in POOLS or side.storage.bits != 8:
        return None
    scale, zero = params.scale.scalar, params.zero_point.scalar
    if scale is None or scale != side.params.scale.scalar or side.storage != params.storage or zero is None:
        return None
    if operand_of(side).rest is not None or not params.storage.min <= zero <= params.storage.max:
        return None
    return reciprocal(counts)


def _divisors(form: AccumForm) -> Array | None:
    """What the one step of a form divides by, over the accumulators' dimensions, or None."""
    if len(form.steps) != 1 or form.steps[0].kind != "div":
        return None
    operand, rank = form.steps[0].operand, len(form.decision.payload.out_loops)
    if operand is None:
        return None
    if operand.number is not None:
        found = np.full((1,) * rank, operand.number)
    elif operand.scalar is not None and operand.scalar.op == "array":
        array, index = operand.scalar.payload
        found = broadcast_to_dims(Param(index, array), list(range(rank)))
    else:
        return None
    return None if found is None else found.astype(np.int64)


def reciprocal(counts: Array) -> Multiplier:
    """Multipliers of one over each count, as the specification computes them (`reciprocal_scale`)."""
    k = np.ceil(np.log2(counts)).astype(np.int64)
    return Multiplier(((np.int64(1 << 30) + 1) << k) // counts, 30 + k)


def average(ops: TosaOps, planned: PlannedFixedRequantize, context: BuildContext) -> Value:
    """The pooling of stored integers, clamped."""
    sums: PlannedContraction = planned.form.decision.payload
    side, scale, params = sums.lhs, planned.scale, planned.params
    op = sums.node.op
    value = context.stored(side.form)
    flipped = not side.storage.signed
    if flipped:
        value = flip(ops, value)
    shift = 128 if flipped else 0
    zeros = [operand_of(side).zero, int(params.zero_point.scalar or 0) - shift]
    operands = [value, *(ops.constant(np.asarray([z]), "i8") for z in zeros)]
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["acc_type"] = ops.builder.attribute("i32")
    type_ = ops.builder.tensor(ops.bindings.extents(op.results[0].type), "i8")
    result = ops.builder.create(op.name, [type_], operands, attributes).results[0]
    low, high = (int(a.reshape(-1)[0]) - shift for a in (scale.low, scale.high))
    result = ops.clamp(result, low, high)
    return unflip(ops, result) if flipped else result
