"""qfuse's own fusions and targets, found through the same entry points as everyone's."""

from __future__ import annotations

from qfuse.cost.schema import OPERANDS
from qfuse.cost.target import Target
from qfuse.fusions.affine import affine_fusions
from qfuse.fusions.base import Fusion
from qfuse.fusions.cancel import CancelRequantize, FoldQuantize
from qfuse.fusions.concat import FuseConcat
from qfuse.fusions.contraction import FuseContraction
from qfuse.fusions.convolution import FuseConvolution
from qfuse.fusions.dequantize import ReadDequantize
from qfuse.fusions.elementwise import FuseElementwise
from qfuse.fusions.epilogue import ExtendCast, ExtendEpilogue
from qfuse.fusions.layout import MoveLayout
from qfuse.fusions.lookup import FuseLookup
from qfuse.fusions.position import FusePosition
from qfuse.fusions.reduction import FuseMaximum, FuseSum
from qfuse.fusions.repair import RepairContraction, RepairDequantize, RepairQuantize
from qfuse.fusions.requantize import FuseRequantize, FuseRescale
from qfuse.fusions.resize import FuseResize
from qfuse.fusions.respell import RespellQuantize


def fusions() -> list[Fusion]:
    """The built-in fusions."""
    return [
        ReadDequantize(),
        MoveLayout(),
        FuseContraction(),
        FuseConvolution(),
        FuseSum(),
        FuseMaximum(),
        FusePosition(),
        FuseResize(),
        ExtendEpilogue(),
        ExtendCast(),
        FuseRequantize(),
        CancelRequantize(),
        FuseRescale(),
        FuseElementwise(),
        FuseConcat(),
        FuseLookup(),
        FoldQuantize(),
        RespellQuantize(),
        RepairQuantize(),
        RepairDequantize(),
        RepairContraction(),
        *affine_fusions(),
    ]


def targets() -> list[Target]:
    """The built-in targets."""
    return [
        Target("linalg", "any compiler that takes linalg on tensors; float epilogues, i32 or i64 accumulators"),
        Target(
            "iree-cpu",
            "IREE llvm-cpu: operands of one signed type behind optimization barriers, rounding spelled for CPUs",
            emitter="iree",
            rounding="magic",
            operands=OPERANDS,
        ),
        Target(
            "integer-only",
            "machines without a float unit: fixed-point epilogues, i32 accumulators; names what keeps float arithmetic",
            accumulators=(32,),
            epilogue="fixed-point",
            integer_only=True,
        ),
        Target(
            "tosa-int",
            "TOSA in, TOSA out: integer operations with zero-point operands and RESCALE, i32 and i48 accumulators",
            emitter="tosa",
            accumulators=(32, 48),
            split_reduction=False,
            epilogue="fixed-point",
            integer_only=True,
        ),
        Target(
            "affine",
            "no fusion: quantize and dequantize become quant.qcast and quant.dcast",
            fusions=frozenset({"qfuse.raise-quant"}),
        ),
        Target(
            "affine-iree",
            "no fusion: quantize and dequantize become iree_linalg_ext operations",
            fusions=frozenset({"qfuse.raise-iree"}),
        ),
        Target(
            "affine-generic",
            "no fusion: named quantize and dequantize operations become linalg.generic",
            fusions=frozenset({"qfuse.lower-affine"}),
        ),
    ]
