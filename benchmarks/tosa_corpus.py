"""Fuse every TOSA module of a folder, validate it, run it on the reference model, and say whether that was right.

    python benchmarks/tosa_corpus.py FOLDER [--only GLOB] [--target tosa-int] [--option k=v ...] [--json FILE]

FOLDER is as for `corpus.py`: `ir/<case>.tosa.mlir` and `io/<case>.npz`. Per case, each in a process of its own:
`qfuse.fuse()` must not crash or raise; the result verifies, prints, parses again; fusing again applies nothing and
leaves the text alone. The fused module is validated with `tosa-opt`; both modules run on the reference model and their
outputs are held against the expected ones. What the reference model does not take (f64, i64, dynamic shapes) is lowered
by MLIR's own passes and runs in IREE.

Verdicts:

  ok                    max error of the fused outputs <= max error of the unfused ones + one output step, or where
                        values lie on no grid <= max(1.5 * unfused, RTOL * max|expected|)
  worse                 anything else that runs
  invalid               the fused module is not valid although the unfused one is
  fused does not run    although the unfused one does
  unfused does not run  neither does, or only the fused one, which is then said
  not executed          no io
  refused               fuse() raised one of qfuse's own errors
  crash                 the process died, or ended in a traceback; the output does not verify

Then the operations that stayed in float although what they read was quantized, with the reason of each. Any case that
is worse, invalid, does not run or crashes makes the exit code 1, and so does a convolution, matrix product or pooling
of dequantized tensors that is left in float and that the report does not name: that very operation, by its location.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _fuse_one import parse_option
from corpus import RTOL, SHORT_FLOAT_RTOL, find_step, max_error

FAILING = ("worse", "invalid", "fused does not run", "crash")
MOVES = ("tosa.transpose", "tosa.reshape", "tosa.slice", "tosa.concat", "tosa.reverse", "tosa.tile", "tosa.gather")
HEAVY = {
    "tosa.matmul", "tosa.conv2d", "tosa.conv3d", "tosa.depthwise_conv2d", "tosa.transpose_conv2d",
    "tosa.max_pool2d", "tosa.avg_pool2d",
}  # fmt: skip


def one(path: Path, io: Path, target: str, options: dict[str, Any]) -> dict[str, Any]:
    """Everything about one case."""
    import qfuse
    from qfuse._mlir import Bindings
    from qfuse.errors import QfuseError
    from qfuse.integrations import tosa
    from qfuse.matchers.constants import ConstantReader

    bindings = Bindings("torch_mlir")
    text = path.read_text()
    module = bindings.parse_source(text, path.name)
    steps = [_step(v, ConstantReader(bindings)) for v in _returned(module)]
    elements = [str(v.type.element_type) for v in _returned(module)]
    result: dict[str, Any] = {"problems": []}
    try:
        report = qfuse.fuse(module, target, **options)
    except QfuseError as error:
        return {**result, "verdict": "refused", "message": f"{type(error).__name__}: {error}"}
    module.operation.verify()
    after = str(module)
    data = report.to_json()
    result.update(summary=data["summary"], missed=data["missed"], applied=len(data["applied"]))
    result["repaired"] = any(e.get("repaired") for e in data["applied"])
    named = {(e["function"], e["op"], e["location"]) for e in data["missed"]}
    unexplained = [f"{op} at {place}" for f, op, place in _heavy(module, bindings) if (f, op, place) not in named]
    if unexplained:
        result["unexplained"] = unexplained
    again = bindings.parse_source(after, path.name)
    if qfuse.fuse(again, target, **options).applied or str(again) != after:
        result["problems"].append("fusing again changes the module")
    try:
        result["needs"] = str(tosa.validate(after))
    except tosa.TosaError as error:
        result["invalid"] = str(error)
    if not io.exists():
        return {**result, "verdict": "not executed"}
    with np.load(io) as archive:
        count = sum(n.startswith("in") for n in archive.files)
        inputs = [archive[f"in{i}"] for i in range(count)]
        expected = [archive[f"out{i}"] for i in range(len(archive.files) - count)]
    types = [str(a.type.element_type) for a in _function(module).regions[0].blocks[0].arguments]
    inputs = [_typed(a, t) for a, t in zip(inputs, types, strict=True)]
    before, fused = _run(text, inputs), _run(after, inputs)
    if isinstance(before, str):
        lowered = [_run_lowered(t, inputs) for t in (text, after)]
        if not any(isinstance(r, str) for r in lowered):
            before, fused = lowered
            result["lowered"] = True
    return {**result, **_verdict(before, fused, expected, steps, elements, "invalid" in result, text)}


def _run(text: str, inputs: list[Any]) -> Any:
    from qfuse.integrations import tosa

    try:
        return tosa.run(text, inputs)
    except tosa.TosaError as error:
        return str(error)


def _run_lowered(text: str, inputs: list[Any]) -> Any:
    """The outputs of what MLIR lowers a module to, in IREE, or why there are none."""
    from qfuse._mlir import Bindings
    from qfuse.integrations import iree, tosa

    try:
        module = Bindings("torch_mlir").parse_source(tosa.to_linalg(text), "lowered")
        return list(iree.Program(iree.compile_module(module))(*inputs))
    except (tosa.TosaError, iree.IREEError) as error:
        return str(error).splitlines()[0]


def _verdict(
    before: Any, fused: Any, expected: list[Any], steps: list[Any], elements: list[str], invalid: bool, text: str
) -> dict[str, Any]:
    if isinstance(before, str):
        ran = "does not run: " + fused if isinstance(fused, str) else "runs"
        if isinstance(fused, str):
            return {"verdict": "unfused does not run", "message": f"{before}; fused {ran}"}
    if isinstance(fused, str):
        from qfuse.integrations import tosa

        if invalid:
            try:
                tosa.validate(text)
            except tosa.TosaError:
                return {"verdict": "unfused does not run", "message": fused}
        return {"verdict": "invalid" if invalid else "fused does not run", "message": fused}
    rows: list[dict[str, Any]] = []
    for i, want in enumerate(expected):
        step, _ = find_step(want, steps[i], elements[i])
        error = max_error(fused[i], want)
        unfused = None if isinstance(before, str) else max_error(before[i], want)
        finite = np.abs(want[np.isfinite(want)]) if want.dtype.kind == "f" else np.abs(want)
        scale = float(finite.max(initial=0))
        base = unfused or 0.0
        limit = (
            base + step * 1.0001
            if step is not None
            else max(1.5 * base, SHORT_FLOAT_RTOL.get(elements[i], RTOL) * scale)
        )
        rows.append({"error": error, "unfused": unfused, "step": step, "ok": error <= limit + 1e-6 * scale})
    return {"verdict": "ok" if all(r["ok"] for r in rows) else "worse", "outputs": rows}


def _typed(array: Any, element: str) -> Any:
    if element == "bf16":
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    kinds = {"i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16"}
    name = kinds.get(element, "float32")
    if array.dtype.kind == "u" and array.dtype.itemsize == np.dtype(name).itemsize:
        return array.view(name)
    return array.astype(name)


def _function(module: Any) -> Any:
    return next(op.operation for op in module.body.operations if op.operation.name == "func.func")


def _returned(module: Any) -> list[Any]:
    return list(list(_function(module).regions[0].blocks[0].operations)[-1].operands)


def _step(value: Any, constants: Any) -> float | None:
    """The scale of the dequantize that a value comes from: a product of a cast with a constant."""
    op = getattr(value.owner, "operation", None)
    while op is not None and op.name in MOVES:
        op = getattr(op.operands[0].owner, "operation", None)
    if op is None or op.name != "tosa.mul":
        return None
    source, constant = (getattr(v.owner, "operation", None) for v in list(op.operands)[:2])
    if source is None or source.name != "tosa.cast" or constant is None or constant.name != "tosa.const":
        return None
    scale = constants.read(op.operands[1])
    return None if scale is None else float(scale.max())


def _heavy(module: Any, bindings: Any) -> list[tuple[str, str, str]]:
    """Function, name and location of convolutions, products and poolings of floats that read a dequantized tensor."""
    found: list[tuple[str, str, str]] = []
    for function in module.body.operations:
        if function.operation.name != "func.func":
            continue
        name = function.operation.attributes["sym_name"].value
        for block in function.operation.regions[0].blocks:
            for op in (o.operation for o in block.operations):
                if op.name in HEAVY and any(_is_dequantized(v) for v in list(op.operands)[:2]):
                    found.append((name, op.name, bindings.location(op)))
    return found


def _is_dequantized(value: Any) -> bool:
    """Whether a float tensor is a product of a cast of integers with something, maybe moved."""
    op = getattr(value.owner, "operation", None)
    while op is not None and op.name in (*MOVES, "tosa.pad"):
        op = getattr(op.operands[0].owner, "operation", None)
    if op is None or op.name != "tosa.mul" or str(op.results[0].type.element_type)[0] not in "fb":
        return False
    sources = [getattr(v.owner, "operation", None) for v in list(op.operands)[:2]]
    return any(
        s is not None and s.name == "tosa.cast" and str(s.operands[0].type.element_type)[0] == "i" for s in sources
    )


def case(folder: Path, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One case in a process of its own."""
    name = path.name.removesuffix(".tosa.mlir")
    command = [sys.executable, __file__, str(folder), "--one", name, "--target", arguments.target]
    command += [part for key, value in arguments.option for part in ("--option", f"{key}={value}")]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        return {"case": name, "verdict": "crash", "message": f"no end after {arguments.timeout:g} s"}
    if process.returncode != 0 or not process.stdout:
        lines = process.stderr.strip().splitlines()
        return {"case": name, "verdict": "crash", "message": lines[-1] if lines else f"exit {process.returncode}"}
    return {"case": name, **json.loads(process.stdout.splitlines()[-1])}


