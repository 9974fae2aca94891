"""Compile one module with IREE for the CPU and run it once.

Run as a process of its own, so that a crash or a hang of the compiler or of the compiled code stays here:

    python _execute.py MODULE.mlir INPUTS.npz OUTPUTS.npz [--flag=...]

`INPUTS.npz` holds `in0`, `in1`, ...; `OUTPUTS.npz` receives `out0`, `out1`, .... The last line on stdout is a
JSON object `{"status": "ok" | "compile error" | "run error" | "bad input", "message": str, "seconds": {}}`;
lines of the form `stage NAME` before it tell how far a process got that never reached the end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ELEMENT_DTYPES: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}


class StageError(Exception):
    """Compilation or execution failed in the orderly way."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def stage(name: str) -> None:
    """Leave a trace of how far this process got."""
    print(f"stage {name}", flush=True)


def compile_module(path: Path, flags: list[str]) -> bytes:
    """The VM bytecode of the module in `path`. Diagnostics go to stderr."""
    from iree.compiler.api import Invocation, Output, Session, Source

    session = Session()
    try:
        session.set_flags(*flags)
    except ValueError as error:
        raise StageError("bad input", f"compiler flags: {error}") from error
    invocation = Invocation(session)
    invocation.enable_console_diagnostics()
    source = Source.open_file(session, str(path))
    stage("parse")
    if not invocation.parse_source(source):
        raise StageError("compile error", "does not parse")
    stage("compile")
    if not invocation.execute():
        raise StageError("compile error", "compilation failed")
    output = Output.open_membuffer()
    invocation.output_vm_bytecode(output)
    return bytes(output.map_memory())


def argument_types(declaration: str) -> list[str]:
    """Element type per argument of an `iree.abi.declaration`: `func @main(%a: tensor<4xf32>) -> (...)`."""
    arguments = declaration.split("->")[0]
    types = re.findall(r"%[\w.$-]+\s*:\s*(tensor<[^>]*>|[\w]+)", arguments)
    return [re.sub(r"^tensor<(?:[0-9?]+x)*|>$", "", t) for t in types]


def to_argument(array: np.ndarray[Any, Any], element: str) -> np.ndarray[Any, Any]:
    """`array` in the dtype the function expects: bits of integers stay, floats are converted."""
    dtype = ELEMENT_DTYPES.get(element)
    if dtype is None:
        raise StageError("bad input", f"argument element type {element} is not supported")
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and dtype.kind == "i" and array.dtype.itemsize == dtype.itemsize:
        return np.ascontiguousarray(array).view(dtype)
    return np.ascontiguousarray(array.astype(dtype))


def run_module(bytecode: bytes, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results of the module's entry function; bf16 results come back as f32."""
    import iree.runtime as rt

    context = rt.SystemContext(config=rt.Config("local-sync"))
    module = rt.VmModule.copy_buffer(context.instance, bytecode)
    names = [name for name in module.function_names if not name.startswith("__") and "$async" not in name]
    if not names:
        raise StageError("bad input", "the module exports no function")
    name = "main" if "main" in names else names[0]
    context.add_vm_module(module)
    declaration = module.lookup_function(name).reflection.get("iree.abi.declaration", "")
    elements = argument_types(declaration)
    if len(elements) != len(inputs):
        raise StageError("bad input", f"{len(inputs)} inputs for {len(elements)} arguments: {declaration}")
    arguments = [to_argument(a, e) for a, e in zip(inputs, elements, strict=True)]
    stage("run")
    try:
        results = context.modules[module.name][name](*arguments)
    except (RuntimeError, ValueError, LookupError) as error:
        raise StageError("run error", str(error)) from error
    if results is None:
        return []
    arrays: list[np.ndarray[Any, Any]] = []
    for result in results if isinstance(results, (list, tuple)) else [results]:
        array = np.array(result.to_host() if hasattr(result, "to_host") else result)
        arrays.append(array.astype(np.float32) if array.dtype == ELEMENT_DTYPES["bf16"] else array)
    return arrays


def main(argv: list[str]) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description="Compile one module with IREE and run it once.")
    parser.add_argument("module", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("outputs", type=Path)
    options, flags = parser.parse_known_args(argv)
    result: dict[str, Any] = {"status": "ok", "message": ""}
    seconds: dict[str, float] = {}
    try:
        with np.load(options.inputs) as archive:
            count = sum(1 for key in archive.files if re.fullmatch(r"in\d+", key))
            inputs = [archive[f"in{index}"] for index in range(count)]
        start = time.perf_counter()
        bytecode = compile_module(options.module, flags)
        seconds["compile"] = time.perf_counter() - start
        start = time.perf_counter()
        outputs = run_module(bytecode, inputs)
        seconds["run"] = time.perf_counter() - start
        np.savez(options.outputs, **{f"out{index}": array for index, array in enumerate(outputs)})
    except StageError as error:
        result = {"status": error.status, "message": str(error)}
    result["seconds"] = seconds
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
