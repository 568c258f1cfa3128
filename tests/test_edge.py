"""One edge: whatever happens on the way, both ends keep the same history, and can go on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.agents import edge as edges
from coke.agents.edge import STRIKES, Coder, Edge, End, Reply
from coke.agents.words import BRIEF, TOP, Frame, Place, Stop, Word, decode, encode
from coke.errors import InputError, MessageError
from coke.maths.quantise import GRID, LIMIT, Coarse, Codec, Float64
from coke.maths.thresholds import NEVER_SILENT, Geometric, Shrinking, Threshold
from coke.run.ledger import HEADER
from exhaustive import (
    NOTHING_OUTSTANDING,
    ONE_WORD,
    RECOMPUTES,
    SENDS_FIRST,
    Machine,
    Model,
    Search,
    answers_all,
)

D = 3
EPOCHS, QUIETS = st.integers(0, TOP), st.integers(-(2**15) + 1, 2**15 - 1)
WORDS = st.builds(
    Word,
    EPOCHS,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=4, max_size=4),
    QUIETS,
    st.binary(max_size=2 + 8 * D),
    st.booleans(),
    st.booleans(),
).map(lambda word: word._replace(short=word.short and word.quiet < 0))
FRAMES = WORDS | st.builds(Place, EPOCHS, st.booleans()) | st.builds(Stop, EPOCHS, st.booleans())
RAW = st.binary(max_size=HEADER + 2 + 8 * D + 2)


def line(
    lower: bool = True,
    codec: Codec | None = None,
    threshold: Threshold | Shrinking = NEVER_SILENT,
    warm: bool = False,
    cap: float = math.inf,
) -> Edge:
    """An edge of D numbers."""
    return Edge(Coder(codec or Float64(), D), threshold, warm, lower, cap)


# Frames.


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    """decode(encode(f)) = f; a word takes 13 bytes and its payload, the others 3."""
    data = encode(frame)
    assert decode(data, D) == frame
    assert type(decode(data, D)) is type(frame)
    assert len(data) == (HEADER + len(frame.payload) if isinstance(frame, Word) else BRIEF)


@settings(max_examples=400)
@given(RAW | st.builds(lambda f, at, b: _altered(encode(f), at, b), FRAMES, *[st.integers(0)] * 2))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    """And what is read would be written the same: no two spellings of one frame."""
    try:
        frame = decode(data, D)
    except MessageError:
        return
    assert encode(frame) == data


def _altered(data: bytes, at: int, byte: int) -> bytes:
    return data[: at % len(data)] + bytes([byte % 256]) + data[at % len(data) + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x10\x00",
        b"\x10\x00\x00\x00",
        b"\x40\x00\x00",
        b"\x00" * 12,
        b"\x00" * 14,  # silence with a payload
        b"\x01" + b"\x00" * 12,  # news without one
        b"\x00" * 11 + b"\x00\x80",  # a countdown of 2¹⁵
        b"\x04" + b"\x00" * 12,  # an end without a countdown
        b"\x01" + b"\x00" * (HEADER + 2 + 8 * D),
    ],
)
def test_these_are_no_frames(data: bytes) -> None:
    with pytest.raises(MessageError, match="expected"):
        decode(data, D)


# Two ends and everything that can happen between them.


class Pair:
    """Both ends of an edge, what is on disk, and every frame ever sent."""

    def __init__(self, *lines: Edge):
        self.lines = lines or (line(True), line(False))
        self.ends = [edges.zero(one) for one in self.lines]
        self.disks = list(self.ends)
        self.sent: tuple[list[Frame], list[Frame]] = ([], [])  # to end 0, to end 1

    def round(self, i: int, theta: Any) -> None:
        """Complete, write the next word, keep it, send it."""
        end = self.ends[i]
        if end.due:
            end = edges.complete(self.lines[i], end)
        if not end.closed and end.out is None:
            end = edges.freeze(self.lines[i], end, np.asarray(theta, float)[None], 0)
        self.ends[i] = self.disks[i] = end
        self.say(i, end.out)

    def hear(self, i: int, frame: Frame) -> Reply:
        """The answer is on its way."""
        reply = edges.hear(self.lines[i], self.ends[i], frame)
        if reply.end.place != self.ends[i].place:
            self.disks[i] = reply.end
        self.ends[i] = reply.end
        self.say(i, reply.answer)
        return reply

    def say(self, i: int, frame: Frame | None) -> None:
        """To the other end."""
        if frame is not None:
            self.sent[1 - i].append(frame)

    def kill(self, i: int) -> None:
        """Back to the disk."""
        self.ends[i] = self.disks[i]._replace(box=(None, None))

    def step(self, *thetas: Any) -> None:
        """One step in lockstep."""
        for i in (0, 1):
            self.round(i, thetas[i])
        for i in (0, 1):
            self.hear(i, self.sent[i][-1])

    def check(self) -> None:
        """I1, I2, I6."""
        a, b = self.ends
        for end in self.ends:
            assert sum(word is not None for word in (end.out, end.prev, *end.box)) <= 4
        if a.place == b.place:
            assert abs(a.s - b.s) <= 1
            if a.s == b.s:
                assert a.tag == b.tag
                assert a.own.tobytes() == b.cp.tobytes()
                assert a.cp.tobytes() == b.own.tobytes()
                assert (a.g == -b.g).all()


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
    pair = Pair(line(True, threshold=lambda k: 1.0), line(False, threshold=lambda k: 1.0))
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

    pair = Pair(line(True, threshold=h), line(False))
    for _ in range(4):
        pair.step(np.ones(D), np.ones(D))
    assert asked == [1, 2, 3, 4]
    shrinking = Shrinking(8.0, 0.5, 0.75)
    edge = line(threshold=shrinking)
    end = edges.freeze(edge, edges.zero(edge), np.zeros((1, D)), 0)
    assert end.h == 0.5 * shrinking.bound(1) == 3.0
    end = edges.freeze(edge, end, np.full((1, D), 4.0), 0)
    assert end.out is not None
    assert end.out.payload
    assert end.h == 3.0
    later = edges.freeze(edge, end._replace(s=9), np.full((1, D), 4.0), 0)
    assert later.h == shrinking.bound(10)


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


# Guards.


def test_values_out_of_reach_start_the_edge_again_and_then_close_it() -> None:
    """|cp| beyond 2¹², though g = 0: the next epoch, from zero; after three times closed."""
    pair = Pair()
    for strike in range(1, STRIKES + 1):
        for k in (1, 2):
            pair.step(*[np.full(D, k * 0.75 * LIMIT)] * 2)
        before = pair.ends[0]
        assert before.epoch == strike - 1
        pair.round(0, np.full(D, 0.75 * LIMIT))
        end = pair.ends[0]
        assert end.place == Place(strike, strike == STRIKES)
        assert not end.own.any()
        assert not end.cp.any()
        assert not end.g.any()
        pair.hear(1, end.place)
        assert pair.ends[1].place == end.place


def test_a_dual_beyond_exact_sums_starts_the_edge_again_at_both_ends() -> None:
    pair = Pair()
    for _ in range(4):
        pair.step(np.full(D, 0.3 * LIMIT), np.full(D, -0.3 * LIMIT))
    assert [end.epoch for end in pair.ends] == [1, 1]
    pair.check()


def test_a_cap_holds_entry_by_entry_and_exactly() -> None:
    """|g| ≤ cap, and g = −g' all the same."""
    cap = 5 * GRID * 2**30
    pair = Pair(line(True, cap=cap), line(False, cap=cap))
    rng = np.random.default_rng(0)
    for _ in range(30):
        pair.step(rng.normal(size=D), rng.normal(size=D))
        pair.check()
        assert np.abs(pair.ends[0].g).max() <= cap
    assert np.abs(pair.ends[0].g).max() == cap


