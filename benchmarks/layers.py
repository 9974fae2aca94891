"""Say of every quantized tensor of a module how many integers differ after fusing, and by how many steps.

    python benchmarks/layers.py MODULE.mlir [--inputs MODULE.npz] [--target NAME] [--option k=v ...]

A network that ends in floats can differ by more than rounding although every layer keeps what it states: a hidden
integer that lies at a tie goes one step the other way, and what follows differs with it. So each layer is compared

  alone    computed as the unfused module spells it, from the integers that the fused module has before it;
  chained  with the unfused module run on its own.

Alone, a layer may differ by what the report states of it; a float result agrees to rounding. The exit code is 1 where a
layer alone differs by more. Runs in numpy (`tests/property/executor.py`), without IREE.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch_mlir import ir

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import qfuse
from qfuse._mlir import Bindings
from qfuse.matchers.nodes import Quantize
from qfuse.matchers.recognizer import Recognizer
from tests.property.executor import execute

#: Float results agree to this part of the largest one.
ROUNDING = 1e-5


@dataclass
class Layer:
    """One quantized tensor, or a float result.

    Attributes:
        name: of the value in the module.
        type: printed.
        allowed: steps that the report states; 0 where it says nothing.
        alone: difference at each element, given the same integers before it.
        chained: likewise, run on its own.
    """

    name: str
    type: str
    allowed: float
    alone: Any
    chained: Any

    @property
    def holds(self) -> bool:
        """Whether it differs no more than allowed, given the same integers."""
        return bool(np.abs(self.alone).max(initial=0) <= self.allowed)

    def __str__(self) -> str:
        parts = [
            f"{np.count_nonzero(d)} of {d.size} differ, at most {np.abs(d).max(initial=0):.3g}"
            for d in (self.alone, self.chained)
        ]
        return f"{self.name:10} {self.type:28} alone: {parts[0]}; chained: {parts[1]}"


def compare(text: str, inputs: Sequence[Any], target: str, options: dict[str, str]) -> list[Layer]:
    """Every quantized tensor and every float result of the only function of a module."""
    context = ir.Context()
    plain = ir.Module.parse(text, context)
    hidden, returned = return_quantized(plain)
    values = [*(q.result for q in hidden), *returned]
    unsigned = {q.result for q in hidden if not q.params.storage.signed}
    shown = str(plain)
    fused = ir.Module.parse(shown, context)
    allowed = stated(qfuse.fuse(fused, target, **options), shown)
    observed = execute(fused, inputs)
    alone, chained = execute(plain, inputs, observed=observed), execute(plain, inputs)
    layers: list[Layer] = []
    for position, (value, found) in enumerate(zip(values, observed, strict=True)):
        whole = found.dtype.kind in "iu"
        held = np.dtype(f"u{found.dtype}") if value in unsigned else found.dtype
        wide = np.int64 if whole else np.float64
        found = found.view(held).astype(wide)
        differences = [found - np.asarray(r[position]).view(held).astype(wide) for r in (alone, chained)]
        steps = allowed.get(value.get_name(), 0) if whole else ROUNDING * float(np.abs(found).max(initial=0.0))
        layers.append(Layer(value.get_name(), str(value.type), steps, *differences))
    return layers


def return_quantized(module: Any) -> tuple[list[Quantize], list[Any]]:
    """Makes a function return every quantized tensor, too: the quantizes and what it returned before."""
    (function,) = [o.operation for o in module.body.operations if o.operation.name == "func.func"]
    recognizer = Recognizer(Bindings.of(module))
    operations = [o.operation for o in function.regions[0].blocks[0].operations]
    nodes = [recognizer.node(op) for op in operations]
    hidden = [n for n in nodes if isinstance(n, Quantize)]
    end = operations[-1]
    returned = list(end.operands)
    with module.context, ir.Location.unknown(), ir.InsertionPoint(end):
        ir.Operation.create("func.return", operands=[*(n.result for n in hidden), *returned])
        end.erase()
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        results = [v.type for v in (*(n.result for n in hidden), *returned)]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs, results))
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]
    return hidden, returned


def stated(report: qfuse.Report, text: str) -> dict[str, int]:
    """The steps that a report states of each value, by its name in the text that was fused."""
    lines = text.splitlines()
    found: dict[str, int] = {}
    for entry in report.applied:
        place = re.fullmatch(r".*:(\d+):\d+", entry["location"])
        name = None if place is None else re.match(r"\s*(%\w+)", lines[int(place[1]) - 1])
        steps = re.fullmatch(r"within-(\d+)-lsb", entry["exactness"])
        if name is not None and steps is not None:
            found[name[1]] = int(steps[1])
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("--inputs", type=Path, help="npz with in0, in1, ...")
    parser.add_argument("--target", default="linalg")
    parser.add_argument("--option", action="append", default=[], metavar="K=V", help="option of fuse()")
    arguments = parser.parse_args()
    held = np.load(arguments.inputs or arguments.module.with_suffix(".npz"))
    inputs = [held[f"in{i}"] for i in range(sum(k.startswith("in") for k in held))]
    options = dict(o.split("=", 1) for o in arguments.option)
    layers = compare(arguments.module.read_text(), inputs, arguments.target, options)
    for layer in layers:
        print(layer if layer.holds else f"{layer}  MORE THAN STATED ({layer.allowed:.3g})")
    return int(not all(layer.holds for layer in layers))


if __name__ == "__main__":
    sys.exit(main())
