"""qfuse inside an existing PassManager, and the module run with Acme's kernels."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch_mlir import execution_engine, ir, passmanager, runtime
from torch_mlir.dialects import linalg

import qfuse

#: Before qfuse and behind it: everything stays on tensors.
CLEAN = "canonicalize,cse"

#: From tensors to buffers. Kernel calls bufferize like any call: their operands are read, the last one is written.
BUFFERIZE = ",".join(
    [
        "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map}",
        "buffer-deallocation-pipeline",
        "convert-bufferization-to-memref",
    ]
)

#: From buffers to LLVM.
LOWER = ",".join(
    [
        "convert-linalg-to-loops",
        "canonicalize",
        "cse",
        "expand-strided-metadata",
        "lower-affine",
        "convert-scf-to-cf",
        "convert-cf-to-llvm",
        "convert-arith-to-llvm",
        "convert-math-to-llvm",
        "convert-math-to-libm",
        "finalize-memref-to-llvm",
        "convert-func-to-llvm",
        "convert-index-to-llvm",
        "reconcile-unrealized-casts",
    ]
)


def add(pipeline: passmanager.PassManager, passes: str) -> None:
    """Adds textual passes to a pass manager."""
    for name in split(passes):
        pipeline.add(name)


def split(passes: str) -> list[str]:
    """Names at the commas outside braces."""
    found, depth = [""], 0
    for letter in passes:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def fuse(
    module: ir.Module, target: str | qfuse.Target = "acme", registry: qfuse.FusionRegistry | None = None, **options: Any
) -> qfuse.Report:
    """Runs canonicalize, qfuse and cse on `module` as passes of one pass manager."""
    step = qfuse.as_pass(target, registry, **options)
    with module.context:
        pipeline = passmanager.PassManager("builtin.module")
    add(pipeline, "canonicalize")
    pipeline.add(step)
    add(pipeline, CLEAN)
    pipeline.run(module.operation)
    (report,) = step.reports  # type: ignore[attr-defined]
    return report


def copies_to_linalg(module: Any, _pass: Any = None) -> None:
    """Copies of buffers become loops; their own lowering wants a runtime library that torch-mlir does not ship."""
    found: list[Any] = []

    def note(op: Any) -> ir.WalkResult:
        if op.name == "memref.copy":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in found:
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()


class Program:
    """A module compiled for this machine.

    Attributes:
        calls: of each kernel, so far.
    """

    def __init__(self, module: ir.Module, function: str, library: Path) -> None:
        """Lowers `module`, which is changed, and links it with the kernels."""
        self._name = function
        (entry,) = [
            op for op in module.body.operations
            if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == function
        ]  # fmt: skip
        (self._result,) = ir.FunctionType(entry.operation.attributes["function_type"].value).results
        rank = ir.RankedTensorType(self._result).rank
        with module.context:
            entry.operation.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            pipeline = passmanager.PassManager("builtin.module")
        add(pipeline, BUFFERIZE)
        pipeline.add(copies_to_linalg)
        add(pipeline, LOWER)
        pipeline.run(module.operation)
        self._engine = execution_engine.ExecutionEngine(module, opt_level=3, shared_libs=[str(library)])
        self._out = runtime.make_nd_memref_descriptor(rank, ctypes.c_float)
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """The function's result."""
        return self.timed(*arrays)[0]

    def timed(self, *arrays: np.ndarray) -> tuple[np.ndarray, float]:
        """The function's result, and the seconds that the call took."""
        held = [np.ascontiguousarray(a) for a in arrays]
        arguments = [ctypes.pointer(ctypes.pointer(runtime.get_ranked_memref_descriptor(a))) for a in held]
        out = self._out()
        result = ctypes.pointer(ctypes.pointer(out))
        start = time.perf_counter()
        self._engine.invoke(self._name, result, *arguments)
        seconds = time.perf_counter() - start
        value = runtime.ranked_memref_to_numpy(result[0]).copy()
        self._free(result[0][0].allocated)
        return value, seconds


def clean(module: ir.Module) -> None:
    """The passes of `fuse` without qfuse."""
    with module.context:
        pipeline = passmanager.PassManager("builtin.module")
    add(pipeline, CLEAN)
    pipeline.run(module.operation)


class Kernels:
    """The shared library: what it was compiled to, and how often each kernel was called."""

    def __init__(self, library: Path) -> None:
        """Loads it."""
        self._library = ctypes.CDLL(str(library))
        self._library.acme_instructions.restype = ctypes.c_char_p
        for name in ("acme_qmatmul_calls", "acme_qconv_calls"):
            getattr(self._library, name).restype = ctypes.c_int64

    @property
    def instructions(self) -> str:
        """Which instructions it uses."""
        return self._library.acme_instructions().decode()

    def calls(self) -> dict[str, int]:
        """Calls by kernel since the last `reset`."""
        library = self._library
        return {"acme_qmatmul_s8": library.acme_qmatmul_calls(), "acme_qconv_s8": library.acme_qconv_calls()}

    def reset(self) -> None:
        """Counts from 0 again."""
        self._library.acme_reset_calls()


__all__: Sequence[str] = ["BUFFERIZE", "CLEAN", "LOWER", "Kernels", "Program", "clean", "fuse"]
