"""TOSA modules as text, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def const(name: str, array: Array, element: str) -> str:
    """A `tosa.const` named `%name`."""
    shape = "x".join(map(str, array.shape))
    type_ = f"tensor<{shape}x{element}>"
    values = array.tolist() if array.size > 1 else array.reshape(-1)[0].item()
    return f'%{name} = "tosa.const"() <{{values = dense<{values}> : {type_}}}> : () -> {type_}'


def rescale(
    mantissa: Sequence[int],
    shift: Sequence[int],
    *,
    element: str = "i32",
    result: str = "i32",
    mode: str = "SINGLE_ROUND",
    zero: int = 0,
    result_zero: int = 0,
    scale32: bool = True,
) -> str:
    """A module with one RESCALE of a vector by a multiplier an element."""
    n, held = len(mantissa), "i32" if scale32 else "i16"
    types = f"(tensor<{n}x{element}>, tensor<{n}x{held}>, tensor<{n}xi8>, tensor<1x{element}>, tensor<1x{result}>)"
    how = (
        "input_unsigned = false, output_unsigned = false, per_channel = true,"
        f" rounding_mode = {mode}, scale32 = {str(scale32).lower()}"
    )
    lines = [
        const("m", np.asarray(mantissa), held),
        const("s", np.asarray(shift), "i8"),
        const("zi", np.asarray([zero]), element),
        const("zo", np.asarray([result_zero]), result),
        f"%r = tosa.rescale %a, %m, %s, %zi, %zo {{{how}}} : {types} -> tensor<{n}x{result}>",
        f"return %r : tensor<{n}x{result}>",
    ]
    body = "\n    ".join(lines)
    return f"module {{\n  func.func @main(%a: tensor<{n}x{element}>) -> tensor<{n}x{result}> {{\n    {body}\n  }}\n}}\n"
