"""Fuse a checked-in QDQ digits classifier, run it before and after on held-out images, and compare.

    pip install '.[iree]'
    python examples/digits/demo.py

Needs no torch. Exits with 1 if the fused program is not as good as the QDQ one (see `judge`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

import qfuse
from qfuse.errors import QfuseError
from qfuse.integrations.iree import PreparedCall, Program, compile_module

HERE = Path(__file__).resolve().parent
MODELS = ("mlp",)

MAX_ACCURACY_LOSS = 2
"""Images by which the accuracies may differ."""
MAX_STEPS = 1
"""Steps of the output's quantization grid by which any output may differ."""


@dataclass(frozen=True)
class Files:
    """Where one model's files are, as `export.py` wrote them."""

    name: str
    module: Path
    data: Path


@dataclass(frozen=True)
class TestSet:
    """Held-out images, and what PyTorch computed for them with the same quantized model."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    reference: npt.NDArray[np.float32]
    output_scale: float
    float_accuracy: float

    def correct(self, logits: npt.NDArray[np.float32]) -> int:
        return int((logits.argmax(axis=1) == self.labels).sum())

    def steps(self, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Difference of each output in steps of the quantize that made it; whole numbers on its grid."""
        return np.round(np.abs(a.astype(np.float64) - b) / self.output_scale, 3)


@dataclass(frozen=True)
class Pair:
    """One value for the QDQ module as it came, and one for the fused module."""

    qdq: Any
    fused: Any


def files_of(name: str) -> Files:
    return Files(name, HERE / f"{name}.linalg.mlir", HERE / "test.npz")


def load_module(files: Files) -> ir.Module:
    # By a short name: the locations in the report start with it.
    return ir.Module.parseFile(os.path.relpath(files.module), ir.Context())


def load_test_set(files: Files, module: ir.Module) -> TestSet:
    """The images in the shape that the module's function takes them."""
    function = module.body.operations[0]
    shape = ir.RankedTensorType(ir.FunctionType(function.attributes["function_type"].value).inputs[0]).shape
    with np.load(files.data) as data:
        return TestSet(
            images=data["x"].reshape(shape),
            labels=data["labels"],
            reference=data[f"{files.name}.logits"],
            output_scale=float(data[f"{files.name}.output_scale"]),
            float_accuracy=float(data[f"{files.name}.float_accuracy"]),
        )


def fuse(module: ir.Module) -> tuple[Pair, Any]:
    """Fuse `module` in place. Returns the text before and the module after, and the report."""
    before = str(module)
    report = qfuse.fuse(module, target="linalg")
    return Pair(before, module), report


def compile_both(modules: Pair) -> Pair:
    return Pair(Program(compile_module(modules.qdq)), Program(compile_module(modules.fused)))


def run_both(programs: Pair, test_set: TestSet) -> Pair:
    (qdq,) = programs.qdq(test_set.images)
    (fused,) = programs.fused(test_set.images)
    return Pair(qdq, fused)


def time_both(programs: Pair, test_set: TestSet, rounds: int) -> Pair:
    """Median seconds per call on one thread, the two programs taking turns."""
    calls = Pair(programs.qdq.prepare(test_set.images), programs.fused.prepare(test_set.images))
    qdq: list[float] = []
    fused: list[float] = []
    for _ in range(rounds):
        qdq.append(_seconds(calls.qdq))
        fused.append(_seconds(calls.fused))
    return Pair(statistics.median(qdq), statistics.median(fused))


def _seconds(call: PreparedCall) -> float:
    start = time.perf_counter()
    call.run()
    return time.perf_counter() - start


def print_accuracy(test_set: TestSet, logits: Pair) -> None:
    total = len(test_set.labels)

    def row(label: str, correct: int) -> str:
        return f"  {label:<28}{correct:>4} of {total}{100 * correct / total:>9.2f} %"

    print(f"\nAccuracy on {total} held-out images")
    print(row("float, PyTorch", round(test_set.float_accuracy * total)))
    print(row("QDQ, PyTorch", test_set.correct(test_set.reference)))
    print(row("QDQ, IREE", test_set.correct(logits.qdq)))
    print(row("fused, IREE", test_set.correct(logits.fused)))


def print_differences(test_set: TestSet, logits: Pair) -> None:
    def row(label: str, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> str:
        steps = test_set.steps(a, b)
        return f"  {label:<28}{np.count_nonzero(steps):>7} of {steps.size}{steps.max():>16g}"

    print(f"\nOutputs that differ (one step = output scale = {test_set.output_scale:.6g})")
    print(f"  {'':<28}{'differ':>15}{'largest, steps':>16}")
    print(row("fused vs QDQ, IREE", logits.fused, logits.qdq))
    print(row("fused vs QDQ, PyTorch", logits.fused, test_set.reference))
    print(row("QDQ, IREE vs PyTorch", logits.qdq, test_set.reference))


def print_speed(seconds: Pair, rounds: int) -> None:
    print(f"\nTime per batch, IREE llvm-cpu, one thread, median of {rounds} interleaved runs")
    print(f"  {'QDQ':<28}{seconds.qdq * 1e6:>9.1f} us")
    print(f"  {'fused':<28}{seconds.fused * 1e6:>9.1f} us")
    print(f"  {'QDQ / fused':<28}{seconds.qdq / seconds.fused:>9.2f} x")


def judge(test_set: TestSet, logits: Pair, summary: dict[str, Any]) -> list[str]:
    """What falls short of the demo's promise; empty if nothing does."""
    failures: list[str] = []
    quantized, integer = summary["quantized_compute_ops"], summary["integer_ops"]
    if quantized == 0 or integer != quantized:
        failures.append(f"{integer} of {quantized} quantized compute ops are integer; all should be")
    loss = abs(test_set.correct(logits.fused) - test_set.correct(logits.qdq))
    if loss > MAX_ACCURACY_LOSS:
        failures.append(f"accuracy differs by {loss} images; at most {MAX_ACCURACY_LOSS} allowed")
    worst = test_set.steps(logits.fused, logits.qdq).max()
    if worst > MAX_STEPS:
        failures.append(f"an output is off by {worst:g} steps; at most {MAX_STEPS} allowed")
    return failures


def run(files: Files, rounds: int) -> list[str]:
    """Every step for one model. Returns what failed."""
    print(f"== {files.name}: {os.path.relpath(files.module)}\n")
    module = load_module(files)
    test_set = load_test_set(files, module)
    modules, report = fuse(module)
    print(report.text().rstrip())
    programs = compile_both(modules)
    logits = run_both(programs, test_set)
    print_accuracy(test_set, logits)
    print_differences(test_set, logits)
    print_speed(time_both(programs, test_set, rounds), rounds)
    failures = judge(test_set, logits, report.to_json()["summary"])
    print(f"\nResult: {'FAILED' if failures else 'passed'}")
    for failure in failures:
        print(f"  {failure}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=MODELS, action="append", help="default: all of them")
    parser.add_argument(
        "--rounds", type=int, default=300, help="timed runs of each program (default: %(default)s)"
    )
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        failures = [failure for name in args.model or MODELS for failure in run(files_of(name), args.rounds)]
    except QfuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
