"""Functions that take and return integers: drops the quantize of arguments and the dequantize of results.

    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32>        func.func @f(%x: tensor<4xi8> {qfuse.scale = ..., ...})
      %q = quantize %x                                ->         -> (tensor<4xi8> {qfuse.scale = ..., ...})
      ...                                                     ...
      return dequantize(%r)                                   return %r

What the integers mean is written to the attributes `qfuse.scale`, `qfuse.zero_point` and `qfuse.storage` of the
argument or result (`qfuse.axis` where they vary along one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qfuse._builder import Builder
from qfuse._mlir import Bindings, Operation, Value
from qfuse.emit.base import BuildContext
from qfuse.graph import Existing, Moved, QValue, Refusal, StoredForm
from qfuse.indexing import as_dim, is_identity
from qfuse.integer_only import functions
from qfuse.matchers.nodes import Quantize
from qfuse.missed import Findings, steps_of
from qfuse.qparams import Param, QuantParams
from qfuse.report import Report


@dataclass(eq=False)
class Boundary:
    """What is to be dropped in one function.

    Attributes:
        function: the function.
        arguments: for each argument that becomes an integer its parameters and the quantized results it takes the
            place of.
        results: for each result that becomes an integer the form of what is returned.
    """

    function: Operation
    arguments: dict[int, tuple[QuantParams, list[Value]]] = field(
        default_factory=dict[int, tuple[QuantParams, "list[Value]"]]
    )
    results: dict[int, StoredForm] = field(default_factory=dict[int, StoredForm])


def plan_boundaries(report: Report, found: Findings, root: Operation) -> list[Boundary]:
    """What can be dropped; the rest has a missed entry each."""
    quantizes: dict[Value, list[Quantize]] = {}
    for node in found.nodes:
        if isinstance(node, Quantize) and node.input.op == "elem":
            quantizes.setdefault(node.input.payload[0], []).append(node)
    made: list[Boundary] = []
    for function in functions(root):
        if function.name != "func.func" or not len(function.regions[0].blocks):
            continue
        boundary = _plan(report, found, function, quantizes, _is_called(function, root))
        if boundary.arguments or boundary.results:
            made.append(boundary)
    report.summary["float_ops_left"] = len(report.missed)
    return made


def _plan(
    report: Report,
    found: Findings,
    function: Operation,
    quantizes: Mapping[Value, list[Quantize]],
    called: bool,
) -> Boundary:
    boundary = Boundary(function)
    place = {
        "op": "func.func",
        "location": found.bindings.location(function),
        "function": function.attributes["sym_name"].value,
    }

    def miss(refusal: Refusal) -> None:
        report.missed.append({**place, "reason": refusal.reason, "hint": refusal.hint})

    def apply(what: str, number: int, params: QuantParams) -> None:
        facts = {"fusion": "qfuse.boundary", **place, "exactness": "bit-exact", what: str(params), "number": number}
        report.applied.append(facts)

    block = function.regions[0].blocks[0]
    terminator = list(block.operations)[-1].operation
    if called:
        miss(Refusal("the function is called in the module, so its type has to stay"))
        return boundary
    if terminator.name != "func.return" or len(list(function.regions[0].blocks)) > 1:
        miss(Refusal("the function does not end in one return, so its type has to stay"))
        return boundary
    for number, argument in enumerate(block.arguments):
        if not _is_float_tensor(found.bindings, argument):
            continue
        nodes = quantizes.get(argument, [])
        refusal = _refuse_argument(number, argument, nodes, found)
        if refusal is not None:
            miss(refusal)
            continue
        boundary.arguments[number] = nodes[0].params, [n.result for n in nodes]
        apply("input", number, nodes[0].params)
    for number, value in enumerate(terminator.operands):
        if not _is_float_tensor(found.bindings, value):
            continue
        form = found.env.form(value)
        if not isinstance(form, StoredForm) or not _is_there(form.q) or value in found.floats:
            miss(Refusal(f"result {number} is not dequantized, so it stays a float"))
        elif not _is_describable(form.params):
            miss(Refusal(f"the parameters of result {number} are known only at run time or vary in blocks"))
        else:
            boundary.results[number] = form
            apply("result", number, form.params)
    return boundary


def _refuse_argument(number: int, argument: Value, nodes: list[Quantize], found: Findings) -> Refusal | None:
    if not nodes:
        return Refusal(f"argument {number} is not quantized, so it stays a float")
    params = nodes[0].params
    through = {argument}
    for node in nodes:
        if not _is_describable(node.params):
            return Refusal(f"the parameters of argument {number} are known only at run time or vary in blocks")
        if not is_identity(node.input.payload[1], node.params.extents) or node.params.extents != _extents(
            found.bindings, argument
        ):
            return Refusal(f"argument {number} is quantized in another layout than it has")
        if not node.params.equals(params) or not _same_clamp(node.params, params):
            return Refusal(f"argument {number} is quantized in two ways")
        through |= {node.result} | steps_of(node)
    for use in argument.uses:
        user = use.owner.operation
        if user.name == "tensor.dim" or (len(user.results) and user.results[0] in through):
            continue
        return Refusal(f"argument {number} has another use than its quantize")
    return None


def _same_clamp(one: QuantParams, other: QuantParams) -> bool:
    return (one.quant_min, one.quant_max) == (other.quant_min, other.quant_max)


def _is_describable(params: QuantParams) -> bool:
    places = [as_dim(e) for e in (*params.scale.index, *params.zero_point.index)]
    return params.scale.is_constant and params.zero_point.is_constant and None not in places and len(set(places)) < 2


def _is_there(q: QValue) -> bool:
    """Whether an integer tensor is in the IR, or is moved from such."""
    if isinstance(q, Moved):
        return all(_is_there(inner) for inner, _ in q.inputs)
    return isinstance(q, Existing) and q.cast is None


def _is_float_tensor(bindings: Bindings, value: Value) -> bool:
    info = bindings.tensor_info(value.type)
    return info is not None and info[1].startswith(("f", "bf"))


def _extents(bindings: Bindings, value: Value) -> tuple[int | None, ...]:
    return bindings.extents(value.type)


def _is_called(function: Operation, root: Operation) -> bool:
    name = function.attributes["sym_name"].value
    if root.name != "builtin.module":
        root = root.parent
    pending: list[Any] = [] if root is None else [root.operation]
    while pending:
        op = pending.pop()
        if op.name == "func.call" and op.attributes["callee"].value == name:
            return True
        if op.name.startswith("linalg."):
            continue
        pending += [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
    return False


# -- carrying it out -------------------------------------------------------------------------------------------------


def build_results(boundaries: list[Boundary], context: BuildContext) -> list[dict[int, Value]]:
    """The integers that each function is to return, before its return."""
    built: list[dict[int, Value]] = []
    for boundary in boundaries:
        terminator = list(boundary.function.regions[0].blocks[0].operations)[-1].operation
        with context.at(terminator):
            built.append({number: context.stored(form) for number, form in boundary.results.items()})
    return built


def expose(
    boundaries: list[Boundary],
    results: list[dict[int, Value]],
    replacements: list[tuple[Value, Value]],
    builder: Builder,
) -> tuple[list[tuple[Value, Value]], list[Value]]:
    """Changes types and returned values; gives the replacements to make, and values that then have no use."""
    arguments: dict[Value, Value] = {}
    dead: list[Value] = []
    if boundaries and not builder.context.allow_unregistered_dialects:
        builder.context.allow_unregistered_dialects = True  # for the attributes, whose prefix is no dialect
    for boundary, returned in zip(boundaries, results, strict=True):
        arguments.update(_expose(boundary, returned, dead, builder))
    dead += [new for old, new in replacements if old in arguments]
    kept = [(old, new) for old, new in replacements if old not in arguments]
    return [*kept, *arguments.items()], dead


def _expose(
    boundary: Boundary, results: Mapping[int, Value], dead: list[Value], builder: Builder
) -> Mapping[Value, Value]:
    function = boundary.function
    block = function.regions[0].blocks[0]
    terminator = list(block.operations)[-1].operation
    places: dict[Value, Value] = {}
    for number, (params, quantized) in boundary.arguments.items():
        argument = block.arguments[number]
        argument.set_type(builder.tensor(params.extents, params.storage.mlir))
        places.update(dict.fromkeys(quantized, argument))
    for number, value in results.items():
        dead.append(terminator.operands[number])
        terminator.operands[number] = value
    inputs = ", ".join(str(a.type) for a in block.arguments)
    outputs = ", ".join(str(v.type) for v in terminator.operands)
    arguments = {number: params for number, (params, _) in boundary.arguments.items()}
    returned = {number: form.params for number, form in boundary.results.items()}
    function.attributes["function_type"] = builder.attribute(f"({inputs}) -> ({outputs})")
    for name, count, described in (
        ("arg_attrs", len(block.arguments), arguments),
        ("res_attrs", len(terminator.operands), returned),
    ):
        if described:
            function.attributes[name] = _described(function, name, count, described, builder)
    return places


def _described(
    function: Operation, name: str, count: int, described: Mapping[int, QuantParams], builder: Builder
) -> Any:
    known = list(function.attributes[name]) if name in function.attributes else [None] * count
    texts: list[str] = []
    for number in range(count):
        before = known[number]
        parts = [] if before is None else [f'"{n.name}" = {n.attr}' for n in before]
        if number in described:
            parts += [f"{key} = {value}" for key, value in attributes_of(described[number]).items()]
        texts.append("{" + ", ".join(parts) + "}")
    return builder.attribute("[" + ", ".join(texts) + "]")


def attributes_of(params: QuantParams) -> dict[str, str]:
    """Names and printed values of the attributes that describe an integer argument or result."""
    axis = next(iter((*params.scale.index, *params.zero_point.index)), None)
    found = {
        "qfuse.scale": _printed(params.scale, "f64" if params.expressed == "f64" else "f32"),
        "qfuse.zero_point": _printed(params.zero_point, "i64"),
        "qfuse.storage": f'"{params.storage}"',
    }
    return found if axis is None else {**found, "qfuse.axis": f"{as_dim(axis)} : i64"}


def _printed(param: Param, element: str) -> str:
    data = param.data
    assert data is not None, "boundary parameters are constant"
    numbers = [repr(float(n)) if element != "i64" else str(int(n)) for n in data.reshape(-1)]
    numbers = [n if "e" not in n or "." in n else n.replace("e", ".0e") for n in numbers]
    if not param.index:
        return f"{numbers[0]} : {element}"
    return f"dense<[{', '.join(numbers)}]> : tensor<{len(numbers)}x{element}>"
