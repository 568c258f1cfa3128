"""Two ends of one edge of a few numbers, and everything that can happen between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coke.field import edge as edges
from coke.field.edge import Coder, Edge, Reply
from coke.field.words import Frame
from coke.maths.algorithms.codecs import Codec, Float64
from coke.maths.algorithms.coke import NEVER_SILENT, Threshold
from coke.maths.ledger import HEADER

D = 3
RAW = st.binary(max_size=HEADER + 2 + 8 * D + 2)


def line(
    lower: bool = True,
    codec: Codec | None = None,
    threshold: Threshold = NEVER_SILENT,
    warm: bool = False,
    cap: float = math.inf,
) -> Edge:
    """An edge of D numbers."""
    return Edge(Coder(codec or Float64(), D), threshold, warm, lower, cap)


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
