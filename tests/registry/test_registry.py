"""`FusionRegistry`: names are unique, choices give new registries, broken plugins do not take the rest down."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import qfuse
from qfuse import builtin
from qfuse import registry as registry_module
from qfuse.emit.iree import IreeEmitter
from qfuse.emit.linalg import LinalgEmitter
from qfuse.graph import Decision, Environment, Refusal
from qfuse.matchers.nodes import Node
from tests.conftest import Parse
from tests.cost import zoo
from tests.pipeline import samples

BUILT_IN = sorted(fusion.id for fusion in builtin.fusions())
TARGETS = sorted(target.name for target in builtin.targets())
KNOWN_TARGETS = ", ".join(TARGETS)


class Silent(qfuse.Fusion):
    """Matches nothing."""

    def __init__(self, name: str, benefit: int = 1) -> None:
        """A fusion of this id."""
        self.id = name
        self.benefit = benefit

    def match(self, node: Node) -> bool:
        """Never."""
        return False

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Never asked."""
        raise AssertionError


class Distribution:
    """As much of a distribution as the registry asks for."""

    def __init__(self, name: str) -> None:
        """Of this name."""
        self.name = name


def entry(name: str, distribution: str, load: Callable[[], Any]) -> Any:
    """An entry point whose `load()()` is `load()`."""

    class Point:
        dist = Distribution(distribution)

        def load(self) -> Callable[[], Any]:
            return load

    point = Point()
    point.name = name  # type: ignore[attr-defined]
    return point


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., qfuse.FusionRegistry]:
    """`installed(fusions=[...], targets=[...])`: discovers the built-ins and these entry points."""
    original = registry_module.entry_points

    def discover(fusions: Iterable[Any] = (), targets: Iterable[Any] = ()) -> qfuse.FusionRegistry:
        extra = {registry_module.FUSIONS_GROUP: list(fusions), registry_module.TARGETS_GROUP: list(targets)}

        def points(*, group: str) -> list[EntryPoint]:
            return [*original(group=group), *extra.get(group, [])]

        monkeypatch.setattr(registry_module, "entry_points", points)
        return qfuse.FusionRegistry.discover()

    return discover


def ids(registry: qfuse.FusionRegistry) -> list[str]:
    """The ids of a registry's fusions, sorted."""
    return sorted(fusion.id for fusion in registry.fusions)


# -- what is installed ---------------------------------------------------------------------------------------------


def test_the_built_ins_come_through_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without entry points there is nothing."""
    registry = qfuse.FusionRegistry.discover()
    assert ids(registry) == BUILT_IN
    assert [target.name for target in registry.targets] == TARGETS
    assert {registry.owner(name) for name in (*BUILT_IN, *TARGETS)} == {"qfuse"}
    assert registry.problems == []
    monkeypatch.setattr(registry_module, "entry_points", lambda *, group: [])
    empty = qfuse.FusionRegistry.discover()
    assert empty.fusions == []
    assert empty.targets == []


def test_every_built_in_has_one_line_of_description() -> None:
    """What the listings print."""
    registry = qfuse.FusionRegistry.discover()
    for item in (*registry.fusions, *registry.targets):
        assert item.doc
        assert "\n" not in item.doc


def test_a_plugins_fusions_and_targets_are_found(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """With their owner."""
    registry = installed(
        [entry("acme", "acme-fusions", lambda: [Silent("acme.one"), Silent("acme.two")])],
        [entry("acme", "acme-targets", lambda: (qfuse.Target("acme-npu"),))],
    )
    assert ids(registry) == ["acme.one", "acme.two", *BUILT_IN]
    assert registry.owner("acme.one") == "acme-fusions"
    assert registry.owner("acme-npu") == "acme-targets"
    assert registry.target("acme-npu").name == "acme-npu"


def test_a_plugin_without_a_known_distribution(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """Metadata may be broken; the owner is then unknown, not None."""
    nameless = entry("acme", "", lambda: [Silent("acme.one")])
    nameless.dist.name = None
    orphan = entry("orphan", "", lambda: [Silent("orphan.one")])
    orphan.dist = None
    registry = installed([nameless, orphan])
    assert registry.owner("acme.one") == "an unknown distribution"
    assert registry.owner("orphan.one") == "an unknown distribution"


# -- duplicates ----------------------------------------------------------------------------------------------------


def test_two_plugins_with_one_fusion_name_both_owners(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """Discovery does not choose."""
    with pytest.raises(qfuse.RegistryError) as caught:
        installed([entry("a", "acme", lambda: [Silent("x.clash")]), entry("b", "bolt", lambda: [Silent("x.clash")])])
    assert str(caught.value) == "fusion 'x.clash' is registered twice: by acme and by bolt"


def test_a_plugin_that_takes_a_built_in_name(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """Built-ins are not replaced behind the user's back."""
    with pytest.raises(qfuse.RegistryError) as caught:
        installed(targets=[entry("z", "zeta", lambda: [qfuse.Target("linalg")])])
    assert str(caught.value) == "target 'linalg' is registered twice: by qfuse and by zeta"


