"""Which links the rounds of a case go along."""

from __future__ import annotations

import numpy as np

from coke.learning.case import Case
from coke.learning.ready import Ready
from coke.maths.graph import Graph, networks
from coke.talk.thinning import used


def links_of(ready: Ready, case: Case) -> Graph:
    """Of all sites: the tree and a few edges beside it, or all there are; all processes ask."""
    if not case.thin:
        return ready.graph
    names, at = ready.names, {name: i for i, name in enumerate(ready.names)}
    mine = np.array([-1 if p.parent is None else at[p.parent] for p in ready.places])
    tree = {frozenset(edge) for edge in enumerate(ready.engine.everyones(mine).tolist())}
    found, shape = networks().Graph(), ready.agreement.shape
    found.add_nodes_from(ready.graph)
    found.add_edges_from(
        (a, b) for a, b in ready.graph.edges
        if frozenset((a, b)) in tree or used(names[a], names[b], shape)
    )  # fmt: skip
    return found
