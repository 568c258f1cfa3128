"""Agents on streams on a clock of their own: who dies when, and what others then do."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coke.field.carriers.memory import lossy
from kit.followers import are_even, rows_of
from kit.roamers import PACE, Roamers

PATIENCE = 2.0  # seconds of that clock


def test_a_leaf_goes_on_whenever_its_neighbour_is_away(tmp_path: Path) -> None:
    """Though it has heard of him when he was away before."""
    with Roamers(tmp_path, rows_of(120, 6), stream={"wait": 0.3}, upto=30) as net:
        leaf = min(net.graph, key=net.graph.degree)
        (near,) = net.graph[leaf]
        leaf, near = net.names[leaf], net.names[near]
        net.start(finishing=False)
        net.go_on(partial(net.beyond, 26))
        net.kill(near)
        net.feed(40)
        net.go_on(lambda: net.ticks()[leaf] >= 38)
        net.start(near, finishing=False)
        for fed in range(43, 100, 3):
            net.feed(fed)
            net.go_on(partial(net.beyond, fed - 2))
        assert net.together()
        net.kill(near)
        net.feed(120)
        net.go_on(lambda: net.ticks()[leaf] >= 118)


@pytest.mark.parametrize(
    ("seed", "patience", "loss"),
    [(3, PATIENCE, 0.0), (6, 0.5, 0.0), (14, 0.5, 0.05), (21, 0.5, 0.05)],
)
def test_whoever_dies_when_all_end_alike(
    tmp_path: Path, seed: int, patience: float, loss: float
) -> None:
    """Each row counts once and duals cancel, whoever is away at whatever frame, at the end too."""
    fault, pace = lossy(seed, loss=loss, twice=loss), PACE._replace(patience=patience)
    net = Roamers(
        tmp_path, rows_of(150, 6, seed), pace=pace, fault=fault, stream={"wait": 0.3}, upto=20
    )
    with net:
        net.start(finishing=False)
        net.suffers(np.random.default_rng(seed), 150)
        net.go_on(partial(net.beyond, 149))
        net.finish()
        net.go_on(lambda: not net.turns)
        are_even(net, 150)


def test_who_dies_and_is_back_at_once_changes_no_prediction(tmp_path: Path) -> None:
    """Killed at random frames, bases and rounds among them: all err as in one process."""
    rng = np.random.default_rng(0)
    with Roamers(tmp_path, rows_of(120, 6), stream={"wait": 0.3}, upto=20) as net:
        net.start(finishing=False)
        for fed in range(23, 123, 3):
            net.doomed[str(rng.choice(net.names))] = int(rng.integers(8))
            net.feed(min(fed, 120))
            net.go_on(partial(net.revived_upto, fed - 6))
        net.doomed.clear()
        net.go_on(partial(net.revived_upto, 119))
        net.finish()
        net.go_on(lambda: not net.turns)
        are_even(net, 120)
        assert net.deaths >= 20
        paid = {n: agent.follow.score.mean for n, agent in net.agents.items()}  # type: ignore[union-attr]
        assert paid == pytest.approx(net.undisturbed(), rel=1e-9)


@pytest.mark.parametrize("who", range(4))
@pytest.mark.parametrize("frames", [0, 5, 10, 15, 20])
def test_nobody_waits_for_who_dies_while_a_basis_is_agreed_on(
    tmp_path: Path, who: int, frames: int
) -> None:
    """At whatever frame, a tick before and in the middle; back again, it has what others have."""
    with Roamers(tmp_path, rows_of(60, 4), stream={"wait": 0.3}, upto=10) as net:
        name = net.names[who]
        net.start(finishing=False)
        net.go_on(partial(net.beyond, 9))
        net.doomed[name] = frames
        net.feed(30)
        net.go_on(lambda: name not in net.turns or net.ticks()[name] >= 29)
        net.kill(name)  # at the latest
        since = net.now
        net.go_on(lambda: min(net.ticks()[one] for one in net.turns) >= 29)
        assert net.now - since <= 4 * PATIENCE
        net.start(name, finishing=False)
        net.feed(60)
        net.go_on(partial(net.beyond, 59))
        net.finish()
        net.go_on(lambda: not net.turns)
        are_even(net, 60)
        assert all(agent.follow.stream.agreed for agent in net.agents.values())  # type: ignore[union-attr]
