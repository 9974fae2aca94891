"""The minimum cut against all assignments, on random graphs."""

from __future__ import annotations

import numpy as np
import pytest

from qfuse.cost.cut import Problem, solve

GRAPHS, LARGEST = 3000, 14


def least(problem: Problem) -> tuple[int, frozenset[int]]:
    """The least total of all assignments, and the union of those that have it (which is one of them)."""
    count = len(problem.chosen)
    assignments = np.arange(1 << count)
    bits = (assignments[:, None] >> np.arange(count)) & 1
    totals = bits @ np.array(problem.chosen, np.int64) + (1 - bits) @ np.array(problem.left, np.int64)
    allowed = np.ones(len(totals), bool)
    for i, j, cost in problem.edges:
        crossed = (bits[:, i] == 1) & (bits[:, j] == 0)
        if cost is None:
            allowed &= ~crossed
        else:
            totals += crossed * cost
    best = int(totals[allowed].min())
    union = int(np.bitwise_or.reduce(assignments[allowed & (totals == best)]))
    return best, frozenset(i for i in range(count) if union >> i & 1)


def random_problem(seed: int) -> Problem:
    """Up to 14 variables; sparse and dense, small costs with many ties and costs of real size, cycles too."""
    rng = np.random.default_rng([5, seed])
    count = int(rng.integers(1, LARGEST + 1))
    high = int(rng.choice([2, 5, 100, 10**12]))
    chosen, left = rng.integers(0, high, (2, count)).tolist()
    edges: list[tuple[int, int, int | None]] = []
    for _ in range(int(rng.integers(0, count * 3 + 1))):
        i, j = (int(n) for n in rng.integers(0, count, 2))
        if i != j:
            edges.append((i, j, None if rng.random() < 0.4 else int(rng.integers(0, high))))
    return Problem(tuple(chosen), tuple(left), tuple(edges))


@pytest.mark.parametrize("part", range(6))
def test_the_cut_is_the_best_assignment(part: int) -> None:
    several, neither = 0, 0
    for seed in range(part * GRAPHS // 6, (part + 1) * GRAPHS // 6):
        problem = random_problem(seed)
        found = solve(problem)
        best, largest = least(problem)
        assert problem.total(found) == best, seed
        assert found == largest, seed
        several += len(problem.chosen) > 1
        neither += 0 < len(found) < len(problem.chosen)
    assert several > 400
    assert neither > 100


def test_what_is_not_allowed_has_no_total() -> None:
    problem = Problem((1, 1), (5, 0), ((0, 1, None),))
    assert problem.total({0}) is None
    assert problem.total({0, 1}) == 2
    assert problem.total(()) == 5
    assert solve(problem) == {0, 1}


def test_a_crossing_is_paid_for_when_that_is_cheaper() -> None:
    assert solve(Problem((1, 9), (5, 0), ((0, 1, 2),))) == {0}
    assert solve(Problem((1, 9), (5, 0), ((0, 1, 7),))) == frozenset()


def test_at_equal_cost_everything_is_chosen() -> None:
    assert solve(Problem((3, 4), (4, 3), ((0, 1, None),))) == {0, 1}
    assert solve(Problem((), (), ())) == frozenset()
