"""Depthwise convolutions with the channels as the last dimension, where compilers vectorize them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qfuse._builder import Builder
from qfuse._mlir import Value
from qfuse.emit.named import integer_convolution, is_read_as_named
from qfuse.emit.spec import PlannedContraction

_NAMES = {
    "linalg.depthwise_conv_1d_ncw_cw": "linalg.depthwise_conv_1d_nwc_wc",
    "linalg.depthwise_conv_2d_nchw_chw": "linalg.depthwise_conv_2d_nhwc_hwc",
    "linalg.depthwise_conv_3d_ncdhw_cdhw": "linalg.depthwise_conv_3d_ndhwc_dhwc",
}


def has_channels_first(planned: PlannedContraction) -> bool:
    """Whether this is a named depthwise convolution of static extents whose channels are not the last dimension."""
    return planned.node.op.name in _NAMES and is_read_as_named(planned) and None not in planned.extents


def depthwise(
    builder: Builder, planned: PlannedContraction, operands: Sequence[Value], barrier: Callable[[Value], Value]
) -> Value:
    """The accumulators of a depthwise convolution, computed with the channels last.

    Args:
        builder: creates the operations.
        planned: see `has_channels_first`; both operands are signed.
        operands: image and filter, the channels in front of the places.
        barrier: keeps the transposed image apart from the convolution.
    """
    image, weight = operands
    rank = len(planned.lhs.index)
    image = barrier(builder.transposed(image, [0, *range(2, rank), 1]))
    order = [*range(1, rank - 1), 0]
    array = planned.rhs.array
    if array is None:
        weight = builder.transposed(weight, order)
    else:
        weight = builder.dense_constant(array.transpose(order).astype(f"int{planned.rhs.storage.bits}"))
    images, channels, *places = (planned.extents[d] for d in planned.out_loops)
    name = _NAMES[planned.node.op.name]
    result = integer_convolution(builder, planned, name, [image, weight], (images, *places, channels))
    return builder.transposed(result, [0, rank - 1, *range(1, rank - 1)])
