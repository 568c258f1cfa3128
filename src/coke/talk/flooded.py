"""What a flood costs each site, without flooding: a simulation knows the network already.

`coke.talk.conversation.flood` is the conversation, which agents hold. With N sites in one process
it would take N² records; here a row of distances tells which records a site passes on when.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coke.maths.arrays import Array
from coke.maths.ledger import HEADER, Spent
from coke.talk.conversation import Network


def flooded(net: Network) -> Spent:
    """What each site has sent (N, 3), in the order of the names, once all know the network."""
    records = [(name, sorted(net.graph[name])) for name in net.names]
    sizes = np.array([len(msgspec.msgpack.encode(record)) for record in records], np.float64)
    at = {name: i for i, name in enumerate(net.names)}
    around = [[at[friend] for friend in friends] for _, friends in records]
    return np.array([_spent(net, i, near, sizes) for i, near in enumerate(around)], np.int64)


def _spent(net: Network, i: int, near: list[int], sizes: Array) -> tuple[int, int, int]:
    """Of site i: in step r the records from r steps away, but for those all neighbours have."""
    away = net.distances[i]
    # A site that knows the whole graph knows who has what; before, it looks two steps around.
    known = np.where(away >= away.max(), away, np.minimum(away, 2))
    news = net.distances[near].max(axis=0, initial=0) > known
    count, size = (
        np.bincount(away[news], weights, net.diameter)[: net.diameter]
        for weights in (None, sizes[news])
    )
    size += (count > 0) * np.where(count < 16, 1, np.where(count < 2**16, 3, 5))  # of the list
    told = int(size.sum())
    return int(np.count_nonzero(size)), told, len(near) * (told + HEADER * net.diameter)
