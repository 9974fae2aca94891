"""`KernelCall`: how a kernel is called, as data.

    %acc = contract %qa, %qb     ->    %out = tensor.empty
    %r   = requantize %acc             %r   = func.call @acme_qmatmul(%qa, %weight, %bias, ..., %out)

One description is spelled as a call of an external function, as `tosa.custom`, or as an operation of any name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import numpy as np

from qfuse._builder import Builder
from qfuse._mlir import Attribute, Operation, Value
from qfuse.emit.base import BuildContext
from qfuse.errors import UsageError
from qfuse.graph import Array, Environment, Refusal

SPELLINGS = ("func.call", "tosa.custom", "op")

_ELEMENT = re.compile(r"(i|si|ui|f|bf)[1-9][0-9]*|index")
_DTYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class KernelValue:
    """One thing that a kernel is given.

    Attributes:
        name: which; see `qfuse.KernelFusion` for those of a matrix product or convolution.
        layout: the dimensions in order, a letter each; empty for a number or a few numbers.
        element: printed element type; of tensors that are in the IR it is what they must have, None for any.
    """

    name: str
    layout: str = ""
    element: str | None = None


@dataclass(frozen=True)
class KernelCall:
    """How a kernel is called.

    Attributes:
        kernel: name of the function, of the operation (`acme.qmatmul`), or of the `tosa.custom` operator.
        operands: what is passed, in order. Numbers are scalars, several numbers one scalar each, constants are
            constant tensors. A function gets the tensor that it writes its result into behind them.
        result: layout of the result, a letter a dimension.
        attributes: what an operation carries as attributes of these names; a function has none.
        fixed: further attributes by name, as printed (`"2 : i64"`).
        spelling: `func.call`, `tosa.custom` or `op`.
        domain: domain of a `tosa.custom`.
        dynamic: whether the function takes tensors of dynamic extents, so that one declaration serves all shapes;
            otherwise the extents are part of its type, and of its name: `acme_qmatmul_4x16_16x8_4x8`.
    """

    kernel: str
    operands: tuple[KernelValue, ...]
    result: str
    attributes: tuple[KernelValue, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    spelling: str = "func.call"
    domain: str = ""
    dynamic: bool = True

    def __post_init__(self) -> None:
        """Raises UsageError where the parts contradict each other."""
        if not isinstance(cast("object", self.kernel), str) or not self.kernel.strip():
            raise UsageError(f"a kernel has a name, got {self.kernel!r}")
        if self.spelling not in SPELLINGS:
            raise UsageError(f"kernel {self.kernel}: spelling is one of {', '.join(SPELLINGS)}, not {self.spelling!r}")
        if self.spelling == "func.call" and (self.attributes or self.fixed):
            raise UsageError(f"kernel {self.kernel}: a function takes no attributes, pass them as operands")
        if self.spelling == "op" and "." not in self.kernel:
            raise UsageError(f"kernel {self.kernel}: an operation's name is dialect.name")
        if not all(isinstance(cast("object", v), KernelValue) for v in (*self.operands, *self.attributes)):
            raise UsageError(f"kernel {self.kernel}: operands and attributes are KernelValue objects")
        for value in (*self.operands, *self.attributes):
            if value.element is not None and not _ELEMENT.fullmatch(value.element):
                raise UsageError(
                    f"kernel {self.kernel}: {value.name} has an MLIR type such as i32, not {value.element!r}"
                )
        names = [v.name for v in (*self.operands, *self.attributes)]
        twice = sorted({n for n in names if names.count(n) > 1} | ({*self.fixed} & {*names}))
        if twice:
            raise UsageError(f"kernel {self.kernel}: given twice: {', '.join(twice)}")

    def find(self, name: str) -> KernelValue | None:
        """What the kernel takes under a name, or None."""
        return next((v for v in (*self.operands, *self.attributes) if v.name == name), None)

    # -- before: what may refuse -------------------------------------------------------------------------------

    def check(self, op: Operation, env: Environment, values: Mapping[str, Any], result: str) -> Refusal | None:
        """Why the call cannot stand where `op` does, or None.

        Args:
            op: the operation that it would stand before.
            env: the analysis.
            values: as for `emit`, with printed tensor types in place of tensors that are not made yet.
            result: printed type of the result.
        """
        if self.spelling != "func.call":
            name = "tosa.custom" if self.spelling == "tosa.custom" else self.kernel
            context = op.context
            if not context.allow_unregistered_dialects and not context.is_registered_operation(name):
                return Refusal(
                    f"operation {name} is not registered in the module's context",
                    "register its dialect, or allow unregistered dialects",
                )
            return None
        symbol, types = self._signature(values, result)
        signature = _function_type(types)
        module = _module_of(op)
        found = None if module is None else _symbol(module, symbol)
        planned = env.declared.get(symbol) if found is None else str(found.attributes["function_type"].value)
        if planned is not None and planned != signature:
            return Refusal(f"@{symbol} is {planned} already, the kernel is {signature}", "rename one of them")
        if found is None and (module is None or env.root.name != "builtin.module"):
            return Refusal(
                f"@{symbol} is not declared, and a run on one function does not change what is around it",
                "run on the module, or declare the kernel in it",
            )
        env.declared[symbol] = signature
        return None

    # -- after: what cannot ------------------------------------------------------------------------------------

    def emit(self, context: BuildContext, values: Mapping[str, Any], result: str) -> Value:
        """The call, before the current operation.

        Args:
            context: what a fusion's `build` is given.
            values: by name: SSA tensors, constant arrays, numbers, or tuples of numbers.
            result: printed type of the result. Its dynamic extents are `values["size m"]`, by letter.
        """
        builder = context.builder
        if self.spelling == "func.call":
            return self._call(context, values, result)
        if self.spelling == "tosa.custom":
            plain = {v.name: _plain(values[v.name]) for v in self.attributes}
            attributes = {
                "operator_name": _text(builder, self.kernel),
                "domain_name": _text(builder, self.domain),
                "implementation_attrs": _text(builder, json.dumps({**plain, **self.fixed}, sort_keys=True)),
            }
            operands = [o for v in self.operands for o in _tosa_operands(builder, v, values[v.name])]
            return builder.create("tosa.custom", [builder.type(result)], operands, attributes).results[0]
        attributes = {v.name: _attribute(builder, v, values[v.name]) for v in self.attributes}
        attributes |= {name: builder.attribute(text) for name, text in self.fixed.items()}
        operands = [o for v in self.operands for o in _operands(builder, v, values[v.name])]
        return builder.create(self.kernel, [builder.type(result)], operands, attributes).results[0]

    def _call(self, context: BuildContext, values: Mapping[str, Any], result: str) -> Value:
        builder, bindings = context.builder, context.bindings
        operands = [o for v in self.operands for o in _operands(builder, v, values[v.name])]
        made = builder.type(result)
        extents = bindings.extents(made)
        sizes = [values[f"size {letter}"] for letter, n in zip(self.result, extents, strict=True) if n is None]
        operands.append(builder.empty(None, extents, bindings.element_name(made), sizes))
        symbol, types = self._signature(values, result)
        passed = [context.cast(o, builder.type(t)) for o, t in zip(operands, types, strict=True)]
        module = _module_of(passed[-1].owner)
        if _symbol(module, symbol) is None:
            _declare(context, module, symbol, types)
        callee = {"callee": builder.attribute(f"@{symbol}")}
        call = builder.create("func.call", [builder.type(types[-1])], passed, callee)
        return context.cast(call.results[0], made)

    def _signature(self, values: Mapping[str, Any], result: str) -> tuple[str, list[str]]:
        """Name of the function and printed types of its operands, the result's last."""
        types = [t for v in self.operands for t in _printed_types(v, values[v.name])] + [result]
        if self.dynamic:
            return self.kernel, [_TENSOR.sub(lambda m: "tensor<" + "?x" * m[1].count("x"), t) for t in types]
        shapes = [m[1].rstrip("x").replace("?", "d") for m in map(_TENSOR.match, types) if m is not None and m[1]]
        return "_".join([self.kernel, *shapes]), types