def test_duplicates_in_with_name_both_owners() -> None:
    """Fusions, targets and emitters."""
    registry = qfuse.FusionRegistry([Silent("a.one")], [qfuse.Target("t")], owner="first")
    with pytest.raises(qfuse.RegistryError, match=r"^fusion 'a\.one' is registered twice: by first and by second$"):
        registry.with_(Silent("a.one"), owner="second")
    with pytest.raises(qfuse.RegistryError, match=r"^target 't' is registered twice: by first and by the caller$"):
        registry.with_(qfuse.Target("t"))
    with pytest.raises(qfuse.RegistryError, match=r"^emitter 'linalg' is registered twice: by qfuse and by second$"):
        registry.with_(owner="second", emitters={"linalg": LinalgEmitter})


def test_duplicates_in_one_call() -> None:
    """Both owners are the same."""
    with pytest.raises(qfuse.RegistryError, match="by me and by me"):
        qfuse.FusionRegistry([Silent("a.one"), Silent("a.one")], owner="me")


def test_a_failed_with_leaves_the_registry_as_it_was() -> None:
    """`with_` gives a new registry or none."""
    registry = qfuse.FusionRegistry([Silent("a.one")])
    with pytest.raises(qfuse.RegistryError):
        registry.with_(Silent("b.one"), Silent("a.one"))
    assert ids(registry) == ["a.one"]


def test_a_fusion_without_an_id_is_refused() -> None:
    """Names the owner."""
    with pytest.raises(qfuse.RegistryError, match="a fusion of acme has no name"):
        qfuse.FusionRegistry([Silent("")], owner="acme")


# -- choices -------------------------------------------------------------------------------------------------------


def test_with_without_and_only_give_new_registries() -> None:
    """The original keeps what it had."""
    registry = qfuse.FusionRegistry([Silent("a.one"), Silent("b.one"), Silent("c.one")])
    assert ids(registry.without("b.one")) == ["a.one", "c.one"]
    assert ids(registry.only("b.one")) == ["b.one"]
    assert ids(registry.with_(Silent("d.one"))) == ["a.one", "b.one", "c.one", "d.one"]
    assert ids(registry) == ["a.one", "b.one", "c.one"]


def test_fusions_are_asked_by_benefit_and_then_by_id() -> None:
    """An explicit order, independent of that of registration."""
    registry = qfuse.FusionRegistry([Silent("b"), Silent("z", 5), Silent("a"), Silent("y", 5)])
    assert [fusion.id for fusion in registry.fusions] == ["y", "z", "a", "b"]


@pytest.mark.parametrize("method", ["only", "without"])
def test_unknown_fusions_list_the_known_with_the_nearest_first(method: str) -> None:
    """As a usage error."""
    registry = qfuse.FusionRegistry.discover()
    with pytest.raises(qfuse.UsageError) as caught:
        getattr(registry, method)("qfuse.contracton")
    message = str(caught.value)
    assert message.startswith("unknown fusion 'qfuse.contracton': did you mean 'qfuse.contraction'? known are ")
    assert message.endswith(", ".join(BUILT_IN))


