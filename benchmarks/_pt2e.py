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


@dataclass(frozen=True)
class QuantizedLayer:
    """A quantized layer with bias and relu: the exported program, an input, and everything it computes with.

    Input and output are quantized per tensor to int8 (the input with a zero point that is not zero), the weight per
    output channel, symmetrically.
    """

    program: ExportedProgram
    float_program: ExportedProgram
    x: np.ndarray[Any, Any]
    weight: np.ndarray[Any, Any]
    weight_scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]
    in_scale: float
    in_zero_point: int
    out_scale: float
    out_zero_point: int


def quantized_linear(m: int, k: int, n: int, *, seed: int = 0) -> QuantizedLayer:
    """Quantize a Linear with an [n, k] weight for an input of [m, k]."""
    torch.manual_seed(seed)
    layer = nn.Linear(k, n)
    return _quantized(layer, torch.randn(m, k) + 0.25)


def quantized_convolution(
    channels: int, image: tuple[int, int], filters: int | None, window: int, stride: int, *, seed: int = 0
) -> QuantizedLayer:
    """Quantize a Conv2d, padded by half its window, for one image of [channels, *image]; depthwise without filters."""
    torch.manual_seed(seed)
    groups = channels if filters is None else 1
    layer = nn.Conv2d(channels, filters or channels, window, stride=stride, padding=window // 2, groups=groups)
    return _quantized(layer, torch.randn(1, channels, *image) + 0.25)


def _quantized(layer: nn.Module, x: torch.Tensor) -> QuantizedLayer:
    warnings.filterwarnings("ignore", "XNNPACKQuantizer is deprecated")
    warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
    model = nn.Sequential(layer, nn.ReLU()).eval()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    float_program = torch.export.export(model, (x,))
    prepared = prepare_pt2e(float_program.module(), quantizer)
    prepared(x)
    program = torch.export.export(convert_pt2e(prepared), (x,))
    quantizes = [node.args for node in program.graph.nodes if "quantize_per_tensor" in str(node.target)]
    first, last = quantizes[0], quantizes[-1]
    tensors = [*program.state_dict.values(), *program.constants.values()]
    (weight,) = [t for t in tensors if t.dtype == torch.int8]
    (bias,) = [t for name, t in program.state_dict.items() if name.endswith("bias")]
    (scale,) = [t for t in tensors if t.dtype == torch.float32 and t.shape == weight.shape[:1] and t is not bias]
    return QuantizedLayer(
        program=program,
        float_program=torch.export.export(model, (x,)),
        x=x.numpy(),
        weight=weight.detach().numpy(),
        weight_scale=scale.detach().numpy(),
        bias=bias.detach().numpy(),
        in_scale=float(first[1]),
        in_zero_point=int(first[2]),
        out_scale=float(last[1]),
        out_zero_point=int(last[2]),
    )
