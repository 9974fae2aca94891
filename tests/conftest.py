"""What tests of several folders share: IR text parsed in a binding, and the nodes that are recognised in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from qfuse._mlir import Bindings
from qfuse.matchers.nodes import Node
from qfuse.matchers.recognizer import Recognizer

# A loaded machine is no failure, and a run of CI is like the last one.
settings.register_profile("qfuse", deadline=None, derandomize=True)
settings.load_profile("qfuse")

Parse: TypeAlias = Callable[..., Any]
Recognize: TypeAlias = Callable[..., list[Node]]


@pytest.fixture(scope="session")
def torch_bindings() -> Bindings:
    """The bindings of the torch-mlir wheel."""
    return Bindings("torch_mlir")


@pytest.fixture(scope="session")
def iree_bindings() -> Bindings:
    """The bindings of the IREE compiler wheel."""
    return pytest.importorskip("iree.compiler.ir") and Bindings("iree.compiler")


@pytest.fixture(params=["torch_mlir", "iree.compiler"])
def each_bindings(request: pytest.FixtureRequest) -> Bindings:
    """Both wheels' bindings, one after the other."""
    pytest.importorskip(f"{request.param}.ir")
    return Bindings(request.param)


@pytest.fixture(scope="session")
def parse(torch_bindings: Bindings) -> Parse:
    """`parse(text, bindings=...)`: a verified module of torch-mlir's binding, or of the one that is given.

    The returned module must be kept as long as its operations are used.
    """

    def parse_text(text: str, bindings: Bindings = torch_bindings) -> Any:
        module = bindings.parse_source(text, "test.mlir")
        bindings.verify(module.operation)
        return module

    return parse_text


@pytest.fixture
def recognize(parse: Parse) -> Recognize:
    """`recognize(text, bindings=...)`: the nodes of a module, in the order of its operations."""
    kept: list[Any] = []

    def recognize_text(text: str, bindings: Bindings | None = None) -> list[Node]:
        module = parse(text) if bindings is None else parse(text, bindings)
        kept.append(module)
        owner = Bindings.of(module)
        recognizer = Recognizer(owner)
        found = [recognizer.node(op.operation) for block in owner.blocks(module.operation) for op in block.operations]
        return [node for node in found if node is not None]

    return recognize_text
