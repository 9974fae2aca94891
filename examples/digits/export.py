"""Train, quantize and export the digits models: writes `<model>.linalg.mlir` and `test.npz` beside this file.

    pip install '.[torch]' scikit-learn
    python examples/digits/export.py

The data is scikit-learn's `load_digits` (1797 grey images of 8 x 8). A model is trained in float, calibrated
and quantized with PT2E (XNNPACK quantizer: int8, per-channel weights, static per-tensor activations), and
imported with torch-mlir as QDQ linalg. Everything is seeded: with the same versions and CPU the files come
out the same, byte for byte.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch_mlir import fx
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

HERE = Path(__file__).resolve().parent
SEED = 0
TEST_IMAGES = 360


@dataclass(frozen=True)
class Split:
    """Images flattened to [n, 64] in [0, 1], and their labels."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class Recipe:
    """How one model is made. `input_shape` is the shape of one image as the model takes it."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    epochs: int


@dataclass(frozen=True)
class Exported:
    """What is written for one model, next to the data that all models share."""

    text: str
    logits: Tensor
    output_scale: float
    float_accuracy: float


def build_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def conv_bn(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Residual(nn.Module):
    """relu(x + inner(x))"""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.inner(x))


def build_cnn() -> nn.Module:
    return nn.Sequential(
        conv_bn(1, 16),
        nn.ReLU(),
        Residual(conv_bn(16, 16)),
        nn.MaxPool2d(2),
        conv_bn(16, 32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


RECIPES = {
    "mlp": Recipe(build_mlp, input_shape=(64,), epochs=60),
    "cnn": Recipe(build_cnn, input_shape=(1, 8, 8), epochs=30),
}


def load_split() -> Split:
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    parts = train_test_split(images, labels, test_size=TEST_IMAGES, random_state=SEED, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
    return Split(train_x, train_y, test_x, test_y)


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(SEED)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    model.eval()


def quantize(model: nn.Module, calibration_x: Tensor, test_x: Tensor) -> torch.fx.GraphModule:
    """The model in QDQ form. Shapes are static: the batch is the whole of `test_x`."""
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, (test_x,)).module(), quantizer)
    for batch in calibration_x.split(len(test_x)):
        if len(batch) == len(test_x):
            prepared(batch)
    return convert_pt2e(prepared)


def output_scale(quantized: torch.fx.GraphModule) -> float:
    """Scale of the quantize that produces the model's output: one step of the output grid."""
    quantize_op = torch.ops.quantized_decomposed.quantize_per_tensor.default
    nodes = [node for node in quantized.graph.nodes if node.target == quantize_op]
    return float(nodes[-1].args[1])


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(dim=1) == labels).double().mean())


def export(name: str, recipe: Recipe, split: Split) -> Exported:
    torch.manual_seed(SEED)
    train_x = split.train_x.reshape(-1, *recipe.input_shape)
    test_x = split.test_x.reshape(-1, *recipe.input_shape)
    model = recipe.build()
    train(model, train_x, split.train_y, recipe.epochs)
    with torch.no_grad():
        quantized = quantize(model, train_x, test_x)
        float_accuracy = accuracy(model(test_x), split.test_y)
        logits = quantized(test_x)
        module = fx.export_and_import(quantized, test_x, output_type="linalg-on-tensors", func_name=name)
    return Exported(str(module), logits, output_scale(quantized), float_accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this file)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)

    split = load_split()
    arrays = {"x": split.test_x.numpy(), "labels": split.test_y.numpy()}
    for name, recipe in RECIPES.items():
        exported = export(name, recipe, split)
        path = out / f"{name}.linalg.mlir"
        path.write_text(exported.text)
        arrays[f"{name}.logits"] = exported.logits.numpy()
        arrays[f"{name}.output_scale"] = np.float64(exported.output_scale)
        arrays[f"{name}.float_accuracy"] = np.float64(exported.float_accuracy)
        quantized_accuracy = accuracy(exported.logits, split.test_y)
        print(f"{path.name}: accuracy float {exported.float_accuracy:.4f}, quantized {quantized_accuracy:.4f}")
    np.savez_compressed(out / "test.npz", **arrays)


if __name__ == "__main__":
    main()
