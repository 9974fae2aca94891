"""Speed of a PT2E-quantized Conv2d + bias + relu in IREE, as `linear.py` has it of a Linear.

A shape is CxHxW-FxK/S: channels, height and width of the image, filters, their height and width, and the stride; the
image is padded by K // 2. Without filters, CxHxW-K/S, it is a depthwise convolution.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from _layers import compare, parser_of
from _pt2e import quantized_convolution

NEEDED = {"unfused": 1.0, "native": 1.0}
_SHAPES = [
    "64x56x56-64x3/1",
    "64x56x56-128x3/2",
    "256x14x14-256x3/1",
    "256x56x56-64x1/1",
    "3x224x224-64x7/2",
    "192x56x56-3/1",
]


def shape_of(text: str) -> str:
    """Check a shape."""
    if re.fullmatch(r"\d+x\d+x\d+-(\d+x)?\d+/\d+", text) is None:
        raise argparse.ArgumentTypeError(f"expected CxHxW-FxK/S or CxHxW-K/S, got {text!r}")
    return text


def main() -> int:
    """Measure every shape; the exit code tells whether the best fused candidate is slower than unfused or native."""
    parser = parser_of(__doc__, repeat=15)
    parser.add_argument(
        "--shape",
        nargs="+",
        type=shape_of,
        default=_SHAPES,
        metavar="CxHxW-FxK/S",
        help=f"default: {' '.join(_SHAPES)}",
    )
    arguments = parser.parse_args()
    good = []
    for shape in arguments.shape:
        c, h, w, *filters, k, s = (int(n) for n in re.split("[x/-]", shape))
        layer = quantized_convolution(c, (h, w), filters[0] if filters else None, k, s)
        good.append(compare(shape, layer, arguments, NEEDED))
    return 0 if all(good) else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the interpreter's shutdown may crash in the teardown of two MLIR libraries in one process