def test_an_unknown_target_lists_the_known() -> None:
    """With a suggestion when one is near."""
    registry = qfuse.FusionRegistry.discover()
    with pytest.raises(qfuse.UsageError) as caught:
        registry.target("iree_cpu")
    assert str(caught.value) == f"unknown target 'iree_cpu': did you mean 'iree-cpu'? known are {KNOWN_TARGETS}"
    with pytest.raises(qfuse.UsageError) as caught:
        registry.target("zzz")
    assert str(caught.value) == f"unknown target 'zzz': known are {KNOWN_TARGETS}"
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.FusionRegistry().target("linalg")
    assert str(caught.value) == "unknown target 'linalg': known are none"


def test_an_unknown_emitter_lists_the_known(parse: Parse) -> None:
    """A target that names one that is not registered."""
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.fuse(parse(samples.LINEAR), qfuse.Target("toy", emitter="linalq"))
    assert str(caught.value).startswith("unknown emitter 'linalq': did you mean 'linalg'? known are ")


def test_the_owner_of_an_unknown_name() -> None:
    """No error: it is for listings."""
    assert qfuse.FusionRegistry().owner("nothing") == "unknown"


# -- plugins that fail ---------------------------------------------------------------------------------------------


def load_error() -> Any:
    """What a plugin with a missing dependency does."""
    raise ModuleNotFoundError("No module named 'acme_runtime'")


FAILURES = {
    "raises": (load_error, "ModuleNotFoundError(\"No module named 'acme_runtime'\")"),
    "gives no list": (lambda: None, "TypeError("),
    "gives other things": (lambda: [Silent("acme.fine"), "acme.text"], "expected a qfuse Fusion, got str"),
}


@pytest.mark.parametrize("how", list(FAILURES))
def test_a_plugin_that_fails_to_load_is_reported_and_the_rest_works(
    how: str, installed: Callable[..., qfuse.FusionRegistry], parse: Parse
) -> None:
    """In `problems`, in the report, in its text and its remarks; none of its fusions is there."""
    load, error = FAILURES[how]
    registry = installed([entry("broken", "acme-fusions", load), entry("ok", "bolt", lambda: [Silent("bolt.one")])])
    assert ids(registry) == ["bolt.one", *BUILT_IN]
    (problem,) = registry.problems
    assert problem.startswith("fusion plugin 'broken' of acme-fusions failed to load: ")
    assert error in problem
    assert "\n" not in problem
    report = qfuse.fuse(parse(samples.LINEAR), registry=registry)
    assert report.summary["integer_ops"] == 1
    assert report.problems == [problem]
    assert report.to_json()["problems"] == [problem]
    assert report.remarks()[0] == f"qfuse: warning: {problem}"
    assert f"warning: {problem}" in str(report)


