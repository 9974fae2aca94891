"""Fuse one module with qfuse and check what can be checked without running it.

Run as a process of its own, so that a crash or a hang of the library stays here:

    python _fuse_one.py MODULE.mlir FUSED.mlir RESULT.json [--target NAME] [--option k=v ...]

`RESULT.json` says what the module looked like before, what `fuse()` did, and every check that failed.
`FUSED.mlir` is the fused module in a spelling that the runner can compile. Lines `stage NAME` on stdout tell
how far a process got that never reached the end.

The module is inspected with nothing but the MLIR bindings: `Inspector.dequantized` is a crude recogniser of
its own, so that the counts of the library can be held against something that shares no code with it.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

# Value-preserving ops by the number of leading operands that carry the data (None: all of them).
LAYOUT_OPS: dict[str, int | None] = {
    "linalg.transpose": 1,
    "linalg.broadcast": 1,
    "tensor.collapse_shape": 1,
    "tensor.expand_shape": 1,
    "tensor.extract_slice": 1,
    "tensor.reshape": 1,
    "tensor.cast": 1,
    "tensor.pad": 1,
    "tensor.concat": None,
    "tosa.transpose": 1,
    "tosa.reshape": 1,
    "tosa.tile": 1,
    "tosa.slice": 1,
    "tosa.concat": None,
}
FLOAT_CASTS = {"arith.extf", "arith.truncf"}
INT_TO_FLOAT = {"arith.sitofp", "arith.uitofp"}
INT_ARITHMETIC = {"arith.extsi", "arith.extui", "arith.subi", "arith.addi", "arith.trunci"}
# Named elementwise ops that the IREE 3.13 parser does not know.
NOT_IN_IREE = re.compile(
    r"\blinalg\.(?:elementwise|add|sub|mul|div|div_unsigned|max|min|exp|log|abs|ceil|floor|negf|"
    r"reciprocal|round|sqrt|rsqrt|square|tanh|erf|powf|select)\b"
)


def stage(name: str) -> None:
    """Leave a trace of how far this process got."""
    print(f"stage {name}", flush=True)


def element_type(value: ir.Value) -> Any:
    """Element type of a shaped value, the type itself of a scalar."""
    value_type = value.type
    return value_type.element_type if isinstance(value_type, ir.ShapedType) else value_type


def is_float(value: ir.Value) -> bool:
    """Whether `value` is a float or a tensor of floats."""
    return isinstance(element_type(value), ir.FloatType)


def is_storage(value: ir.Value) -> bool:
    """Whether `value` is a tensor of integers that quantized data is stored in: 2 to 32 bits.

    32 because uint16 comes in i32. No i1 (masks) and no i64 (indices).
    """
    kind = element_type(value)
    return isinstance(kind, ir.IntegerType) and 2 <= kind.width <= 32


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The operation that makes `value`; None for a block argument."""
    if isinstance(value, ir.BlockArgument):
        return None
    return value.owner.operation


def location_key(location: object) -> frozenset[tuple[int, int]]:
    """Every line:column in a printed location."""
    return frozenset((int(a), int(b)) for a, b in re.findall(r":(\d+):(\d+)", str(location)))


def _line_columns(entries: list[dict[str, Any]]) -> frozenset[tuple[int, int]]:
    return frozenset().union(*(location_key(entry.get("location")) for entry in entries))


