"""`FusionRegistry`: the fusions, targets and emitters of one run; plugins come through entry points.

A distribution adds to it by

    [project.entry-points."qfuse.fusions"]
    acme = "acme_fusions:fusions"     # a function without arguments that returns Fusion objects

    [project.entry-points."qfuse.targets"]
    acme = "acme_fusions:targets"     # the same for Target objects

    [project.entry-points."qfuse.emitters"]
    acme = "acme_fusions:emitters"    # the same for a mapping of emitter names to classes

qfuse's own enter the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from qfuse.cost.target import Target
from qfuse.emit.iree import IreeEmitter
from qfuse.emit.linalg import LinalgEmitter
from qfuse.emit.tosa import TosaEmitter
from qfuse.errors import RegistryError, UsageError, noted, unknown
from qfuse.fusions.base import Fusion
from qfuse.matchers.nodes import Node

FUSIONS_GROUP = "qfuse.fusions"
TARGETS_GROUP = "qfuse.targets"
EMITTERS_GROUP = "qfuse.emitters"


@dataclass(frozen=True)
class _Owned:
    item: Any
    owner: str


class FusionRegistry:
    """An immutable-in-use collection: `with_`, `without` and `only` give new registries."""

    def __init__(
        self, fusions: Iterable[Fusion] = (), targets: Iterable[Target] = (), owner: str = "the caller"
    ) -> None:
        """A registry of these fusions and targets (and the built-in emitters)."""
        self._fusions: dict[str, _Owned] = {}
        self._targets: dict[str, _Owned] = {}
        self._emitters: dict[str, _Owned] = {
            "linalg": _Owned(LinalgEmitter, "qfuse"),
            "iree": _Owned(IreeEmitter, "qfuse"),
            "tosa": _Owned(TosaEmitter, "qfuse"),
        }
        self.problems: list[str] = []
        self._names: set[str] = set()
        self._by_type: dict[type, list[Fusion]] = {}
        for item in (*fusions, *targets):
            self._add(*self._entry_of(item), owner)

    @staticmethod
    def discover() -> FusionRegistry:
        """A registry of everything installed.

        A plugin that fails to load is left out and described in `problems`.

        Raises:
            RegistryError: two distributions use one name.
        """
        registry = FusionRegistry()
        for group, table, kind, named_of in (
            (FUSIONS_GROUP, registry._fusions, "fusion", _fusions),
            (TARGETS_GROUP, registry._targets, "target", _targets),
            (EMITTERS_GROUP, registry._emitters, "emitter", _emitters),
        ):
            for point in sorted(entry_points(group=group), key=lambda p: (_owner(p), p.name)):
                try:
                    named = named_of(point.load()())
                except Exception as error:  # noqa: BLE001 - a plugin's own failure must not take the rest down
                    problem = f"{kind} plugin {point.name!r} of {_owner(point)} failed to load: {error!r}"
                    registry.problems.append(problem)
                    continue
                for name, item in named:
                    registry._add(table, kind, name, item, _owner(point))
        return registry

    def _add(self, table: dict[str, _Owned], kind: str, name: str, item: Any, owner: str) -> None:
        if not name:
            raise RegistryError(f"a {kind} of {owner} has no name")
        before = table.get(name)
        if before is not None:
            raise RegistryError(f"{kind} {name!r} is registered twice: by {before.owner} and by {owner}")
        table[name] = _Owned(item, owner)
        if kind == "fusion":
            self._names.add(name)

    def _copy(self) -> FusionRegistry:
        copy = FusionRegistry()
        copy._fusions = dict(self._fusions)
        copy._targets = dict(self._targets)
        copy._emitters = dict(self._emitters)
        copy.problems = list(self.problems)
        copy._names = set(self._names)
        return copy

    def with_(
        self,
        *items: Fusion | Target,
        owner: str = "the caller",
        emitters: Mapping[str, Callable[..., Any]] | None = None,
        replace: bool = False,
    ) -> FusionRegistry:
        """A registry with these fusions, targets and emitters added.

        Args:
            *items: fusions and targets.
            owner: who they are from, for listings and errors.
            emitters: emitter classes by name.
            replace: whether each takes the place of the one of its name, which there must be.

        Raises:
            RegistryError: a name is taken, or with `replace` is not.
        """
        copy = self._copy()
        new = [copy._entry_of(item) for item in items]
        new += [(copy._emitters, "emitter", name, emitter) for name, emitter in _emitters(emitters or {})]
        for table, kind, name, _ in new if replace else ():
            if table.pop(name, None) is None:
                raise RegistryError(
                    f"{kind} {name!r} of {owner} replaces nothing: known are {', '.join(sorted(table))}"
                )
        for table, kind, name, item in new:
            copy._add(table, kind, name, item, owner)
        return copy

    def without(self, *ids: str) -> FusionRegistry:
        """A registry without the fusions of these ids."""
        copy = self._copy()
        for name in ids:
            self._known_fusion(name)
            copy._fusions.pop(name, None)
        return copy

    def only(self, *ids: str) -> FusionRegistry:
        """A registry with the fusions of these ids and no other."""
        for name in ids:
            self._known_fusion(name)
        copy = self._copy()
        copy._fusions = {k: v for k, v in self._fusions.items() if k in ids}
        return copy

    def _entry_of(self, item: Fusion | Target) -> tuple[dict[str, _Owned], str, str, Any]:
        if isinstance(item, Target):
            return self._targets, "target", item.name, item
        return self._fusions, "fusion", _fusion_id(item), item

    def _known_to(self, target: Target) -> None:
        """Checks the ids that a target names; those of fusions that were taken out by `without` and `only` are known.

        Raises:
            UsageError: an unknown id, with the line of the target that has it.
        """
        for key, ids in (("fusions", target.fusions or ()), ("forbidden", target.forbidden)):
            for name in sorted(ids):
                if name not in self._names:
                    raise UsageError(f"{self._unknown('fusion', name, self._names)} ({target.quoted((key,))})")
        for name in target.costs:
            if "." in name and name not in self._names:
                raise UsageError(f"{self._unknown('fusion', name, self._names)} ({target.quoted(('costs', name))})")

    def _known_fusion(self, name: str) -> None:
        if not isinstance(cast("object", name), str):
            raise UsageError(f"takes ids of fusions, got {name!r}")
        if name not in self._fusions:
            raise UsageError(self._unknown("fusion", name, self._fusions))

    def _unknown(self, kind: str, name: str, known: Iterable[str]) -> str:
        """The message for a name that is not known; it may be that of a plugin that failed to load."""
        failed = [p for p in self.problems if p.startswith(f"{kind} plugin ")]
        return "; ".join([unknown(kind, name, sorted(known)), *failed])

    def restricted(self, target: Target, only: Iterable[str] | None, disable: Iterable[str]) -> FusionRegistry:
        """The registry for one run: `only` these, less `disable`; what opts in only where it or the target names it.

        Fusions that only carry integer forms along (`listed` is false) need not be in `only`. What the target forbids
        is kept: it is asked, so that the report can say what the target stands in the way of.

        Raises:
            UsageError: an unknown fusion id.
        """
        self._known_to(target)
        chosen = self if only is None else self.only(*only, *(f.id for f in self.fusions if not f.listed))
        for name in disable:
            self._known_fusion(name)
        named = (target.fusions or ()) if only is None else only
        dropped = set(disable) | {f.id for f in chosen.fusions if f.opt_in and f.id not in named}
        return chosen.without(*(dropped & set(chosen._fusions)))

    @property
    def fusions(self) -> list[Fusion]:
        """All fusions, the first to be asked first."""
        return sorted((o.item for o in self._fusions.values()), key=lambda f: (-f.benefit, f.id))

    @property
    def targets(self) -> list[Target]:
        """All targets, by name."""
        return [self._targets[name].item for name in sorted(self._targets)]

    def fusion(self, name: str) -> Fusion:
        """The fusion of this id.

        Raises:
            UsageError: there is none; lists the known.
        """
        self._known_fusion(name)
        return self._fusions[name].item

    def owner(self, name: str) -> str:
        """The distribution that a fusion or target came from."""
        found = self._fusions.get(name) or self._targets.get(name)
        return "unknown" if found is None else found.owner

    def target(self, name: str | os.PathLike[str]) -> Target:
        """The target of this name, or that of a TOML file: a path, or a name that ends in `.toml`.

        Raises:
            UsageError: there is none, with a list of the known and of plugins that failed to load; or the file does
                not describe one.
        """
        if not isinstance(cast("object", name), str | os.PathLike):
            raise UsageError(f"target takes a name, a path or a Target, got {name!r}")
        if not isinstance(name, str) or name.endswith(".toml"):
            return Target.load(name)
        if name not in self._targets:
            raise UsageError(self._unknown("target", name, self._targets))
        return self._targets[name].item

    def emitter(self, target: Target) -> Callable[..., Any]:
        """The emitter class of a target."""
        if target.emitter not in self._emitters:
            raise UsageError(
                f"{self._unknown('emitter', target.emitter, self._emitters)} ({target.quoted(('emitter',))})"
            )
        return self._emitters[target.emitter].item

    def for_node(self, node: Node) -> list[Fusion]:
        """Fusions that match a node, the first to be asked first."""
        kind = type(node)
        asked = self._by_type.get(kind)
        if asked is None:
            asked = self._by_type[kind] = [f for f in self.fusions if issubclass(kind, _asked_about(f))]
        return [f for f in asked if self._matches(f, node)]

    def _matches(self, fusion: Fusion, node: Node) -> bool:
        try:
            return fusion.match(node)
        except BaseException as error:
            noted(error, f"raised by the match of fusion {fusion.id} of {self.owner(fusion.id)} for {node.op.name}")
            raise


def _asked_about(fusion: Fusion) -> tuple[type[Node], ...]:
    """A fusion's `nodes`; all where a class says anew what it matches but not which nodes these can be."""
    first = next(vars(c) for c in type(fusion).__mro__ if "match" in vars(c) or "nodes" in vars(c))
    return fusion.nodes if "nodes" in first or "nodes" in vars(fusion) else (Node,)


