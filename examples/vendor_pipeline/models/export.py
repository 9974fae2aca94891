"""Quantize and export a ResNet block: writes `resnet_block.linalg.mlir` and `resnet_block.npz` beside this file.

    pip install '.[torch]'                                # of qfuse
    python examples/vendor_pipeline/models/export.py

The block is the first of ResNet-18's second stage at half its width: two 3 x 3 convolutions, the first with stride 2, a
1 x 1 convolution beside them, and the addition of the two. Weights and calibration data are random and seeded: no
pretrained weights are downloaded. It is quantized with PT2E (XNNPACK quantizer: int8, per-channel weights, static
per-tensor activations) and imported with torch-mlir as QDQ linalg.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_mlir import fx
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

HERE = Path(__file__).resolve().parent
INPUT = (1, 32, 28, 28)


class BasicBlock(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + bn(conv1x1(x)))"""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(inner)) + self.downsample(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this file)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    model = BasicBlock(32, 64, 2)
    with torch.no_grad():
        model.train()
        for _ in range(20):  # statistics of the batch norms
            model(torch.randn(8, *INPUT[1:]))
        model.eval()
        x = torch.randn(*INPUT)
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
        for _ in range(20):
            prepared(torch.randn(*INPUT))
        quantized = convert_pt2e(prepared)
        result = quantized(x)
        module = fx.export_and_import(quantized, x, output_type="linalg-on-tensors", func_name="resnet_block")
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
    scale = [node for node in quantized.graph.nodes if node.target == quantize][-1].args[1]
    (out / "resnet_block.linalg.mlir").write_text(str(module))
    np.savez_compressed(
        out / "resnet_block.npz",
        x=x.numpy(),
        out=result.numpy(),
        output_scale=np.float64(scale),  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    main()