class Inspector:
    """Traces values of one module."""

    def __init__(self) -> None:
        self._kinds: dict[ir.Value, str | None] = {}

    def dequantized(self, value: ir.Value) -> bool:
        """Whether the float tensor `value` is, through layout ops, a dequantized tensor of integers."""
        return is_float(value) and self._kind(value) in ("int", "dq")

    def _kind(self, value: ir.Value) -> str | None:
        """'int': floats that are plain integers, 'dq': those times a scale, None: anything else."""
        if value not in self._kinds:
            self._kinds[value] = None
            self._kinds[value] = self._compute_kind(value)
        return self._kinds[value]

    def _compute_kind(self, value: ir.Value) -> str | None:
        op = defining_op(value)
        if op is None:
            return None
        if op.name in LAYOUT_OPS:
            count = LAYOUT_OPS[op.name]
            kinds = {self._kind(operand) for operand in list(op.operands)[:count]}
            return kinds.pop() if len(kinds) == 1 else None
        if op.name != "linalg.generic" or not _all_parallel(op):
            return None
        body = op.regions[0].blocks[0]
        return self._expression(list(body.operations)[-1].operands[_result_number(value)], op)

    def _expression(self, value: ir.Value, op: ir.Operation) -> str | None:
        if isinstance(value, ir.BlockArgument):
            source = _operand_of(value, op)
            return self._kind(source) if source is not None and is_float(source) else None
        inner = value.owner.operation
        if inner.name in INT_TO_FLOAT:
            return "int" if self._from_storage(inner.operands[0], op) else None
        if inner.name in FLOAT_CASTS:
            return self._expression(inner.operands[0], op)
        if inner.name == "tensor.extract":  # a broadcast or a flip, spelled with indices
            return self._kind(inner.operands[0])
        if inner.name == "arith.subf":
            return "int" if self._expression(inner.operands[0], op) == "int" else None
        if inner.name == "arith.mulf":
            kinds = [self._expression(operand, op) for operand in inner.operands]
            return "dq" if sorted(map(str, kinds)) == ["None", "int"] else None
        return None

    def _from_storage(self, value: ir.Value, op: ir.Operation) -> bool:
        """Whether an integer in the body of `op` comes from an element of a small integer tensor."""
        if isinstance(value, ir.BlockArgument):
            source = _operand_of(value, op)
            return source is not None and self._integer_storage(source)
        inner = value.owner.operation
        return inner.name in INT_ARITHMETIC and self._from_storage(inner.operands[0], op)

    def _integer_storage(self, value: ir.Value) -> bool:
        """Whether an integer tensor is stored small, or is such a one widened and shifted by a zero point."""
        if is_storage(value):
            return True
        op = defining_op(value)
        if op is None or op.name != "linalg.generic" or not _all_parallel(op):
            return False
        body = op.regions[0].blocks[0]
        return self._from_storage(list(body.operations)[-1].operands[_result_number(value)], op)

    def float_contractions(self, module: ir.Module) -> Iterator[tuple[str, ir.Operation, list[ir.Operation]]]:
        """(kind, op, ops that make it up) of every float multiply-accumulate of two dequantized tensors."""
        for op in walk(module.operation):
            if op.name in ("tosa.matmul", "tosa.conv2d", "tosa.depthwise_conv2d", "tosa.conv3d"):
                if all(self.dequantized(operand) for operand in list(op.operands)[:2]):
                    yield ("contraction" if op.name == "tosa.matmul" else "convolution"), op, [op]
                continue
            if not op.name.startswith("linalg.") or len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
                continue
            found = self._multiply_accumulate(op)
            if found is not None:
                yield found[0], op, found[1]

    def _multiply_accumulate(self, op: ir.Operation) -> tuple[str, list[ir.Operation]] | None:
        addend = _accumulated(op)
        if addend is None:
            return None
        factors = _factors(addend)
        if factors is not None:
            kind = "convolution" if "conv" in op.name else "contraction"
            return (kind, [op]) if self._all_dequantized(factors, op) else None
        # The product may be an elementwise op of its own (matrix x vector, dot product).
        source = _operand_of(addend, op)
        product = defining_op(source) if source is not None else None
        if product is None or product.name != "linalg.generic" or not _all_parallel(product):
            return None
        if op.name != "linalg.generic" or _all_parallel(op):
            return None
        factors = _factors(list(product.regions[0].blocks[0].operations)[-1].operands[0])
        if factors is None or not self._all_dequantized(factors, product):
            return None
        return "contraction", [op, product]

    def _all_dequantized(self, factors: list[ir.Value], op: ir.Operation) -> bool:
        sources = [_operand_of(factor, op) for factor in factors]
        return all(source is not None and self.dequantized(source) for source in sources)

    def output_step(self, value: ir.Value) -> float | None:
        """The scale of the dequantize that makes `value`, where it is one constant; 1 for integers."""
        if not is_float(value):
            return 1.0
        op = defining_op(value)
        while op is not None and LAYOUT_OPS.get(op.name) == 1:
            value = op.operands[0]
            op = defining_op(value)
        if op is None or op.name != "linalg.generic" or not self.dequantized(value):
            return None
        body = op.regions[0].blocks[0]
        product = defining_op(_through_casts(list(body.operations)[-1].operands[_result_number(value)]))
        if product is None or product.name in INT_TO_FLOAT:
            return None if product is None else 1.0
        numbers = [_constant_number(operand, op) for operand in product.operands]
        return next((n for n in numbers if n is not None), None) if product.name == "arith.mulf" else None

    def inner_step(self, value: ir.Value) -> float | None:
        """The largest scale of the dequantizes that `value` comes from by elementwise float ops alone."""
        pending, seen, scales = [value], set(), []
        while pending:
            current = pending.pop()
            op = defining_op(current)
            if current in seen or op is None or op.name in ("arith.constant", "tensor.empty", "linalg.fill"):
                continue
            seen.add(current)
            if self.dequantized(current) and op.name not in LAYOUT_OPS:
                scale = self.output_step(current)
                if scale is None:
                    return None
                scales.append(scale)
            elif op.name in LAYOUT_OPS:
                pending.extend(list(op.operands)[: LAYOUT_OPS[op.name]])
            elif op.name == "linalg.generic" and _all_parallel(op):
                pending.extend(operand for operand in op.operands if isinstance(operand.type, ir.ShapedType))
            else:
                return None
        return max(scales, default=None)


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Every operation nested in `op` outside the bodies of linalg ops."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                if not inner.operation.name.startswith("linalg."):
                    yield from walk(inner.operation)


