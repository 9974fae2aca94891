"""PT2E-quantized models to measure: seeded weights, real calibration, XNNPACK's static per-channel scheme."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class LinearRelu(nn.Module):
    """Linear with bias, then relu."""

    def __init__(self, in_features: int, out_features: int) -> None:
        """Make a layer with PyTorch's default initialization."""
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(x W^T + b)."""
        return torch.relu(self.linear(x))


@dataclass(frozen=True)
class QuantizedLinear:
    """A quantized Linear + bias + relu: the exported program, an input, and everything it computes with.

    Input and output are quantized per tensor to int8 (the input with a zero point that is not zero), the weight per
    output channel, symmetrically.
    """

    program: ExportedProgram
    x: np.ndarray[Any, Any]
    weight: np.ndarray[Any, Any]
    weight_scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]
    in_scale: float
    in_zero_point: int
    out_scale: float
    out_zero_point: int


def quantized_linear(m: int, k: int, n: int, *, seed: int = 0) -> QuantizedLinear:
    """Quantize a Linear with an [n, k] weight for an input of [m, k]."""
    warnings.filterwarnings("ignore", "XNNPACKQuantizer is deprecated")
    warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
    torch.manual_seed(seed)
    model = LinearRelu(k, n).eval()
    x = torch.randn(m, k) + 0.25
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    program = torch.export.export(convert_pt2e(prepared), (x,))
    quantizes = [node.args for node in program.graph.nodes if "quantize_per_tensor" in str(node.target)]
    first, last = quantizes[0], quantizes[-1]
    tensors = [*program.state_dict.values(), *program.constants.values()]
    (weight,) = [t for t in tensors if t.dtype == torch.int8]
    (bias,) = [t for name, t in program.state_dict.items() if name.endswith("bias")]
    (scale,) = [t for t in tensors if t.dtype == torch.float32 and t.shape == (n,) and t is not bias]
    return QuantizedLinear(
        program=program,
        x=x.numpy(),
        weight=weight.detach().numpy(),
        weight_scale=scale.detach().numpy(),
        bias=bias.detach().numpy(),
        in_scale=float(first[1]),
        in_zero_point=int(first[2]),
        out_scale=float(last[1]),
        out_zero_point=int(last[2]),
    )
