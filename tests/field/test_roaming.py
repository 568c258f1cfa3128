"""Agents on streams on a clock of their own: who dies, when, and what others then do, to the turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kit.followers import rows_of
from kit.roamers import Roamers

WAITS = 120.0  # seconds of that clock, in which whatever can go on has gone on


def test_a_leaf_goes_on_whenever_its_neighbour_is_away(tmp_path: Path) -> None:
    """Though it has heard of him when he was away before."""
    with Roamers(tmp_path, rows_of(120, 6), stream={"wait": 0.3}, upto=30) as net:
        leaves_the_leaf(net)


def leaves_the_leaf(net: Roamers) -> None:
    """Its only neighbour twice."""
    leaf = min(net.graph, key=net.graph.degree)
    (near,) = net.graph[leaf]
    leaf, near = net.names[leaf], net.names[near]
    net.start(finishing=False)
    net.go_on(partial(net.beyond, 26), WAITS)
    net.kill(near)
    net.feed(40)
    net.go_on(lambda: net.ticks()[leaf] >= 38, WAITS)
    net.start(near, finishing=False)
    for fed in range(43, 100, 3):
        net.feed(fed)
        net.go_on(partial(net.beyond, fed - 2), WAITS)
    assert net.together()
    net.kill(near)
    net.feed(120)
    net.go_on(lambda: net.ticks()[leaf] >= 118, WAITS)
