"""Agents on streams equal the simulation, whoever dies; and go on without those who are away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kit.followers import Followers, finished, rows_of


def test_agents_have_the_simulations_bits(tmp_path: Path) -> None:
    """Statistics, every dual, and θ after the stream has ended by agreement."""
    net = Followers(tmp_path, rows_of(40, 4), memory=float("inf"))
    net.start()
    net.wait()
    replay = net.replay()
    stream = replay.feed.stream
    ended = finished(stream, 200)
    for i, name in enumerate(net.names):
        agent = net.agents[name]
        assert agent.follow is not None
        own = agent.follow.stream
        np.testing.assert_array_equal(own.statistics.S[0], stream.statistics.S[i])
        assert agent.follow.pending.counts.taken == 40
    assert ended.certificate is not None
    for name in net.names:
        learnt = net.agents[name].outcome()
        theta = net.agents[name].mission.theta(net.agents[name].agreed, learnt.theta)
        np.testing.assert_array_equal(theta, stream.theta[0].ravel())
        assert learnt.certificate == ended.certificate
        assert not any(learnt.asymmetry.values())
