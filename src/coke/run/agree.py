"""Before training: the sites agree on what is common, by sums over a spanning tree.

Nobody is elected. Everyone knows the same graph, so everyone computes the same tree. Up: each site
merges what its children said with its own description of its inputs and passes it on; down: the
root's result, the same bytes to all. `up` is what one site does; a simulation calls it for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coke.errors import InputError
from coke.maths.mixtures import (
    RANKS,
    Component,
    decode_mixture,
    encode_mixture,
    kind_of,
    truncated,
)
from coke.maths.whitening import Gaussian, reduced
from coke.run.ledger import Ledger
from coke.run.trees import Tree, spent

COUNTS = 12  # bytes beside the mixture: rows, sum and sum of squares of the target, float32 each


class Agreed(NamedTuple):
    """What all sites know afterwards, to the last bit."""

    mixture: list[Gaussian]
    ledger: Ledger  # what it cost


def up(own: Sequence[Component], children: Sequence[bytes], d: int, s0: float) -> bytes:
    """One site's message to its parent: its own description and its children's, merged.

    As many components as the largest description in the subtree has.
    """
    heard = [decode_mixture(data, d, s0) for data in children]
    kind = max([kind_of(len(own)), *(data[0] for data in children)])
    parts = [part.gaussian() for description in (own, *heard) for part in description]
    return encode_mixture([truncated(g, RANKS[kind]) for g in reduced(parts, kind)], s0)


def agree(tree: Tree, described: Sequence[Sequence[Component]], s0: float) -> Agreed:
    """All sites' descriptions merged up the tree, and the result handed down."""
    if not s0 > 0:
        raise InputError("lambda = 0 leaves no resolution to describe inputs in: use lambda > 0")
    d, ledger = len(described[0][0].mean), Ledger()
    inbox: dict[int, list[bytes]] = {i: [] for i in tree.order}
    for i in reversed(tree.order[1:]):
        message = up(described[i], inbox[i], d, s0)
        inbox[tree.parent[i]].append(message)
        ledger = spent(ledger, 1, len(message) + COUNTS)
    result = up(described[tree.root], inbox[tree.root], d, s0)
    ledger = spent(ledger, len(tree.parent), len(result) + COUNTS)
    return Agreed([part.gaussian() for part in decode_mixture(result, d, s0)], ledger)
