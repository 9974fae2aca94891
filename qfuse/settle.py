"""Answers about values that depend on the answers about others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qfuse._mlir import Value


def settled(
    value: Value,
    known: dict[Value, bool],
    ask: Callable[[Value], bool | list[Value]],
    combine: Callable[[Iterable[bool]], bool],
    *,
    meanwhile: bool,
) -> bool:
    """Something of a value that depends on the same of others, without recursion: chains may be long.

    Args:
        value: the value.
        known: answers so far.
        ask: the answer, or the values that it depends on.
        combine: the answer from theirs.
        meanwhile: the answer of a value that depends on itself.
    """
    pending = [value]
    waiting: dict[Value, list[Value]] = {}
    while pending:
        current = pending[-1]
        others = waiting.pop(current, None)
        if others is not None:
            known[current] = combine(known[other] for other in others)
        elif current not in known:
            answer = ask(current)
            if isinstance(answer, list):
                waiting[current] = answer
                known[current] = meanwhile
                pending += [other for other in answer if other not in known]
                continue
            known[current] = answer
        pending.pop()
    return known[value]