def test_a_lost_memory_is_noticed() -> None:
    """A word two steps ahead, one ahead of nothing said, or another history: start again."""
    pair = Pair()
    for k in range(4):
        pair.step(np.full(D, k), np.full(D, -k))
    fresh, edge, word = edges.zero(line(True)), line(True), pair.sent[0][-1]
    assert isinstance(word, Word)
    assert edges.hear(edge, fresh, word).end.epoch == 1
    assert edges.hear(edge, fresh, word._replace(step=1)).end.epoch == 1
    end = pair.ends[0]
    assert edges.hear(edge, end, word).end.epoch == 0
    assert edges.hear(edge, end, word._replace(tag=b"else")).end.epoch == 1
    ahead = edges.hear(edge, end, word._replace(step=end.s + 1, tag=b"else")).end
    assert edges.complete(edge, ahead).epoch == 1


def test_places_are_a_lattice() -> None:
    """The larger (epoch, closed) wins at both ends; the smaller is told."""
    edge = line()
    ends: list[End] = [edges.zero(edge, Place(e, c)) for e in (0, 1, 2) for c in (False, True)]
    for a in ends:
        for b in ends:
            reply = edges.hear(edge, a, b.place)
            assert reply.end.place == max(a.place, b.place)
            behind, closing = b.place < a.place, b.place > a.place and b.closed
            assert (reply.answer == reply.end.place) == (behind or closing)


