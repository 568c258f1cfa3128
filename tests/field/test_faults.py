"""Agents whose disks, settings and links fail: the optimum, or a clear refusal.

Threads over a network in memory (tests/agents.py). What TLS refuses is in test_zenoh.py, bits
under kills in test_field.py, bad neighbours in test_strangers.py.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.errors import ConfigError, FileError
from coke.field.carriers.memory import lossy
from coke.field.edge import STRIKES
from coke.field.frames import Standing, Word
from coke.field.node import Node
from coke.field.store import Store
from kit.agents import (
    GOAL,
    GOING_ON,
    PACE,
    A,
    B,
    Net,
    Nets,
    fails,
    forger,
)
from kit.events import eager

LOSS = {"loss": 0.2, "twice": 0.1}
ROUGH = 1e-6  # where a thousand rounds more would show nothing else


def states(net: Net) -> list[Path]:
    return sorted((net.folder / B).glob("site-*.coke"))


# Disks and settings.


def test_an_old_backup_is_noticed_and_costs_nothing_but_time(nets: Nets) -> None:
    """Its edges start again in a new epoch; the answer is the optimum of all."""
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 5)
    old = {path: path.read_bytes() for path in states(net)}
    net.until(lambda: net.rounds() >= 30)
    net.stop(B)
    for path, data in old.items():
        path.write_bytes(data)
    net.start(B)
    net.wait()
    assert all(net.end(B, n).epoch > 0 and not net.end(B, n).closed for n in net.friends[B])
    assert net.distance() <= GOAL
    assert net.asymmetry() == 0


def test_forged_tags_reset_an_edge_and_three_close_it(nets: Nets) -> None:
    """The graph holds without it: the optimum of all, still."""
    net, forged = nets(), set[int]()

    def forge(word: Word) -> Word | None:
        if word.step < 3:
            return None
        forged.add(word.epoch)
        return word._replace(tag=b"fake")

    net.memory.fault = forger(forge, B, A)
    net.friends = {n: set(net.names) - {n} for n in net.names}
    net.start()
    net.wait()
    assert forged == set(range(STRIKES))
    assert net.end(A, B).standing == net.end(B, A).standing == Standing(STRIKES, True)
    assert net.distance() <= GOAL


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:300],
    "altered": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "empty": lambda data: b"",
}


def test_damaged_or_missing_files_stop_the_agent_by_name(nets: Nets) -> None:
    """Never a silent start from zero; with the files restored, it goes on."""
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 5)
    net.stop(B)
    for paths in (states(net), [net.folder / B / "agreement.coke"]):
        whole = {path: path.read_bytes() for path in paths}
        for damage in DAMAGES.values():
            for path, data in whole.items():
                path.write_bytes(damage(data))
            net.start(B)
            error = fails(net, B)
            assert isinstance(error, FileError)
            assert str(paths[0]) in str(error)
        for path in paths:
            path.unlink()
        net.start(B)
        error = fails(net, B)
        assert isinstance(error, FileError)
        assert "missing" in str(error)
        assert str(paths[0]) in str(error)
        for path, data in whole.items():
            path.write_bytes(data)
    net.start(B)
    net.wait()
    assert net.distance() <= GOAL


@pytest.mark.parametrize(("damage", "newest"), [("altered", True), ("truncated", False)])
def test_one_of_two_states_is_enough(nets: Nets, damage: str, newest: bool) -> None:
    """A power cut spoils one at most; which of them makes no difference to the answer."""
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 30)
    net.stop(B)
    first, last = sorted(states(net), key=lambda p: int.from_bytes(p.read_bytes()[:8], "little"))
    spoilt = last if newest else first
    spoilt.write_bytes(DAMAGES[damage](spoilt.read_bytes()))
    net.start(B)
    net.wait()
    assert net.distance() <= GOAL
    assert net.asymmetry() == 0


def test_a_full_disk_stops_the_agent_and_space_lets_it_go_on(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the round is sent: no edge has to start again."""
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 5)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("coke.field.journal._flush", full)
        net.until(lambda: bool(net.errors))
        net.stop()
    for error in net.errors.values():
        assert isinstance(error, FileError)
        assert "site-" in str(error)
        assert os.strerror(errno.ENOSPC) in str(error)
    net.start()
    net.wait()
    assert net.distance() <= GOAL
    assert {end.epoch for n in net.names for end in net.node(n).ends.values()} == {0}


