"""Compile a module with IREE for the CPU and run it.

    vmfb = compile_module(module)               # torch_mlir / iree.compiler module, or text
    program = Program(vmfb)
    (logits,) = program(images)                 # numpy in, numpy out

    call = program.prepare(images)              # for timing: arguments are copied to the device once
    call.run()
    (logits,) = call.outputs()

IREE is optional and imported when first needed: `pip install 'qfuse[iree]'`.

Limits of handing torch-mlir's IR to IREE 3.13:

- Its parser does not know named elementwise ops (`linalg.add`, `linalg.exp`, `linalg.elementwise`, ...). In a
  module object of another binding they are generalized on a copy first; in text they are a `CompileError`.
- TOSA in torch-mlir's custom syntax does not parse. With `input_type="tosa"` a module object is printed in
  generic form, which does; text must already be in generic form.
- Constants of type i4 do not compile for llvm-cpu.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from qfuse.errors import QfuseError

__all__ = [
    "DEFAULT_FLAGS",
    "CompileError",
    "IREEError",
    "NotInstalledError",
    "PreparedCall",
    "Program",
    "RunError",
    "compile_module",
    "host_has_vnni",
]

Array: TypeAlias = npt.NDArray[Any]

DEFAULT_FLAGS: tuple[str, ...] = (
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
    "--iree-llvmcpu-target-cpu=host",
    # QDQ models that are not fused need more stack than the default in single dispatches.
    "--iree-llvmcpu-stack-allocation-limit=2097152",
)
"""Data tiling is what makes integer matmuls fast; host tuning makes the program specific to this CPU."""

_NAMED_ELEMENTWISE = (
    "abs",
    "add",
    "ceil",
    "div",
    "div_unsigned",
    "elementwise",
    "erf",
    "exp",
    "floor",
    "log",
    "max",
    "min",
    "mul",
    "negf",
    "powf",
    "reciprocal",
    "round",
    "rsqrt",
    "select",
    "sqrt",
    "square",
    "sub",
    "tanh",
)
_NAMED_ELEMENTWISE_RE = re.compile(rf"\blinalg\.(?:{'|'.join(_NAMED_ELEMENTWISE)})\b")

_GENERALIZE_SCHEDULE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %named = transform.structured.match ops{[@NAMES@]} in %root : (!transform.any_op) -> !transform.any_op
    %generic = transform.structured.generalize %named : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
""".replace("@NAMES@", ", ".join(f'"linalg.{name}"' for name in _NAMED_ELEMENTWISE))


class IREEError(QfuseError):
    """Base of everything this module raises on purpose."""


class NotInstalledError(IREEError):
    """IREE's Python packages are missing."""


class CompileError(IREEError):
    """`iree-compile` refused the module. `diagnostics` is everything it printed."""

    def __init__(self, message: str, diagnostics: str) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


class RunError(IREEError):
    """The program could not be loaded, or rejected its arguments."""


@runtime_checkable
class MLIRModule(Protocol):
    """What is needed of an `ir.Module`, whichever Python binding it belongs to."""

    @property
    def operation(self) -> Any: ...


def compile_module(
    module_or_text: MLIRModule | str | bytes,
    *,
    flags: Sequence[str] = DEFAULT_FLAGS,
    input_type: str = "none",
) -> bytes:
    """Compile for `llvm-cpu` and return the program (a vmfb).

    Args:
      module_or_text: An `ir.Module` of any MLIR binding (it is not changed), MLIR text, or bytecode.
      flags: Arguments for `iree-compile`. They replace `DEFAULT_FLAGS`; add to those to extend them.
      input_type: IREE's input conversion. `"none"` fits linalg on tensors.

    Raises:
      CompileError: `iree-compile` failed; the message is its first error.
      NotInstalledError: IREE is not installed.
    """
    compiler = _import("iree.compiler")
    tools = _import("iree.compiler.tools")
    text = _to_text(module_or_text, input_type) if isinstance(module_or_text, MLIRModule) else module_or_text
    try:
        return bytes(
            compiler.compile_str(text, target_backends=["llvm-cpu"], input_type=input_type, extra_args=list(flags))
        )
    except tools.CompilerToolError as error:
        diagnostics = _diagnostics(str(error))
        raise CompileError(_first_error(diagnostics), diagnostics) from None


def host_has_vnni() -> bool:
    """Whether this machine runs what `operands=vnni` of the target `iree-cpu` emits: x86 with AVX-512 VNNI (Linux)."""
    try:
        return "avx512_vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