def describe(result: dict[str, Any]) -> str:
    """A line a case."""
    parts = [f"{result['verdict']:<20} {result['case']}"]
    for row in result.get("outputs", []):
        parts.append(f"error {row['error']:.3g} (unfused {row['unfused']}, step {row['step']})")
    parts += [result[key] for key in ("message", "invalid") if key in result] + result.get("problems", [])
    if result.get("lowered"):
        parts.append("lowered to linalg, in IREE")
    if result.get("repaired"):
        parts.append("repaired")
    if result.get("unexplained"):
        parts.append("left in float without a reason: " + ", ".join(result["unexplained"]))
    return "  ".join(parts)


def failed(result: dict[str, Any]) -> bool:
    """Whether a case makes the run fail."""
    return result["verdict"] in FAILING or bool(result.get("problems")) or "unexplained" in result


def main(argv: list[str]) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description="Check the target tosa-int on a folder of modules.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--target", default="tosa-int")
    parser.add_argument("--option", action="append", default=[], type=parse_option, metavar="K=V")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder
    if arguments.one:
        path = folder / "ir" / f"{arguments.one}.tosa.mlir"
        print(json.dumps(one(path, folder / "io" / f"{arguments.one}.npz", arguments.target, dict(arguments.option))))
        return 0
    paths = sorted(
        p for p in (folder / "ir").glob("*.tosa.mlir") if fnmatch.fnmatch(p.name, f"{arguments.only}.tosa.mlir")
    )
    results: list[dict[str, Any]] = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda p: case(folder, p, arguments), paths):
            results.append(result)
            print(describe(result), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    summarize(results)
    return 1 if any(map(failed, results)) else 0


def summarize(results: list[dict[str, Any]]) -> None:
    """Counts, and why operations stayed in float."""
    print("\nmodules:", len(results))
    for verdict, count in collections.Counter(r["verdict"] for r in results).most_common():
        print(f"  {verdict:<22}{count}")
    summaries = [r["summary"] for r in results if "summary" in r]
    total, integer = (sum(s[k] for s in summaries) for k in ("quantized_compute_ops", "integer_ops"))
    print(f"quantized compute operations: {total}, of these in integers: {integer}")
    reasons: dict[str, list[str]] = {}
    for result in results:
        for entry in result.get("missed", []):
            reasons.setdefault(f"{entry['op']}: {entry['reason']}", []).append(result["case"])
    print(f"\nnot integer: {sum(map(len, reasons.values()))} operations")
    for reason, cases in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        print(f"  {len(cases):4}  {reason}   [{', '.join(sorted(set(cases))[:4])}]")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
