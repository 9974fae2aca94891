"""Time of `qfuse.fuse` on a generated chain of quantized linears, against printing and parsing the same module.

The chain is spelled as torch-mlir spells PT2E models, weights included. Two things are needed of a module of N
operations (nested ones counted): `fuse` takes no longer than one print and parse, and at 2N no more than 2.3 times as
long as at N.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torch_mlir import ir

import qfuse

Result = TypeVar("Result")

NEEDED_OVER_ROUND_TRIP = 1.0
NEEDED_GROWTH = 2.3
ROWS = 8

HEADER = """#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d1)>
module {
  func.func @main(%arg0: tensor<@MxDxf32>) -> tensor<@MxDxf32> {
    %zero = arith.constant 0.000000e+00 : f32
    %low = arith.constant -1.280000e+02 : f32
    %high = arith.constant 1.270000e+02 : f32
    %zps = arith.constant dense_resource<zps> : tensor<@Dxi64>
    %empty_w = tensor.empty() : tensor<@DxDxf32>
    %empty_q = tensor.empty() : tensor<@MxDxi8>
    %empty_x = tensor.empty() : tensor<@MxDxf32>
"""

QUANTIZE = """    %q@I = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} \
ins(@X : tensor<@MxDxf32>) outs(%empty_q : tensor<@MxDxi8>) {
    ^bb0(%in: f32, %out: i8):
      %a = arith.divf %in, %s@I : f32
      %b = math.roundeven %a : f32
      %c = arith.addf %b, %z@I : f32
      %d = arith.maximumf %c, %low : f32
      %e = arith.minimumf %d, %high : f32
      %f = arith.fptosi %e : f32 to i8
      linalg.yield %f : i8
    } -> tensor<@MxDxi8>
    %x@I = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} \
ins(%q@I : tensor<@MxDxi8>) outs(%empty_x : tensor<@MxDxf32>) {
    ^bb0(%in: i8, %out: f32):
      %a = arith.extsi %in : i8 to i64
      %b = arith.subi %a, %i@I : i64
      %c = arith.sitofp %b : i64 to f32
      %d = arith.mulf %c, %s@I : f32
      linalg.yield %d : f32
    } -> tensor<@MxDxf32>
"""

LINEAR = """    %w@I = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", \
"parallel"]} ins(%weight@I, %scales@I, %zps : tensor<@DxDxi8>, tensor<@Dxf32>, tensor<@Dxi64>) \
outs(%empty_w : tensor<@DxDxf32>) {
    ^bb0(%in: i8, %in_1: f32, %in_2: i64, %out: f32):
      %a = arith.extsi %in : i8 to i64
      %b = arith.subi %a, %in_2 : i64
      %c = arith.sitofp %b : i64 to f32
      %d = arith.mulf %c, %in_1 : f32
      linalg.yield %d : f32
    } -> tensor<@DxDxf32>
    %wt@I = linalg.transpose ins(%w@I : tensor<@DxDxf32>) outs(%empty_w : tensor<@DxDxf32>) permutation = [1, 0]
    %fill@I = linalg.fill ins(%zero : f32) outs(%empty_x : tensor<@MxDxf32>) -> tensor<@MxDxf32>
    %mm@I = linalg.matmul ins(%x@P, %wt@I : tensor<@MxDxf32>, tensor<@DxDxf32>) \
outs(%fill@I : tensor<@MxDxf32>) -> tensor<@MxDxf32>
    %biased@I = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} \
ins(%mm@I, %bias@I : tensor<@MxDxf32>, tensor<@Dxf32>) outs(%empty_x : tensor<@MxDxf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %a = arith.addf %in, %in_1 : f32
      linalg.yield %a : f32
    } -> tensor<@MxDxf32>
"""

RELU = """    %relu@I = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} \
ins(%biased@I : tensor<@MxDxf32>) outs(%empty_x : tensor<@MxDxf32>) {
    ^bb0(%in: f32, %out: f32):
      %a = arith.cmpf ugt, %in, %zero : f32
      %b = arith.select %a, %in, %zero : f32
      linalg.yield %b : f32
    } -> tensor<@MxDxf32>
