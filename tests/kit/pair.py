"""Two ends of one edge of a few numbers, and everything that can happen between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from coke.field import edge as edges
from coke.field.edge import Edge, End, _Reply
from coke.field.frames import Frame, Word
from coke.maths.algorithms.codecs import Codec, Float64
from coke.maths.arrays import Array
from coke.maths.ledger import HEADER

D = 3
RAW = st.binary(max_size=HEADER + 2 + 8 * D + 2)


def line(lower: bool = True, codec: Codec | None = None) -> Edge:
    """An edge of D numbers."""
    return Edge(codec or Float64(), D, lower)


def said(edge: Edge, end: End, theta: Array, least: float = 0.0) -> End:
    """With a word: the innovation θ − own if it is at least so long, else silence."""
    news = np.linalg.norm(theta - end.own) >= least
    payload = edge.codec.encode(theta - end.own) if news else b""
    return edges.freeze(end, Word(0, 0, b"", 0, payload), 0.0)


class Pair:
    """Both ends of an edge, what is on disk, and every frame ever sent."""

    def __init__(self, *lines: Edge, least: float = 0.0):
        self.lines, self.least = lines or (line(True), line(False)), least
        self.ends = [edges.zero(one) for one in self.lines]
        self.disks = list(self.ends)
        self.sent: tuple[list[Frame], list[Frame]] = ([], [])  # to end 0, to end 1

    def round(self, i: int, theta: Any) -> None:
        """Complete, write the next word, keep it, send it."""
        end = self.ends[i]
        if end.due:
            end = edges.complete(self.lines[i], end)
        if not end.closed and end.out is None:
            end = said(self.lines[i], end, np.asarray(theta, float), self.least)
        self.ends[i] = self.disks[i] = end
        self.say(i, end.out)

    def hear(self, i: int, frame: Frame) -> _Reply:
        """The answer is on its way."""
        reply = edges.hear(self.lines[i], self.ends[i], frame)
        if reply.end.standing != self.ends[i].standing:
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
        if a.standing == b.standing:
            assert abs(a.s - b.s) <= 1
            if a.s == b.s:
                assert a.tag == b.tag
                assert a.own.tobytes() == b.cp.tobytes()
                assert a.cp.tobytes() == b.own.tobytes()
                assert (a.g == -b.g).all()