def test_epochs_end_in_a_closed_edge() -> None:
    edge = line()
    last = edges.zero(edge, Place(TOP, False))
    assert edges.bump(edge, last).place == Place(TOP, True)
    with pytest.raises(InputError, match="last epoch"):
        edges.reopen(edge, edges.bump(edge, last))


def test_a_neighbour_that_was_closed_cannot_wash_its_record() -> None:
    """It may open the edge again; one more refused word closes it. An operator's open forgives."""
    edge = line()
    end = edges.bump(edge, edges.bump(edge, edges.bump(edge, edges.zero(edge))))
    assert end.closed
    back = edges.hear(edge, end, Place(end.epoch + 1, False)).end
    assert not back.closed
    assert edges.bump(edge, back).closed
    assert not edges.bump(edge, edges.reopen(edge, end)).closed


@given(RAW, st.integers(0, 3))
def test_a_payload_that_is_none_is_refused(payload: bytes, step: int) -> None:
    """Before anything else is believed, the epoch too."""
    edge = line(codec=Coarse())
    try:
        Coarse().decode(payload, D)
    except MessageError:
        with pytest.raises(MessageError):
            edges.hear(edge, edges.zero(edge), Word(7, step, bytes(4), 0, payload))


# Every interleaving (I15). The long versions are in benchmarks/protocol.py.

MODELS = {
    "two steps": Model(),
    "news or silence": Model(steps=1, silence=True, flight=1),
    "resets": Model(flight=1, resets=1),
    "closed and opened": Model(steps=1, flight=1, closings=2),
    "a disk that is empty again": Model(flight=1, rollbacks=1),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_interleaving_breaks_a_rule_or_leads_nowhere(model: Model) -> None:
    found = Search(model).run()
    assert found.states > 500
    assert found.violations == 0
    assert found.dead == 0


MUTANTS: dict[str, tuple[Model, Machine]] = {
    "sends before the image is on disk": (Model(1, 1, silence=True), SENDS_FIRST),
    "writes its word anew after a restart": (Model(1, 1, silence=True), RECOMPUTES),
    "keeps one word only": (Model(2, 1), ONE_WORD),
    "completes without the next word": (Model(2, 1, rollbacks=1), NOTHING_OUTSTANDING),
}


@pytest.mark.parametrize(("model", "machine"), MUTANTS.values(), ids=MUTANTS)
def test_what_does_not_work_is_seen(model: Model, machine: Machine) -> None:
    found = Search(Model(**{**vars(model), "machine": machine})).run(first=True)
    assert found.violations or found.dead