def _owner(point: EntryPoint) -> str:
    name = None if point.dist is None else point.dist.name
    return name or "an unknown distribution"


def _fusion_id(item: Any) -> str:
    """The id of something that may be a fusion.

    Raises:
        RegistryError: it is none, or what it says of itself has another type than documented.
    """
    if not isinstance(item, Fusion):
        raise RegistryError(f"expected a qfuse Fusion, got {_described(item)}")
    name, benefit, nodes = cast("tuple[object, object, object]", (item.id, item.benefit, item.nodes))
    if not isinstance(name, str):
        raise RegistryError(f"fusion {type(item).__name__}: id takes a name such as 'acme.qmatmul', got {name!r}")
    if not isinstance(benefit, int):
        raise RegistryError(f"fusion {name!r}: benefit takes an integer, got {benefit!r}")
    if not isinstance(nodes, tuple) or not all(map(_is_node_type, cast("tuple[object, ...]", nodes))):
        raise RegistryError(f"fusion {name!r}: nodes takes a tuple of types of nodes, got {nodes!r}")
    return name


def _described(item: object) -> str:
    return f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__


def _is_node_type(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, Node)


def _fusions(made: Any) -> list[tuple[str, Any]]:
    """Fusions with their ids."""
    return [(_fusion_id(item), item) for item in made]


def _targets(made: Any) -> list[tuple[str, Any]]:
    """Targets with their names."""
    found: list[tuple[str, Any]] = []
    for item in made:
        if not isinstance(item, Target):
            raise TypeError(f"expected a qfuse Target, got {type(item).__name__}")
        found.append((item.name, item))
    return found


def _emitters(made: Any) -> list[tuple[str, Any]]:
    """Emitter classes with their names."""
    if not isinstance(made, Mapping):
        raise TypeError(f"expected a mapping of emitter names to classes, got {type(made).__name__}")
    found = list(cast("Mapping[str, Any]", made).items())
    for name, emitter in found:
        if not callable(emitter):
            raise RegistryError(f"emitter {name!r} takes a class, got {emitter!r}")
    return found
