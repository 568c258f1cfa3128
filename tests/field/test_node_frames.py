"""What comes to a site from outside, frames and images: heard or kept, or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.errors import ConvergenceError, FileError, InputError, MessageError
from coke.field import edge as edges
from coke.field.frames import Done, Standing, Word, decode, encode
from coke.field.node import Node
from coke.field.state import image, restored
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE
from kit.events import (
    GOING_ON,
    SMALL,
    World,
    name,
    whitened,
)
from kit.forging import forgeries


def _running() -> Node:
    world = World(SMALL, GOING_ON._replace(loss=0.3), tol=1e-3)
    for _ in range(25):
        world.tick()
    return world.agents[name(2)].node


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
STANDINGS = st.builds(Standing, st.integers(0, 3), st.booleans())
DONES = st.builds(Done, st.integers(0, 3), st.integers(0, END.s + 2), st.booleans(), st.booleans())


@settings(max_examples=300)
@given(st.binary(max_size=130) | (NEAR | STANDINGS | DONES).map(encode))
def test_any_bytes_are_heard_or_refused_and_then_nothing_has_changed(data: bytes) -> None:
    """One answer at most; whatever is heard, the site can be kept, and go on."""
    before = image(RUNNING)
    try:
        after = RUNNING.hear(NEIGHBOUR, decode(data, SMALL.risk.size))
    except MessageError:
        assert image(RUNNING) == before
        return
    assert image(RUNNING) == before
    assert len(after.frames) <= 1
    end = after.node.ends[NEIGHBOUR]
    assert after.durable == (end.standing != END.standing or end.last != END.last)
    kept = restored(image(after.node), RUNNING.setup)
    assert image(kept) == image(after.node)
    after.node.round(force=True)


def test_strangers_and_divergence_are_refused() -> None:
    with pytest.raises(MessageError, match="no neighbour"):
        RUNNING.hear("nobody", Done(0, 0))
    with pytest.raises(InputError, match="6 risks"):
        replace(SMALL.setup(0), risk=SMALL.risk)
    with pytest.raises(InputError, match="reach=-1"):
        SMALL.setup(0, reach=-1)
    far = np.full(12, 4096.0)
    wild = RUNNING.ends[NEIGHBOUR]._replace(own=-far, cp=-far, g=far)
    mad = replace(SMALL.setup(2), algorithm=COKE(1e9))
    with pytest.raises(ConvergenceError, match="diverges"):
        RUNNING._replace(setup=mad, ends={f"n{i}": wild for i in range(5)}).round(force=True)


def test_an_image_is_the_site_without_its_boxes() -> None:
    """Bit for bit; the round after it is the same where nothing had come in."""
    data = image(RUNNING)
    back = restored(data, RUNNING.setup)
    assert image(back) == data
    assert all(end.box == (None, None) for end in back.ends.values())
    one, other = (s.round(force=True).node for s in (back, restored(data, RUNNING.setup)))
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


def test_an_end_of_another_epoch_ends_nobody() -> None:
    """A frame from before the edge started again is answered by where the edge is now."""
    end = edges.reopen(RUNNING.setup.edge(NEIGHBOUR), END)
    node = RUNNING._replace(ends={**RUNNING.ends, NEIGHBOUR: end})
    after = node.hear(NEIGHBOUR, Done(END.epoch, 0, short=True))
    assert after.node == node
    assert after.frames == ((NEIGHBOUR, end.standing),)


def test_whoever_has_finished_is_not_waited_for_once_his_words_are_heard() -> None:
    """DONE says how many there are; those that are still to come are asked for."""
    for said in (END.s, END.s + 1):
        heard = RUNNING.hear(NEIGHBOUR, Done(END.epoch, said)).node
        assert (NEIGHBOUR in heard.missing()) == (said > END.s)
        assert heard.round(force=True).node.done  # and not for ever
    owed = RUNNING._replace(done=True).hear(
        NEIGHBOUR, Word(END.epoch, END.s - 1, b"el", 0, b"", again=True)
    )
    assert END.prev is not None
    assert dict(owed.frames) == {NEIGHBOUR: END.prev}
