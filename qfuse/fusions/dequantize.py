"""A dequantize gives its result an integer form; nothing is built for it."""

from __future__ import annotations

from dataclasses import replace

from qfuse.fusions.base import Fusion
from qfuse.graph import Decision, Environment, Existing, Refusal, StoredForm
from qfuse.indexing import is_identity, permutation_of
from qfuse.matchers.nodes import Dequantize, Node


class ReadDequantize(Fusion):
    """Every recognised dequantize starts an integer form: its storage and its parameters."""

    id = "qfuse.dequantize"
    nodes = (Dequantize,)
    benefit = 1000
    exactness = ("bit-exact",)
    doc = "a dequantized value is its integers plus parameters"
    listed = False

    def match(self, node: Node) -> bool:
        """Dequantize nodes."""
        return isinstance(node, Dequantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses storage that another operation wrote with the other signedness."""
        assert isinstance(node, Dequantize)
        storage = node.params.storage
        producer = env.quantize(node.storage)
        if producer is not None and producer.params.storage != storage:
            written = producer.params
            if written.quant_min < storage.min or written.quant_max > storage.max:
                return Refusal(
                    f"storage is written as {written.storage} [{written.quant_min}, {written.quant_max}] and read as"
                    f" {storage}",
                    "the quantize and the dequantize must agree on signedness",
                )
        rank = len(node.params.extents)
        if not is_identity(node.index, node.params.extents) and permutation_of(node.index, rank) is None:
            return Refusal("the storage is read at an index that is not a list of dimensions")
        written = node.params if producer is None else producer.params
        low, high = written.quant_min, written.quant_max
        params = node.params
        if (low, high) != (params.quant_min, params.quant_max):
            params = replace(params, quant_min=low, quant_max=high)
        if producer is None and node.storage_cast is None:
            made = env.range_of(node.storage, storage)
            low, high = max(low, made[0]), min(high, made[1])
        form = StoredForm(Existing(node.storage, node.storage_cast), node.index, params, low, high)
        return Decision(self, node, "bit-exact", form=form)

    def build(self, decision: Decision, context: object) -> object:
        """Never called."""
        raise AssertionError("a dequantize has nothing to build")
