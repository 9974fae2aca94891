"""What TOSA cannot say of what was planned: refused before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qfuse.emit.base import loops_to_dims, out_extents
from qfuse.emit.elementwise import PlannedElementwise, PlannedLookup
from qfuse.emit.expression import nodes
from qfuse.emit.fixed_epilogue import FixedScale, PlannedFixedRequantize, PlannedFixedRescale
from qfuse.emit.rounding import PlannedQuantize
from qfuse.emit.spec import PlannedContraction, PlannedPooling, Side
from qfuse.emit.tosa_contraction import (
    CONVOLUTIONS,
    POOLS,
    is_matmul,
    is_pointwise,
    known_corrections,
)
from qfuse.emit.tosa_expression import WRITTEN, numbers_of
from qfuse.emit.tosa_operand import Operand, held_as, held_operand, multiplier_bits_of, operand_of
from qfuse.emit.tosa_ops import MAX_SHIFT, MIN_SHIFT, rescale_numbers
from qfuse.emit.tosa_patches import reads_patches, takes_channels
from qfuse.emit.tosa_products import by_groups, plan_product
from qfuse.fixed_point import Multiplier
from qfuse.graph import AccumForm, Array, Decision, Environment, Existing, Moved, Pooling, QValue, Refusal, StoredForm
from qfuse.indexing import Extents, Index, as_dim, compose
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Convolution, Reduction
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import StorageType

_MOVES = frozenset({
    "tosa.transpose", "tosa.reshape", "tosa.identity", "tosa.concat", "tosa.pad", "tosa.slice", "tosa.gather",
    "tosa.tile", "tosa.reverse", "tosa.resize",
})  # fmt: skip
_POOLED = ("tosa.max_pool2d", "tosa.reduce_max", "tosa.reduce_min", "tosa.argmax")
_HINT = "use another target, or quantize to int8"


def refuse(decision: Decision, env: Environment) -> Refusal | None:
    """The reason why a decision cannot be written in TOSA, or None."""
    reason = next(_reasons(decision, env), None)
    return None if reason is None else Refusal(f"TOSA has no operation for it: {reason}", _HINT)


def _reasons(decision: Decision, env: Environment) -> Iterator[str]:
    op, payload = decision.node.op, decision.payload
    if not op.name.startswith("tosa."):
        yield f"{op.name} is not an operation of TOSA"
        return
    if None in env.bindings.extents(decision.node.result.type):
        yield "the shape is dynamic"
        return
    for need in decision.needs:
        yield from () if isinstance(need, Decision) else _tensor(need, env)
    yield from _form(decision, env)
    if isinstance(payload, PlannedContraction):
        yield from _contraction(payload)
    elif isinstance(payload, PlannedFixedRequantize):
        yield from _requantize(payload, env)
    elif isinstance(payload, PlannedFixedRescale):
        yield from _rescale(payload)
    elif isinstance(payload, PlannedPooling):
        yield from _pooling(payload)
    elif isinstance(payload, PlannedLookup):
        yield from _lookup(payload, env)
    elif isinstance(payload, PlannedElementwise):
        yield from _elementwise(payload, env)
    elif isinstance(payload, PlannedQuantize):
        yield "a quantize is not spelled anew"
    elif hasattr(payload, "branches"):
        yield from _joined(payload, env)


def _joined(planned: Any, env: Environment) -> Iterator[str]:
    """Branches, each an expression or accumulators, and the moves behind their concat."""
    for branch in planned.branches:
        yield from _elementwise(branch, env) if isinstance(branch, PlannedElementwise) else _requantize(branch, env)
    for layout in planned.moves:
        yield from _move(layout, env)


# -- tensors and moves -------------------------------------------------------------------------------------------


def _tensor(q: QValue, env: Environment) -> Iterator[str]:
    if isinstance(q, Existing) and q.cast is not None:
        yield "a tensor of a quantized type"
    if not isinstance(q, Moved):
        return
    yield from _move(q.layout, env)
    if q.layout.kind == "pad" and not isinstance(q.fill, int):
        yield "a pad by a zero point that is known at run time only"
    for inner, index in q.inputs:
        yield from _tensor(inner, env)
        yield from _index(index)


def _move(layout: Layout, env: Environment) -> Iterator[str]:
    if isinstance(layout, Pooling):
        yield from () if layout.op.name in _POOLED else (f"{layout.op.name} of integers",)
        yield from () if layout.pad is None else _move(layout.pad, env)
    elif layout.op.name not in _MOVES:
        yield f"{layout.op.name} is not an operation of TOSA"
    elif any(None in env.bindings.extents(v.type) for v in (*layout.sources, layout.op.results[0])):
        yield "the shape is dynamic"
    elif layout.kind == "pad" and layout.index is None:
        yield "a pad whose amounts are known at run time only"


def _index(index: Index) -> Iterator[str]:
    dims = [as_dim(e) for e in index if e.terms]
    if None in dims or len(set(dims)) != len(dims):
        yield "a tensor is read at an index that is not a list of dimensions"


def _read(q: QValue, index: Index, extents: Extents, env: Environment) -> Iterator[str]:
    if not env.is_readable(q, index, extents):
        yield from _index(index)


def _storage(what: str, storage: StorageType) -> Iterator[str]:
    if storage.bits not in (8, 16, 32) or (not storage.signed and storage.bits != 8):
        yield f"{what} is {storage}"


def _form(decision: Decision, env: Environment) -> Iterator[str]:
    """What a float value that is made of accumulators needs."""
    form = decision.form
    if isinstance(form, StoredForm):
        yield from _tensor(form.q, env)
    if not isinstance(form, AccumForm):
        return
    if form.element != "f32":
        yield f"the float type {form.element}"
    extents = env.bindings.extents(form.decision.node.result.type)
    for step in form.steps[-1:]:
        operand = step.operand
        if operand is not None and operand.value is None and operand.scalar is not None:
            yield from _expression(operand.scalar, env, extents)
        elif operand is not None and operand.value is not None:
            yield from _read(Existing(operand.value), operand.index, extents, env)
    for layout in form.moves[-1:]:
        yield from _move(layout, env)


# -- sums --------------------------------------------------------------------------------------------------------


def _contraction(planned: PlannedContraction) -> Iterator[str]:
    if None in planned.extents:
        yield "the shape is dynamic"
        return
    sides = [planned.lhs] if planned.unit else [planned.lhs, planned.rhs]
    for name, side in zip(("lhs", "rhs"), sides, strict=False):
        if held_operand(side) is None or (side.array is None and side.storage.bits < 8):
            form = side.form
            yield f"{name} is {side.storage} from {form.low} to {form.high}, products are of 8 and 16 bits"
            return
        yield from _scales(planned, side)
    operands = [operand_of(s) for s in sides]
    if planned.unit:
        yield from _sum(planned, operands[0])
    elif isinstance(planned.node, Convolution):
        yield from _convolution(planned, planned.node, *operands)
    else:
        yield from _product(planned, *operands)


def _scales(planned: PlannedContraction, side: Side) -> Iterator[str]:
    """Parameters that are known at run time only must run along whole dimensions of the result."""
    to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
    extents = out_extents(planned.extents, planned.out_loops)
    for param in (side.params.scale, side.params.zero_point):
        index = compose(param.index, to_dims, extents)
        if param.data is None:
            yield from _index(index)


def _product(planned: PlannedContraction, lhs: Operand, rhs: Operand) -> Iterator[str]:
    for side in (planned.lhs, planned.rhs):
        yield from _index(side.index)
    if planned.bits == 48 and is_matmul(planned):
        product = plan_product(planned, lhs, rhs)
        if isinstance(product, str):
            yield product
    elif planned.bits == 48:
        yield from _bias(planned, known_corrections(planned, lhs, rhs))


def _bias(planned: PlannedContraction, bias: Array | None) -> Iterator[str]:
    """The operand of a convolution is along its last dimension, of a pointwise one along what only weights have."""
    if bias is None:
        yield "a zero point of 16 bits varies or is known at run time only"
        return
    shape = by_groups(planned, bias).shape if is_pointwise(planned) else bias.shape
    if any(n != 1 for n in shape[:-1]):
        yield "an i48 sum has no bias operand for this bias"


def _convolution(planned: PlannedContraction, node: Convolution, lhs: Operand, rhs: Operand) -> Iterator[str]:
    op = node.op
    if op.name not in CONVOLUTIONS or [node.lhs, node.rhs] != list(op.operands)[:2]:
        yield f"{op.name} is not written as a convolution"
        return
    if planned.blocked is not None:
        yield "a convolution in groups along the reduction"
    if reads_patches(planned):
        yield from _index(planned.rhs.index)
        yield from _padding(lhs)
        product = plan_product(planned, lhs, rhs)
        if isinstance(product, str):
            yield product
        return
    if rhs.storage.bits != 8:
        yield f"filters are of {rhs.storage.bits} bits, convolutions take 8"
    if rhs.rest is not None:
        yield "filters have zero points that vary"
    if lhs.rest is None or takes_channels(planned, lhs, rhs):
        yield from _padding(lhs)
        return
    pads = any(int(n) for name in ("pad", "out_pad") if name in op.attributes for n in op.attributes[name])
    if op.name == "tosa.transpose_conv2d" or (pads and lhs.rest.scalar is None and rhs.array is None):
        yield "the input's zero point is no operand and pads"
    elif known_corrections(planned, lhs, rhs) is None and (
        planned.bits == 48 or (rhs.array is None and not _is_read_plainly(planned.rhs.index))
    ):
        yield "the input's zero point is known at run time only"
    if pads:
        yield from _padding(lhs)


def _is_read_plainly(index: Index) -> bool:
    return next(_index(index), None) is None


def _sum(planned: PlannedContraction, operand: Operand) -> Iterator[str]:
    node = planned.node
    if isinstance(node, Reduction) and node.op.name in POOLS:
        if operand.rest is not None and (planned.bits != 48 or operand.rest.scalar is None):
            yield "the pooled tensor's zero point is no operand"
        yield from _padding(operand)
        return
    yield from _index(node.index if isinstance(node, Reduction) else planned.lhs.index)
    if operand.rest is not None and operand.rest.scalar is None:
        yield "the summed tensor's zero point varies"
    if planned.bound >= 1 << 31:
        yield f"a sum can reach {planned.bound}, which does not fit i32"


def _padding(operand: Operand) -> Iterator[str]:
    """What is padded with must be an integer of the operand's type."""
    number = None if operand.rest is None else operand.rest.scalar
    if number is not None and not operand.storage.min <= number <= operand.storage.max:
        yield f"padding by a zero point beyond {operand.storage}"


