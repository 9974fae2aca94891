"""The same module is fused alike as an object of every installed MLIR binding."""

from __future__ import annotations

from typing import Any

import pytest

import qfuse
from qfuse._mlir import PACKAGES, Bindings
from tests.pipeline import samples

MODULES = {
    "linear": samples.LINEAR,
    "unsigned": samples.module(
        samples.linear_function(low=0, high=255, cast="arith.fptoui", zero_point=7),
    ),
    "per-axis": samples.PER_AXIS,
    "weight-only": samples.WEIGHT_ONLY,
    "float-only": samples.FLOAT_ONLY,
    "two-functions": samples.module(samples.linear_function("f"), samples.linear_function("g", scale="0.75")),
}


def generic_form(module: Any) -> str:
    """The text in generic form, which every binding parses, whatever its custom syntax is."""
    return module.operation.get_asm(print_generic_op_form=True)


def fused(package: str, text: str, **options: Any) -> tuple[Any, qfuse.Report]:
    """`text` parsed and fused in a binding; the module verifies."""
    bindings = Bindings(package)
    module = bindings.parse_source(text, "test.mlir")
    report = qfuse.fuse(module, **options)
    assert module.operation.verify()
    return module, report


@pytest.mark.parametrize("spelling", ["generic", "named"])
@pytest.mark.parametrize("name", list(MODULES))
def test_both_wheels_give_the_same_module_and_report(name: str, spelling: str) -> None:
    """torch-mlir's result, reparsed by IREE, prints like IREE's own; the reports are equal."""
    pytest.importorskip("iree.compiler.ir")
    of_torch, torch_report = fused("torch_mlir", MODULES[name], spelling=spelling)
    of_iree, iree_report = fused("iree.compiler", MODULES[name], spelling=spelling)
    reparsed = Bindings("iree.compiler").parse_source(generic_form(of_torch), "test.mlir")
    assert generic_form(reparsed) == generic_form(of_iree)
    assert torch_report.to_json() == iree_report.to_json()


@pytest.mark.parametrize("name", list(MODULES))
def test_the_plain_mlir_binding_gives_the_same_report(name: str) -> None:
    """Any package called `mlir` serves, when one is installed."""
    pytest.importorskip("mlir.ir", reason="no plain mlir package is installed")
    _, plain_report = fused("mlir", MODULES[name])
    _, torch_report = fused("torch_mlir", MODULES[name])
    assert plain_report.to_json() == torch_report.to_json()


@pytest.mark.parametrize("package", ["torch_mlir", "iree.compiler"])
def test_modules_operations_and_functions_lead_to_their_package(package: str) -> None:
    """`Bindings.of` takes a Module, an Operation and an OpView."""
    pytest.importorskip(f"{package}.ir")
    module = Bindings(package).parse_source(samples.LINEAR, "test.mlir")
    function = module.body.operations[0]
    for thing in (module, module.operation, function, function.operation):
        assert Bindings.of(thing).package == package


@pytest.mark.parametrize("thing", [None, 3, "module {}", b"ML\xefR", object(), int, [1]], ids=repr)
def test_objects_of_no_binding_are_refused_with_the_known_packages(thing: object) -> None:
    """The message names what is known and what was given."""
    for entrance in (Bindings.of, qfuse.plan, qfuse.fuse):
        with pytest.raises(qfuse.InputError) as caught:
            entrance(thing)
        message = str(caught.value)
        assert all(package in message for package in PACKAGES)
        assert type(thing).__name__ in message
        assert "\n" not in message


def test_modules_of_two_wheels_are_fused_in_one_process_in_turn() -> None:
    """Nothing is kept from one binding to the next."""
    pytest.importorskip("iree.compiler.ir")
    texts = [str(fused(package, samples.LINEAR)[0]) for package in ("torch_mlir", "iree.compiler") * 2]
    assert texts[0] == texts[2]
    assert texts[1] == texts[3]


def test_a_function_is_fused_without_its_neighbours() -> None:
    """`fuse` on a `func.func` leaves the other functions of the module as they were."""
    module = Bindings("torch_mlir").parse_source(MODULES["two-functions"], "test.mlir")
    first, second = module.body.operations
    before = str(second)
    report = qfuse.fuse(first)
    assert str(second) == before
    assert {entry["function"] for entry in report.applied} == {"f"}
    assert module.operation.verify()
