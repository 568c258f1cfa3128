"""Conversations before training: what one site says, waits for and concludes, as a generator.

A site yields what it tells whom and from whom it waits, and is sent what they told it. It sees
neither sockets nor other sites, so that a simulation of all sites and one agent in the field run
the same code; and as it is a function of what it heard, an agent that crashed replays what it had
received and goes on.

The first one is `coke.talk.wave`: sites find their places in a tree. Sums over it follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from coke.errors import CokeError, GraphError
from coke.maths.ledger import Ledger

R = TypeVar("R")


class Turn(NamedTuple):
    """One step of a conversation."""

    tell: Mapping[str, bytes]  # neighbour → message
    expect: Collection[str]  # whose next message must be there before the next step
    broadcast: bool = False  # one message to all: one transmission in the paper's account


Talk = Generator[Turn, dict[str, bytes], R]


class Conversation(Generic[R]):
    """One site's conversation: how far it has come, what it has cost, and what it came to."""

    def __init__(self, talk: Talk[R]):
        self._talk = talk
        self._turn: Turn | None = None  # the last one
        self._came: dict[str, deque[bytes]] = {}  # and was not used yet
        self._wrong: CokeError | None = None  # to be said once what was told is on its way
        self.ledger = Ledger()
        self.result: R | None = None
        self.done = False

    def further(self, talk: Talk[Any]) -> None:
        """One more conversation with the same neighbours, once this one is done."""
        self._talk, self._turn, self.result, self.done = talk, None, None, False

    def take(self, sender: str, message: bytes) -> None:
        """The next message of that neighbour."""
        self._came.setdefault(sender, deque()).append(message)

    def waiting(self) -> list[str]:
        """The neighbours without whose next message it cannot go on."""
        expected = () if self._turn is None or self.done else self._turn.expect
        return [name for name in expected if not self._came.get(name)]

    def go_on(self) -> list[tuple[str, bytes]]:
        """As far as what came allows; what it tells whom on the way.

        What is wrong is raised at the next call where something was told before: others wait for
        it, and may have to know.
        """
        if self._wrong is not None:
            raise self._wrong
        told: list[tuple[str, bytes]] = []
        try:
            while not self.done and not self.waiting():
                told += self._step()
        except CokeError as error:
            if not told:
                raise
            self._wrong = error
        return told

    def _step(self) -> Iterable[tuple[str, bytes]]:
        answers: Any = None  # to begin with
        if self._turn is not None:
            answers = {name: self._came[name].popleft() for name in self._turn.expect}
        try:
            turn = self._turn = self._talk.send(answers)
        except StopIteration as stop:
            self.result, self.done = stop.value, True
            return ()
        self.ledger = self.ledger.sent(turn.tell.values(), broadcast=turn.broadcast)
        return turn.tell.items()


def outcome(talk: Talk[R]) -> R:
    """What a conversation comes to that needs nobody else."""
    try:
        next(talk)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a conversation that was to need nobody else")


Letter = tuple[str, str, bytes]  # sender, recipient, message
Post = Callable[[Callable[[], list[Letter]]], list[Letter] | None]
"""Lets the sites here go on and brings what those elsewhere tell them; None once all are silent."""


def nobody_else(go_on: Callable[[], list[Letter]]) -> None:
    """All sites are here."""
    go_on()


def together(
    talks: Mapping[str, Talk[R]], post: Post = nobody_else
) -> tuple[dict[str, R], dict[str, Ledger]]:
    """All these sites' conversations: what each concluded and spent, in the order of `talks`."""
    held = {name: Conversation(talk) for name, talk in talks.items()}
    came: list[Letter] | None = []
    while came is not None:
        came = post(partial(_delivered, held, came))
    for one in held.values():
        one.go_on()  # or what is wrong with it
    waiting = sorted(name for name, one in held.items() if not one.done)
    if waiting:
        raise GraphError(f"sites {waiting[:8]} wait for each other for ever")
    results: dict[str, Any] = {name: one.result for name, one in held.items()}
    return results, {name: one.ledger for name, one in held.items()}


def _delivered(held: Mapping[str, Conversation[R]], letters: list[Letter]) -> list[Letter]:
    """Lets everybody here go on as far as they can; their letters to sites elsewhere."""
    leaving: list[Letter] = []
    ready: Iterable[str] = held
    while ready:
        for sender, name, message in letters:
            held[name].take(sender, message)
        said = [(name, to, told) for name in ready for to, told in held[name].go_on()]
        leaving += [letter for letter in said if letter[1] not in held]
        letters = [letter for letter in said if letter[1] in held]
        ready = dict.fromkeys(to for _, to, _ in letters)
    return leaving
