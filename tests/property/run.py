"""Runs many random graphs, and cuts down those that break a promise.

python tests/property/run.py --graphs 2000 --seed 0 [--target linalg,integer-only] [--jobs 2] [--out folder]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.property.contract import TARGETS, Outcome, Violation, examine
from tests.property.graphs import Built, Graph, build, random_graph


@dataclass
class Finding:
    """A graph that breaks a promise, cut down.

    Attributes:
        graph: in words.
        target: name.
        violation: the first one.
        text: of the smallest function that still does.
        inputs: of it.
    """

    graph: str
    target: str
    violation: Violation
    text: str
    inputs: str


@dataclass
class Result:
    """What is left of an outcome when it is sent to another process."""

    outcome: Outcome | None
    finding: Finding | None
    seconds: float


def tried(graph: Graph, target: str) -> tuple[Built, Outcome]:
    """One graph under one target; a crash is a violation too."""
    built = build(graph)
    try:
        return built, examine(built, TARGETS[target], built.samples())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        frames = traceback.extract_tb(error.__traceback__)
        place = next((f for f in reversed(frames) if "qfuse" in Path(f.filename).parts), frames[-1])
        message = f"{type(error).__name__}: {error} ({Path(place.filename).name}, {place.name})"
        return built, Outcome([Violation("crash", None, message)])


def smaller(graph: Graph, built: Built, violation: Violation) -> Iterator[Graph]:
    """Graphs that may break the same promise: one layer alone, then with layers left out from the end."""
    grids = {i: v.grid for i, v in enumerate(built.stored) if v.grid is not None}
    shapes = {i: v.shape for i, v in enumerate(built.stored)}
    layers = range(len(graph.kinds)) if violation.layer is None else (violation.layer,)
    if graph.only is None:
        for layer in layers:
            if layer >= 0:
                yield replace(graph, only=layer, grids=grids, shapes=shapes)
        for count in range(1, len(graph.kinds)):
            yield replace(graph, kinds=graph.kinds[:count], grids=grids, shapes=shapes)


def shrunk(graph: Graph, target: str, built: Built, outcome: Outcome) -> Finding:
    """The smallest graph that was found to break the same promise."""
    first = outcome.violations[0]
    for candidate in smaller(graph, built, first):
        try:
            again, found = tried(candidate, target)
        except Exception:  # noqa: BLE001 - a layer that cannot be built alone
            continue
        if found.violations and found.violations[0].kind == first.kind:
            graph, built, outcome = candidate, again, found
            break
    shown = "\n".join(f"{name} = {value!r}" for name, value in outcome.inputs.items())
    return Finding(str(graph), target, outcome.violations[0], built.function.text, shown)


def one(seed: int, targets: Sequence[str]) -> list[Result]:
    """One seed under every target."""
    found: list[Result] = []
    graph = random_graph(seed)
    for target in targets:
        start = time.process_time()
        built, outcome = tried(graph, target)
        finding = shrunk(graph, target, built, outcome) if outcome.violations else None
        outcome.inputs, outcome.results = {}, ()
        found.append(Result(outcome, finding, time.process_time() - start))
    return found


def summary(target: str, results: Sequence[Result]) -> str:
    """What a run came to, under one target."""
    outcomes = [r.outcome for r in results if r.outcome is not None]
    classes: Counter[str] = sum((o.classes for o in outcomes), Counter())
    missed = Counter(reason for o in outcomes for reason in o.missed)
    values, differing = sum(o.values for o in outcomes), sum(o.differing for o in outcomes)
    farthest = max((o.farthest for o in outcomes), default=0.0)
    broken = Counter(r.finding.violation.kind for r in results if r.finding is not None)
    lines = [
        (
            f"{target}: {len(results)} graphs, {sum(classes.values())} layers, {values} stored integers compared, "
            f"{differing} differ from the real reference, at most {farthest:.3f} of "
            f"the stated distance from a tie; {sum(r.seconds for r in results):.0f} s"
        ),
        "  classes: " + ", ".join(f"{name} {count}" for name, count in sorted(classes.items())),
        "  violations: " + (", ".join(f"{k} {n}" for k, n in broken.items()) or "none"),
    ]
    lines += [f"  missed {count}: {reason}" for reason, count in missed.most_common(12)]
    return "\n".join(lines)


def main() -> int:
    """The command line; the status is 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--target", default="linalg,iree-cpu,integer-only", help=f"from {', '.join(TARGETS)}")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the modules of findings")
    arguments = parser.parse_args()
    targets = arguments.target.split(",")
    results: list[list[Result]] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.graphs)
        for found in pool.map(partial(one, targets=targets), seeds, chunksize=4):
            results.append(found)
            for result in found:
                if result.finding is not None:
                    _show(result.finding, arguments.out)
    for position, target in enumerate(targets):
        print(summary(target, [r[position] for r in results]), flush=True)
    return int(any(r.finding is not None for found in results for r in found))


def _show(finding: Finding, out: Path | None) -> None:
    print(f"{finding.target}, {finding.graph}: {finding.violation.kind}: {finding.violation.message}", flush=True)
    if out is None:
        print(finding.text if len(finding.text) < 20000 else finding.text[:20000] + "...", finding.inputs, sep="\n")
        return
    out.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in f"{finding.target} {finding.graph}")[:100]
    (out / f"{name}.mlir").write_text(finding.text)
    (out / f"{name}.txt").write_text(f"{finding.violation.message}\n{finding.inputs}\n")


if __name__ == "__main__":
    sys.exit(main())
