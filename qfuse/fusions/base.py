"""`Fusion`: three questions that change nothing, and one act that cannot refuse."""

from __future__ import annotations

from typing import Any

from qfuse.graph import Decision, Environment, Refusal
from qfuse.matchers.nodes import Node


class Fusion:
    """One rewrite. Subclass it, set the class attributes, and register it (see `qfuse.registry`).

    Valid IR in, valid IR out: everything that can refuse happens in `match` and `check`, which must not change
    anything; `build` may only create operations.

    Attributes:
        id: unique name, `vendor.what-it-does`.
        benefit: fusions of greater benefit are asked first; ties go by id.
        doc: one line for listings.
        exactness: the classes that its decisions may have, for listings: `bit-exact`, `within-n-lsb`, `reassociated`.
        nodes: the types of nodes that `match` may accept; it is not asked about others.
        listed: whether its decisions are entries of their own in the report (layout moves are not).
        counted: whether each of its decisions is a compute operation for the report's counts. Contractions and
            reductions are counted by their nodes.
        declines: whether its reason is noted in the report (`declined`) where another fusion takes the node.
        on_demand: whether its decisions are `on_demand`, so that what others read decides on them, not their cost.
        repairs: whether it writes what the IR says wrongly as it was meant, so that costs do not decide on it.
        opt_in: whether it is used only where a target or the option `fusions` names it.
    """

    id: str = ""
    benefit: int = 1
    doc: str = ""
    exactness: tuple[str, ...] = ()
    nodes: tuple[type[Node], ...] = (Node,)
    listed: bool = True
    counted: bool = False
    declines: bool = False
    on_demand: bool = False
    repairs: bool = False
    opt_in: bool = False

    def match(self, node: Node) -> bool:
        """Whether this node is a kind that the fusion handles."""
        raise NotImplementedError

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Whether it applies, given the integer forms of the inputs.

        Returns a `Decision`, a `Refusal` with the reason, or None when the node is none of its business after all
        (nothing to report).
        """
        raise NotImplementedError

    def build(self, decision: Decision, context: Any) -> Any:
        """Builds a decision's operations and returns the SSA value it stands for.

        Args:
            decision: what `check` returned.
            context: a `qfuse.emit.base.BuildContext` positioned before the node's operation.
        """
        raise NotImplementedError