def _all_parallel(op: ir.Operation) -> bool:
    return "reduction" not in str(op.attributes["iterator_types"])


def _result_number(value: ir.Value) -> int:
    return ir.OpResult(value).result_number


def _operand_of(argument: ir.Value, op: ir.Operation) -> ir.Value | None:
    """The operand that a block argument of a linalg op's body is an element of."""
    argument = _through_casts(argument)
    if not isinstance(argument, ir.BlockArgument) or argument.owner != op.regions[0].blocks[0]:
        return None
    return op.operands[argument.arg_number]


def _through_casts(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    while op is not None and op.name in FLOAT_CASTS:
        value = op.operands[0]
        op = defining_op(value)
    return value


def _factors(value: ir.Value) -> list[ir.Value] | None:
    op = defining_op(_through_casts(value))
    return list(op.operands) if op is not None and op.name == "arith.mulf" else None


def _accumulated(op: ir.Operation) -> ir.Value | None:
    """What the body of a linalg op adds to its output element, if adding to it is all it does at the end."""
    block = op.regions[0].blocks[0]
    operations = list(block.operations)
    if not operations or len(operations[-1].operands) != 1 or len(op.results) != 1:
        return None
    total = defining_op(operations[-1].operands[0])
    if total is None or total.name != "arith.addf":
        return None
    accumulator = list(block.arguments)[-1]
    addends = [operand for operand in total.operands if operand != accumulator]
    return _through_casts(addends[0]) if len(addends) == 1 else None


def _constant_number(value: ir.Value, op: ir.Operation) -> float | None:
    """The one positive number that a scalar in the body of `op` always is."""
    value = _through_casts(value)
    source: ir.Value | None = _operand_of(value, op) if isinstance(value, ir.BlockArgument) else value
    constant = defining_op(source) if source is not None else None
    if constant is None or constant.name != "arith.constant":
        return None
    attribute = constant.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if not isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)):
        return None
    number = float(attribute.value)
    return number if math.isfinite(number) and number > 0 else None


def entry_function(module: ir.Module) -> ir.Operation | None:
    """`main`, or the first function with a body."""
    functions = [
        op.operation
        for op in module.body.operations
        if op.operation.name in ("func.func", "util.func") and len(op.operation.regions[0].blocks)
    ]
    for function in functions:
        if str(function.attributes["sym_name"]).strip('"') == "main":
            return function
    return functions[0] if functions else None


