"""qfuse: from unfused QDQ linalg to integer contractions, with reasons for what stays in float.

import qfuse
report = qfuse.fuse(module)      # an ir.Module of torch_mlir, iree.compiler or mlir
print(report)
"""

from qfuse.cost.limits import Limits, OperandLimits
from qfuse.cost.options import Options
from qfuse.cost.target import Target
from qfuse.cost.workload import Workload
from qfuse.emit.affine import AffineNames
from qfuse.emit.call import KernelCall, KernelValue
from qfuse.errors import InputError, QfuseError, RegistryError, UsageError
from qfuse.fusions.affine import RaiseAffine
from qfuse.fusions.base import Fusion
from qfuse.fusions.kernel import KernelFusion
from qfuse.graph import Decision, Refusal
from qfuse.pipeline import Plan, as_pass, fuse, plan
from qfuse.qparams import QuantParams, StorageType
from qfuse.registry import FusionRegistry
from qfuse.report import Report
from qfuse.requirements import Operand, Requirements

__version__ = "0.1.0.dev0"

__all__ = [
    "AffineNames",
    "Decision",
    "Fusion",
    "FusionRegistry",
    "InputError",
    "KernelCall",
    "KernelFusion",
    "KernelValue",
    "Limits",
    "Operand",
    "OperandLimits",
    "Options",
    "Plan",
    "QfuseError",
    "QuantParams",
    "RaiseAffine",
    "Refusal",
    "RegistryError",
    "Report",
    "Requirements",
    "StorageType",
    "Target",
    "UsageError",
    "Workload",
    "as_pass",
    "fuse",
    "plan",
]
