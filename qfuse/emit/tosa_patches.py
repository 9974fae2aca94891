"""Convolutions whose filters are of 16 bits, which TOSA's take no more of than 8: one matmul of what each window reads.

%p = tosa.pad %x ; %g = tosa.gather %p, %places : [n, positions of the result * places of a window, channels]
%r = tosa.matmul %g, %filters : i16, i16 -> i48
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.spec import PlannedContraction
from qfuse.emit.tosa_operand import Operand, held_operand
from qfuse.emit.tosa_ops import TosaOps
from qfuse.graph import Array
from qfuse.matchers.nodes import Convolution

_WINDOWS = {"tosa.conv2d": (1, 3), "tosa.conv3d": (1, 4), "tosa.depthwise_conv2d": (0, 2)}


def reads_patches(planned: PlannedContraction) -> bool:
    """Whether a contraction is a convolution that is written as a matmul."""
    node = planned.node
    if not isinstance(node, Convolution) or node.op.name not in _WINDOWS or node.multiplier > 1:
        return False
    held = held_operand(planned.rhs)
    return held is not None and held[0].bits == 16 and planned.lhs.array is None


def patches(ops: TosaOps, op: Any, value: Value, number: int) -> Value:
    """What each window reads of a tensor that is padded with `number`: (n, position, place in the window, channel)."""
    first, last = _WINDOWS[op.name]
    kernel = list(ops.shape(op.operands[1]))[first:last]
    pad, stride, dilation = ([int(n) for n in op.attributes[name]] for name in ("pad", "stride", "dilation"))
    if any(pad):
        value = ops.pad(value, [0, 0, *pad, 0, 0], number)
    batch, *spatial, channels = ops.shape(value)
    outer = list(ops.shape(op.results[0]))[1:-1]
    places = _places(spatial, outer, kernel, stride, dilation)
    positions, window = int(np.prod(outer)), int(np.prod(kernel))
    flat = ops.reshape(value, [batch, int(np.prod(spatial)), channels])
    if not np.array_equal(places, np.arange(places.size)):
        listed = ops.constant(np.broadcast_to(places, (batch, places.size)), "i32")
        type_ = ops.builder.tensor((batch, places.size, channels), ops.element(flat))
        flat = ops.builder.create("tosa.gather", [type_], [flat, listed]).results[0]
    return ops.reshape(flat, [batch, positions, window, channels])


def takes_channels(planned: PlannedContraction, lhs: Operand, rhs: Operand) -> bool:
    """Whether the zero point of a transposed convolution's input is further channels: how often it counts varies."""
    if planned.node.op.name != "tosa.transpose_conv2d" or planned.bits != 48 or lhs.rest is None:
        return False
    return lhs.rest.scalar is not None and rhs.array is not None and rhs.rest is None and rhs.zero == 0


def with_channels(ops: TosaOps, value: Value, filters: Value, number: int) -> tuple[Value, Value]:
    """Input and constant filters with channels that subtract `number` from the input wherever it is read."""
    array = ops.read(filters)
    assert array is not None
    rest = -array.astype(np.int64).sum(axis=-1, keepdims=True)
    digits: list[Array] = []
    while rest.any():
        digits.append(np.clip(rest, -127, 127))
        rest = rest - digits[-1]
    if not digits or not number:
        return value, filters
    *outer, _ = ops.shape(value)
    value = ops.concat([value, ops.constant(np.full((*outer, len(digits)), number), "i16")], len(outer))
    return value, ops.constant(np.concatenate([array, *digits], -1), "i8")


def _places(spatial: list[int], outer: list[int], kernel: list[int], stride: list[int], dilation: list[int]) -> Array:
    """Where each position of the result reads each place of its window, in a row of all spatial places."""
    rank = len(spatial)
    total = np.zeros((1,) * (2 * rank), np.int64)
    for axis in range(rank):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = outer[axis], kernel[axis]
        read = np.arange(outer[axis])[:, None] * stride[axis] + np.arange(kernel[axis]) * dilation[axis]
        total = total * spatial[axis] + read.reshape(shape)
    return total.reshape(-1)


__all__ = ["patches", "reads_patches", "takes_channels", "with_channels"]
