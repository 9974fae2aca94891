"""The public names and signatures of qfuse equal the list in public_api.txt.

A difference is no mistake as such; it is a decision about the library's users. To accept it, write the list
anew with

    python tests/api/test_public_api.py --update

and commit it together with the change and a line in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PUBLIC_MODULES = ("qfuse",)
MANIFEST = Path(__file__).with_name("public_api.txt")
UPDATE_COMMAND = "python tests/api/test_public_api.py --update"

HEADER = f"""\
# The public names of qfuse, one a line. Compared with the package by tests/api/test_public_api.py.
# Written by: {UPDATE_COMMAND}
"""

_LITERALS = (bool, int, float, str, bytes, type(None), enum.Enum)


def describe_package() -> list[str]:
    """One line for each public name and member, sorted."""
    lines: set[str] = set()
    for module_name in PUBLIC_MODULES:
        lines.update(_describe_module(importlib.import_module(module_name)))
    return sorted(lines)


def _describe_module(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        yield from _describe(f"{module.__name__}.{name}", getattr(module, name))


def _describe(path: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _describe_class(path, value)
    elif inspect.isroutine(value):
        yield f"{path}{_signature(value)}"
    elif inspect.ismodule(value):
        yield f"{path}: module"
    else:
        yield f"{path}: {type(value).__name__}"


def _describe_class(path: str, cls: type) -> Iterator[str]:
    yield f"{path}: class{_bases(cls)}"
    if issubclass(cls, enum.Enum):
        yield from (f"{path}.{name} = {member.value!r}" for name, member in cls.__members__.items())
    for name, member in _own_members(cls).items():
        if not (issubclass(cls, enum.Enum) and name in cls.__members__):
            yield from _describe_member(f"{path}.{name}", member)
    for name, annotation in _own_annotations(cls).items():
        yield f"{path}.{name}: {annotation}"


def _describe_member(path: str, member: object) -> Iterator[str]:
    if isinstance(member, property):
        yield f"{path}: property{_returns(member.fget)}"
    elif isinstance(member, functools.cached_property):
        yield f"{path}: property{_returns(member.func)}"
    elif isinstance(member, (classmethod, staticmethod)):
        yield f"{path}{_signature(member.__func__)} [{type(member).__name__}]"
    elif inspect.isroutine(member):
        yield f"{path}{_signature(member)}"
    elif inspect.isclass(member):
        yield from _describe_class(path, member)


def _bases(cls: type) -> str:
    names = [base.__name__ for base in cls.__bases__ if base is not object]
    return f"({', '.join(names)})" if names else ""


def _own_classes(cls: type) -> list[type]:
    """The class and those of its bases that the same distribution defines, base first."""
    package = cls.__module__.partition(".")[0]
    return [base for base in reversed(cls.__mro__) if base.__module__.partition(".")[0] == package]


def _own_members(cls: type) -> dict[str, object]:
    """Public members and the constructor. A constructor taken over from outside is not ours to state."""
    members: dict[str, object] = {}
    for owner in _own_classes(cls):
        members.update(vars(owner))
    is_callable_class = not issubclass(cls, enum.Enum) and not getattr(cls, "_is_protocol", False)
    shown = {"__init__", "__call__"} if is_callable_class else {"__call__"}
    return {name: member for name, member in members.items() if name in shown or not name.startswith("_")}


def _own_annotations(cls: type) -> dict[str, str]:
    """Dataclass fields, protocol attributes and annotated class attributes, with what they hold."""
    annotations: dict[str, str] = {}
    for owner in _own_classes(cls):
        for name, annotation in inspect.get_annotations(owner).items():
            if not name.startswith("_"):
                annotations[name] = _annotation(annotation)
    return annotations


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _returns(function: object) -> str:
    if not callable(function):
        return ""
    annotation = inspect.signature(function).return_annotation
    return "" if annotation is inspect.Signature.empty else f" -> {_annotation(annotation)}"


def _signature(function: object) -> str:
    """A signature that prints the same on every supported Python: no quotes, no addresses in defaults."""
    assert callable(function)
    signature = inspect.signature(function)
    parameters: list[str] = []
    seen_star = False
    previous_kind = None
    for parameter in signature.parameters.values():
        if previous_kind is inspect.Parameter.POSITIONAL_ONLY and parameter.kind is not previous_kind:
            parameters.append("/")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not seen_star:
            parameters.append("*")
            seen_star = True
        seen_star |= parameter.kind is inspect.Parameter.VAR_POSITIONAL
        previous_kind = parameter.kind
        parameters.append(_parameter(parameter))
    if previous_kind is inspect.Parameter.POSITIONAL_ONLY:
        parameters.append("/")
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    return f"({', '.join(parameters)}){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    is_annotated = parameter.annotation is not inspect.Parameter.empty
    if is_annotated:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    return f"{text} = {_default(parameter.default)}" if is_annotated else f"{text}={_default(parameter.default)}"


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, _LITERALS):
        return repr(value)
    if isinstance(value, tuple) and all(isinstance(item, _LITERALS) for item in value):
        items = [_default(item) for item in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    return "..."


def read_manifest() -> list[str]:
    """The checked-in lines, without the comments."""
    if not MANIFEST.exists():
        return []
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_public_names_and_signatures_equal_the_checked_in_list() -> None:
    difference = list(
        difflib.unified_diff(read_manifest(), describe_package(), MANIFEST.name, "qfuse", lineterm="", n=0)
    )
    assert not difference, "\n".join([*difference, "", f"to accept the change: {UPDATE_COMMAND}"])


def test_every_public_name_exists_once_and_is_documented() -> None:
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        assert len(set(module.__all__)) == len(module.__all__), f"{module_name}.__all__ names something twice"
        for name in module.__all__:
            value = getattr(module, name)
            has_docstring = bool(inspect.getdoc(value))
            needs_docstring = inspect.isclass(value) or inspect.isroutine(value)
            assert has_docstring or not needs_docstring, f"{module_name}.{name} has no docstring"


class _Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class _Sample:
    size: int
    colour: _Colour = _Colour.RED
    parts: list[int] = dataclasses.field(default_factory=list)

    @property
    def area(self) -> int:
        return self.size**2

    @classmethod
    def parse(cls, text: str, /, *, strict: bool = False) -> _Sample:
        raise NotImplementedError

    def _hidden(self) -> None: ...


def test_the_description_shows_members_and_hides_private_ones() -> None:
    assert list(_describe("p.Sample", _Sample)) == [
        "p.Sample: class",
        "p.Sample.area: property -> int",
        "p.Sample.parse(cls, text: str, /, *, strict: bool = False) -> _Sample [classmethod]",
        "p.Sample.__init__(self, size: int, colour: _Colour = _Colour.RED, parts: list[int] = ...) -> None",
        "p.Sample.size: int",
        "p.Sample.colour: _Colour",
        "p.Sample.parts: list[int]",
    ]
    assert list(_describe("p.Colour", _Colour)) == ["p.Colour: class(Enum)", "p.Colour.RED = 'red'"]


def main(arguments: list[str] | None = None) -> int:
    """Print the description of the package, or write it to the manifest."""
    parser = argparse.ArgumentParser(description="Describe the public names of qfuse.")
    parser.add_argument("--update", action="store_true", help=f"write {MANIFEST.name} instead of printing")
    options = parser.parse_args(arguments)
    text = HEADER + "".join(f"{line}\n" for line in describe_package())
    if options.update:
        MANIFEST.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