def test_a_history_that_cannot_be_written_is_a_file_error(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").mkdir()
    with pytest.raises(FileError, match=r"history\.jsonl"):
        Store(tmp_path).append({"round": 1})


def test_settings_that_differ_stop_both_ends_by_name(nets: Nets) -> None:
    net = nets()
    net.own[B] = {"lambda": 2e-3}
    net.start()
    for name in (B, *sorted(net.friends[B])):
        error = fails(net, name)
        assert isinstance(error, ConfigError)
        assert "lambda is" in str(error)
        assert "0.002" in str(error)


def test_changed_rows_or_settings_do_not_go_on_with_an_old_state(nets: Nets) -> None:
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 3)
    net.stop()
    before = net.parts[1]
    net.parts[1] = before[1:]
    net.start(B)
    error = fails(net, B)
    assert isinstance(error, FileError)
    assert "rows" in str(error)
    net.parts[1], net.own[B] = before, {"lambda": 2e-3}
    net.start(B)
    error = fails(net, B)
    assert isinstance(error, FileError)
    assert "lambda" in str(error)


# Links.


@pytest.mark.parametrize("pace", [PACE, GOING_ON], ids=["waiting", "going on"])
def test_loss_and_doubles_change_nothing(nets: Nets, pace: Any) -> None:
    """20 % lost, 10 % twice: one basis to the bit, the optimum, duals that cancel exactly."""
    net = nets(fault=lossy(1, **LOSS), pace=pace)
    net.start()
    net.wait()
    assert net.distance() <= GOAL
    assert net.asymmetry() == 0
    told = {a for agent in net.agents.values() for a in agent.outcome().asymmetry.values()}
    assert 0.0 in told <= {0.0, None}  # None: that end was a step behind, or never heard
    whitened, basis, _ = net.task().whitened
    for agent in net.agents.values():
        assert agent.agreed is not None
        assert_array_equal(agent.agreed.whitened[1].whitening.C, basis.whitening.C)
    np.testing.assert_allclose(net.theta(), np.tile(whitened.optimum, (4, 1)), atol=GOAL)


def test_duals_that_move_without_the_pair_are_wrong(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same loss, and every round integrates the newest values: 0.02 off at least."""
    monkeypatch.setattr(Node, "round", eager)
    net = nets(fault=lossy(1, **LOSS), pace=GOING_ON, rounds=150)
    net.start()
    net.wait()
    assert net.distance() >= 0.02


def test_a_partition_heals(nets: Nets) -> None:
    """All links of a site are cut for a while; nobody starts again from zero."""
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 20)
    for friend in net.friends[B]:
        net.memory.cut(B, friend)
    net.until(lambda: all(B in net.status[friend].missing for friend in net.friends[B]))
    then = net.rounds()
    for friend in net.friends[B]:
        net.memory.heal(B, friend)
    net.wait()
    assert net.rounds() > then
    assert net.distance() <= GOAL
    assert {end.epoch for n in net.names for end in net.node(n).ends.values()} == {0}


def test_half_of_the_sites_asleep_at_any_time(nets: Nets) -> None:
    """Random halves without links, a new half every few rounds."""
    net, draw = nets(pace=GOING_ON, tol=ROUGH), random.Random(0)
    over = threading.Event()

    def lull() -> None:
        edges = [(a, b) for a in net.names for b in net.friends[a] if a < b]
        while not over.wait(0.02):
            asleep = draw.sample(net.names, 2)
            for a, b in edges:
                (net.memory.cut if {a, b} & set(asleep) else net.memory.heal)(a, b)
        for a, b in edges:
            net.memory.heal(a, b)

    sleeper = threading.Thread(target=lull)
    sleeper.start()
    try:
        net.start()
        net.wait()
    finally:
        over.set()
        sleeper.join()
    assert net.distance() <= 10 * ROUGH
    assert net.asymmetry() == 0


def test_a_patience_shorter_than_the_timers_starves_no_edge(nets: Nets) -> None:
    """A lost word is said again though its site goes on with others meanwhile."""
    pace = PACE._replace(patience=0.02, again=0.1)
    net = nets(agents=6, edges=9, fault=lossy(1, **LOSS), pace=pace, tol=ROUGH)
    net.start()
    net.wait()
    assert net.distance() <= 10 * ROUGH
    assert net.asymmetry() == 0
