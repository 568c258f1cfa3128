"""One edge: whatever happens on the way, both ends keep the same history, and can go on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.field import edge as edges
from coke.field.edge import _Reply
from coke.field.frames import Word
from coke.maths.algorithms.codecs import Coarse, Codec, Float64
from kit.machines import answers_all
from kit.pair import D, Pair, line

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["round"] * 4 + ["hear"] * 6 + ["again", "again", "kill", "bump", "close"]),
        st.integers(0, 1),
        st.integers(0, 2**20),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(EVENTS, st.sampled_from([Coarse(), Float64()]))
def test_ends_at_one_step_agree_to_the_last_bit_whatever_happens(
    events: list[tuple[str, int, int]], codec: Codec
) -> None:
    """own = cp', g = −g', tag = tag' after losses, doubles, delays, kills, resets and closings."""
    pair = Pair(*(line(lower, codec) for lower in (True, False)), least=0.5)
    for what, i, n in events:
        end, edge = pair.ends[i], pair.lines[i]
        if what == "round":
            pair.round(i, np.random.default_rng(n).normal(size=D))
        elif what == "hear" and pair.sent[i]:
            pair.hear(i, pair.sent[i][-1 - n % min(6, len(pair.sent[i]))])
        elif what == "again" and end.out:
            pair.say(i, end.out._replace(again=True))
        elif what == "kill":
            pair.kill(i)
        elif what in ("bump", "close") and n % 4 == 0:
            change = edges.reopen if end.closed else edges.bump if what == "bump" else edges.close
            pair.ends[i] = pair.disks[i] = change(edge, end)
            pair.say(i, pair.ends[i].standing)
        pair.check()
    _finish(pair)


def _finish(pair: Pair) -> None:
    """From wherever they are, two ends that hear each other again come together and move."""
    for _ in range(6):
        for i in (0, 1):
            pair.round(i, np.ones(D))
            out = pair.ends[i].out
            frame = pair.ends[i].standing if out is None else out._replace(again=True)
            answer = pair.hear(1 - i, frame).answer
            if answer is not None:
                pair.hear(i, answer)
            pair.check()
    a, b = pair.ends
    assert a.standing == b.standing
    assert a.closed or min(a.s, b.s) > 0


def test_silence_moves_the_edge_and_not_the_words() -> None:
    """No news: own stays and g goes on adding own − cp."""
    pair = Pair(least=1.0)
    pair.step([2.0, 0, 0], [0.5, 0, 0])
    for _ in range(3):
        pair.step([2.5, 0, 0], [0.5, 0, 0])
    a, b = pair.ends
    assert a.out is not None
    assert a.out.payload == b""
    assert a.s == 3
    assert a.own[0] == 2.0
    assert a.g[0] == 6.0
    assert b.g[0] == -6.0


# Answers (I11).


def _cascade(hear: Any) -> int:
    """How many answers one word of the last step causes, sent again though all was heard."""
    pair = Pair()
    for k in range(4):
        pair.step(np.full(D, k), np.full(D, -k))
    frame, me, count = pair.sent[0][-2], 0, 0
    assert isinstance(frame, Word)
    reply = _Reply(pair.ends[0], frame._replace(again=True))
    while reply.answer is not None and count < 1000:
        reply = hear(pair.lines[me], pair.ends[me], reply.answer)
        me, count = 1 - me, count + 1
    return count - 1


def test_an_old_word_is_answered_once_and_only_if_its_sender_waits() -> None:
    """Else two ends would answer each other for ever, as the mutant does."""
    assert _cascade(edges.hear) == 1
    assert _cascade(answers_all) == 999
    pair = Pair()
    for k in range(3):
        pair.step(np.full(D, k), np.full(D, -k))
    for frame in pair.sent[0][:-1]:
        assert edges.hear(pair.lines[0], pair.ends[0], frame) == _Reply(pair.ends[0])
    word = pair.sent[0][1]
    assert isinstance(word, Word)
    one_behind = word._replace(again=True, step=pair.ends[0].s - 1)
    assert edges.hear(pair.lines[0], pair.ends[0], one_behind).answer == pair.ends[0].prev
