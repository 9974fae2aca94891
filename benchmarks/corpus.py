"""Fuse every module of a folder, run it before and after, and say whether that was right.

    python benchmarks/corpus.py FOLDER [--dialect linalg] [--only GLOB] [--target NAME] [--option k=v ...]

FOLDER holds `ir/<case>.<dialect>.mlir` and, to run the modules, `io/<case>.npz` with `in0`, `in1`, ... and
the expected `out0`, `out1`, ... (bf16 stored as f32). `cases.json` is read where it exists, for nothing but a
comparison.

Per case, each in a process of its own: `qfuse.fuse()` must not crash, hang or raise; the result verifies,
prints, parses again; fusing again applies nothing and leaves the text alone; every missed op has a reason
and a location; the summary adds up. Then both modules run with IREE and their outputs are held against the
expected ones.

Verdicts:

  ok                    max error of the fused outputs <= max error of the unfused ones + one output step.
                        The output step is the scale of the dequantize that ends the function (1 for
                        integers), else the spacing of the grid that the expected values lie on, as a whole
                        or slice by slice. Where they lie on no grid: max error of the fused <=
                        max(1.5 * unfused, RTOL * max|expected|), RTOL being 1e-4, or two units of rounding
                        of a shorter float.
  near                  no output step, and the limit is passed, but the output is computed by elementwise
                        float ops from dequantized values, and the error is within 1.5 steps of those
  hidden step           no output step, and the limit is passed, but every layer by itself is within what the
                        report states, and the floats at the end agree once they are given the same integers
                        (layers.py)
  worse                 anything else that runs
  fused does not run    although the unfused does
  unfused does not run  with what the fused one does: matches / differs / does not run
  not executed          no io, or --no-execute
  crash                 the process died, hung or ended in a traceback; the output does not verify
  refused               fuse() raised one of qfuse's own errors (and left the module alone, or a check fails)

Any case that is worse, crashes, does not run where the unfused does, or fails a check makes the exit code 1,
and so does a float contraction of two dequantized tensors that is left in the output and that the report does
not mention (found by a recogniser that shares no code with the library, `_fuse_one.py`).

Results of runs are kept in --cache DIR by the hash of what was run. `--unfused-only` fills it without the
library.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import fnmatch
import hashlib
import importlib.metadata
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
COMPILE_FLAGS = (
    "--iree-hal-target-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-llvmcpu-stack-allocation-limit=2097152",
)
EXECUTE_FORMAT = 1  # part of the cache key: raise it when _execute.py computes something else
RTOL = 1e-4
SHORT_FLOAT_RTOL = {"f16": 2.0**-9, "bf16": 2.0**-6}
MAX_LINES = 5  # of problems per case
FAILING = ("worse", "fused does not run", "crash")
CONTRACTION_NAMES = re.compile(r"matmul|contract|matvec|vecmat|mmt4d|\bdot\b|linalg\.dot")

Array = npt.NDArray[Any]


@dataclasses.dataclass
class Settings:
    """What one run of the checker was asked to do."""

    folder: Path
    dialect: str
    target: str
    options: list[str]
    execute: bool
    unfused_only: bool
    cache: Path | None
    refresh: bool
    timeout: float
    flags: list[str]


@dataclasses.dataclass
class Process:
    """How a child process ended."""

    returncode: int | None  # None: it was stopped after the timeout
    stdout: str
    stderr: str

    @property
    def last_stage(self) -> str:
        """The last stage it reported to have entered."""
        stages = re.findall(r"^stage (.*)$", self.stdout, re.M)
        return stages[-1] if stages else "start"

    def death(self, timeout: float) -> str:
        """Why there is no result, in one line."""
        if self.returncode is None:
            return f"no end after {timeout:g} s, in stage '{self.last_stage}'"
        if self.returncode < 0:
            name = signal.Signals(-self.returncode).name
            return f"{name} in stage '{self.last_stage}': {last_line(self.stderr)}"
        return f"exit code {self.returncode} in stage '{self.last_stage}': {last_line(self.stderr)}"


@dataclasses.dataclass
class Run:
    """What became of compiling and running one module."""

    status: str  # ok | compile error | run error | bad input | crash | timeout
    message: str
    outputs: list[Array]

    @property
    def ok(self) -> bool:
        """Whether there are outputs."""
        return self.status == "ok"


def last_line(text: str) -> str:
    """The last line that says something, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def first_error(text: str) -> str:
    """The first diagnostic of a compiler's output, shortened."""
    match = re.search(r"error: (.*)", text)
    return match.group(1)[:300] if match else last_line(text)


