"""Messages of a stream on every edge, each with its number: what was said, and what came early.

A number is a tick, and the how-manieth message of that tick on the edge. Nothing is acknowledged:
whoever lacks a message asks for it. A neighbour is a tick behind at most, so older ones go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coke.field.pulses import Rests, TickHere, TickSaid, TickWaits

Number = tuple[int, int]
_EARLY = 64  # messages of a neighbour that are kept before they are of use
_AGAIN = 128  # the number of the first message after an edge has rested, within a tick


class Posted(NamedTuple):
    """What must outlive a crash."""

    sent: dict[str, list[tuple[int, int, bytes]]]  # that a neighbour may still ask for
    came: dict[str, Number]
    told: dict[str, Number]


@dataclass
class Numbered:
    """Of one site."""

    now: Callable[[], int]  # its tick
    sent: dict[str, dict[Number, bytes]] = field(default_factory=dict)
    _inbox: dict[str, dict[Number, bytes]] = field(default_factory=dict)
    _came: dict[str, Number] = field(default_factory=dict)  # of a neighbour's next message …
    _told: dict[str, Number] = field(default_factory=dict)  # … and of the next one to him, so far

    def tell(self, told: Iterable[tuple[str, bytes]]) -> list[tuple[str, TickSaid]]:
        """What to post."""
        tick, found = self.now(), list[tuple[str, TickSaid]]()
        for name, message in told:
            sent = self.sent.setdefault(name, {})
            for old in [number for number in sent if number[0] < tick - 1]:
                del sent[old]
            _, k = self._next(self._told, name)
            self._told[name] = tick, k + 1
            sent[tick, k] = message
            found.append((name, TickSaid(tick, k, message)))
        return found

    def expected(self, name: str) -> Number:
        """The number of a neighbour's next message."""
        return self._next(self._came, name)

    def _next(self, known: dict[str, Number], name: str) -> Number:
        tick, k = known.get(name, (0, 0))
        return (tick, k) if tick == self.now() else (self.now(), 0)

    def used(self, name: str) -> None:
        """The next message of that neighbour has been taken."""
        tick, k = self.expected(name)
        self._came[name] = (tick, k + 1)

    def anew(self, name: str) -> None:
        """An edge that rested goes on: nothing of before is of use."""
        self._came[name] = self._told[name] = (self.now(), _AGAIN)
        self._inbox.pop(name, None)
        self.sent.pop(name, None)

    def came(self, name: str) -> bytes | None:
        """A neighbour's next message, if it is there; it is taken out."""
        return self._inbox.get(name, {}).pop(self.expected(name), None)

    @property
    def begun(self) -> bool:
        """Whether a neighbour has begun with the next tick."""
        return any((self.now() + 1, 0) in inbox for inbox in self._inbox.values())

    def hear(self, sender: str, said: TickSaid) -> None:
        """Posted, if it is of use now or soon."""
        inbox, number = self._inbox.setdefault(sender, {}), (said.tick, said.k)
        for old in [one for one in inbox if one < self.expected(sender)]:
            del inbox[old]
        soon = self.expected(sender) <= number and number[0] <= self.now() + 1
        if soon and len(inbox) < _EARLY:
            inbox.setdefault(number, said.message)

    def answer(
        self, sender: str, asked: TickWaits, resting: bool = False
    ) -> TickSaid | TickHere | Rests | None:
        """What was said; or that it will be; or, where it never will, that the edge rests."""
        message, now = self.sent.get(sender, {}).get((asked.tick, asked.k)), self.now()
        if message is not None:
            return TickSaid(asked.tick, asked.k, message)
        if resting:
            return Rests(now)
        if asked.tick >= now:
            return TickHere(now)
        return Rests(now) if asked.tick == now - 1 else None  # of long ago: it has come since

    def kept(self) -> Posted:
        """What is to be remembered."""
        each = ((name, sent.items()) for name, sent in self.sent.items())
        sent = {name: [(*number, message) for number, message in some] for name, some in each}
        return Posted(sent, self._came, self._told)

    def remember(self, kept: Posted) -> None:
        """As it was."""
        self._came, self._told = dict(kept.came), dict(kept.told)
        for name, sent in kept.sent.items():
            self.sent[name] = {(tick, k): message for tick, k, message in sent}
