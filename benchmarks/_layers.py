"""What `linear.py` and `convolution.py` share: a quantized layer, compiled in several ways, against one another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _iree import Call, prepare
from _pt2e import QuantizedLayer
from _timing import interleaved_medians
from torch.export import ExportedProgram
from torch_mlir import fx

import qfuse
from qfuse.integrations.iree import host_has_vnni


def parser_of(description: str | None, *, repeat: int) -> argparse.ArgumentParser:
    """The arguments of both runners but for the shapes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--option",
        action="append",
        type=options_of,
        metavar="KEY=VALUE,...",
        help="one set of qfuse options; repeat it to compare several (default: those of qfuse, and operands=vnni\n"
        "where the target CPU is a host that has it)",
    )
    parser.add_argument("--target", default="iree-cpu", help="qfuse's target (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=repeat, help="rounds (default: %(default)s)")
    parser.add_argument("--cpu", default="host", help="IREE's target CPU (default: %(default)s)")
    parser.add_argument("--iree-flag", action="append", help="one more flag for iree-compile, of all candidates")
    return parser


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


def compare(name: str, layer: QuantizedLayer, arguments: argparse.Namespace, needed: Mapping[str, float]) -> bool:
    """Measure a layer and print a line a candidate; whether the best fused one is fast enough.

    Args:
        name: what is printed above.
        layer: what is measured.
        arguments: of `parser_of`.
        needed: how many times as fast as a candidate the best fused one has to be.
    """
    option_sets = arguments.option or default_options(arguments.target, arguments.cpu)
    medians, steps = _measure(layer, option_sets, arguments)
    print(f"{name}, target CPU {arguments.cpu}, one thread, medians of {arguments.repeat}")
    print(f"{'ms':>8} {'unfused / it':>12} {'native / it':>12} {'max steps':>9} {'differ':>7}  candidate")
    for candidate, seconds in medians.items():
        line = f"{seconds * 1e3:8.3f} {medians['unfused'] / seconds:12.2f} {medians['native'] / seconds:12.2f}"
        if candidate in steps:
            line += f" {steps[candidate].max():9.2f} {int((steps[candidate] > 0.5).sum()):7d}"
        else:
            line += f" {'':9} {'':7}"
        print(f"{line}  {candidate}")
    best = min(seconds for candidate, seconds in medians.items() if candidate.startswith("qfuse"))
    good = True
    for baseline, least in needed.items():
        ratio = medians[baseline] / best
        passed = ratio >= least
        good &= passed
        print(f"{'PASS' if passed else 'FAIL'}: {baseline} / qfuse = {ratio:.2f}, needed {least:.2f}")
    print(flush=True)
    return good


def _measure(
    layer: QuantizedLayer, option_sets: Sequence[dict[str, str]], arguments: argparse.Namespace
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Median seconds of every candidate; of the quantized ones the distance from the unfused output in output steps."""

    def ready(program: ExportedProgram, output_type: str, options: dict[str, str] | None = None) -> Call:
        module = fx.export_and_import(program, output_type=output_type)
        if options is not None:
            summary = qfuse.fuse(module, target=arguments.target, **options).to_json()["summary"]
            if summary["integer_ops"] != 1:
                raise SystemExit(f"qfuse {options}: not fused: {summary}")
        input_type = "torch" if output_type == "torch" else "none"
        return prepare(
            module, layer.x, input_type=input_type, cpu=arguments.cpu, more_flags=arguments.iree_flag or ()
        )  # fmt: skip

    calls = {
        "float": ready(layer.float_program, "linalg-on-tensors"),
        "unfused": ready(layer.program, "linalg-on-tensors"),
        "native": ready(layer.program, "torch"),
    }
    for options in option_sets:
        name = " ".join(["qfuse", *(f"{key}={value}" for key, value in options.items())])
        calls[name] = ready(layer.program, "linalg-on-tensors", options)
    outputs = {name: call.output() for name, call in calls.items() if name != "float"}
    steps = {name: np.abs(value - outputs["unfused"]) / layer.out_scale for name, value in outputs.items()}
    return interleaved_medians({name: call.run for name, call in calls.items()}, rounds=arguments.repeat), steps