_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)")


def _printed_types(given: KernelValue, value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if _is_array(value):
        return [_tensor_type(value, given)]
    numbers = _numbers(value)
    return [str(value.type)] if numbers is None else [_element(given)] * len(numbers)


def _is_array(value: Any) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A number or several, or None for what is neither."""
    if isinstance(value, int):
        return (value,)
    found: Any = value
    return found if isinstance(value, tuple) else None


def _element(given: KernelValue, array: Array | None = None) -> str:
    """Constants that are narrower than i64 keep their type where none is asked for."""
    own = "i64" if array is None else f"i{8 * array.dtype.itemsize}"
    return given.element or ("i32" if own == "i64" else own)


def _tensor_type(array: Array, given: KernelValue) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}{_element(given, array)}>"


def _constant(given: KernelValue, array: Array) -> Array:
    return np.ascontiguousarray(array.astype(_DTYPES[_element(given, array)]))


def _operands(builder: Builder, given: KernelValue, value: Any) -> list[Value]:
    if _is_array(value):
        return [builder.dense_constant(_constant(given, value))]
    numbers = _numbers(value)
    return [value] if numbers is None else [builder.constant(f"{n} : {_element(given)}") for n in numbers]


def _tosa_operands(builder: Builder, given: KernelValue, value: Any) -> list[Value]:
    """What is no tensor is a constant tensor of one dimension."""
    numbers = _numbers(value)
    if numbers is None and not _is_array(value):
        return [value]
    held = builder.elements(_constant(given, np.atleast_1d(value if numbers is None else np.asarray(numbers))))
    return [builder.create("tosa.const", [held.type], [], {"values": held}).results[0]]


def _attribute(builder: Builder, given: KernelValue, value: Any) -> Attribute:
    """A number as such; several as a dense array; arrays of more dimensions as elements."""
    if isinstance(value, int):
        return builder.attribute(f"{value} : {_element(given)}")
    array = np.asarray(value)
    if array.ndim != 1:
        return builder.elements(_constant(given, array))
    numbers = ", ".join(map(str, array.tolist()))
    return builder.attribute(f"array<{_element(given)}: {numbers}>" if numbers else f"array<{_element(given)}>")


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def _text(builder: Builder, text: str) -> Attribute:
    return builder.attribute(json.dumps(text))


# -- symbols ---------------------------------------------------------------------------------------------------


def _module_of(op: Operation) -> Operation | None:
    """The innermost module around an operation, or None."""
    around = op.operation.parent
    while around is not None and around.operation.name != "builtin.module":
        around = around.operation.parent
    return None if around is None else around.operation


def _symbol(module: Operation, name: str) -> Operation | None:
    for op in module.regions[0].blocks[0].operations:
        op = op.operation
        if "sym_name" in op.attributes and op.attributes["sym_name"].value == name:
            return op
    return None


def _function_type(types: Sequence[str]) -> str:
    return f"({', '.join(types)}) -> {types[-1]}"


def _declare(context: BuildContext, module: Operation, symbol: str, types: Sequence[str]) -> None:
    """Declares an external function that reads its tensors and writes the last one, which it returns."""
    builder = context.builder
    access = ["read"] * (len(types) - 1) + ["write"]
    arguments = [
        f'{{bufferization.access = "{how}"}}' if t.startswith("tensor<") else "{}"
        for how, t in zip(access, types, strict=True)
    ]
    with context.at(next(iter(module.regions[0].blocks[0].operations)).operation):
        attributes = {
            "sym_name": _text(builder, symbol),
            "sym_visibility": _text(builder, "private"),
            "function_type": builder.attribute(_function_type(types)),
            "arg_attrs": builder.attribute(f"[{', '.join(arguments)}]"),
            "llvm.emit_c_interface": builder.attribute("unit"),
        }
        builder.create("func.func", attributes=attributes, regions=1)


__all__ = ["KernelCall", "KernelValue"]
