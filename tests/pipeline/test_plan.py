"""`plan` changes nothing, says what `fuse` would do, and the two agree."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import pytest

import qfuse
from qfuse._mlir import Bindings
from tests.conftest import Parse
from tests.pipeline import samples

MODULES = {
    "linear": samples.LINEAR,
    "per-axis": samples.PER_AXIS,
    "weight-only": samples.WEIGHT_ONLY,
    "float-only": samples.FLOAT_ONLY,
    "contradiction": samples.module(samples.linear_function(low=0, high=255)),
}


def with_locations(module: Any) -> str:
    """The text of a module, its source locations included."""
    return module.operation.get_asm(enable_debug_info=True)


@pytest.mark.parametrize("name", list(MODULES))
def test_plan_leaves_the_module_as_it_was(name: str, each_bindings: Bindings) -> None:
    """Byte for byte, with locations, in each binding."""
    module = each_bindings.parse_source(MODULES[name], "test.mlir")
    before = with_locations(module)
    plan = qfuse.plan(module)
    str(plan), plan.to_json(), plan.graph()
    assert with_locations(module) == before


@pytest.mark.parametrize("name", list(MODULES))
def test_plan_and_fuse_agree(name: str, parse: Parse) -> None:
    """The report of the run is the one of the plan, also when the plan was made on the same module before."""
    module = parse(MODULES[name])
    planned = qfuse.plan(module)
    text, data = str(planned), planned.to_json()
    report = qfuse.fuse(module)
    assert report.to_json() == data
    assert str(report) == text


def test_planning_twice_gives_the_same(parse: Parse) -> None:
    """A plan has no effect on the next one."""
    module = parse(samples.LINEAR)
    assert qfuse.plan(module).to_json() == qfuse.plan(module).to_json()


def test_a_printed_plan_names_target_counts_fusions_and_places(parse: Parse) -> None:
    """What a person reads."""
    lines = str(qfuse.plan(parse(samples.LINEAR))).splitlines()
    assert lines[0] == "target linalg"
    assert lines[1] == "quantized compute operations: 1, of these in integers: 1; float operations left: 0"
    assert lines[2] == "multiply-accumulates in integers: 64 of 64"
    assert lines[3] == "applied (2):"
    assert "qfuse.contraction  linalg.matmul" in lines[4]
    assert "qfuse.requantize  linalg.generic" in lines[5]


def test_a_printed_plan_gives_reason_and_remedy_of_a_miss(parse: Parse) -> None:
    """What a person reads when nothing is fused."""
    lines = str(qfuse.plan(parse(samples.WEIGHT_ONLY))).splitlines()
    assert "missed (1):" in lines
    assert lines[-2].endswith("linalg.matmul: operand 0 (lhs) is not dequantized")
    assert lines[-1].startswith("      to fuse it: ")


def test_the_plan_is_json_data(parse: Parse) -> None:
    """Nothing in it needs a custom encoder."""
    data = qfuse.plan(parse(samples.LINEAR)).to_json()
    assert json.loads(json.dumps(data)) == data


def test_the_graph_has_one_node_an_operation_and_edges_along_values(parse: Parse) -> None:
    """dequantize, dequantize -> contraction -> quantize, with fusion ids and locations."""
    graph = qfuse.plan(parse(samples.LINEAR)).graph()
    assert type(graph) is nx.DiGraph
    assert nx.is_directed_acyclic_graph(graph)
    kinds = nx.get_node_attributes(graph, "kind")
    assert sorted(kinds.values()) == ["Contraction", "Dequantize", "Dequantize", "Quantize"]
    assert sorted((kinds[a], kinds[b]) for a, b in graph.edges) == [
        ("Contraction", "Quantize"),
        ("Dequantize", "Contraction"),
        ("Dequantize", "Contraction"),
    ]
    for _, data in graph.nodes(data=True):
        assert set(data) == {"kind", "op", "location", "fusion", "reason"}
        assert data["reason"] is None
        assert data["fusion"].startswith("qfuse.")
        assert data["location"].count(":") == 2


def test_the_graph_holds_the_reason_of_a_miss(parse: Parse) -> None:
    """A node without a fusion says why."""
    graph = qfuse.plan(parse(samples.WEIGHT_ONLY)).graph()
    missed = [data for _, data in graph.nodes(data=True) if data["kind"] == "Contraction"]
    assert [(data["fusion"], data["reason"]) for data in missed] == [(None, "operand 0 (lhs) is not dequantized")]


def test_the_graph_of_a_module_without_functions_is_empty(parse: Parse) -> None:
    """Nothing to recognise is no error."""
    plan = qfuse.plan(parse("module {}"))
    assert len(plan.graph()) == 0
    assert "it is unchanged" in str(plan)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "linlag"}, "unknown target 'linlag': did you mean 'linalg'? known are "),
        ({"speling": "named"}, "unknown option 'speling': did you mean 'spelling'? known are "),
        ({"spelling": "pretty"}, "option spelling takes one of generic, named, got 'pretty'"),
        ({"max_reduction": "many"}, "option max_reduction takes a positive integer, got 'many'"),
        ({"max_reduction": 0}, "option max_reduction takes a positive integer, got 0"),
        ({"fusions": "qfuse.contracton"}, "unknown fusion 'qfuse.contracton': did you mean 'qfuse.contraction'?"),
        ({"disable": ["nothing.like-it"]}, "unknown fusion 'nothing.like-it': known are qfuse.argmax, "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_usage_is_refused_and_lists_the_known(arguments: dict[str, Any], message: str, parse: Parse) -> None:
    """`plan`, `fuse` and `as_pass` alike; the module stays as it was."""
    module = parse(samples.LINEAR)
    before = with_locations(module)
    for entrance in (lambda **k: qfuse.plan(module, **k), lambda **k: qfuse.fuse(module, **k), qfuse.as_pass):
        with pytest.raises(qfuse.UsageError) as caught:
            entrance(**arguments)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert with_locations(module) == before