# -- epilogues ---------------------------------------------------------------------------------------------------


def _requantize(planned: PlannedFixedRequantize, env: Environment) -> Iterator[str]:
    contraction: PlannedContraction = planned.form.decision.payload
    scale = planned.scale
    bits = multiplier_bits_of(contraction.bits) if scale.narrowed is None else 31
    yield from _scale(scale, planned.params.storage, bits)
    for addend in scale.addends:
        yield from _read(addend.q, addend.index, out_extents(contraction.extents, contraction.out_loops), env)
    params = planned.params
    for layout in planned.form.moves:
        yield from _move(layout, env)
        if isinstance(layout, Pooling) and held_as(params.storage, params.quant_min, params.quant_max) is None:
            yield f"{layout.op.name} of {params}"
        if layout.kind == "pad" and planned.params.zero_point.scalar is None:
            yield "the zero point that stands for the padding varies"
    if contraction.bits == 48:
        if (scale.sign != 1).any() and scale.narrowed is None:
            yield "an i48 sum is negated"
        if (
            scale.narrowed is None
            and contraction.bound >= 1 << 31
            and not _runs_along_columns(contraction, scale.multiplier)
        ):
            yield "the scales of an i48 sum vary along other dimensions than the last"
        if scale.bias.any():
            yield from _bias_of_48(contraction, scale.bias)
    elif planned.params.storage.bits == 32:
        least = int(scale.multiplier.shift.min(initial=MAX_SHIFT))
        if contraction.bound + int(np.abs(scale.bias).max(initial=0)) >= 1 << max(least - 1, 0):
            yield "a sum exceeds what the shift allows"


