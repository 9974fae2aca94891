"""Convolutions of two dequantized tensors become integer convolutions.

The same algebra as a contraction: the first operand is read at sums of loops (the sliding window). Padding of the
dequantized input by 0.0 is padding of its integers by the zero point, so the zero point correction
`za * sum over window and channels of b` is the same at the borders as inside.
"""

from __future__ import annotations

from qfuse.fusions.contraction import FuseContraction
from qfuse.matchers.nodes import Convolution, Node


class FuseConvolution(FuseContraction):
    """Convolutions of any rank, layout, stride, dilation, grouped or depthwise, by their indexing maps."""

    id = "qfuse.convolution"
    nodes = (Convolution,)
    doc = "convolution of two dequantized tensors -> integer convolution with i32 or i64 accumulators"

    def match(self, node: Node) -> bool:
        """Float convolutions."""
        return isinstance(node, Convolution) and not node.integer