def describe(module: ir.Module) -> dict[str, Any]:
    """Result types, output steps and float contractions of dequantized tensors."""
    inspector = Inspector()
    result: dict[str, Any] = {"result_types": [], "steps": [], "contractions": []}
    function = entry_function(module)
    if function is not None:
        returned = list(list(function.regions[0].blocks[0].operations)[-1].operands)
        result["result_types"] = [str(element_type(value)) for value in returned]
        result["steps"] = [inspector.output_step(value) for value in returned]
        result["inner_steps"] = [inspector.inner_step(value) for value in returned]
    for kind, op, parts in inspector.float_contractions(module):
        result["contractions"].append(
            {"kind": kind, "op": op.name, "locations": [str(part.location) for part in parts]}
        )
    return result


def check_summary(report: dict[str, Any]) -> list[str]:
    """What is wrong with the counts of the report."""
    problems: list[str] = []
    summary = report.get("summary", {})
    counts: dict[str, int] = {}
    for key in ("quantized_compute_ops", "integer_ops", "float_ops_left"):
        counts[key] = summary.get(key)
        if type(counts[key]) is not int or counts[key] < 0:
            problems.append(f"report: summary[{key!r}] is {counts[key]!r}, not a count")
            counts[key] = 0
    for key in ("integer_macs", "quantized_macs"):
        value = summary.get(key, "absent")
        if value is not None and (type(value) is not int or value < 0):
            problems.append(f"report: summary[{key!r}] is {value!r}, neither a count nor null")
    left = counts["quantized_compute_ops"] - counts["integer_ops"]
    explained = len(report.get("missed", []))
    if left < 0:
        problems.append(f"report: more integer_ops than quantized_compute_ops, by {-left}")
    if left > explained:
        problems.append(f"report: {left} quantized ops are not integer, {explained} are explained")
    return problems


def check_report(report: dict[str, Any]) -> list[str]:
    """What is wrong with the report taken by itself."""
    problems = [f"report: no {key!r}" for key in ("summary", "applied", "missed") if key not in report]
    if report.get("version") != 1:
        problems.append(f"report: version is {report.get('version')!r}, not 1")
    problems.extend(check_summary(report))
    required = {
        "applied": ("fusion", "op", "location", "exactness"),
        "missed": ("op", "location", "reason"),
    }
    for group, keys in required.items():
        for entry in report.get(group, []):
            problems.extend(
                f"report: {group} without {key}: {entry.get('op')} at {entry.get('location')}"
                for key in keys
                if not isinstance(entry.get(key), str) or not entry[key].strip()
            )
    return problems


def parse(text: str) -> ir.Module:
    """`text` as a module in a context of its own; unregistered dialects are kept."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    if "tm_tensor." in text:  # no call registers this dialect, but a pass over such ops loads it
        from torch_mlir.dialects.torch import register_dialect

        register_dialect(context)
        with context:
            PassManager.parse("builtin.module(func.func(tm-tensor-bufferize))").run(
                ir.Module.parse("module {}").operation
            )
    return ir.Module.parse(text, context)


def as_json(report: Any) -> dict[str, Any]:
    """The report's JSON form as a dict that has been through JSON."""
    data = report.to_json()
    return dict(json.loads(data) if isinstance(data, str) else json.loads(json.dumps(data)))


def runnable_text(module: ir.Module, plain: str) -> str:
    """`plain`, respelled where IREE would not parse it."""
    if "tosa." in plain:
        return str(module.operation.get_asm(print_generic_op_form=True))
    if NOT_IN_IREE.search(plain):
        copy = parse(plain)
        with copy.context:
            PassManager.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(copy.operation)
        return str(copy)
    return plain


def verifies(module: ir.Module) -> str:
    """Empty, or why the module does not verify."""
    try:
        return "" if module.operation.verify() else "the verifier rejects the module"
    except ir.MLIRError as error:
        return str(error)


