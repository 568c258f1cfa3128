"""The rules of one end, what can happen in a small network, and rules that do not work: mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coke.field import edge as edges
from coke.field.edge import Edge, End
from coke.field.frames import Frame, Word
from coke.maths.algorithms.codecs import Coded
from coke.maths.arrays import Array
from coke.talk.handover import Base


@dataclass(frozen=True)
class Digit:
    """One number from 0 to 255, as one byte."""

    def encode(self, x: Array) -> bytes:
        """The byte."""
        return bytes([int(x[0])])

    def decode(self, data: bytes, size: int) -> Array:
        """The number."""
        return np.array([float(data[0])])

    def coded(self, X: Array) -> Coded:
        """Byte by byte."""
        return Coded(X, np.ones((len(X), 1), np.int64), lambda i: self.encode(X[i]))


def line(lower: bool, handed: bool = False) -> Edge:
    """An edge of one number; after an order or two of a descent its ends know more and more."""
    sign, known = 1.0 if lower else -1.0, {1: (3.0, 5.0), 2: (4.0, -7.0)} if handed else {}
    bases = {j: Base(np.array([x]), np.array([sign * g]), 0.0) for j, (x, g) in known.items()}
    return Edge(Digit(), 1, lower, bases=bases)


@dataclass(frozen=True)
class Machine:
    """The rules of one end; a mutant is a machine with another rule."""

    hear: Callable[[Edge, End, Frame], edges._Reply] = edges.hear
    complete: Callable[[Edge, End], End] = edges.complete
    kept: Callable[[End], End] = lambda end: end._replace(box=(None, None))  # what a kill leaves
    durable_first: bool = True  # the image is on disk before the first byte leaves
    outstanding: bool = True  # a completed step is followed by the next word at once


@dataclass(frozen=True)
class Model:
    """What can happen, and how much of it."""

    steps: int = 2
    flight: int = 2  # letters on their way, each way on each edge
    sites: int = 2  # on a path …
    ring: bool = False  # … or around a circle
    silence: bool = False  # every word is news or silence; else each has its own content
    double: bool = True
    resets: int = 0
    closings: int = 0
    rollbacks: int = 0
    spare: bool = False  # edges are in reserve, and opened or shut for good by `closings`
    begins: tuple[int, ...] = ()  # orders of a descent after which each site goes on by rounds
    machine: Machine = Machine()
    most: int = 2_000_000  # states


# Section 9 of the protocol's notes: what does not work.

SENDS_FIRST = Machine(durable_first=False)
RECOMPUTES = Machine(kept=lambda end: end._replace(box=(None, None), out=None))
ONE_WORD = Machine(complete=lambda edge, end: edges.complete(edge, end)._replace(prev=None))
NOTHING_OUTSTANDING = Machine(outstanding=False)


def _deaf(edge: Edge, end: End, frame: Frame) -> edges._Reply:
    """Whoever keeps an edge in reserve does not hear that the other has opened it."""
    if end.standing == edges.RESERVE:
        return edges._Reply(end, end.standing)
    return edges.hear(edge, end, frame)


DEAF_IN_RESERVE = Machine(hear=_deaf)


def _mute(edge: Edge, end: End, frame: Frame) -> edges._Reply:
    """Whoever has closed an edge does not answer one that opens it from the reserve."""
    reply = edges.hear(edge, end, frame)
    return reply._replace(answer=None) if end.closed and end.epoch else reply


MUTE_WHEN_SHUT = Machine(hear=_mute)


def _own_beginning(edge: Edge, end: End, frame: Frame) -> edges._Reply:
    """A later epoch is taken over, but with what this end began with."""
    after = edges.hear(edge, end, frame)
    if after.end.standing == end.standing or after.end.closed:
        return after
    return after._replace(end=after.end._replace(own=end.own, cp=end.cp, g=end.g))


OWN_BEGINNING = Machine(hear=_own_beginning)


def answers_all(edge: Edge, end: End, frame: Frame) -> edges._Reply:
    """Every old word is answered, also one that is an answer."""
    again = frame._replace(again=True) if isinstance(frame, Word) else frame
    return edges.hear(edge, end, again)