def test_a_target_plugin_that_fails_to_load(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """Named as one."""
    registry = installed(targets=[entry("broken", "acme", lambda: [Silent("not.a-target")])])
    assert registry.problems == [
        "target plugin 'broken' of acme failed to load: TypeError('expected a qfuse Target, got Silent')"
    ]
    assert [target.name for target in registry.targets] == TARGETS


def test_problems_survive_choices(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """A registry made from one with problems has them too."""
    registry = installed([entry("broken", "acme", load_error)])
    assert registry.only("qfuse.contraction").problems == registry.problems
    assert registry.with_(Silent("a.one")).without("a.one").problems == registry.problems


def test_an_interrupt_while_loading_is_not_swallowed(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """Only a plugin's own failure is kept from taking the rest down."""

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        installed([entry("broken", "acme", interrupted)])


# -- replacing -----------------------------------------------------------------------------------------------------


class OtherCancel(Silent):
    """In the place of a built-in one."""


def test_replace_puts_a_fusion_in_the_place_of_another(parse: Parse) -> None:
    """With its owner; the original registry keeps its own, and the built-in one is not asked any more."""
    registry = qfuse.FusionRegistry.discover()
    replaced = registry.with_(OtherCancel("qfuse.requantize"), owner="acme", replace=True)
    assert isinstance(replaced.fusion("qfuse.requantize"), OtherCancel)
    assert replaced.owner("qfuse.requantize") == "acme"
    assert registry.owner("qfuse.requantize") == "qfuse"
    assert ids(replaced) == ids(registry)
    assert [e["fusion"] for e in qfuse.fuse(parse(samples.LINEAR), registry=replaced).applied] == ["qfuse.contraction"]
    assert len(qfuse.fuse(parse(samples.LINEAR), registry=registry).applied) == 2


def test_replace_also_takes_targets_and_emitters() -> None:
    """By name."""
    registry = qfuse.FusionRegistry([], [qfuse.Target("t", "old")], owner="first")
    replaced = registry.with_(qfuse.Target("t", "new"), emitters={"linalg": IreeEmitter}, owner="second", replace=True)
    assert replaced.target("t").doc == "new"
    assert replaced.emitter(replaced.target("t")) is IreeEmitter
    assert registry.target("t").doc == "old"


def test_replace_of_nothing_is_an_error() -> None:
    """A name that was misspelled is not added silently."""
    registry = qfuse.FusionRegistry([Silent("a.one"), Silent("b.one")])
    with pytest.raises(qfuse.RegistryError) as caught:
        registry.with_(Silent("a.won"), owner="acme", replace=True)
    assert str(caught.value) == "fusion 'a.won' of acme replaces nothing: known are a.one, b.one"


def test_a_fusion_by_its_id() -> None:
    """Or the nearest one that there is."""
    registry = qfuse.FusionRegistry.discover()
    assert registry.fusion("qfuse.cancel").id == "qfuse.cancel"
    with pytest.raises(qfuse.UsageError, match=r"unknown fusion 'qfuse\.cancle': did you mean 'qfuse\.cancel'\?"):
        registry.fusion("qfuse.cancle")


# -- fusions that a target names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["fusions", "forbidden"])
def test_an_unknown_fusion_of_a_target(key: str, tmp_path: Path, parse: Parse) -> None:
    """Named with the nearest and the line; also for a pass, at once."""
    file = tmp_path / "acme.toml"
    file.write_text(f'doc = ""\n{key} = ["qfuse.contracton"]\n', encoding="utf-8")
    for run in (lambda: qfuse.fuse(parse(samples.LINEAR), file), lambda: qfuse.as_pass(file)):
        with pytest.raises(qfuse.UsageError) as caught:
            run()
        message = str(caught.value)
        assert message.startswith("unknown fusion 'qfuse.contracton': did you mean 'qfuse.contraction'? known are ")
        assert message.endswith(f'({file}:2: {key} = ["qfuse.contracton"])')


def test_a_fusion_that_was_taken_out_is_still_known(parse: Parse) -> None:
    """A target may forbid what a registry does not have any more."""
    target = qfuse.Target("toy", forbidden={"qfuse.lookup"})
    registry = qfuse.FusionRegistry.discover().without("qfuse.lookup")
    assert qfuse.fuse(parse(samples.LINEAR), target, registry).summary["integer_ops"] == 1


def test_what_a_target_does_not_use_is_missed_with_its_line(parse: Parse) -> None:
    """Forbidden, or not among those that it names."""
    for target, key in (
        (qfuse.Target("toy", forbidden={"qfuse.requantize"}), "forbidden"),
        (qfuse.Target("toy", fusions={"qfuse.contraction"}), "fusions"),
    ):
        report = qfuse.fuse(parse(samples.LINEAR), target)
        assert [e["fusion"] for e in report.applied] == ["qfuse.contraction"]
        assert [e["reason"] for e in report.missed] == [
            f"target toy does not use fusion qfuse.requantize (field {key})"
        ]


# -- import --------------------------------------------------------------------------------------------------------

LAZY = """
import importlib.metadata, sys

looked_up = []
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **what: (looked_up.append(what), found(**what))[1]
import qfuse
loaded = sorted({name.split(".")[0] for name in sys.modules})
print(looked_up, [name for name in loaded if name in ("torch_mlir", "iree", "mlir", "torch", "networkx")])
qfuse.Target("toy")
print(looked_up)
qfuse.FusionRegistry.discover()
print(len(looked_up) >= 3)
"""


def test_importing_qfuse_looks_nothing_up() -> None:
    """No entry point, no MLIR binding, no networkx: these wait until they are used."""
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] []", "[]", "True"]


# -- exactness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"epilogue": "fixed-point"}, {"rounding": "magic"}], ids=str)
def test_the_classes_that_a_fusion_states_are_those_of_its_decisions(options: dict[str, Any], parse: Parse) -> None:
    """Over a module with every kind of operation; contractions are listed with what they end in."""
    registry = qfuse.FusionRegistry.discover()
    report = qfuse.fuse(parse(zoo.text()), registry=registry, **options)
    seen: set[str] = set()
    for entry in report.applied:
        seen.add(entry["fusion"])
        if entry["fusion"] in ("qfuse.contraction", "qfuse.convolution", "qfuse.sum"):
            continue
        stated = registry.fusion(entry["fusion"]).exactness
        assert re.sub(r"-\d+-", "-n-", entry["exactness"]) in stated, entry
    assert len(seen) >= 9


def test_every_built_in_states_what_it_matches_and_how_exact_it_is() -> None:
    """For the listing; the nodes are types of their own, not any node."""
    classes = {"bit-exact", "within-n-lsb", "reassociated"}
    for fusion in builtin.fusions():
        assert fusion.exactness, fusion.id
        assert set(fusion.exactness) <= classes
        assert Node not in fusion.nodes, fusion.id


# -- what is no fusion, and what raises ----------------------------------------------------------------------------


class Odd(Silent):
    """Asked about every node."""

    def match(self, node: Node) -> bool:
        """Always."""
        return True


class RaisingMatch(Odd):
    """Fails when it is asked."""

    def match(self, node: Node) -> bool:
        """A bug."""
        raise ZeroDivisionError


class RaisingCheck(Odd):
    """Fails when it is asked."""

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """A bug."""
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Silent, "expected a qfuse Fusion, got the class Silent"),
        ("acme", "expected a qfuse Fusion, got str"),
        (Silent(None), "fusion Silent: id takes a name such as 'acme.qmatmul', got None"),  # type: ignore[arg-type]
        (Silent("a", "high"), "fusion 'a': benefit takes an integer, got 'high'"),  # type: ignore[arg-type]
    ],
    ids=range(4),
)
def test_what_is_no_fusion_is_an_error(item: Any, message: str, installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """At once; a plugin that gives it is one that fails to load."""
    for make in (lambda: qfuse.FusionRegistry([item]), lambda: qfuse.FusionRegistry().with_(item)):
        with pytest.raises(qfuse.RegistryError) as caught:
            make()
        assert str(caught.value) == message
    (problem,) = installed([entry("odd", "acme", lambda: [item])]).problems
    assert problem == f"fusion plugin 'odd' of acme failed to load: {qfuse.RegistryError(message)!r}"


def test_nodes_are_types_of_nodes() -> None:
    """A tuple of them."""
    fusion = Silent("a")
    fusion.nodes = (int,)  # type: ignore[assignment]
    with pytest.raises(qfuse.RegistryError, match="fusion 'a': nodes takes a tuple of types of nodes, got "):
        qfuse.FusionRegistry([fusion])


def test_an_emitter_is_something_to_call() -> None:
    """Named."""
    with pytest.raises(qfuse.RegistryError, match="emitter 'acme' takes a class, got 3"):
        qfuse.FusionRegistry().with_(emitters={"acme": 3})  # type: ignore[dict-item]


def test_an_unknown_name_may_be_that_of_a_plugin_that_failed(installed: Callable[..., qfuse.FusionRegistry]) -> None:
    """So the message has what failed."""
    registry = installed(targets=[entry("acme", "acme-qfuse", load_error)])
    with pytest.raises(qfuse.UsageError) as caught:
        registry.target("acme")
    assert str(caught.value).endswith(f"known are {KNOWN_TARGETS}; {registry.problems[0]}")
    with pytest.raises(qfuse.UsageError) as caught:
        registry.fusion("acme.qmatmul")
    assert "acme-qfuse" not in str(caught.value)


@pytest.mark.parametrize(("fusion", "method"), [(RaisingMatch, "match"), (RaisingCheck, "check")])
def test_an_exception_of_a_fusion_says_whose_it_is(fusion: type[Silent], method: str, parse: Parse) -> None:
    """It passes as it is, with a line; the module is unchanged."""
    module = parse(samples.LINEAR)
    before = str(module)
    registry = qfuse.FusionRegistry.discover().with_(fusion("acme.odd", 9), owner="acme-qfuse")
    with pytest.raises(ZeroDivisionError) as caught:
        qfuse.fuse(module, registry=registry)
    assert str(module) == before
    if sys.version_info >= (3, 11):
        (note,) = caught.value.__notes__
        assert note.startswith(f"raised by the {method} of fusion acme.odd of acme-qfuse for linalg.")


def test_a_check_that_answers_something_else(parse: Parse) -> None:
    """Names the fusion, its owner and the operation."""

    class Eager(Odd):
        def check(self, node: Node, env: Environment) -> Any:
            return True

    module = parse(samples.LINEAR)
    before = str(module)
    registry = qfuse.FusionRegistry.discover().with_(Eager("acme.eager", 9), owner="acme-qfuse")
    message = r"check of fusion acme\.eager of acme-qfuse for .* at .*:\d+ returned True, not a Decision, a Refusal or"
    with pytest.raises(qfuse.RegistryError, match=message):
        qfuse.fuse(module, registry=registry)
    assert str(module) == before


@pytest.mark.parametrize("run", [qfuse.fuse, qfuse.plan])
def test_arguments_of_another_kind(run: Callable[..., Any], parse: Parse) -> None:
    """Usage errors."""
    with pytest.raises(qfuse.UsageError, match="target takes a name, a path or a Target, got 3"):
        run(parse(samples.LINEAR), 3)
    with pytest.raises(qfuse.UsageError, match="registry takes a FusionRegistry, got 'acme'"):
        run(parse(samples.LINEAR), "linalg", "acme")
    with pytest.raises(qfuse.UsageError, match=r"takes ids of fusions, got \['qfuse\.sum'\]"):
        qfuse.FusionRegistry.discover().only(["qfuse.sum"])  # type: ignore[arg-type]


def test_the_emitter_of_a_file_is_quoted(tmp_path: Path, parse: Parse) -> None:
    """Where it is not known, and where it cannot write what the target's defaults ask for."""
    file = tmp_path / "acme.toml"
    for text, message in (
        ("emitter = 'acme'", "unknown emitter 'acme': known are iree, linalg, tosa"),
        ("emitter = 'tosa'", "option epilogue of target acme takes one of fixed-point, power-of-two, got 'float'"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(qfuse.UsageError) as caught:
            qfuse.fuse(parse(samples.LINEAR), file)
        assert str(caught.value) == f"{message} ({file}:1: {text})"


def test_what_a_target_returns_is_checked(parse: Parse) -> None:
    """Reasons are text; costs are for fusions that there are, and functions."""

    class Vague(qfuse.Target):
        def refuses(self, needs: qfuse.Requirements) -> Any:
            return True

    with pytest.raises(qfuse.UsageError, match="refuses of target vague returned True, not a reason or None"):
        qfuse.fuse(parse(samples.LINEAR), Vague("vague"))
    costs: Any = {"acme.qmatmul": lambda _work: 1.0}
    with pytest.raises(qfuse.UsageError, match=r"unknown fusion 'acme\.qmatmul': .* \(field costs\.acme\.qmatmul\)"):
        qfuse.fuse(parse(samples.LINEAR), qfuse.Target("t", costs=costs))
    with pytest.raises(qfuse.UsageError, match=r"target t: costs: takes a mapping of names to functions, got \[\]"):
        qfuse.Target("t", costs=[])  # type: ignore[arg-type]
