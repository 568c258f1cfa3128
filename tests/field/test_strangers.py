"""Whoever has a neighbour's name and says what makes no sense, or what is not true."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from coke.errors import ConvergenceError, InputError
from coke.field.carriers.memory import faithful
from coke.field.frames import (
    LETTER,
    TOTALS,
    Hello,
    Said,
    Standing,
    Want,
    Word,
    decode_letter,
    encode,
    is_word,
)
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.state import image
from coke.learning.ready import Ready
from coke.maths.algorithms.codecs import Float64
from coke.maths.algorithms.coke import COKE
from coke.maths.ledger import Ledger
from kit.agents import (
    GOAL,
    A,
    B,
    C,
    D,
    Nets,
    fails,
    forger,
    others,
)


def test_frames_that_make_no_sense_change_nothing(nets: Nets) -> None:
    """Cut off, too long, random, old: the state's bytes stay, the agent lives, and goes on."""
    net, seen = nets(), list[bytes]()

    def recorder(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        if (sender, receiver) == (B, A):
            seen.append(frame)
        return (frame,)

    net.friends = {n: set(net.names) - {n} for n in net.names}
    net.memory.fault = recorder
    net.start()
    net.until(lambda: net.rounds() >= 20)
    net.stop()
    net.memory.fault = faithful
    old = [frame for frame in seen if is_word(frame)]
    net.start(A)
    stranger = net.memory.join(B, net.friends[B])
    net.until(lambda: A in net.status and net.status[A].phase == "train")
    stranger.send(A, encode(Standing(1, False)))  # this is his right: a new epoch
    net.until(lambda: net.end(A, B).epoch == 1)
    before = image(net.node(A))
    draw = random.Random(0)
    junk = [draw.randbytes(draw.randrange(4, 200)) for _ in range(300)]
    cut = [frame[: draw.randrange(1, len(frame))] for frame in old if len(frame) > 20]
    long = [old[-1] + bytes(2000), bytes(2**20 + 1), b"\x40" + b"[" * 70_000]
    other = [encode(Hello({"lambda": "2"}, back=True)), bytes(3), b""]
    frames = [*old, *junk, *cut, *long, *other]
    for frame in frames:
        stranger.send(A, frame)
    stranger.send(A, encode(Want()))  # once this is answered, all of it has been read
    net.until(lambda: (got := stranger.receive(0)) is not None and got[1][0] == TOTALS)
    assert image(net.node(A)) == before
    assert net.threads[A].is_alive()
    assert net.agents[A].desk.refused[B] > 200
    net.start(*others(net, A))
    net.wait()
    assert net.distance() <= GOAL


# A bad neighbour.


class Plainly(Mission):
    """Every number as eight bytes."""

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        setup = super().setup(ready, spent)
        assert isinstance(setup.algorithm, COKE)
        return replace(setup, algorithm=replace(setup.algorithm, codec=Float64()))


def doubles(value: float) -> Callable[[Word], Word]:
    return lambda word: word._replace(payload=struct.pack("<d", value) * 24)


BAD = {
    "NaN": (Plainly, doubles(float("nan"))),
    "infinite": (Plainly, doubles(float("-inf"))),
    "1e6": (Plainly, doubles(1e6)),
    "4000, again and again": (Plainly, doubles(4000.0)),
    "absurd integers": (Mission, lambda w: w._replace(payload=b"\x0c\xff" + b"\xff" * 30)),
    "no code at all": (Mission, lambda w: w._replace(payload=b"\x7f\x00\x00")),
}


@pytest.mark.parametrize("kind", BAD)
def test_values_beyond_reason_are_struck_out_and_leave_no_trace(nets: Nets, kind: str) -> None:
    """Three strikes on every edge; the honest sites' optimum, as if the bad one had never been."""
    mission, forge = BAD[kind]
    net = nets(fault=forger(lambda w: forge(w) if w.payload else None, B))
    net.kind = mission
    net.start()
    rest = others(net, B)
    net.wait(*rest)
    ends = [net.end(n, B) for n in rest if B in net.friends[n]]
    assert all(end.closed and end.epoch <= 2 * 3 for end in ends)  # three strikes at either end
    assert net.distance(*rest) <= GOAL
    assert isinstance(fails(net, B), ConvergenceError)


@pytest.mark.parametrize("which", [0, 1])
def test_garbage_in_the_agreement_stops_a_site_until_its_neighbour_is_mended(
    nets: Nets, which: int
) -> None:
    """It says why; and what made no sense is not what it goes on from."""

    def garbled(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        letter = decode_letter(frame) if frame[0] >= LETTER else None
        if sender == B and isinstance(letter, Said) and letter.which == which:
            return (encode(letter._replace(message=b"\xff" * 9)),)
        return (frame,)

    net = nets(fault=garbled)
    net.start()
    net.until(lambda: bool(net.errors))
    net.stop()
    stopped = set(net.errors)
    assert stopped <= net.friends[B]
    assert all(isinstance(error, InputError) for error in net.errors.values())
    net.memory.fault = faithful
    net.start()
    net.wait()
    assert net.distance() <= GOAL


def test_garbage_that_came_early_is_not_what_a_site_goes_on_from(nets: Nets) -> None:
    """Stopped with it in hand, before it made sense of it: once mended, all go on.

    D is the root, and waits for both its children, of whom one is held up.
    """
    early = threading.Event()

    def garbled(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        letter = decode_letter(frame) if frame[0] >= LETTER else None
        if receiver != D or not isinstance(letter, Said):
            return (frame,)
        if sender == B and letter.which == 1:
            early.set()
            return (encode(letter._replace(message=b"\xff" * 9)),)
        return () if sender == C and letter.which == 1 else (frame,)

    net = nets(fault=garbled)
    assert {B, C} == net.friends[D]
    net.start()
    net.until(lambda: early.is_set() and (net.folder / D / "agreement.coke").exists())
    net.stop()
    assert not net.errors
    net.memory.fault = faithful
    net.start()
    net.wait()
    assert net.distance() <= GOAL
