"""Speed of a PT2E-quantized Linear + bias + relu in IREE: unfused, through IREE's own quantized path, and fused.

The layer is quantized by XNNPACK's static per-channel scheme, its output included. `unfused` is the linalg that
torch-mlir makes of it, `native` the torch dialect, which IREE turns into integers by itself, `qfuse` the unfused
module after `qfuse.fuse`, `float` the layer before quantization. All are compiled with the same flags and run in turns
on one thread.
"""

from __future__ import annotations

import argparse
import os
import sys

from _layers import compare, parser_of
from _pt2e import quantized_linear

NEEDED = {"unfused": 2.5, "native": 1.0}


def shape_of(text: str) -> tuple[int, int, int]:
    """Parse MxKxN."""
    try:
        m, k, n = (int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected MxKxN, got {text!r}") from None
    return m, k, n


def main() -> int:
    """Measure every shape; the exit code tells whether the best fused candidate is fast enough on all of them."""
    parser = parser_of(__doc__, repeat=61)
    parser.add_argument(
        "--shape",
        nargs="+",
        type=shape_of,
        default=[(128, 1024, 1024), (128, 768, 3072)],
        metavar="MxKxN",
        help="default: 128x1024x1024 128x768x3072",
    )
    arguments = parser.parse_args()
    good = [
        compare("x".join(map(str, shape)), quantized_linear(*shape), arguments, NEEDED) for shape in arguments.shape
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the interpreter's shutdown may crash in the teardown of two MLIR libraries in one process
