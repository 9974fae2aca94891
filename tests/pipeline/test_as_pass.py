"""`as_pass` in a PassManager: on modules and on functions, between other passes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import qfuse
from qfuse._mlir import Bindings
from tests.pipeline import samples

FUNCTIONS = ("f", "g", "h")
MODULE = samples.module(*(samples.linear_function(name) for name in FUNCTIONS))


def pass_manager(bindings: Bindings, anchor: str) -> Any:
    """A PassManager of the same package; to be used inside the module's context."""
    return importlib.import_module(f"{bindings.package}.passmanager").PassManager(anchor)


def functions_of(module: Any) -> list[Any]:
    """The operations of a module."""
    return [op.operation for op in module.body.operations]


@pytest.mark.parametrize("anchor", ["any", "builtin.module"])
def test_a_pass_on_the_module_fuses_every_function(anchor: str, each_bindings: Bindings) -> None:
    """One report for the whole module."""
    module = each_bindings.parse_source(MODULE, "test.mlir")
    fuse_pass = qfuse.as_pass()
    with module.context:
        manager = pass_manager(each_bindings, anchor)
        manager.add(fuse_pass, "qfuse", "qfuse", "fuses quantization")
        manager.run(module.operation)
    (report,) = fuse_pass.reports
    assert report.summary["integer_ops"] == len(FUNCTIONS)
    assert {entry["function"] for entry in report.applied} == set(FUNCTIONS)
    assert module.operation.verify()
    assert "linalg.matmul" not in str(module)


def test_a_pass_on_functions_gives_a_report_each(each_bindings: Bindings) -> None:
    """Run on `func.func` operations; the other functions stay as they were until it is their turn."""
    module = each_bindings.parse_source(MODULE, "test.mlir")
    fuse_pass = qfuse.as_pass()
    with module.context:
        manager = pass_manager(each_bindings, "func.func")
        manager.add(fuse_pass, "qfuse")
        functions = functions_of(module)
        last = str(functions[-1])
        manager.run(functions[0])
        assert str(functions[-1]) == last
        for function in functions[1:]:
            manager.run(function)
    assert [{entry["function"] for entry in r.applied} for r in fuse_pass.reports] == [{name} for name in FUNCTIONS]
    assert module.operation.verify()


def test_functions_and_the_whole_module_give_the_same_text(each_bindings: Bindings) -> None:
    """Where the pass is anchored makes no difference."""
    whole = each_bindings.parse_source(MODULE, "test.mlir")
    parts = each_bindings.parse_source(MODULE, "test.mlir")
    qfuse.fuse(whole)
    for function in functions_of(parts):
        qfuse.fuse(function)
    assert str(parts) == str(whole)


def test_between_canonicalize_and_cse(each_bindings: Bindings) -> None:
    """Shared and hoisted constants before, clean-up after: the same contractions are fused, and the IR verifies."""
    module = each_bindings.parse_source(MODULE, "test.mlir")
    fuse_pass = qfuse.as_pass()
    with module.context:
        manager = pass_manager(each_bindings, "builtin.module")
        manager.add("func.func(canonicalize,cse)")
        manager.add(fuse_pass, "qfuse")
        manager.add("func.func(canonicalize,cse)")
        manager.run(module.operation)
    (report,) = fuse_pass.reports
    assert report.summary["integer_ops"] == len(FUNCTIONS)
    assert report.missed == []
    assert module.operation.verify()
    assert qfuse.fuse(module).applied == []


def test_a_pass_twice_in_a_pipeline_applies_nothing_the_second_time(each_bindings: Bindings) -> None:
    """Reports are collected in order."""
    module = each_bindings.parse_source(MODULE, "test.mlir")
    fuse_pass = qfuse.as_pass()
    with module.context:
        manager = pass_manager(each_bindings, "builtin.module")
        manager.add(fuse_pass, "qfuse")
        manager.add("func.func(canonicalize,cse)")
        manager.add(fuse_pass, "qfuse-again")
        manager.run(module.operation)
    first, second = fuse_pass.reports
    assert len(first.applied) == 2 * len(FUNCTIONS)
    assert second.applied == []


def test_target_and_options_reach_the_run(each_bindings: Bindings) -> None:
    """Here the spelling: a named operation instead of a generic."""
    module = each_bindings.parse_source(MODULE, "test.mlir")
    fuse_pass = qfuse.as_pass(target="iree-cpu", spelling="named")
    with module.context:
        manager = pass_manager(each_bindings, "builtin.module")
        manager.add(fuse_pass, "qfuse")
        manager.run(module.operation)
    assert fuse_pass.reports[0].target == "iree-cpu"
    assert "linalg.quantized_matmul" in str(module) or "linalg.matmul" in str(module)
    assert "arith.bitcast" in str(module)


def test_wrong_options_raise_before_any_pipeline_runs() -> None:
    """At the call, not in the middle of a pipeline."""
    with pytest.raises(qfuse.UsageError, match="unknown option 'speling'"):
        qfuse.as_pass(speling="named")
    with pytest.raises(qfuse.UsageError, match="unknown target 'nowhere'"):
        qfuse.as_pass(target="nowhere")
    with pytest.raises(qfuse.UsageError, match=r"unknown fusion 'qfuse\.none'"):
        qfuse.as_pass(disable="qfuse.none")


def test_an_unknown_emitter_raises_at_once() -> None:
    """A target's emitter is looked up like everything else."""
    with pytest.raises(qfuse.UsageError, match="unknown emitter 'acme'"):
        qfuse.as_pass(target=qfuse.Target("toy", emitter="acme"))


def test_an_exception_in_a_fusion_reaches_the_caller_of_run(each_bindings: Bindings) -> None:
    """With its own type, and with the module as it was."""

    class Broken(qfuse.Fusion):
        id = "test.broken"
        benefit = 2000

        def match(self, node: Any) -> bool:
            raise ZeroDivisionError

    module = each_bindings.parse_source(MODULE, "test.mlir")
    before = str(module)
    fuse_pass = qfuse.as_pass(registry=qfuse.FusionRegistry.discover().with_(Broken()))
    with module.context:
        manager = pass_manager(each_bindings, "builtin.module")
        manager.add(fuse_pass, "qfuse")
        with pytest.raises(ZeroDivisionError):
            manager.run(module.operation)
    assert str(module) == before
    assert fuse_pass.reports == []