"""


def resource(values: np.ndarray) -> str:
    """Return the blob of a `dense_resource`."""
    return f'"0x{(values.dtype.itemsize.to_bytes(4, "little") + values.tobytes()).hex().upper()}"'


def chain(operations: int, *, dimension: int, seed: int = 0) -> tuple[str, int]:
    """Return a module of about that many operations, and the number of linears in it."""
    rng = np.random.default_rng(seed)
    constants: list[str] = []
    body: list[str] = []
    blobs = [f"zps: {resource(np.zeros(dimension, np.int64))}"]

    def quantize(index: int, value: str) -> None:
        zero_point = int(rng.integers(-20, 20)) or 1  # torch-mlir spells 0 differently
        scale = float(rng.uniform(0.01, 0.05))
        constants.extend(
            [
                f"    %s{index} = arith.constant {scale:.9e} : f32",
                f"    %z{index} = arith.constant {zero_point:.9e} : f32",
                f"    %i{index} = arith.constant {zero_point} : i64",
            ]
        )
        body.append(QUANTIZE.replace("@I", str(index)).replace("@X", value))

    quantize(0, "%arg0")
    count = 25  # what stands once: module, function, shared constants, the first quantize and dequantize, return
    linears = 0
    while count < operations:
        linears += 1
        i = linears
        for name, kind, values in (
            ("weight", "tensor<@DxDxi8>", rng.integers(-127, 128, (dimension, dimension), np.int8)),
            ("scales", "tensor<@Dxf32>", rng.uniform(0.001, 0.01, dimension).astype(np.float32)),
            ("bias", "tensor<@Dxf32>", rng.normal(size=dimension).astype(np.float32)),
        ):
            constants.append(f"    %{name}{i} = arith.constant dense_resource<{name}{i}> : {kind}")
            blobs.append(f"{name}{i}: {resource(values)}")
        relu = i % 2 == 0
        text = LINEAR + (RELU if relu else "")
        body.append(text.replace("@I", str(i)).replace("@P", str(i - 1)))
        quantize(i, f"%relu{i}" if relu else f"%biased{i}")
        count += 37 + 4 * relu
    text = HEADER + "\n".join(constants) + "\n" + "".join(body)
    text += f"    return %x{linears} : tensor<@MxDxf32>\n  }}\n}}\n"
    text = text.replace("@MxD", f"{ROWS}x{dimension}").replace("@DxD", f"{dimension}x{dimension}")
    text = text.replace("@D", str(dimension))
    return text + "{-#\n  dialect_resources: {\n    builtin: {\n" + ",\n".join(blobs) + "\n    }\n  }\n#-}\n", linears


def count_operations(module: ir.Module) -> int:
    """Return the number of operations, nested ones and the module included."""
    count = 0

    def see(_: ir.Operation) -> ir.WalkResult:
        nonlocal count
        count += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(see)
    return count


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return what a call returns and its CPU seconds, from a collected heap; the collector stays on meanwhile."""
    gc.collect()
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def measure(operations: int, *, dimension: int, target: str, repeat: int) -> dict[str, float]:
    """Return the number of operations and the median seconds of printing, parsing and fusing."""
    text, linears = chain(operations, dimension=dimension)
    samples: dict[str, list[float]] = {"print": [], "parse": [], "fuse": []}
    count = 0
    for _ in range(repeat):
        with ir.Context() as context:
            module = ir.Module.parse(text, context)
            count = count_operations(module)
            printed, elapsed = timed(module.__str__)
            samples["print"].append(elapsed)
            with ir.Context() as other:
                _, elapsed = timed(functools.partial(ir.Module.parse, printed, other))
                samples["parse"].append(elapsed)
            report, elapsed = timed(functools.partial(qfuse.fuse, module, target=target))
            samples["fuse"].append(elapsed)
            summary = report.to_json()["summary"]
            if summary["integer_ops"] != linears:
                raise SystemExit(f"{linears} linears, but: {summary}")
            module.operation.verify()
    return {"operations": count} | {name: statistics.median(values) for name, values in samples.items()}


def profile(operations: int, *, dimension: int, target: str) -> None:
    """Print where `fuse` spends its time."""
    text, _ = chain(operations, dimension=dimension)
    with ir.Context() as context:
        module = ir.Module.parse(text, context)
        profiler = cProfile.Profile()
        profiler.runcall(qfuse.fuse, module, target=target)
    for order in ("cumulative", "tottime"):
        pstats.Stats(profiler).strip_dirs().sort_stats(order).print_stats(30)


def main() -> int:
    """Measure N and 2N; the exit code tells whether both needs are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ops", type=int, default=50_000, help="operations of the smaller module")
    parser.add_argument("--dimension", type=int, default=512, help="weights are square, of this size")
    parser.add_argument("--target", default="linalg", help="qfuse's target (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs per size (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="profile one fuse() instead")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.ops, dimension=arguments.dimension, target=arguments.target)
        return 0
    measure(1000, dimension=arguments.dimension, target=arguments.target, repeat=1)  # imports and first-call costs
    small, large = (
        measure(ops, dimension=arguments.dimension, target=arguments.target, repeat=arguments.repeat)
        for ops in (arguments.ops, 2 * arguments.ops)
    )
    for figures in (small, large):
        round_trip = figures["print"] + figures["parse"]
        print(
            f"{figures['operations']:.0f} operations: print {figures['print']:.2f} s, parse {figures['parse']:.2f} s,"
            f" fuse {figures['fuse']:.2f} s, fuse / (print + parse) {figures['fuse'] / round_trip:.2f}"
        )
    ratio = small["fuse"] / (small["print"] + small["parse"])
    growth = large["fuse"] / small["fuse"] / (large["operations"] / small["operations"]) * 2
    good = True
    for name, value, needed in (
        ("fuse / (print + parse)", ratio, NEEDED_OVER_ROUND_TRIP),
        ("growth for twice the operations", growth, NEEDED_GROWTH),
    ):
        good &= value <= needed
        print(f"{'PASS' if value <= needed else 'FAIL'}: {name} {value:.2f}, needed at most {needed:.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