def _runs_along_columns(planned: PlannedContraction, multiplier: Multiplier) -> bool:
    """Whether multipliers vary along the last dimension of what is made only."""
    numbers = multiplier.mantissa, multiplier.shift
    shapes = [by_groups(planned, a).shape if is_matmul(planned) or is_pointwise(planned) else a.shape for a in numbers]
    return all(n == 1 for shape in shapes for n in shape[:-1])


def _bias_of_48(planned: PlannedContraction, bias: Array) -> Iterator[str]:
    if planned.unit and planned.node.op.name in POOLS:
        yield from _bias(planned, bias)
    elif planned.unit and planned.bound + int(np.abs(bias).max()) >= 1 << 31:
        yield "a sum with its bias exceeds i32"
    if planned.unit:
        return
    lhs, rhs = operand_of(planned.lhs), operand_of(planned.rhs)
    if is_matmul(planned):
        product = plan_product(planned, lhs, rhs, bias)
        if isinstance(product, str):
            yield product
        return
    known = known_corrections(planned, lhs, rhs)
    yield from _bias(planned, None if known is None else known + bias)


def _rescale(planned: PlannedFixedRescale) -> Iterator[str]:
    yield from _storage("the input", planned.form.params.storage)
    yield from _scale(planned.scale, planned.params.storage, 31)
    yield from _index(planned.form.index)


