"""Validate TOSA modules against a profile of the specification, and run them on the reference model.

    validate(module)                       # raises ValidationError with the first violation
    (result,) = run(module, [images])      # numpy in, numpy out, by the specification to the last bit
    linalg = to_linalg(module)             # what MLIR's own lowering makes of it, as text

The tools come with `pip install 'qfuse[tosa]'` and are looked for when first needed. `tosa-opt` validates and
serializes in a process of its own, and so does the reference model run, which ends its process on an operation that it
does not know.

What a module needs (`Requirements.of`) is found from its types and attributes: `pro_fp` where there are floats, and
each extension only where it is used.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from qfuse._mlir import Bindings
from qfuse.errors import QfuseError

__all__ = [
    "NotInstalledError",
    "Requirements",
    "RunError",
    "TosaError",
    "ValidationError",
    "run",
    "serialize",
    "to_linalg",
    "validate",
]

Array: TypeAlias = npt.NDArray[Any]

_LOWERING = (
    "builtin.module(func.func(tosa-optional-decompositions,canonicalize,tosa-to-linalg-named,tosa-to-linalg,"
    "tosa-to-arith{include-apply-rescale=true},tosa-to-tensor,canonicalize))"
)

_ERROR = re.compile(r"(?m)^(?:.*?:\d+:\d+: )?error: (.*)$")

#: What `run` starts. Arrays go through files: the reference model takes and gives numpy arrays of its own process.
_REFERENCE = """
import sys
import numpy as np
import tosa_reference_model
folder = sys.argv[1]
with np.load(folder + "/inputs.npz") as archive:
    inputs = [archive[f"in{i}"] for i in range(len(archive.files))]
names = open(folder + "/types").read().split()
if "bfloat16" in names:
    import ml_dtypes
    inputs = [a.view(ml_dtypes.bfloat16) if n == "bfloat16" else a for a, n in zip(inputs, names)]
with open(folder + "/module.tosa", "rb") as file:
    outputs, status = tosa_reference_model.run(file.read(), inputs)
if status != tosa_reference_model.GraphStatus.TOSA_VALID:
    sys.exit(f"the reference model says {status.name}")
