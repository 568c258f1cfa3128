"""What comes to a site from outside, frames and images: heard or kept, or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.errors import ConvergenceError, FileError, InputError, MessageError
from coke.field import edge as edges
from coke.field.edge import Setup
from coke.field.node import Site
from coke.field.state import image, restored
from coke.field.words import Place, Stop, Word, decode, encode
from coke.maths.algorithms.codecs import GRID, Coarse
from coke.maths.algorithms.coke import COKE
from kit.events import (
    GOAL,
    GOING_ON,
    SMALL,
    Faults,
    World,
    invariants,
    lockstep,
    name,
    whitened,
)
from kit.forging import forgeries


def _running() -> Site:
    world = World(SMALL, GOING_ON._replace(loss=0.3), tol=1e-3)
    for _ in range(25):
        world.tick()
    return world.agents[name(2)].site


RUNNING = _running()
NEIGHBOUR = next(iter(RUNNING.ends))
END = RUNNING.ends[NEIGHBOUR]
NEAR = st.builds(
    Word,
    st.integers(0, 2),
    st.integers(max(END.s - 3, 0), END.s + 3),
    st.sampled_from([END.tag[:4], b"else"]),
    st.integers(-3, 9),
    st.binary(max_size=20)
    | st.builds(Coarse().encode, st.just(np.linspace(-9, 9, SMALL.risk.size))),
    st.booleans(),
    st.just(False),
)
SHORT_FRAMES = st.sampled_from([Place, Stop]).flatmap(
    lambda kind: st.builds(kind, st.integers(0, 3), st.booleans())
)


@settings(max_examples=300)
@given(st.binary(max_size=130) | (NEAR | SHORT_FRAMES).map(encode))
def test_any_bytes_are_heard_or_refused_and_then_nothing_has_changed(data: bytes) -> None:
    """One answer at most; whatever is heard, the site can be kept, and go on."""
    before = image(RUNNING)
    try:
        turn = RUNNING.hear(NEIGHBOUR, data)
    except MessageError:
        assert image(RUNNING) == before
        return
    assert image(RUNNING) == before
    assert len(turn.letters) <= 1
    moved = turn.site.ends[NEIGHBOUR].place != END.place
    assert turn.durable == moved
    kept = restored(image(turn.site), RUNNING.setup)
    assert image(kept) == image(turn.site)
    turn.site.round(force=True)


def test_strangers_and_divergence_are_refused() -> None:
    with pytest.raises(MessageError, match="no neighbour"):
        RUNNING.hear("nobody", encode(Stop(0)))
    with pytest.raises(InputError, match="6 risks"):
        Setup("all", SMALL.risk, SMALL.algorithm, 2, None)
    with pytest.raises(InputError, match="diameter=-1"):
        SMALL.setup(0, diameter=-1)
    far = np.full(12, 4096.0)
    wild = RUNNING.ends[NEIGHBOUR]._replace(own=-far, cp=-far, g=far)
    mad = Setup(name(2), SMALL.risk.rows(slice(2, 3)), COKE(1e9), 2, None)
    with pytest.raises(ConvergenceError, match="diverges"):
        RUNNING._replace(setup=mad, ends={f"n{i}": wild for i in range(5)}).round(force=True)


def test_an_image_is_the_site_without_its_boxes() -> None:
    """Bit for bit; the round after it is the same where nothing had come in."""
    data = image(RUNNING)
    back = restored(data, RUNNING.setup)
    assert image(back) == data
    assert all(end.box == (None, None) for end in back.ends.values())
    one, other = (s.round(force=True).site for s in (back, restored(data, RUNNING.setup)))
    assert image(one) == image(other)


@settings(max_examples=150)
@given(forgeries(image(RUNNING)) | st.binary(max_size=60))
def test_forged_images_are_refused_or_harmless(data: bytes) -> None:
    try:
        site = restored(data, RUNNING.setup)
    except FileError:
        return
    assert image(restored(image(site), RUNNING.setup)) == image(site)


def test_an_image_that_no_site_can_have_written_is_refused() -> None:
    """Numbers off the grid, words of other steps, chains of another length."""
    assert END.out is not None
    ends = [
        END._replace(g=END.g + 2.0**-50),
        END._replace(own=END.own + 2.0**20),
        END._replace(cp=END.cp * np.nan),
        END._replace(out=END.out._replace(step=END.s + 1)),
        END._replace(prev=END.out),
        END._replace(tag=b"abc"),
        END._replace(h=-1.0),
    ]
    for end in ends:
        with pytest.raises(FileError, match="fit together"):
            restored(image(RUNNING._replace(ends={NEIGHBOUR: end})), RUNNING.setup)
    restored(image(RUNNING._replace(ends={NEIGHBOUR: END})), RUNNING.setup)


def test_an_image_of_another_site_or_size_is_refused() -> None:
    with pytest.raises(FileError, match="expected 'site003'"):
        restored(image(RUNNING), SMALL.setup(3))
    with pytest.raises(FileError, match="fit together"):
        restored(image(RUNNING), whitened(6, 10, 8).setup(2))


def test_a_cap_bounds_what_one_liar_can_do() -> None:
    """Every entry of every edge's dual stays within the cap; honest ones below it feel nothing."""
    plain = World(SMALL, Faults())
    assert plain.until(GOAL, 1000) > 0
    rho, ends = SMALL.algorithm.rho, [e for s in plain.sites.values() for e in s.ends.values()]
    largest = rho * max(np.abs(end.g).max() for end in ends)
    for factor, exact in ((4.0, True), (0.3, False)):
        capped = World(SMALL, Faults())
        for agent in capped.agents.values():
            setup = replace(agent.site.setup, cap=factor * largest)
            agent.site = agent.disk = agent.site._replace(setup=setup)
        assert (capped.until(GOAL, 2 * lockstep()[0], invariants) > 0) == exact
        for site in capped.sites.values():
            assert all((e.g / GRID % 1 == 0).all() for e in site.ends.values())
            assert rho * max(np.abs(e.g).max() for e in site.ends.values()) <= factor * largest


def test_a_stop_of_another_epoch_stops_nobody() -> None:
    """A frame from before the edge started again is answered by where the edge is now."""
    end = edges.reopen(RUNNING.setup.edge(NEIGHBOUR), END)
    site = RUNNING._replace(ends={**RUNNING.ends, NEIGHBOUR: end})
    turn = site.hear(NEIGHBOUR, encode(Stop(END.epoch)))
    assert not turn.site.stopped
    assert decode(turn.letters[0][1], 12) == end.place
    assert RUNNING.hear(NEIGHBOUR, encode(Stop(END.epoch))).site.ready()