def _scale(scale: FixedScale, storage: StorageType, bits: int) -> Iterator[str]:
    yield from _storage("the result", storage)
    yield from _multiplier(scale.multiplier, bits)
    for addend in scale.addends:
        yield from _storage("an added tensor", addend.storage)
        yield from _multiplier(addend.multiplier, 31)


def _multiplier(multiplier: Multiplier, bits: int) -> Iterator[str]:
    _, shift = rescale_numbers(multiplier, bits)
    if shift.size and (int(shift.min()) < MIN_SHIFT or int(shift.max()) > MAX_SHIFT):
        yield f"a shift of {int(shift.min())}"


# -- element by element ------------------------------------------------------------------------------------------


def _pooling(planned: PlannedPooling) -> Iterator[str]:
    name, form = planned.node.op.name, planned.form
    if name not in _POOLED or held_as(planned.storage, form.low, form.high) is None:
        yield f"{name} of {planned.storage} from {form.low} to {form.high}"
    yield from _index(planned.form.index)


def _lookup(planned: PlannedLookup, env: Environment) -> Iterator[str]:
    params = planned.node.params
    if planned.points is None:
        if planned.between is not None or planned.table.size != 256 or planned.stored.type != "i8":
            yield "a table of 16 bits"
        if params.storage.bits != 8:
            yield f"a table of {params.storage}"
    yield from _expression(planned.stored, env, planned.extents)
    for layout in planned.moves:
        yield from _move(layout, env)


def _elementwise(planned: PlannedElementwise, env: Environment) -> Iterator[str]:
    params = planned.node.params
    yield from _storage("the result", params.storage)
    yield from _expression(planned.scalar, env, planned.extents)
    for layout in planned.moves:
        yield from _move(layout, env)


def _expression(scalar: Scalar, env: Environment, extents: Extents) -> Iterator[str]:
    if None in extents:
        yield "the shape is dynamic"
        return
    for node in nodes(scalar):
        if node.op not in WRITTEN:
            yield f"{node.op} of integers"
        elif node.op == "elem":
            yield from _index(node.payload[1])
        elif node.op == "stored":
            tensor, index = node.payload
            yield from _read(tensor, index, extents, env)
            yield from _tensor(tensor, env)
            if node.type not in ("i8", "i16", "i32"):
                yield f"an operand of {node.type}"
        elif node.op == "extui" and (node.args[0].op != "stored" or node.args[0].type != "i8"):
            yield "an unsigned operand of more than 8 bits"
        elif node.op == "rescale":
            yield from _rescaled(node, extents)


def _rescaled(node: Scalar, extents: Extents) -> Iterator[str]:
    numbers = [numbers_of(a, extents) for a in node.args[1:]]
    mantissa, shift = numbers
    if mantissa is None or shift is None:
        yield "a multiplier that is not constant"
        return
    yield from _multiplier(Multiplier(mantissa.astype(np.int64), shift.astype(np.int64), node.payload[1]), 31)


__all__ = ["refuse"]