class Program:
    """A compiled program, loaded for execution.

    Arguments must have the shapes and element types of the function's tensors; nothing is converted on
    the way. A Python int or float is a scalar argument; for a tensor of rank 0 pass an array.
    """

    def __init__(self, vmfb: bytes, *, device: str = "local-sync") -> None:
        """Load `vmfb`. `device` is IREE's URI: `local-sync` is one thread, `local-task` a pool of them."""
        self._runtime = _import("iree.runtime")
        try:
            config = self._runtime.Config(device)
            module = self._runtime.VmModule.copy_buffer(config.vm_instance, vmfb)
            context = self._runtime.SystemContext(vm_modules=[module], config=config)
        except (RuntimeError, ValueError) as error:
            raise RunError(f"cannot load the program on device {device!r}: {_reason(error)}") from error
        self._device: Any = config.device
        self._context: Any = context
        functions = {str(name): module.lookup_function(name) for name in module.function_names}
        # `__init` runs by itself; `$async` twins take fences as further arguments. Functions from the torch dialect
        # have no reflection to go by.
        self._functions: dict[str, Any] = {
            name: function for name, function in functions.items() if name != "__init" and not name.endswith("$async")
        }

    @property
    def entry_names(self) -> tuple[str, ...]:
        """The functions that can be called."""
        return tuple(self._functions)

    def __call__(self, *arrays: npt.ArrayLike, entry: str | None = None) -> tuple[Array, ...]:
        """Run once and return all results. `entry` may be left out if there is one function."""
        call = self.prepare(*arrays, entry=entry)
        call.run()
        return call.outputs()

    def prepare(self, *arrays: npt.ArrayLike, entry: str | None = None) -> PreparedCall:
        """Copy the arguments to the device; the returned call can be run many times."""
        function = self._function(entry)
        arguments = self._runtime.VmVariantList(len(arrays))
        for array in arrays:
            if type(array) is int:
                arguments.push_int(array)
            elif type(array) is float:
                arguments.push_float(array)
            else:
                arguments.push_ref(self._to_device(np.asarray(array, order="C")))
        return PreparedCall(self._runtime, self._device, self._context.vm_context, function, arguments)

    def _to_device(self, array: Array) -> Any:
        element_type = self._runtime.dtypes.map_dtype_to_hal_element_type(array.dtype)
        if element_type is None:
            raise RunError(f"IREE has no element type for numpy's {array.dtype}")
        return self._device.allocator.allocate_buffer_copy(
            memory_type=self._runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=self._runtime.BufferUsage.DEFAULT,
            device=self._device,
            buffer=array,
            element_type=element_type,
        )

    def _function(self, entry: str | None) -> Any:
        if entry is None:
            if len(self._functions) != 1:
                raise RunError(f"name the entry to call, one of: {', '.join(self._functions)}")
            return next(iter(self._functions.values()))
        if entry not in self._functions:
            raise RunError(f"no entry {entry!r}; the program has: {', '.join(self._functions)}")
        return self._functions[entry]


class PreparedCall:
    """A function with its arguments on the device. Made by `Program.prepare`."""

    def __init__(self, runtime: Any, device: Any, vm_context: Any, function: Any, arguments: Any) -> None:
        self._runtime = runtime
        self._device = device
        self._vm_context = vm_context
        self._function = function
        self._arguments = arguments
        self._results: Any = None

    def run(self) -> None:
        """Run to completion; the results stay on the device."""
        results = self._runtime.VmVariantList(1)
        try:
            self._vm_context.invoke(self._function, self._arguments, results)
        except (RuntimeError, ValueError) as error:
            called = self._function.reflection.get("iree.abi.declaration", self._function.name)
            raise RunError(f"{_reason(error)} (calling {called})") from error
        self._results = results

    def outputs(self) -> tuple[Array, ...]:
        """The results of the last `run`, copied to the host."""
        if self._results is None:
            raise RunError(f"{self._function.name} has not been run")
        return tuple(self._to_host(index) for index in range(len(self._results)))

    def _to_host(self, index: int) -> Array:
        value = self._results.get_variant(index)
        if isinstance(value, (int, float)):
            return np.asarray(value)
        view = self._results.get_as_object(index, self._runtime.HalBufferView)
        return np.array(self._runtime.DeviceArray(self._device, view).to_host())


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotInstalledError(f"{name} is not installed; install it with: pip install 'qfuse[iree]'") from error


def _to_text(module: MLIRModule, input_type: str) -> str:
    def asm(operation: Any) -> str:
        # With locations, so that IREE's errors point at the source and not at this text.
        return str(operation.get_asm(enable_debug_info=True, print_generic_op_form=input_type == "tosa"))

    text = asm(module.operation)
    binding = type(module).__module__.partition("._mlir_libs")[0]
    if binding.startswith("iree.") or not _NAMED_ELEMENTWISE_RE.search(text):
        return text
    generalized = module.operation.clone()
    _generalize_named_elementwise(generalized, binding)
    return asm(generalized)


def _generalize_named_elementwise(operation: Any, binding: str) -> None:
    # Only the ops that IREE does not know: `linalg-generalize-named-ops` would take the matmuls as well.
    ir = importlib.import_module(f"{binding}.ir")
    interpreter = importlib.import_module(f"{binding}.dialects.transform.interpreter")
    schedule = ir.Module.parse(_GENERALIZE_SCHEDULE, operation.context)
    interpreter.apply_named_sequence(operation, schedule.body.operations[0], schedule)


def _diagnostics(message: str) -> str:
    _, _, rest = message.partition("Diagnostics:\n")
    return (rest or message).partition("\n\nInvoked with:")[0].strip()


def _reason(error: Exception) -> str:
    # Keep code and reason of "Error ...: c/runtime/.../x.c:225: INVALID_ARGUMENT; why; while invoking ...".
    text = re.sub(r"^Error [^:]*: [\w./-]+:\d+: ", "", " ".join(str(error).split()))
    return text.partition("; while invoking")[0]


def _first_error(diagnostics: str) -> str:
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "iree-compile failed")
