"""Lies that a neighbour with a valid certificate can tell: bounded, noticed or without effect.

The table in docs/trust.md says which of these tests stands for which break.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coke.errors import MessageError
from coke.field import closing
from coke.field import edge as edges
from coke.field.agreeing import EARLY_BYTES, Agreeing
from coke.field.carriers.base import Allowance
from coke.field.carriers.memory import Fault
from coke.field.edge import LEAST, PATIENCE, STRIKES
from coke.field.frames import CLOSING, Done, Said, Standing, Word, decode, encode, is_word
from coke.field.results import keep
from coke.learning.case import Case
from coke.learning.ready import Ready
from coke.maths.algorithms.tree_newton import END
from coke.maths.losses.excess import Certificate
from coke.talk.conversation import Talk, Turn
from coke.talk.descent import Descent
from coke.talk.handover import Settled
from coke.talk.place import Summed, Total
from coke.talk.tree import ending
from coke.talk.wave import wave
from kit.agents import PACE, B, Nets, forger, others
from kit.descents import root_of
from kit.falsehoods import PROOF_LIES, LyingDescent
from kit.pair import line

# Endings.


def _stop(step: int, forge: Callable[[Word], Word]) -> Callable[[Word], Word | None]:
    return lambda word: forge(word) if word.step == step else None


STOPS: dict[str, Callable[[Word], Word]] = {
    "a countdown of one": lambda word: word._replace(quiet=-1),
    "the end of a budget": lambda word: word._replace(quiet=-1, short=True),
}


@pytest.mark.parametrize("step", [2, 20])
@pytest.mark.parametrize("forge", STOPS.values(), ids=STOPS)
def test_nobody_s_word_alone_ends_a_run_as_converged(
    nets: Nets, forge: Callable[[Word], Word], step: int
) -> None:
    """A site says `converged` only if its own test held in the last 2 reach + 2 rounds."""
    net = nets(algorithm="coke", accuracy=1e-6, fault=forger(_stop(step, forge), B))
    net.start()
    net.wait()
    for name in others(net, B):
        assert net.node(name).done
        assert not net.agents[name].outcome().converged


def test_a_forged_done_is_no_convergence_either(nets: Nets) -> None:
    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        if sender == B and is_word(frame):
            return frame, encode(Done(0, 3))
        return (frame,)

    net = nets(algorithm="coke", fault=fault)
    net.start()
    net.wait(*others(net, B))
    assert not any(net.agents[name].outcome().converged for name in others(net, B))


def test_honest_sites_have_been_content_themselves(nets: Nets) -> None:
    net = nets(algorithm="coke", tol=1e-3)
    net.start()
    net.wait()
    assert all(net.node(name).settled for name in net.names)
    assert all(net.agents[name].outcome().converged for name in net.names)


def test_a_root_cannot_prove_more_than_the_sites_below_did(nets: Nets) -> None:
    """The end of a descent whose gap or objective is less than that of a subtree is refused."""
    net = nets(tol=None, algorithm="tree-newton")
    net.start()
    net.wait()
    descent = next(
        found
        for name in net.names
        if (found := net.agents[name]._descend.descent) is not None and found.place.parent
    )
    assert isinstance(descent, Descent)
    good = descent.certificate
    assert isinstance(good, Certificate)
    forged = ending((0.0, 0.0, 1e30))
    with pytest.raises(MessageError, match="proves less"):
        descent._taken(bytes([END]) + forged)


# Epochs.


def test_epochs_that_do_not_last_are_strikes_whoever_begins_them() -> None:
    """A neighbour that starts again before 20 steps, three times: closed; six times: for good."""
    edge, end = line(), edges.zero(line())
    for epoch in range(1, STRIKES + 1):
        end = edges.hear(edge, end, Standing(epoch, False)).end
        assert end.closed == (epoch == STRIKES)
    for epoch in range(STRIKES + 1, PATIENCE + 3):
        reply = edges.hear(edge, end, Standing(epoch, False))
        end = reply.end
        assert end.closed == (epoch >= PATIENCE)
        assert (reply.answer == Standing(epoch, True)) == end.closed
        end = edges.close(edge, end)
    assert not edges.reopen(edge, end).closed  # an operator forgives


def test_an_epoch_that_lasted_may_end() -> None:
    edge, end = line(), edges.zero(line())
    for epoch in range(1, 3 * PATIENCE):
        end = edges.hear(edge, end._replace(s=LEAST), Standing(epoch, False)).end
        assert (end.closed, end.strikes) == (False, 0)


def _resetting(every: int) -> Fault:
    seen = {"words": 0}

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        if sender != B or not is_word(frame):
            return (frame,)
        seen["words"] += 1
        again = encode(Standing(decode(frame, 100).epoch + 1, False))
        return (again,) if seen["words"] % every == 0 else (frame,)

    return fault


def test_a_neighbour_that_starts_again_and_again_is_struck_out_and_named(nets: Nets) -> None:
    """In the log, in the result; and the others end."""
    net = nets(fault=_resetting(5), pace=PACE)
    net.start()
    rest = others(net, B)
    net.wait(*rest)
    for name in rest:
        if B in net.friends[name]:
            found = keep(net.agents[name])
            assert found["lost"] == {B: "struck out"}
            assert ("closed", B, "struck out") in net.events[name]
            assert net.agents[name].outcome().converged


# Memory.


def _waiting() -> Talk[None]:
    while True:
        yield Turn({}, ["a"])


@pytest.mark.parametrize("first", [0, CLOSING])
def test_early_messages_take_bounded_memory_in_every_phase(first: int) -> None:
    """One of any length, or a few short ones; the rest is asked for again when it is of use."""
    talk: Agreeing[None] = Agreeing(_waiting(), ["a", "b"], {}, first)
    talk.go_on()
    frame = Allowance().frame
    for which in range(100):
        talk.hear("b", Said(first + which, bytes(frame // 16)))
    assert sum(map(len, talk.heard["b"])) <= EARLY_BYTES
    long: Agreeing[None] = Agreeing(_waiting(), ["a", "b"], {}, first)
    long.go_on()
    assert long.hear("b", Said(first, bytes(frame)))
    assert not long.hear("b", Said(first + 1, b"short"))


def test_sites_that_are_made_up_are_refused_before_they_take_room() -> None:
    """More than `max_sites`: by the length of the message alone."""
    ids = np.arange(3000, dtype="<u4").tobytes()
    told = msgspec.msgpack.encode(Summed(3, 5998, 1, 9000, 9000, 0, ids))
    assert len(Summed.decode(told, 3000).everyone) == 3000
    with pytest.raises(MessageError, match="max_sites"):
        Summed.decode(told, 2000)
    total = msgspec.msgpack.encode(Total(Summed.decode(told, 3000).shape, b"", 0, 1, 1))
    with pytest.raises(MessageError, match="max_sites"):
        Total.decode(total, 2000)


def test_a_site_s_own_file_says_how_many_there_may_be(nets: Nets) -> None:
    net = nets()
    for name in net.names:
        net.table[name] = {"max_sites": 3}
    net.start()
    net.until(lambda: bool(net.errors))
    assert "max_sites" in str(next(iter(net.errors.values())))


def test_the_wave_asks_for_no_more_sites_than_it_may() -> None:
    talk = wave("a", ["b"], 2)
    turn = next(talk)
    assert set(turn.tell) == {"b"}


def test_a_root_that_tells_another_model_at_the_end_is_not_believed(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the guard: whoever has come to a model by rounds keeps it, and says why."""
    net = nets(algorithm="coke", guard=True)
    root = root_of(net)

    def told(ready: Ready, case: Case, i: int, settled: Settled | None = None) -> Descent:
        assert case.goal is not None
        given = ready.places[i], case.problem.train, case.goal, settled
        lies = ready.places[i].name == root
        lie = PROOF_LIES["proof: a root tells −u"]
        return LyingDescent(lie, *given) if lies else Descent(*given)

    monkeypatch.setattr(closing, "descent_of", told)
    net.start()
    net.wait()
    best = net.task().case("coke").problem.optimum
    for name in others(net, root):
        learnt = net.agents[name].outcome()
        assert learnt.certificate is None
        assert_allclose(learnt.theta, best, atol=0.05 * np.abs(best).max())
        assert any("not near" in event.why for event in net.events[name])
