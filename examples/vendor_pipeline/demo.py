"""Run real models on Acme's kernels: what ran where and why, equality with numpy, speed against the unfused module.

    make demo

Exits with 1 if a result differs from the reference in one bit, if a kernel was not called as often as it should be, or
if a program with kernels is slower than the module it was made from.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from acme_qfuse import pipeline, reference
from torch_mlir import ir

import qfuse

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "digits"


@dataclass(frozen=True)
class Model:
    """A checked-in QDQ module, an input, and what PyTorch computed from it with the same quantized model.

    Attributes:
        name: of the model and its function.
        path: the module.
        x: the input.
        expected: PyTorch's result.
        scale: step of the result's quantization grid.
        kernels: calls of each kernel in one run.
    """

    name: str
    path: Path
    x: np.ndarray
    expected: np.ndarray
    scale: float
    kernels: dict[str, int]

    def load(self) -> ir.Module:
        """By a short name: locations in the report start with it."""
        return ir.Module.parseFile(os.path.relpath(self.path), ir.Context())


def models() -> list[Model]:
    """The digits MLP and CNN, and a ResNet block."""
    with np.load(DIGITS / "test.npz") as data:
        digits = dict(data)
    with np.load(HERE / "models" / "resnet_block.npz") as data:
        block = dict(data)
    found: list[Model] = []
    for name, shape, matmuls, convolutions in (("mlp", (64,), 3, 0), ("cnn", (1, 8, 8), 1, 2)):
        x = digits["x"].reshape(-1, *shape).astype(np.float32)
        kernels = {"acme_qmatmul_s8": matmuls, "acme_qconv_s8": convolutions}
        path, scale = DIGITS / f"{name}.linalg.mlir", float(digits[f"{name}.output_scale"])
        found.append(Model(name, path, x, digits[f"{name}.logits"], scale, kernels))
    path, scale = HERE / "models" / "resnet_block.linalg.mlir", float(block["output_scale"])
    kernels = {"acme_qmatmul_s8": 0, "acme_qconv_s8": 3}
    return [*found, Model("resnet_block", path, block["x"], block["out"], scale, kernels)]


def print_plan(report: qfuse.Report) -> None:
    """What runs on which kernel, what does not, and why."""
    for entry in report.applied:
        if entry["fusion"] in ("qfuse.contraction", "qfuse.convolution"):
            continue  # the entry of the quantize behind it says where it went
        kernel = entry.get("kernel")
        print(f"  {entry['location']}  {'kernel ' + kernel if kernel else 'integers, ' + entry['fusion']}")
        for reason in entry.get("declined") or ():
            print(f"      no kernel: {reason}")
    for entry in report.missed:
        print(f"  {entry['location']}  float: {entry['op']}: {entry['reason']}")


def print_cost(report: qfuse.Report) -> None:
    """What the cost model makes of the model: seconds by the target's numbers, and what it would choose."""
    known = [region for region in report.cost if region["unknown"] is None]
    integer, other = (sum(region[f"{kind}_seconds"] for region in known) for kind in ("integer", "float"))
    chosen = sum(region["chosen"] == "integer" for region in report.cost)
    costs = f"integers {integer * 1e3:.3f} ms, float {other * 1e3:.3f} ms on Acme's machine"
    print(f"\n  cost model       {costs}: integers for {chosen} of {len(report.cost)} regions")


def steps(a: np.ndarray, b: np.ndarray, scale: float) -> str:
    """How many elements differ by how many steps of the result's grid."""
    values, counts = np.unique(np.rint(np.abs(a.astype(np.float64) - b) / scale), return_counts=True)
    differing = ", ".join(f"{count} by {value:g}" for value, count in zip(values, counts, strict=True) if value)
    return f"{differing or 'none'} of {a.size}"


def medians(programs: Sequence[pipeline.Program], x: np.ndarray, rounds: int) -> list[float]:
    """Median seconds of a call, the programs taking turns."""
    times: list[list[float]] = [[] for _ in programs]
    for _ in range(rounds):
        for program, own in zip(programs, times, strict=True):
            own.append(program.timed(x)[1])
    return [statistics.median(own) for own in times]


def run(model: Model, library: Path, rounds: int) -> list[str]:
    """Everything for one model. Returns what falls short."""
    print(f"== {model.name}: {os.path.relpath(model.path)}, input {'x'.join(map(str, model.x.shape))}\n")
    kernels = pipeline.Kernels(library)
    fused, built_in, unfused = model.load(), model.load(), model.load()
    report = pipeline.fuse(fused)
    pipeline.fuse(built_in, disable="acme.qmatmul,acme.qconv")
    pipeline.clean(unfused)
    print_plan(report)

    expected = reference.run(fused, model.name, model.x)
    programs = [pipeline.Program(m, model.name, library) for m in (unfused, built_in, fused)]
    kernels.reset()
    result = programs[-1](model.x)
    calls = kernels.calls()
    qdq = programs[0](model.x)
    seconds = medians(programs, model.x, rounds)

    is_equal = np.array_equal(result.view(np.uint32), expected.view(np.uint32))
    print_cost(qfuse.plan(model.load(), "acme", policy="profitable").report)
    print(f"  kernel calls     {', '.join(f'{name} {count}' for name, count in calls.items())}")
    print(f"  numpy reference  {'equal bit for bit' if is_equal else 'DIFFERS'}")
    print(f"  from QDQ         {steps(result, qdq, model.scale)} differ, in steps of the result")
    print(f"  from PyTorch     {steps(result, model.expected, model.scale)} differ, in steps of the result")
    for label, own in zip(("unfused QDQ", "fused, no kernels", "fused, kernels"), seconds, strict=True):
        print(f"  {label:<17}{own * 1e3:9.3f} ms  {seconds[0] / own:6.2f} x")
    print(flush=True)
    failures: list[str] = []
    if not is_equal:
        failures.append("differs from the numpy reference")
    if calls != model.kernels:
        failures.append(f"kernel calls are {calls}, should be {model.kernels}")
    if seconds[-1] >= seconds[0]:
        failures.append("is not faster than the unfused module")
    return [f"{model.name}: {failure}" for failure in failures]


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", type=Path, default=HERE / "kernels" / "build" / "native" / "libacme.so")
    parser.add_argument("--rounds", type=int, default=30, help="timed runs of each program (default: %(default)s)")
    arguments = parser.parse_args()
    registry = qfuse.FusionRegistry.discover()
    for problem in registry.problems:
        print(f"warning: {problem}")
    target = registry.target("acme")
    print(f"target {target.name} of {registry.owner('acme')}: {target.doc}")
    print(f"kernels of {os.path.relpath(arguments.library)}: {pipeline.Kernels(arguments.library).instructions}")
    print(f"times: this machine, one thread, medians of {arguments.rounds} interleaved runs\n")
    failures = [failure for model in models() for failure in run(model, arguments.library, arguments.rounds)]
    print("Result:", "FAILED" if failures else "passed")
    for failure in failures:
        print(f"  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