def run_process(command: list[str], timeout: float) -> Process:
    """Run `command`; after `timeout` seconds stop it and whatever it started."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            return Process(None, stdout, stderr)
    return Process(process.returncode, stdout, stderr)


# -- running modules -----------------------------------------------------------------------------------------


def cache_key(text: str, io: Path, settings: Settings) -> str:
    """Hash of everything a run depends on."""
    digest = hashlib.sha256()
    version = importlib.metadata.version("iree-base-compiler")
    digest.update(json.dumps([EXECUTE_FORMAT, version, list(settings.flags)]).encode())
    digest.update(io.read_bytes())
    digest.update(text.encode())
    return digest.hexdigest()


def read_cache(entry: Path, timeout: float) -> Run | None:
    """The remembered run; one that was stopped counts only if it was given as much time."""
    try:
        data = json.loads(entry.with_suffix(".json").read_text())
        if data["status"] == "timeout" and data["timeout"] < timeout:
            return None
        outputs: list[Array] = []
        if data["status"] == "ok":
            with np.load(entry.with_suffix(".npz")) as archive:
                outputs = [archive[f"out{index}"] for index in range(len(archive.files))]
        return Run(data["status"], data["message"], outputs)
    except (OSError, ValueError, KeyError):
        return None


def write_cache(entry: Path, run: Run, timeout: float) -> None:
    """Remember a run. The json file is written last: with it the entry exists."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=entry.parent) as scratch:
        if run.ok:
            outputs = Path(scratch, "outputs.npz")
            np.savez(outputs, **{f"out{index}": array for index, array in enumerate(run.outputs)})
            outputs.replace(entry.with_suffix(".npz"))
        status = Path(scratch, "status.json")
        status.write_text(json.dumps({"status": run.status, "message": run.message, "timeout": timeout}))
        status.replace(entry.with_suffix(".json"))


def inline_resources(text: str) -> str:
    """`text` with bf16 and f64 resources as dense attributes: IREE 3.13 cannot convert the former to f32."""
    if not re.search(r"dense_resource<[^>]*> : tensor<[0-9x]*(?:bf16|f64)>", text):
        return text
    # A blob starts with four bytes that say how it is aligned.
    blobs = dict(re.findall(r'^\s*([\w.$-]+): "0x[0-9A-Fa-f]{8}([0-9A-Fa-f]+)"', text, re.M))

    def dense(match: re.Match[str]) -> str:
        blob = blobs.get(match[1])
        return match[0] if blob is None else f'dense<"0x{blob}">{match[2]}'

    return re.sub(r"dense_resource<([\w.$-]+)>( : tensor<[0-9x]*(?:bf16|f64)>)", dense, text)


def execute(text: str, io: Path, settings: Settings) -> Run:
    """Compile and run the module `text` on the inputs in `io`, or remember what that gave."""
    text = inline_resources(text)
    entry = settings.cache / cache_key(text, io, settings) if settings.cache else None
    if entry is not None and not settings.refresh:
        remembered = read_cache(entry, settings.timeout)
        if remembered is not None:
            return remembered
    with tempfile.TemporaryDirectory(prefix="qfuse-corpus-") as scratch:
        module = Path(scratch, "module.mlir")
        outputs = Path(scratch, "outputs.npz")
        module.write_text(text)
        command = [
            sys.executable,
            str(HERE / "_execute.py"),
            str(module),
            str(io),
            str(outputs),
            *settings.flags,
        ]
        process = run_process(command, settings.timeout)
        if process.returncode is None:
            run = Run("timeout", process.death(settings.timeout), [])
        elif process.returncode != 0:
            run = Run("crash", process.death(settings.timeout), [])
        else:
            data = json.loads(process.stdout.splitlines()[-1])
            message = data["message"]
            if data["status"] == "compile error":
                message = f"{message}: {first_error(process.stderr)}"
            arrays: list[Array] = []
            if data["status"] == "ok":
                with np.load(outputs) as archive:
                    arrays = [archive[f"out{index}"] for index in range(len(archive.files))]
            run = Run(data["status"], message, arrays)
    if entry is not None:
        write_cache(entry, run, settings.timeout)
    return run