def fuse_and_check(text: str, target: str | None, options: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Fuse (unless `target` is None); fill `result`; return the text to run, or None."""
    stage("parse")
    try:
        module = parse(text)
    except ir.MLIRError as error:
        result["status"], result["message"] = "does not parse", str(error)
        return None
    before = str(module)
    stage("inspect")
    result["input"] = describe(module)
    result["exec_text_input"] = runnable_text(module, text) if "tosa." in text else None
    if target is None:
        result["status"] = "ok"
        return None

    stage("import")
    import qfuse

    stage("fuse")
    start = time.perf_counter()
    try:
        report = as_json(qfuse.fuse(module, target=target, **options))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        kinds = [kind.__module__.split(".")[0] for kind in type(error).__mro__]
        result["status"] = "refused" if "qfuse" in kinds else "traceback"
        result["message"] = f"{type(error).__name__}: {error}"
        result["traceback"] = traceback.format_exc()
        if str(module) != before:
            result["problems"].append("fuse() raised and left the module changed")
        return None
    result["seconds"] = time.perf_counter() - start
    result["report"] = report
    stage("verify")
    failure = verifies(module)
    if failure:
        result["status"], result["message"] = "does not verify", failure
        return None
    stage("print")
    after = str(module)
    result["unchanged"] = before == after
    result["problems"].extend(check_report(report))
    if before != after and not report.get("applied"):
        result["problems"].append("the module changed, but nothing is reported as applied")
    stage("inspect fused")
    result["remaining"] = explain_remaining(module, report)
    stage("second fuse")
    result["problems"].extend(fuse_again(module, after, target, options))
    stage("reparse")
    try:
        module = parse(after)
    except ir.MLIRError as error:
        result["status"] = "does not verify"
        result["message"] = f"the printed module does not parse: {error}"
        return None
    stage("respell")
    executable = runnable_text(module, after)
    result["status"] = "ok"
    return executable


def explain_remaining(module: ir.Module, report: dict[str, Any]) -> list[dict[str, Any]]:
    """The float contractions left in the fused module, each with where the report mentions it."""
    applied = _line_columns(report.get("applied", []))
    missed = _line_columns(report.get("missed", []))
    remaining: list[dict[str, Any]] = describe(module)["contractions"]
    for entry in remaining:
        keys = frozenset().union(*(location_key(location) for location in entry["locations"]))
        entry["status"] = "missed" if keys & missed else "applied" if keys & applied else "unexplained"
    return remaining


def fuse_again(module: ir.Module, text: str, target: str, options: dict[str, Any]) -> list[str]:
    """What a second fuse() does to a module that prints as `text`, which should be nothing."""
    import qfuse

    problems: list[str] = []
    try:
        applied = as_json(qfuse.fuse(module, target=target, **options)).get("applied")
        if applied != []:
            names = sorted({str(entry.get("fusion")) for entry in applied or []})
            problems.append(f"a second fuse() applies more: {len(applied or [])} x {', '.join(names)}")
        if str(module) != text:
            problems.append("a second fuse() changes the text")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        problems.append(f"a second fuse() raises: {type(error).__name__}: {error}")
    return problems


def parse_option(text: str) -> tuple[str, Any]:
    """`k=v`, with numbers and true / false as such."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"expected k=v, got {text!r}")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value


def main(argv: list[str]) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description="Fuse one module and check the result.")
    parser.add_argument("module", type=Path)
    parser.add_argument("fused", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--target", default="linalg")
    parser.add_argument("--option", action="append", default=[], type=parse_option, metavar="K=V")
    parser.add_argument("--inspect-only", action="store_true", help="do not fuse, only describe the module")
    arguments = parser.parse_args(argv)
    sys.setrecursionlimit(20000)
    result: dict[str, Any] = {"status": "", "message": "", "problems": []}
    target = None if arguments.inspect_only else arguments.target
    executable = fuse_and_check(arguments.module.read_text(), target, dict(arguments.option), result)
    if executable is not None:
        arguments.fused.write_text(executable)
    arguments.result.write_text(json.dumps(result))
    stage("end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