outputs = [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in outputs]
np.savez(folder + "/outputs.npz", **{f"out{i}": a for i, a in enumerate(outputs)})
"""


class TosaError(QfuseError):
    """Base of everything this module raises on purpose."""


class NotInstalledError(TosaError):
    """tosa-tools is missing."""


class ValidationError(TosaError):
    """A module is not TOSA of the wanted profile; the message is the first violation."""


class RunError(TosaError):
    """The reference model refused a module or its inputs, gave an undefined result, or ended its process."""


@dataclass(frozen=True)
class Requirements:
    """The part of the specification that a module uses.

    Attributes:
        profiles: `pro_int` and `pro_fp`.
        extensions: `int4`, `int16`, `int64`, `bf16`, `controlflow`, `doubleround`, `inexactround`, `dynamic`.
        version: of the specification: `1.0`, or `1.1.draft` where an extension needs it.
        level: limits of sizes: `8k`, or `none`.
    """

    profiles: tuple[str, ...] = ("pro_int",)
    extensions: tuple[str, ...] = ()
    version: str = "1.0"
    level: str = "8k"

    @staticmethod
    def of(module: Any) -> Requirements:
        """What a module (of any binding, or its text) needs; nothing is validated.

        Raises:
            InputError: text that does not parse, or no module.
        """
        if isinstance(module, str):
            module = Bindings.first_available().parse_source(module, "module")
        bindings = Bindings.of(module)
        elements, names, attributes, dynamic = _found_in(bindings, module.operation)
        profiles = ["pro_int", *(["pro_fp"] if elements & {"f16", "f32", "bf16"} else [])]
        extensions = {e for e, types in _TYPES.items() if elements & types}
        extensions |= {e for e, mode in _ROUNDINGS.items() if any(mode in a for a in attributes)}
        extensions |= {"controlflow"} & ({"controlflow"} if names & {"tosa.cond_if", "tosa.while_loop"} else set())
        if dynamic:
            extensions.add("dynamic")
        draft = bool(extensions & {"int64", "dynamic"})
        return Requirements(tuple(profiles), tuple(sorted(extensions)), "1.1.draft" if draft else "1.0")

    @property
    def option(self) -> str:
        """As an option of `tosa-opt`."""
        parts = [f"specification_version={self.version}", f"profiles={','.join(self.profiles)}"]
        if self.extensions:
            parts.append(f"extensions={','.join(self.extensions)}")
        return "--tosa-attach-target=" + " ".join([*parts, f"level={self.level}"])


_TYPES = {"int4": {"i4"}, "int16": {"i16", "i48"}, "int64": {"i64"}, "bf16": {"bf16"}}
_ROUNDINGS = {"doubleround": "DOUBLE_ROUND", "inexactround": "INEXACT_ROUND"}


def _found_in(bindings: Bindings, root: Any) -> tuple[set[str], set[str], set[str], bool]:
    """Element types, names of operations, rounding modes, and whether an extent is dynamic."""
    elements: set[str] = set()
    names: set[str] = set()
    modes: set[str] = set()
    dynamic = False

    def visit(op: Any) -> None:
        nonlocal dynamic
        op = op.operation
        names.add(op.name)
        if "rounding_mode" in op.attributes:
            modes.add(str(op.attributes["rounding_mode"]))
        for value in (*op.operands, *op.results):
            info = bindings.tensor_info(value.type)
            if info is not None:
                elements.add(info[1])
                dynamic = dynamic or None in info[0]
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner)

    visit(root)
    return elements, names, modes, dynamic


def validate(module: Any, requirements: Requirements | None = None) -> Requirements:
    """Checks a module against the specification; returns what it was checked against.

    Args:
        module: an `ir.Module` of any binding, or text.
        requirements: profiles and extensions that it may use; what it needs itself when None.

    Raises:
        ValidationError: it violates them, or does not parse.
        NotInstalledError: tosa-tools is missing.
    """
    needed = Requirements.of(module) if requirements is None else requirements
    with tempfile.TemporaryDirectory(prefix="qfuse-tosa-") as folder:
        _tosa_opt(module, Path(folder), needed.option, "--tosa-validate=strict-op-spec-alignment")
    return needed


def serialize(module: Any, requirements: Requirements | None = None) -> bytes:
    """A module as a TOSA flatbuffer; arguments and errors as for `validate`."""
    needed = Requirements.of(module) if requirements is None else requirements
    with tempfile.TemporaryDirectory(prefix="qfuse-tosa-") as folder:
        file = Path(folder, "module.tosa")
        _tosa_opt(module, Path(folder), needed.option, "--tosa-serialize", f"--tosa-flatbuffer-filename={file}")
        if not file.exists():
            raise ValidationError("the module was not serialized: it has no function, or more than one block")
        return file.read_bytes()


def run(
    module: Any, inputs: Sequence[npt.ArrayLike], requirements: Requirements | None = None, timeout: float = 300.0
) -> list[Array]:
    """The outputs of a module's function as the reference model computes them.

    Args:
        module: an `ir.Module` of any binding, text, or the bytes of a flatbuffer.
        inputs: one array an argument, of the argument's type (bf16 as `ml_dtypes.bfloat16`).
        requirements: see `validate`.
        timeout: seconds after which the reference model is stopped.

    Returns:
        One array a result; bf16 as float32.

    Raises:
        ValidationError: the module does not parse or cannot be serialized.
        RunError: wrong inputs, an operation that the reference model does not have, an undefined result.
        NotInstalledError: tosa-tools is missing.
    """
    if importlib.util.find_spec("tosa_reference_model") is None:
        raise NotInstalledError(_MISSING)
    data = module if isinstance(module, bytes) else serialize(module, requirements)
    arrays = [np.asarray(a) for a in inputs]
    names = [a.dtype.name for a in arrays]
    raw = [a.view(np.uint16) if n == "bfloat16" else a for a, n in zip(arrays, names, strict=True)]
    with tempfile.TemporaryDirectory(prefix="qfuse-tosa-") as folder:
        Path(folder, "module.tosa").write_bytes(data)
        Path(folder, "types").write_text(" ".join(names))
        np.savez(Path(folder, "inputs.npz"), **{f"in{i}": a for i, a in enumerate(raw)})  # pyright: ignore[reportArgumentType]
        command = [sys.executable, "-c", _REFERENCE, folder]
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RunError(f"the reference model gave no result within {timeout:g} s") from None
        if process.returncode != 0:
            raise RunError(f"the reference model failed: {_last_line(process)}")
        with np.load(Path(folder, "outputs.npz")) as archive:
            return [archive[f"out{i}"] for i in range(len(archive.files))]


def to_linalg(module: Any) -> str:
    """A TOSA module lowered to `linalg` by MLIR's own passes, as text; the module itself stays as it is.

    Args:
        module: an `ir.Module` of any binding, or text.

    Raises:
        ValidationError: an operation has no lowering, or the text does not parse.
    """
    bindings = Bindings("torch_mlir")
    manager = importlib.import_module("torch_mlir.passmanager").PassManager
    copy = bindings.parse_source(module if isinstance(module, str) else _text(module), "module")
    with copy.context:
        try:
            manager.parse(_LOWERING).run(copy.operation)
        except bindings.ir.MLIRError as error:
            raise ValidationError(f"no lowering to linalg: {_first_line(str(error))}") from None
    text = str(copy)
    left = re.search(r'"?tosa\.[a-z0-9_]+', text)
    if left is not None:
        name = left.group(0).lstrip('"')
        raise ValidationError(f"no lowering to linalg: {name} is left")
    return text


_MISSING = "tosa-tools is not installed: pip install 'qfuse[tosa]'"


def _text(module: Any) -> str:
    return module.operation.get_asm(enable_debug_info=False)


def _tosa_opt(module: Any, folder: Path, *options: str) -> None:
    source = Path(folder, "module.mlir")
    source.write_text(module if isinstance(module, str) else _text(module), encoding="utf-8")
    command = [_executable(), str(source), *options, "-o", "/dev/null"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        found = _ERROR.search(process.stderr)
        raise ValidationError(found.group(1) if found else _last_line(process))


def _executable() -> str:
    """The program `tosa-opt` of the installed wheel, or of the search path."""
    try:
        packaged = Path(str(importlib.metadata.distribution("tosa-tools").locate_file("bin/tosa-opt")))
    except importlib.metadata.PackageNotFoundError:
        packaged = None
    found = str(packaged) if packaged is not None and packaged.exists() else shutil.which("tosa-opt")
    if found is None:
        raise NotInstalledError(_MISSING)
    return found


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def _last_line(process: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip() and "WARNING" not in line]
    return lines[-1] if lines else f"exit code {process.returncode}"