# -- comparing -----------------------------------------------------------------------------------------------


def grid_step(values: Array) -> float | None:
    """The spacing of the grid that `values` lie on: an approximate common divisor of their differences.

    None when there are too few different values to tell, or when they lie on no grid of at most 1024 points
    (what is quantized to more bits than 8 cannot be told from floats).
    """
    points = np.unique(values[np.isfinite(values)].astype(np.float64))
    if points.size < 5:
        return None
    extent = float(points[-1] - points[0])
    noise = max(float(np.abs(points).max()), extent) * 2.0**-22
    differences = np.diff(points)
    differences = differences[differences > 4 * noise]
    if differences.size == 0:
        return None
    step = float(differences.min())
    for difference in differences:
        a, b = float(difference), step
        while b > 8 * noise:
            remainder = a % b
            a, b = b, min(remainder, b - remainder)
        step = a
        if step < extent / 1024 or step < 32 * noise:
            return None
    counts = np.round(differences / step)
    step = float((differences * counts).sum() / (counts * counts).sum())
    ratios = (points - points[0]) / step
    return step if float(np.abs(ratios - np.round(ratios)).max()) < 0.05 else None


def slice_grid_step(values: Array) -> float | None:
    """The widest spacing where every slice along some axis lies on a grid of its own (per channel, token)."""
    for axis in range(values.ndim):
        slices = [piece for piece in np.moveaxis(values, axis, 0) if np.unique(piece).size >= 5]
        if not slices or 2 * len(slices) < values.shape[axis]:
            continue
        steps = [grid_step(piece) for piece in slices]
        known = [step for step in steps if step is not None]
        if len(known) == len(steps):
            return max(known)
    return None


