"""One edge: whatever happens on the way, both ends keep the same history, and can go on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.field import edge as edges
from coke.field.edge import Reply
from coke.field.words import Word
from coke.maths.algorithms.codecs import Coarse, Codec, Float64
from coke.maths.algorithms.coke import Geometric, Schedule, Shrinking
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
    pair = Pair(*(line(lower, codec, Geometric(0.5, 0.9)) for lower in (True, False)))
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
            turn = edges.reopen if end.closed else edges.bump if what == "bump" else edges.close
            pair.ends[i] = pair.disks[i] = turn(edge, end)
            pair.say(i, pair.ends[i].place)
        pair.check()
    _finish(pair)


def _finish(pair: Pair) -> None:
    """From wherever they are, two ends that hear each other again come together and move."""
    for _ in range(6):
        for i in (0, 1):
            pair.round(i, np.ones(D))
            out = pair.ends[i].out
            frame = pair.ends[i].place if out is None else out._replace(again=True)
            answer = pair.hear(1 - i, frame).answer
            if answer is not None:
                pair.hear(i, answer)
            pair.check()
    a, b = pair.ends
    assert a.place == b.place
    assert a.closed or min(a.s, b.s) > 0


def test_silence_moves_the_edge_and_not_the_words() -> None:
    """No news: own stays and g goes on adding own − cp."""
    pair = Pair(
        line(True, threshold=Schedule(lambda k: 1.0)),
        line(False, threshold=Schedule(lambda k: 1.0)),
    )
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


def test_thresholds_count_steps_of_the_edge_or_shrink_in_silence() -> None:
    """h(s + 1) for a sequence; `factor` times smaller after a silent step, the same after news."""
    asked: list[int] = []

    def h(k: int) -> float:
        asked.append(k)
        return 0.0

    pair = Pair(line(True, threshold=Schedule(h)), line(False))
    for _ in range(4):
        pair.step(np.ones(D), np.ones(D))
    assert asked == [1, 2, 3, 4]
    shrinking = Shrinking(8.0, 0.5, 0.75)
    edge = line(threshold=shrinking)
    end = edges.freeze(edge, edges.zero(edge), np.zeros((1, D)), 0)
    assert end.h == 0.5 * 8.0 * 0.75 == 3.0
    end = edges.freeze(edge, end, np.full((1, D), 4.0), 0)
    assert end.out is not None
    assert end.out.payload
    assert end.h == 3.0
    later = edges.freeze(edge, end._replace(s=9), np.full((1, D), 4.0), 0)
    assert later.h == 8.0 * 0.75**10


def test_a_warm_edge_speaks_first_whatever_the_threshold() -> None:
    edge = line(threshold=Shrinking(8.0, 0.5), warm=True)
    end = edges.freeze(edge, edges.zero(edge), np.full((1, D), 0.1), 0)
    assert end.out is not None
    assert end.out.payload


# Answers (I11).


def _cascade(hear: Any) -> int:
    """How many answers one word of the last step causes, sent again though all was heard."""
    pair = Pair()
    for k in range(4):
        pair.step(np.full(D, k), np.full(D, -k))
    frame, me, count = pair.sent[0][-2], 0, 0
    assert isinstance(frame, Word)
    reply = Reply(pair.ends[0], frame._replace(again=True))
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
        assert edges.hear(pair.lines[0], pair.ends[0], frame) == Reply(pair.ends[0])
    word = pair.sent[0][1]
    assert isinstance(word, Word)
    one_behind = word._replace(again=True, step=pair.ends[0].s - 1)
    assert edges.hear(pair.lines[0], pair.ends[0], one_behind).answer == pair.ends[0].prev
