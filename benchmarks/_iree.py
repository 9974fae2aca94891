"""What the benchmarks share of compiling with IREE and running on one thread, with inputs resident on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import iree.runtime as iree_runtime
import numpy as np

from qfuse.integrations.iree import DEFAULT_FLAGS, compile_module


class Call:
    """The function `main` of a loaded program with its arguments on the device."""

    def __init__(self, flatbuffer: bytes, *inputs: np.ndarray[Any, Any]) -> None:
        """Load `flatbuffer` on the single-threaded CPU driver and place `inputs` there."""
        device = iree_runtime.get_device("local-sync")
        config = iree_runtime.Config(device=device)
        module = iree_runtime.VmModule.copy_buffer(config.vm_instance, flatbuffer)
        context = iree_runtime.SystemContext(vm_modules=[module], config=config)
        self._vm_context = context.vm_context
        self._bound = context.modules[module.name]
        self._function = module.lookup_function("main")
        self._inputs = [iree_runtime.asdevicearray(device, value) for value in inputs]
        self._arguments = iree_runtime.VmVariantList(len(inputs))
        for value in self._inputs:
            self._arguments.push_ref(value._buffer_view)

    def run(self) -> None:
        """Run once without the runtime's Python conversions; the result stays on the device."""
        self._vm_context.invoke(self._function, self._arguments, iree_runtime.VmVariantList(1))

    def output(self) -> np.ndarray[Any, Any]:
        """Run once and fetch the result."""
        return np.array(self._bound["main"](*self._inputs).to_host())


def prepare(
    module_or_text: Any,
    *inputs: np.ndarray[Any, Any],
    input_type: str = "none",
    cpu: str = "host",
    more_flags: Sequence[str] = (),
) -> Call:
    """Compile with the library's flags for `cpu`, load, and place the inputs on the single-threaded device."""
    flags = [flag for flag in DEFAULT_FLAGS if "target-cpu=" not in flag]
    flags += [f"--iree-llvmcpu-target-cpu={cpu}", *more_flags]
    return Call(compile_module(module_or_text, flags=flags, input_type=input_type), *inputs)