def align(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Both arrays in a type they can be subtracted in; integers of one width mean the expected signedness."""
    if expected.dtype.kind in "iu" and actual.dtype.kind in "iu" and actual.dtype.itemsize == expected.dtype.itemsize:
        actual = actual.view(expected.dtype)
    return actual.astype(np.float64), expected.astype(np.float64)


def max_error(actual: Array, expected: Array) -> float:
    """Largest absolute difference; infinite when shapes or non-finite values do not agree."""
    if actual.shape != expected.shape:
        return math.inf
    a, e = align(actual, expected)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    if bool(same.all()):
        return 0.0
    difference = np.where(same, 0.0, np.abs(a - e))
    return math.inf if bool(np.isnan(difference).any()) else float(difference.max())


def find_step(reference: Array, from_ir: float | None, element_type: str) -> tuple[float | None, str]:
    """The step of an output, and where it was found."""
    if reference.dtype.kind != "f":
        return 1.0, "integer"
    if from_ir is not None:
        return from_ir, "ir"
    if element_type in SHORT_FLOAT_RTOL:
        return None, "none"  # any such values lie on a grid: that of their own format
    step = grid_step(reference)
    if step is not None:
        return step, "grid"
    step = slice_grid_step(reference)
    return step, "none" if step is None else "grid per slice"


def compare_outputs(
    expected: list[Array],
    unfused: Run | None,
    fused: Run | None,
    description: dict[str, Any],
) -> list[dict[str, Any]]:
    """Per output: step, errors, what is allowed, and whether each module keeps to it."""
    rows: list[dict[str, Any]] = []
    steps: list[float | None] = description.get("steps", [])
    inner: list[float | None] = description.get("inner_steps", [])
    types: list[str] = description.get("result_types", [])
    for index, reference in enumerate(expected):
        element_type = types[index] if index < len(types) else ""
        step, source = find_step(reference, steps[index] if index < len(steps) else None, element_type)
        magnitude = float(np.abs(reference[np.isfinite(reference)].astype(np.float64)).max(initial=0.0))
        rtol = max(RTOL, SHORT_FLOAT_RTOL.get(element_type, 0.0))
        base = step * 1.001 + 1e-6 * magnitude if step is not None else rtol * magnitude + 1e-12
        row: dict[str, Any] = {"step": step, "step_source": source, "base": base, "magnitude": magnitude}
        for name, run in (("unfused", unfused), ("fused", fused)):
            if run is None or not run.ok:
                continue
            error = max_error(run.outputs[index], reference) if index < len(run.outputs) else math.inf
            row[f"{name}_error"] = error
            row[f"{name}_steps"] = error / step if step is not None else None
            row[f"{name}_matches"] = error <= base
        if "unfused_error" in row and "fused_error" in row:
            error = row["unfused_error"]
            row["allowed"] = error + base if step is not None else max(1.5 * error, base)
            row["ok"] = row["fused_error"] <= row["allowed"]
            inner_step = inner[index] if step is None and index < len(inner) else None
            row["near"] = inner_step is not None and row["fused_error"] <= error + 1.5 * inner_step
            assert unfused is not None
            assert fused is not None
            a, b = unfused.outputs[index], fused.outputs[index]
            if a.shape == b.shape:
                changed = np.abs(np.subtract(*align(a, b)))
                row["changed"] = int(np.count_nonzero(changed > (0.5 * step if step is not None else 0.0)))
                row["size"] = int(a.size)
        rows.append(row)
    return rows


# -- one case ------------------------------------------------------------------------------------------------


def fuse_case(path: Path, settings: Settings) -> tuple[dict[str, Any], str | None]:
    """Fuse one file in a process of its own: its result, and the fused text if there is one."""
    with tempfile.TemporaryDirectory(prefix="qfuse-corpus-") as scratch:
        fused = Path(scratch, "fused.mlir")
        output = Path(scratch, "result.json")
        command = [sys.executable, str(HERE / "_fuse_one.py"), str(path), str(fused), str(output)]
        if settings.unfused_only:
            command.append("--inspect-only")
        else:
            command.append(f"--target={settings.target}")
            command.extend(f"--option={option}" for option in settings.options)
        process = run_process(command, settings.timeout)
        if process.returncode != 0 or not output.exists():
            status = "timeout" if process.returncode is None else "crash"
            result = {
                "status": status,
                "message": process.death(settings.timeout),
                "stderr": process.stderr[-4000:],
            }
            return result, None
        data = dict(json.loads(output.read_text()))
        return data, fused.read_text() if fused.exists() else None


def check_case(case: str, settings: Settings) -> dict[str, Any]:
    """Everything about one case, as it goes into --json."""
    start = time.perf_counter()
    path = settings.folder / "ir" / f"{case}.{settings.dialect}.mlir"
    io = settings.folder / "io" / f"{case}.npz"
    fusion, fused_text = fuse_case(path, settings)
    description = fusion.get("input", {})
    result: dict[str, Any] = {
        "case": case,
        "fuse": fusion["status"],
        "message": fusion.get("message", ""),
        "problems": list(fusion.get("problems", [])),
        "report": fusion.get("report"),
        "input_contractions": description.get("contractions", []),
        "remaining_contractions": fusion.get("remaining", []),
        "fuse_seconds": fusion.get("seconds"),
        "outputs": [],
    }
    for key in ("traceback", "stderr"):
        if fusion.get(key):
            result[key] = fusion[key]
    for entry in result["remaining_contractions"]:
        if entry["status"] == "unexplained":
            where = ", ".join(entry["locations"])
            result["problems"].append(
                f"float op of two dequantized tensors not in the report: {entry['op']} at {where}"
            )

    unfused: Run | None = None
    fused: Run | None = None
    if settings.execute and io.exists():
        unfused_text = fusion.pop("exec_text_input", None) or path.read_text()
        unfused = execute(unfused_text, io, settings)
        if fused_text is not None:
            fused = unfused if fusion.get("unchanged") else execute(fused_text, io, settings)
        with np.load(io) as archive:
            count = sum(1 for key in archive.files if re.fullmatch(r"out\d+", key))
            expected = [archive[f"out{index}"] for index in range(count)]
        result["outputs"] = compare_outputs(expected, unfused, fused, description)
        result["unfused_run"] = {"status": unfused.status, "message": unfused.message}
        if fused is not None:
            result["fused_run"] = {"status": fused.status, "message": fused.message}
    result["unfused"] = run_verdict("unfused", unfused, result["outputs"])
    result["fused"] = run_verdict("fused", fused, result["outputs"])
    result["verdict"] = verdict(result)
    if result["verdict"] == "worse" and is_hidden_step(path, io, result, settings):
        result["verdict"] = "hidden step"
    result["seconds"] = time.perf_counter() - start
    return result


def is_hidden_step(path: Path, io: Path, result: dict[str, Any], settings: Settings) -> bool:
    """Whether a float result is off only because a layer before it went one stated step the other way."""
    if settings.dialect != "linalg" or any(not r["ok"] and r["step"] is not None for r in result["outputs"]):
        return False
    command = [sys.executable, str(HERE / "layers.py"), str(path), f"--inputs={io}", f"--target={settings.target}"]
    command.extend(f"--option={option}" for option in settings.options)
    return run_process(command, settings.timeout).returncode == 0


def run_verdict(name: str, run: Run | None, outputs: list[dict[str, Any]]) -> str:
    """matches / differs / does not run / not executed, of one module by itself."""
    if run is None:
        return "not executed"
    if not run.ok:
        return "does not run"
    return "matches" if all(row[f"{name}_matches"] for row in outputs) else "differs"


def verdict(result: dict[str, Any]) -> str:
    """The verdict on one case, as the module documentation lists them."""
    if result["fuse"] == "does not parse":
        return "unfused does not run"  # the input is not valid, nothing was asked of the library
    if result["fuse"] in ("crash", "timeout", "traceback", "does not verify"):
        return "crash"
    if result["fuse"] == "refused":
        return "refused"
    if result["unfused"] == "does not run":
        return "unfused does not run"
    if result["fused"] == "not executed":
        return "not executed"
    if result["fused"] == "does not run":
        return "fused does not run"
    if all(row["ok"] for row in result["outputs"]):
        return "ok"
    return "near" if all(row["ok"] or row["near"] for row in result["outputs"]) else "worse"


def failed(result: dict[str, Any]) -> bool:
    """Whether this case makes the exit code 1."""
    return result["verdict"] in FAILING or bool(result["problems"])


# -- telling -------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A short number."""
    return "-" if value is None else f"{value:.3g}"


def describe_outputs(result: dict[str, Any]) -> str:
    """Errors per output: `unfused -> fused`, in steps where there is a step."""
    parts: list[str] = []
    for row in result["outputs"]:
        if row["step"] is not None:
            text = f"{number(row.get('unfused_steps'))} -> {number(row.get('fused_steps'))} steps"
            text += f" ({row['step_source']} {number(row['step'])}"
        else:
            text = f"{number(row.get('unfused_error'))} -> {number(row.get('fused_error'))}"
            text += f" (no step, allowed {number(row.get('allowed', row['base']))}"
        if row.get("changed"):
            text += f"; {row['changed']} of {row['size']} changed"
        parts.append(text + ")")
    return ", ".join(parts)


def describe_case(result: dict[str, Any]) -> str:
    """One line, and one more per thing that is wrong."""
    summary = (result["report"] or {}).get("summary", {})
    counts = f"{summary.get('integer_ops', '-')}/{summary.get('quantized_compute_ops', '-')}"
    line = f"{result['verdict']:21s} {result['case']}  integer {counts}  {describe_outputs(result)}"
    lines = [f"{line}  {result['seconds']:.1f} s"]
    if result["verdict"] in ("crash", "refused") or result["fuse"] == "does not parse":
        lines.append(f"    fuse: {result['fuse']}: {shorten(result['message'])}")
    for name in ("unfused", "fused"):
        run = result.get(f"{name}_run")
        if run and run["status"] != "ok":
            lines.append(f"    {name}: {run['status']}: {shorten(run['message'])}")
    if result["verdict"] == "unfused does not run" and result["fused"] != "not executed":
        lines.append(f"    fused: {result['fused']}")
    problems = result["problems"]
    lines.extend(f"    {shorten(problem)}" for problem in problems[:MAX_LINES])
    if len(problems) > MAX_LINES:
        lines.append(f"    ... and {len(problems) - MAX_LINES} more")
    return "\n".join(lines)


def shorten(text: str) -> str:
    """`text` on one line of bounded length."""
    return " ".join(str(text).split())[:400]


def reason_group(reason: str) -> str:
    """A reason without its particulars."""
    return re.sub(r"%[\w.$#-]+", "%_", re.sub(r"(?<![\w%])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", reason))


def is_contraction(entry: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether a report entry is about a contraction: its kind says so, or its op, or the crude recogniser."""
    kind = entry.get("kind")
    if isinstance(kind, str):
        return "contraction" in kind
    if CONTRACTION_NAMES.search(str(entry.get("op"))):
        return True
    where = re.findall(r":\d+:\d+", str(entry.get("location")))
    found = [e for e in result["input_contractions"] if e["kind"] == "contraction"]
    return any(re.search(rf"{place}\b", text) for place in where for e in found for text in e["locations"])


def print_missed(results: list[dict[str, Any]]) -> int:
    """Every missed op, grouped by op and reason; the number of missed contractions."""
    groups: dict[tuple[bool, str, str], list[str]] = collections.defaultdict(list)
    for result in results:
        for entry in (result["report"] or {}).get("missed", []):
            key = (not is_contraction(entry, result), str(entry.get("op")), reason_group(str(entry.get("reason"))))
            groups[key].append(f"{result['case']} {entry.get('location')}")
    for title, other in (("missed contractions", False), ("other missed ops", True)):
        selected = sorted(
            ((op, reason, cases) for (flag, op, reason), cases in groups.items() if flag == other),
            key=lambda group: -len(group[2]),
        )
        if selected:
            print(f"\n{title}:")
        for op, reason, cases in selected:
            print(f"  {len(cases):5d}  {op}: {reason}")
            print(f"         e.g. {'; '.join(cases[:3])}")
    return sum(len(cases) for (other, _, _), cases in groups.items() if not other)


def print_summary(results: list[dict[str, Any]], settings: Settings, known: dict[str, Any]) -> None:
    """Groups, counts and the last line."""
    missed = print_missed(results)
    verdicts = collections.Counter(result["verdict"] for result in results)
    unfused = collections.Counter(result["unfused"] for result in results)
    print("\nunfused: " + ", ".join(f"{count} {name}" for name, count in sorted(unfused.items())))
    surprising = [
        f"{result['case']} ({expectation}, here: {result['unfused']})"
        for result in results
        if (expectation := known.get(result["case"], {}).get(f"unfused {settings.dialect}")) is not None
        and result["unfused"] != "not executed"
        and result["unfused"] != {"match": "matches"}.get(expectation, expectation)
    ]
    if surprising:
        print(f"unfused, other than cases.json says: {len(surprising)}: {', '.join(surprising[:20])}")
    step_sources = collections.Counter(row["step_source"] for result in results for row in result["outputs"])
    print("output steps from: " + ", ".join(f"{name} {count}" for name, count in step_sources.most_common()))
    before = collections.Counter(e["kind"] for r in results for e in r["input_contractions"])
    if settings.unfused_only:
        print(f"float ops of two dequantized tensors, by the crude recogniser: {dict(before)}")
        print(f"corpus: {len(results)} cases, unfused only")
        return
    after = collections.Counter(f"{e['kind']} {e['status']}" for r in results for e in r["remaining_contractions"])
    print(f"float ops of two dequantized tensors, by the crude recogniser: {dict(before)}, after: {dict(after)}")
    checks = collections.Counter(
        reason_group(problem.split(" at ")[0]) for result in results for problem in result["problems"]
    )
    for problem, count in checks.most_common():
        print(f"failed check: {count} x {problem}")
    seconds = sum(result["fuse_seconds"] or 0.0 for result in results)
    print(f"fuse() took {seconds:.1f} s in all")
    summaries = [(result["report"] or {}).get("summary", {}) for result in results]
    quantized = sum(summary.get("quantized_compute_ops", 0) for summary in summaries)
    integer = sum(summary.get("integer_ops", 0) for summary in summaries)
    unexplained = sum(e["status"] == "unexplained" for r in results for e in r["remaining_contractions"])
    broken = [result for result in results if result["verdict"] == "unfused does not run"]
    fused_of_broken = collections.Counter(result["fused"] for result in broken)
    detail = "/".join(
        f"fused {name} {fused_of_broken[name]}"
        for name in ("matches", "differs", "does not run", "not executed")
        if fused_of_broken[name] or name == "matches"
    )
    near = "".join(f"{verdicts[name]} {name}, " for name in ("near", "hidden step") if verdicts[name])
    extra = "".join(f"{verdicts[name]} {name}, " for name in ("refused", "not executed") if verdicts[name])
    problems = sum(bool(result["problems"]) for result in results)
    print(
        f"corpus: {len(results)} cases, {verdicts['ok']} ok, {near}{verdicts['worse']} worse, "
        f"{verdicts['fused does not run']} fused does not run, "
        f"{len(broken)} unfused does not run ({detail}), "
        f"{extra}{verdicts['crash']} crash, {problems} failed checks, "
        f"contractions: {quantized} quantized, {integer} integer, {missed} missed, {unexplained} unexplained"
    )


def find_cases(settings: Settings, pattern: str) -> list[str]:
    """Names of the cases of the dialect that match."""
    suffix = f".{settings.dialect}.mlir"
    names = [path.name.removesuffix(suffix) for path in (settings.folder / "ir").glob(f"*{suffix}")]
    return sorted(name for name in names if fnmatch.fnmatchcase(name, pattern))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="folder with ir/ and io/")
    parser.add_argument("--dialect", default="linalg", help="take ir/<case>.DIALECT.mlir (default: linalg)")
    parser.add_argument("--only", default="*", metavar="GLOB", help="only the cases whose names match")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at a time (default: 2)")
    parser.add_argument("--target", default="linalg", metavar="NAME", help="qfuse target (default: linalg)")
    parser.add_argument("--option", action="append", default=[], metavar="K=V", help="option of fuse()")
    parser.add_argument("--no-execute", action="store_true", help="do not compile and run anything")
    parser.add_argument("--unfused-only", action="store_true", help="run the unfused modules, without the library")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything about every case")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="remember results of runs here")
    parser.add_argument("--refresh", action="store_true", help="run again what the cache remembers")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="per process (default: 120)")
    parser.add_argument("--opt-level", default="O1", metavar="O0..O3", help="of IREE (default: O1)")
    parser.add_argument("--iree-flag", action="append", default=[], metavar="FLAG", help="one more flag for IREE")
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line for every case, not only bad ones")
    arguments = parser.parse_args(argv)
    if not (arguments.folder / "ir").is_dir():
        parser.error(f"{arguments.folder}: no folder ir/ in it")
    if any("=" not in option for option in arguments.option):
        parser.error("--option: expected K=V")
    return arguments


def main(argv: list[str]) -> int:
    """Command line entry."""
    arguments = parse_arguments(argv)
    settings = Settings(
        folder=arguments.folder,
        dialect=arguments.dialect,
        target=arguments.target,
        options=arguments.option,
        execute=not arguments.no_execute,
        unfused_only=arguments.unfused_only,
        cache=arguments.cache,
        refresh=arguments.refresh,
        timeout=arguments.timeout,
        flags=[*COMPILE_FLAGS, f"--iree-opt-level={arguments.opt_level}", *arguments.iree_flag],
    )
    cases = find_cases(settings, arguments.only)
    if not cases:
        print(f"{arguments.folder}: no ir/{arguments.only}.{arguments.dialect}.mlir", file=sys.stderr)
        return 2
    catalogue = arguments.folder / "cases.json"
    known = json.loads(catalogue.read_text()) if catalogue.exists() else {}
    results: list[dict[str, Any]] = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, arguments.jobs)) as pool:
        for result in pool.map(lambda case: check_case(case, settings), cases):
            results.append(result)
            if arguments.verbose or failed(result) or result["verdict"] not in ("ok", "not executed"):
                print(describe_case(result), flush=True)
            if len(results) % 50 == 0:
                print(f"... {len(results)} of {len(cases)}", file=sys.stderr, flush=True)
    print_summary(results, settings, known)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return 0 if settings.unfused_only or not any(failed(result) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
