"""Neighbours that state nothing of their edges when all are asked to, though their words come.

Whoever lacks a neighbour's statement asks it once a round, over the one edge that both share: no
relay stands between them, and what is lost on the way comes later. One that is gone says no words
either; one that was started again may have no part in an audit. So a neighbour is convicted that
has said words all the while, in two audits one after the other, and only where others have stated
theirs: then it is not this site that audits pass by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from coke.field.edge import End

AUDITS = 2  # one after the other
OTHERS = 2  # that have stated their edges
MUTE = "states nothing of its edges, whoever asks"
STEPS = 5  # of the edge since the audit began, at least


@dataclass
class Silence:
    """Of one site's neighbours."""

    _began: dict[str, tuple[int, int]] = field(default_factory=dict)  # epoch and step of each edge
    _times: Counter[str] = field(default_factory=Counter)

    def begins(self, ends: Mapping[str, End]) -> None:
        """An audit, when this site states its own."""
        self._began = {name: (end.epoch, end.s) for name, end in ends.items()}

    def ends(self, ends: Mapping[str, End], heard: Collection[str]) -> str | None:
        """The audit, with statements of those: who is convicted."""
        for name, (epoch, s) in self._began.items():
            end = ends.get(name)
            if end is None or name in heard:
                del self._times[name]
            elif len(heard) > OTHERS and end.epoch == epoch and end.s >= s + STEPS:
                self._times[name] += 1
        self._began = {}
        mute = [name for name, times in self._times.items() if times >= AUDITS]
        return min(mute, default=None)
