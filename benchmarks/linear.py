"""Speed of a PT2E-quantized Linear + bias + relu in IREE: unfused, through IREE's own quantized path, and fused.

The layer is quantized by XNNPACK's static per-channel scheme, its output included. `unfused` is the linalg that
torch-mlir makes of it, `native` the torch dialect, which IREE turns into integers by itself, `qfuse` the unfused
module after `qfuse.fuse`. All are compiled with the same flags and run in turns on one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _iree import prepare
from _pt2e import QuantizedLinear, quantized_linear
from _timing import interleaved_medians
from torch_mlir import fx

import qfuse
from qfuse.integrations.iree import host_has_vnni

NEEDED_OVER_UNFUSED = 2.5
NEEDED_OVER_NATIVE = 1.0


def shape_of(text: str) -> tuple[int, int, int]:
    """Parse MxKxN."""
    try:
        m, k, n = (int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected MxKxN, got {text!r}") from None
    return m, k, n


def options_of(text: str) -> dict[str, str]:
    """Parse `key=value,key=value`; the empty text is the defaults."""
    options: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"expected key=value, got {part!r}")
        options[key] = value
    return options


def default_options(target: str, cpu: str) -> list[dict[str, str]]:
    """What to compare when nothing is said."""
    has_vnni = target == "iree-cpu" and cpu == "host" and host_has_vnni()
    return [{}, {"operands": "vnni"}] if has_vnni else [{}]


def measure(
    layer: QuantizedLinear, option_sets: list[dict[str, str]], *, target: str, cpu: str, repeat: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the median seconds of every candidate, and its distance from the unfused output in output steps."""
    unfused = fx.export_and_import(layer.program, output_type="linalg-on-tensors")
    native = fx.export_and_import(layer.program, output_type="torch")
    calls = {
        "unfused": prepare(unfused, layer.x, cpu=cpu),
        "native": prepare(native, layer.x, input_type="torch", cpu=cpu),
    }
    for options in option_sets:
        fused = fx.export_and_import(layer.program, output_type="linalg-on-tensors")
        report = qfuse.fuse(fused, target=target, **options)
        summary = report.to_json()["summary"]
        if summary["integer_ops"] != 1:
            raise SystemExit(f"qfuse {options}: not fused: {summary}")
        name = " ".join(["qfuse", *(f"{key}={value}" for key, value in options.items())])
        calls[name] = prepare(fused, layer.x, cpu=cpu)
    outputs = {name: call.output() for name, call in calls.items()}
    steps = {name: np.abs(value - outputs["unfused"]) / layer.out_scale for name, value in outputs.items()}
    medians = interleaved_medians({name: call.run for name, call in calls.items()}, rounds=repeat)
    return medians, steps


def main() -> int:
    """Measure every shape; the exit code tells whether the best fused candidate is fast enough on all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--shape",
        nargs="+",
        type=shape_of,
        default=[(128, 1024, 1024), (128, 768, 3072)],
        metavar="MxKxN",
        help="default: 128x1024x1024 128x768x3072",
    )
    parser.add_argument(
        "--option",
        action="append",
        type=options_of,
        metavar="KEY=VALUE,...",
        help="one set of qfuse options; repeat it to compare several (default: those of qfuse, and operands=vnni\n"
        "where the target CPU is a host that has it)",
    )
    parser.add_argument("--target", default="iree-cpu", help="qfuse's target (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=61, help="rounds (default: %(default)s)")
    parser.add_argument("--cpu", default="host", help="IREE's target CPU (default: %(default)s)")
    arguments = parser.parse_args()
    good = True
    for m, k, n in arguments.shape:
        medians, steps = measure(
            quantized_linear(m, k, n),
            arguments.option or default_options(arguments.target, arguments.cpu),
            target=arguments.target,
            cpu=arguments.cpu,
            repeat=arguments.repeat,
        )
        print(f"{m}x{k}x{n}, target CPU {arguments.cpu}, one thread, medians of {arguments.repeat}")
        print(f"{'ms':>8} {'unfused / it':>12} {'native / it':>12} {'max steps':>9} {'differ':>7}  candidate")
        for name, seconds in medians.items():
            print(
                f"{seconds * 1e3:8.3f} {medians['unfused'] / seconds:12.2f} {medians['native'] / seconds:12.2f}"
                f" {steps[name].max():9.2f} {int((steps[name] > 0.5).sum()):7d}  {name}"
            )
        best = min(seconds for name, seconds in medians.items() if name.startswith("qfuse"))
        for baseline, needed in (("unfused", NEEDED_OVER_UNFUSED), ("native", NEEDED_OVER_NATIVE)):
            ratio = medians[baseline] / best
            passed = ratio >= needed
            good &= passed
            print(f"{'PASS' if passed else 'FAIL'}: {baseline} / qfuse = {ratio:.2f}, needed {needed:.2f}")
        print(flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the interpreter's shutdown may crash in the teardown of two MLIR libraries in one process
