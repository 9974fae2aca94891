"""Command line: `qfuse-opt` rewrites a module, `qfuse` lists what is installed.

Exit codes: 0 done, 1 the input cannot be worked on (one line on stderr), 2 wrong usage (unknown target, option, ...).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from qfuse._mlir import PACKAGES, Bindings, Module
from qfuse.errors import QfuseError, UsageError
from qfuse.pipeline import fuse
from qfuse.policy import explained
from qfuse.registry import FusionRegistry
from qfuse.report import Report


def opt_main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `qfuse-opt`; returns the exit code."""
    return _run("qfuse-opt", _opt_parser(), _opt, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `qfuse`; returns the exit code."""
    return _run("qfuse", _main_parser(), _list, arguments)


def _run(name: str, parser: argparse.ArgumentParser, command: Any, arguments: Sequence[str] | None) -> int:
    parsed = parser.parse_args(arguments)
    try:
        command(parsed)
    except UsageError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except QfuseError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"{name}: error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _opt_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("qfuse-opt", description="Fuses the quantization of an MLIR module.")
    parser.add_argument("input", metavar="INPUT", help="module as text or bytecode; - is standard input")
    parser.add_argument("-o", "--output", default="-", metavar="OUTPUT", help="where to write it; - is standard output")
    parser.add_argument("--target", default="linalg", metavar="NAME", help="see `qfuse list targets`, or a TOML file")
    parser.add_argument("--option", action="append", default=[], metavar="K=V", help="an option of qfuse.fuse")
    parser.add_argument("--fusions", metavar="A,B", help="use these fusions only; see `qfuse list fusions`")
    parser.add_argument("--disable", metavar="A,B", help="do not use these fusions")
    parser.add_argument("--report", metavar="FILE", help="write the report as JSON; - is standard output")
    parser.add_argument("--remarks", action="store_true", help="print a line for every fusion and every miss on stderr")
    parser.add_argument("--explain-cost", action="store_true", help="print what each region costs, on stderr")
    parser.add_argument("--strict", action="store_true", help="refuse operations of dialects that are not registered")
    parser.add_argument("--emit-bytecode", action="store_true", help="write bytecode instead of text")
    parser.add_argument("--binding", choices=PACKAGES, help="MLIR package to use (default: the first installed)")
    return parser


def _opt(arguments: argparse.Namespace) -> None:
    if arguments.report == "-" and arguments.output == "-":
        raise UsageError("the module and the report cannot both go to standard output")
    bindings = _bindings(arguments.binding)
    module = _read(bindings, arguments.input, allow_unregistered=not arguments.strict)
    options = _options(arguments)
    report = fuse(module, arguments.target, **options)
    _write_module(module, arguments.output, arguments.emit_bytecode)
    _tell(report, arguments)


def _bindings(package: str | None) -> Bindings:
    if package is None:
        return Bindings.first_available()
    try:
        return Bindings(package)
    except ImportError as error:
        raise UsageError(f"binding {package} is not installed: {error}") from None


def _read(bindings: Bindings, path: str, *, allow_unregistered: bool) -> Module:
    if path == "-":
        data = sys.stdin.buffer.read()
        return bindings.parse_source(data, "<stdin>", allow_unregistered=allow_unregistered)
    with open(path, "rb") as file:  # what cannot be read raises here
        data = None if os.path.isfile(path) else file.read()  # a pipe is read once
    if data is None:
        return bindings.parse_file(path, allow_unregistered=allow_unregistered)
    return bindings.parse_source(data, path, allow_unregistered=allow_unregistered)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, str] = {}
    for pair in arguments.option:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--option takes NAME=VALUE, got {pair!r}")
        if name in given:
            raise UsageError(f"--option {name} is given twice")
        given[name] = value
    options: dict[str, Any] = {"workload": arguments.report is not None, **given}
    if arguments.explain_cost:
        options["explain_cost"] = True
    for name in ("fusions", "disable"):
        names: str | None = getattr(arguments, name)
        if names is None:
            continue
        if not names.strip(" ,"):
            raise UsageError(f"--{name} takes names of fusions, got {names!r}")
        options[name] = names
    return options


def _write_module(module: Module, path: str, bytecode: bool) -> None:
    if not bytecode:
        text = str(module)
        if path == "-":
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else text + "\n")
        return
    if path == "-":
        module.operation.write_bytecode(sys.stdout.buffer)
        return
    with open(path, "wb") as binary:
        module.operation.write_bytecode(binary)


def _tell(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.remarks:
        for line in report.remarks():
            print(line, file=sys.stderr)
    elif not report.quantization_found or report.problems:
        for line in report.remarks()[: len(report.problems) + (not report.quantization_found)]:
            print(line, file=sys.stderr)
    if arguments.explain_cost:
        for line in explained(report.cost, report.policy):
            print(line, file=sys.stderr)
    if arguments.report is None:
        return
    text = json.dumps(report.to_json(), indent=2) + "\n"
    if arguments.report == "-":
        sys.stdout.write(text)
        return
    with open(arguments.report, "w", encoding="utf-8") as file:
        file.write(text)


def _main_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("qfuse", description="What is installed. To rewrite a module use qfuse-opt.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser(
        "list",
        help="fusions with owner, nodes and exactness, or targets with owner and emitter; one line of description",
    )
    listing.add_argument("kind", choices=("fusions", "targets"))
    listing.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _list(arguments: argparse.Namespace) -> None:
    registry = FusionRegistry.discover()
    rows: list[dict[str, Any]] = []
    if arguments.kind == "fusions":
        for f in registry.fusions:
            matches, exactness = [n.__name__ for n in f.nodes], list(f.exactness)
            facts = {"name": f.id, "owner": registry.owner(f.id), "benefit": f.benefit}
            rows.append({**facts, "matches": matches, "exactness": exactness, "doc": f.doc})
    else:
        for t in registry.targets:
            rows.append({"name": t.name, "owner": registry.owner(t.name), "emitter": t.emitter, "doc": t.doc})
    for problem in registry.problems:
        print(f"qfuse: warning: {problem}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    shown = [[_cell(row[key]) for key in row if key not in ("benefit", "doc")] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row, cells in zip(rows, shown, strict=True):
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), row["doc"], sep="  ")


def _cell(value: str | list[str]) -> str:
    """A field of a listing as one word."""
    return value if isinstance(value, str) else ",".join(value) or "-"


if __name__ == "__main__":
    sys.exit(opt_main())
