"""One edge: impossible values and histories start it again, then close it; payloads are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import InputError, MessageError
from coke.field import edge as edges
from coke.field.edge import STRIKES, End
from coke.field.frames import MOST, TOP, Standing, Word
from coke.maths.algorithms.codecs import LIMIT, Coarse
from kit.machines import line as machine
from kit.pair import RAW, D, Pair, line


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
        assert end.standing == Standing(strike, strike == STRIKES)
        assert not end.own.any()
        assert not end.cp.any()
        assert not end.g.any()
        pair.hear(1, end.standing)
        assert pair.ends[1].standing == end.standing


def test_a_dual_beyond_exact_sums_starts_the_edge_again_at_both_ends() -> None:
    pair = Pair()
    for _ in range(4):
        pair.step(np.full(D, 0.3 * LIMIT), np.full(D, -0.3 * LIMIT))
    assert [end.epoch for end in pair.ends] == [1, 1]
    pair.check()


def test_ends_that_begin_after_a_descent_with_something_else_are_noticed() -> None:
    """The later order counts, and what was known then; another dual, and both begin from zero."""
    low, high = machine(True, handed=True), machine(False, handed=True)
    word = Word(0, 0, b"", 0, b"")
    first, later = (edges.zero(edge, Standing(j, False)) for j, edge in ((1, low), (2, high)))
    said = edges.freeze(later, word, 0.0)
    assert said.out is not None
    heard = edges.hear(low, first, said.out).end
    assert heard.standing == later.standing
    assert (heard.g + later.g == 0).all()
    wrong = {2: low.bases[2]._replace(g=low.bases[1].g)}
    end = edges.hear(low._replace(bases=wrong), first, said.out).end
    assert end.standing == Standing(MOST + 1, False)
    assert not end.own.any()
    assert not end.g.any()
    assert edges.hear(high, said, end.standing).end.standing == end.standing


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


def test_visited_are_a_lattice() -> None:
    """The larger (epoch, closed) wins at both ends; the smaller is told."""
    edge = line()
    ends: list[End] = [edges.zero(edge, Standing(e, c)) for e in (0, 1, 2) for c in (False, True)]
    for a in ends:
        for b in ends:
            reply = edges.hear(edge, a, b.standing)
            assert reply.end.standing == max(a.standing, b.standing)
            behind, closing = b.standing < a.standing, b.standing > a.standing and b.closed
            assert (reply.answer == reply.end.standing) == (behind or closing)


def test_epochs_end_in_a_closed_edge() -> None:
    edge = line()
    last = edges.zero(edge, Standing(TOP, False))
    assert edges.bump(edge, last).standing == Standing(TOP, True)
    with pytest.raises(InputError, match="last epoch"):
        edges.reopen(edge, edges.bump(edge, last))


def test_a_neighbour_that_was_closed_cannot_wash_its_record() -> None:
    """It may open the edge again; one more refused word closes it. An operator's open forgives."""
    edge = line()
    end = edges.bump(edge, edges.bump(edge, edges.bump(edge, edges.zero(edge))))
    assert end.closed
    back = edges.hear(edge, end, Standing(end.epoch + 1, False)).end
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
            edges.hear(edge, edges.zero(edge), Word(7, step, bytes(2), 0, payload))
