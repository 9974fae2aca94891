"""Writes the IR text of recognition tests without its repeated parts, and reads parameters back as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse.indexing import to_affine
from qfuse.qparams import Param, QuantParams


def function(arguments: str, *operations: str, resources: str = "") -> str:
    """A module with one function of these arguments and operations.

    Args:
        arguments: `"%x: tensor<4xf32>, ..."`.
        *operations: text, in order.
        resources: `name: "0x..."` lines for `dense_resource` attributes.
    """
    body = "\n".join(operations)
    blobs = "{-# dialect_resources: { builtin: { " + resources + " } } #-}" if resources else ""
    return f"func.func @main({arguments}) {{\n{body}\nreturn\n}}\n{blobs}"


def generic(
    result: str,
    inputs: Sequence[str],
    to: str,
    body: str,
    maps: Sequence[str] = (),
    out: str = "",
    reduction: Sequence[int] = (),
    loops: int | None = None,
) -> str:
    """A `linalg.generic`. Its block arguments are `%in`, `%in_1`, `%in_2`, ... and `%out`.

    Args:
        result: name of the result, `"%q"`.
        inputs: `"%x: tensor<4x8xf32>"`, one an operand.
        to: type of the result.
        body: operations, the last of which is `yield %value`.
        maps: results of an operand's indexing map, `"d0, d1 floordiv 4"`; inputs first. The identity where left out.
        out: the `outs` operand; a `tensor.empty` when not given.
        reduction: loops that are reductions.
        loops: number of loops; the result's rank when not given.
    """
    operands = [tuple(part.strip() for part in text.split(":", 1)) for text in inputs]
    rank = len(_shape(to)) if loops is None else loops
    dims = ", ".join(f"d{i}" for i in range(rank))
    places = [*maps, *[dims] * (len(operands) + 1 - len(maps))]
    printed = ", ".join(f"affine_map<({dims}) -> ({place})>" for place in places)
    kinds = ", ".join('"reduction"' if i in reduction else '"parallel"' for i in range(rank))
    names = [f"%in_{i}" if i else "%in" for i in range(len(operands))]
    arguments = ", ".join(f"{n}: {_element(t)}" for n, (_, t) in zip(names, operands, strict=True))
    values = ", ".join(v for v, _ in operands)
    types = ", ".join(t for _, t in operands)
    ins = f"ins({values} : {types})" if operands else ""
    lines = _with_own_names(body, result).strip().splitlines()
    value = lines[-1].split()[-1]
    steps = "\n".join(lines[:-1])
    empty = "" if out else f"{result}_e = tensor.empty() : {to}\n"
    return (
        f"{empty}{result} = linalg.generic {{indexing_maps = [{printed}], iterator_types = [{kinds}]}} {ins} "
        f"outs({out or result + '_e'} : {to}) {{\n^bb0({arguments}{', ' if operands else ''}%out: {_element(to)}):\n"
        f"{steps}\nlinalg.yield {value} : {_element(to)}\n}} -> {to}"
    )


def _with_own_names(body: str, result: str) -> str:
    """A body whose names are marked by the operation's result: MLIR does not let them hide names outside."""
    for name in set(re.findall(r"(%\w+) =", body)):
        body = re.sub(rf"{name}\b", f"{name}_of_{result[1:]}", body)
    return body


def _shape(type_: str) -> list[str]:
    return type_[len("tensor<") : -1].split("x")[:-1]


def _element(type_: str) -> str:
    return type_[len("tensor<") : -1].split("x")[-1] if type_.startswith("tensor<") else type_


@dataclass(frozen=True)
class Described:
    """`QuantParams` as plain data; the defaults are those of a signed 8-bit tensor of f32, per tensor, symmetric.

    Scales and zero points are numbers, nested lists, or `run-time <element type>` (with `unsigned` in front when an
    integer is to be zero-extended); `scale_at` and `zero_at` say where they are read.
    """

    scale: Any
    zero_point: Any = 0
    storage: str = "s8"
    low: int = -128
    high: int = 127
    granularity: str = "per-tensor"
    scale_at: str = ""
    zero_at: str = ""
    expressed: str = "f32"


def describe(params: QuantParams) -> Described:
    """The plain data of `params`."""
    return Described(
        scale=_values(params.scale),
        zero_point=_values(params.zero_point),
        storage=str(params.storage),
        low=params.quant_min,
        high=params.quant_max,
        granularity=params.granularity,
        scale_at=", ".join(map(to_affine, params.scale.index)),
        zero_at=", ".join(map(to_affine, params.zero_point.index)),
        expressed=params.expressed,
    )


def _values(param: Param) -> Any:
    if param.data is None:
        sign = "" if param.signed else "unsigned "
        return f"run-time {sign}{param.element}"
    return param.data.tolist()


def f32(number: float) -> float:
    """The nearest f32, as a Python float."""
    return float(np.float32(number))


def f16(number: float) -> float:
    """The nearest f16, as a Python float."""
    return float(np.float16(number))


def blob(array: np.ndarray[Any, Any], alignment: int = 4) -> str:
    """The hexadecimal blob of a `dense_resource`: its alignment, then the values."""
    return "0x" + (alignment.to_bytes(4, "little") + array.tobytes()).hex().upper()
