"""qfuse's own fusions and targets, found through the same entry points as everyone's."""

from __future__ import annotations

from qfuse.cost.target import Target
from qfuse.fusions.base import Fusion
from qfuse.fusions.contraction import FuseContraction
from qfuse.fusions.dequantize import ReadDequantize
from qfuse.fusions.epilogue import (
    CancelRequantize,
    ExtendCast,
    ExtendEpilogue,
    FoldQuantize,
    FuseRequantize,
    FuseRescale,
)
from qfuse.fusions.layout import MoveLayout


def fusions() -> list[Fusion]:
    """The built-in fusions."""
    return [
        ReadDequantize(),
        MoveLayout(),
        FuseContraction(),
        ExtendEpilogue(),
        ExtendCast(),
        FuseRequantize(),
        CancelRequantize(),
        FuseRescale(),
        FoldQuantize(),
    ]


def targets() -> list[Target]:
    """The built-in targets."""
    return [
        Target("linalg", "any compiler that takes linalg on tensors; float epilogues, i32 or i64 accumulators"),
        Target("iree-cpu", "IREE llvm-cpu: as linalg, rounding spelled for CPUs", rounding="magic"),
    ]
