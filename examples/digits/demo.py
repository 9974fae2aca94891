"""Fuse checked-in QDQ digits classifiers in several ways, run them on held-out images, and compare.

    pip install '.[iree]'
    python examples/digits/demo.py

Needs no torch. Exits with 1 if a fused program is not as good as the QDQ one (see `judge`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

import qfuse
from qfuse.errors import QfuseError
from qfuse.integrations.iree import PreparedCall, Program, compile_module

HERE = Path(__file__).resolve().parent

MAX_ACCURACY_LOSS = 2
"""Images by which the accuracies may differ."""
BOUNDARY_OPS = 2
"""The quantize of the images and the dequantize of the logits: what float arithmetic `integer-only` leaves."""


@dataclass(frozen=True)
class Model:
    """One checked-in model: `<name>.linalg.mlir` and its arrays in `test.npz`, as `export.py` wrote them.

    `max_steps` is the number of steps of the output's quantization grid by which a float epilogue may move any output.
    None leaves it to the accuracy: in a deep network one intermediate value rounded the other way moves many outputs.
    """

    name: str
    max_steps: int | None = None

    @property
    def path(self) -> Path:
        return HERE / f"{self.name}.linalg.mlir"

    def load(self) -> ir.Module:
        # By a short name: the locations in the report start with it.
        return ir.Module.parseFile(os.path.relpath(self.path), ir.Context())


@dataclass(frozen=True)
class Variant:
    """One way to fuse: arguments of `qfuse.fuse`, and whether its epilogues scale in floating point."""

    label: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    float_epilogue: bool = True


MODELS = {model.name: model for model in (Model("mlp", max_steps=1), Model("cnn"))}

VARIANTS = (
    Variant("float epilogue", "linalg"),
    Variant("float epilogue, iree-cpu", "iree-cpu"),
    Variant(
        "fixed-point, half-even", "linalg", {"epilogue": "fixed-point", "scaling": "half-even"}, float_epilogue=False
    ),
    Variant("integer-only", "integer-only", float_epilogue=False),
)


@dataclass(frozen=True)
class TestSet:
    """Held-out images, and what PyTorch computed for them with the same quantized model."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    reference: npt.NDArray[np.float32]
    output_scale: float
    float_accuracy: float

    def __len__(self) -> int:
        return len(self.labels)

    def correct(self, logits: npt.NDArray[np.float32]) -> int:
        return int((logits.argmax(axis=1) == self.labels).sum())

    def steps(self, a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Difference of each output in steps of the quantize that made it; whole numbers on its grid."""
        return np.round(np.abs(a.astype(np.float64) - b) / self.output_scale, 3)


@dataclass(frozen=True)
class Candidate:
    """A program to compare. `variant` and `report` are None for the QDQ module as it came."""

    label: str
    program: Program
    logits: npt.NDArray[np.float32]
    float_ops: int
    variant: Variant | None = None
    report: qfuse.Report | None = None


def load_test_set(model: Model, module: ir.Module) -> TestSet:
    """The images in the shape that the module's function takes them."""
    function = module.body.operations[0]
    shape = ir.RankedTensorType(ir.FunctionType(function.attributes["function_type"].value).inputs[0]).shape
    with np.load(HERE / "test.npz") as data:
        return TestSet(
            images=data["x"].reshape(shape),
            labels=data["labels"],
            reference=data[f"{model.name}.logits"],
            output_scale=float(data[f"{model.name}.output_scale"]),
            float_accuracy=float(data[f"{model.name}.float_accuracy"]),
        )


def count_float_ops(module: ir.Module) -> int:
    """Operations of the module's function that do float arithmetic, themselves or in their bodies."""
    function = module.body.operations[0]
    return sum(_is_float(op) for block in function.regions[0] for op in block.operations)


def _is_float(op: ir.OpView) -> bool:
    operation = op.operation
    if operation.name.startswith(("arith.", "math.")) and operation.name != "arith.constant":
        values = (*operation.operands, *operation.results)
        return any(isinstance(value.type, ir.F32Type | ir.F64Type) for value in values)
    return any(_is_float(inner) for region in operation.regions for block in region for inner in block.operations)


def unfused(module: ir.Module, test_set: TestSet) -> Candidate:
    program = Program(compile_module(module))
    (logits,) = program(test_set.images)
    return Candidate("QDQ, IREE", program, logits, count_float_ops(module))


def fused(variant: Variant, module: ir.Module, test_set: TestSet) -> Candidate:
    """Fuses `module` in place, compiles and runs it."""
    report = qfuse.fuse(module, variant.target, **variant.options)
    program = Program(compile_module(module))
    (logits,) = program(test_set.images)
    return Candidate(variant.label, program, logits, count_float_ops(module), variant, report)


def time_all(
    candidates: Sequence[Candidate], test_set: TestSet, max_rounds: int, max_seconds: float
) -> tuple[list[float], int]:
    """Median seconds per call on one thread, the programs taking turns, and how many turns they had."""
    calls = [candidate.program.prepare(test_set.images) for candidate in candidates]
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + max_seconds
    rounds = 0
    while rounds < max_rounds and (rounds < 3 or time.perf_counter() < end):
        for call, own in zip(calls, times, strict=True):
            own.append(_seconds(call))
        rounds += 1
    return [statistics.median(own) for own in times], rounds


def _seconds(call: PreparedCall) -> float:
    start = time.perf_counter()
    call.run()
    return time.perf_counter() - start


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """First column to the left, the others to the right."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    for line in (header, *rows):
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        print(f"  {'   '.join(cells)}".rstrip())


def histogram(steps: npt.NDArray[np.float64]) -> str:
    """How many outputs differ by how many steps: `1: 57, 2: 3`."""
    values, counts = np.unique(steps[steps != 0], return_counts=True)
    return ", ".join(f"{value:g}: {count}" for value, count in zip(values, counts, strict=True)) or "none"


def print_comparison(
    test_set: TestSet, qdq: Candidate, candidates: Sequence[Candidate], seconds: Sequence[float], rounds: int
) -> None:
    """One row a program. `seconds` are of `qdq` and `candidates`, in this order."""

    def correct(count: int) -> str:
        return f"{count}  {100 * count / len(test_set):.2f} %"

    rows = [
        ["float, PyTorch", correct(round(test_set.float_accuracy * len(test_set)))] + 6 * [""],
        ["QDQ, PyTorch", correct(test_set.correct(test_set.reference))] + 6 * [""],
    ]
    for c, own in zip((qdq, *candidates), seconds, strict=True):
        rows.append(
            [
                c.label,
                correct(test_set.correct(c.logits)),
                "" if c is qdq else histogram(test_set.steps(c.logits, qdq.logits)),
                histogram(test_set.steps(c.logits, test_set.reference)),
                f"{own * 1e3:.3f}",
                f"{seconds[0] / own:.2f} x",
                "" if c.report is None else "{integer_ops} of {quantized_compute_ops}".format_map(c.report.summary),
                str(c.float_ops),
            ]
        )
    header = [
        "",
        f"correct of {len(test_set)}",
        "differ from QDQ",
        "from PyTorch",
        "ms",
        "speed",
        "integer ops",
        "float ops",
    ]
    print_table(header, rows)
    print(
        f"\n  differ: steps of the output's grid ({test_set.output_scale:.6g}): how many of {test_set.reference.size}"
    )
    print(f"  ms: a batch of {len(test_set)}, IREE llvm-cpu, one thread, median of {rounds} interleaved runs")
    print("  integer ops: quantized compute operations done in integers, by the report")
    print("  float ops: operations with float arithmetic that the module holds, boundary included")


def judge(model: Model, test_set: TestSet, qdq: Candidate, candidate: Candidate) -> list[str]:
    """What falls short of the demo's promise; empty if nothing does."""
    assert candidate.variant is not None
    assert candidate.report is not None
    failures: list[str] = []
    summary = candidate.report.summary
    quantized, integer = summary["quantized_compute_ops"], summary["integer_ops"]
    if not quantized or integer != quantized:
        failures.append(f"{integer} of {quantized} quantized compute ops are integer; all should be")
    if candidate.variant.target == "integer-only" and candidate.float_ops > BOUNDARY_OPS:
        failures.append(f"{candidate.float_ops} operations do float arithmetic; at most {BOUNDARY_OPS} allowed")
    loss = abs(test_set.correct(candidate.logits) - test_set.correct(qdq.logits))
    if loss > MAX_ACCURACY_LOSS:
        failures.append(f"accuracy differs by {loss} images; at most {MAX_ACCURACY_LOSS} allowed")
    worst = test_set.steps(candidate.logits, qdq.logits).max()
    if model.max_steps is not None and candidate.variant.float_epilogue and worst > model.max_steps:
        failures.append(f"an output is off by {worst:g} steps; at most {model.max_steps} allowed")
    return [f"{model.name}, {candidate.label}: {failure}" for failure in failures]


def run(model: Model, arguments: argparse.Namespace) -> list[str]:
    """Every step for one model. Returns what failed."""
    print(f"== {model.name}: {os.path.relpath(model.path)}\n", flush=True)
    module = model.load()
    test_set = load_test_set(model, module)
    qdq = unfused(module, test_set)
    candidates: list[Candidate] = []
    for variant in VARIANTS:
        candidate = fused(variant, model.load(), test_set)
        candidates.append(candidate)
        assert candidate.report is not None
        if arguments.report:
            print(f"{candidate.label}: {candidate.report.text().rstrip()}\n", flush=True)
        else:
            for missed in candidate.report.missed:
                print(f"{candidate.label}: missed: {missed['location']} {missed['op']}: {missed['reason']}")
    seconds, rounds = time_all([qdq, *candidates], test_set, arguments.rounds, arguments.seconds)
    print_comparison(test_set, qdq, candidates, seconds, rounds)
    failures = [failure for candidate in candidates for failure in judge(model, test_set, qdq, candidate)]
    print(f"\nResult: {'FAILED' if failures else 'passed'}")
    for failure in failures:
        print(f"  {failure}")
    print(flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=list(MODELS), action="append", help="default: all of them")
    parser.add_argument("--report", action="store_true", help="print the whole report of every fusion")
    parser.add_argument(
        "--rounds", type=int, default=300, help="timed runs of each program, at most (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=8, help="time for the timed runs of a model (default: %(default)s)"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        failures = [failure for name in arguments.model or MODELS for failure in run(MODELS[name], arguments)]
    except QfuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
