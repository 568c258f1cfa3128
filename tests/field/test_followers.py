"""Agents on streams equal the simulation, whoever dies; and go on without those who are away."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coke.learning.finishing import finished
from coke.learning.model import load_model
from coke.learning.streaming import Stream
from kit.followers import PACE, Followers, are_even, rows_of


def test_agents_have_the_simulations_bits(tmp_path: Path) -> None:
    """Statistics, every dual, and θ after the stream has ended by agreement."""
    net = Followers(tmp_path, rows_of(40, 4), memory=float("inf"))
    net.start()
    net.wait()
    are_the_simulation(net, 40)


def test_whoever_dies_when_leaves_no_trace(tmp_path: Path) -> None:
    """Killed again and again, through images, bases and rounds, with a tenth of all frames lost."""
    rng, lossy = np.random.default_rng(0), np.random.default_rng(1)

    def fault(a: str, b: str, frame: bytes) -> tuple[bytes, ...]:
        return (frame,) * int(lossy.choice([0, 1, 1, 1, 1, 1, 1, 1, 1, 2]))

    net = Followers(tmp_path, rows_of(130, 4), memory=float("inf"), fault=fault)
    net.start()
    for tick in range(5, 125, 12):
        who = str(rng.choice(net.names))
        net.until(partial(net.beyond, tick))
        net.kill(who)
        net.start(who)
    net.wait()
    are_the_simulation(net, 130)


def test_others_go_on_without_one_that_is_away_and_with_it_once_it_is_back(tmp_path: Path) -> None:
    """Duals cancel on every edge to the bit, and no row is lost or counted twice."""
    pace = PACE._replace(patience=0.5)
    net = Followers(tmp_path, rows_of(400, 4), pace=pace, stream={"wait": 0.3})
    net.start()
    net.until(lambda: min(net.ticks().values()) >= 60)
    net.kill("s1")
    others = ["s0", "s2", "s3"]
    net.until(lambda: min(net.ticks()[n] for n in others) >= 140)
    net.start("s1")
    net.until(lambda: min(net.ticks().values()) >= 300)
    net.wait()
    are_even(net, 400)


@pytest.mark.parametrize("who", ["s0", "s1", "s2", "s3"])
def test_a_basis_that_is_due_waits_for_nobody_who_is_away(tmp_path: Path, who: str) -> None:
    """Whoever dies a tick before it, at whatever place in the tree; back again, all go on alike."""
    pace = PACE._replace(patience=0.5)
    net = Followers(tmp_path, rows_of(160, 4), pace=pace, stream={"wait": 0.3}, upto=10)
    net.start(finishing=False)
    net.until(partial(net.beyond, 9))
    net.kill(who)
    net.feed()
    others = [name for name in net.names if name != who]
    net.until(lambda: min(net.ticks()[n] for n in others) >= 60)
    net.start(who, finishing=False)
    net.until(partial(net.beyond, 159))
    net.finish()
    net.wait()
    are_even(net, 160)


def test_twenty_deaths_and_two_absences_cost_the_others_next_to_nothing(tmp_path: Path) -> None:
    """Each row counts once, duals cancel, and who was never away errs within 1.005 of before."""
    T, step, away = 270, 10, {60: "s1", 130: "s4"}
    pace, rng = PACE._replace(patience=0.5), np.random.default_rng(0)
    net = Followers(tmp_path, rows_of(T, 6), pace=pace, stream={"wait": 0.3}, upto=40)
    net.start(finishing=False)
    for fed in range(40, T, step):
        here = [name for name in net.names if name in net.threads]
        net.until(lambda here=here, fed=fed: min(net.ticks()[n] for n in here) >= fed - 2)  # type: ignore[misc]
        if fed in away:
            net.kill(away[fed])
        elif fed - 40 < 22 * step:
            who = str(rng.choice(here))
            net.kill(who)
            net.start(who, finishing=False)
        if fed - 100 in away:
            net.start(away[fed - 100], finishing=False)
        net.feed(fed + step)
    net.until(partial(net.beyond, T - 1))
    net.finish()
    net.wait()
    are_even(net, T)
    clean, others = net.undisturbed(), sorted({*net.names} - {*away.values()})
    paid = [net.agents[name].follow.score.mean for name in others]  # type: ignore[union-attr]
    assert np.mean(paid) <= 1.005 * np.mean([clean[name] for name in others])


def test_who_says_goodbye_is_not_waited_for(tmp_path: Path) -> None:
    """However patient the others are; and its model is there meanwhile."""
    net = Followers(tmp_path, rows_of(200, 4))
    net.start()
    net.until(partial(net.beyond, 60))
    net.stop("s2")
    assert load_model(tmp_path / "s2" / "state" / "model.coke").theta.shape == (1, 20)
    net.until(lambda: min(net.ticks()[n] for n in ("s0", "s1", "s3")) >= 90)
    net.start("s2")
    net.wait()
    for agent in net.agents.values():
        assert agent.follow is not None
        assert agent.follow.pending.counts.taken == 200
        assert set(agent.outcome().asymmetry.values()) == {0.0}


def are_the_simulation(net: Followers, rows: int) -> None:
    """Statistics, every dual, and θ after the stream has ended by agreement."""
    replay = net.replay()
    stream = replay.feed.stream
    assert isinstance(stream, Stream)
    ended = finished(stream, 200)
    for i, name in enumerate(net.names):
        agent = net.agents[name]
        assert agent.follow is not None
        own = agent.follow.stream
        np.testing.assert_array_equal(own.statistics.S[0], stream.statistics.S[i])
        assert agent.follow.pending.counts.taken == rows
    assert ended.certificate is not None
    for name in net.names:
        learnt = net.agents[name].outcome()
        ready = net.agents[name].agreed
        assert ready is not None
        theta = net.agents[name].mission.theta(ready, learnt.theta)
        np.testing.assert_array_equal(theta, stream.theta[0].ravel())
        assert learnt.certificate == ended.certificate
        assert not any(learnt.asymmetry.values())
