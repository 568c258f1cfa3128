"""The agreement over links that lose things: one site's conversation, driven by what arrives.

A site's messages are a function of what it heard. So it is enough to keep what it used: after a
crash the conversation is held again with the same answers, and says the same. Nothing is
acknowledged; who waits for a message asks for it until it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from coke.errors import ConfigError, MessageError
from coke.field.frames import MOST, Ask, Said
from coke.maths.ledger import Ledger
from coke.talk.conversation import Talk, Turn, cost

R = TypeVar("R")
Letters = list[tuple[str, Said]]


class Agreeing(Generic[R]):
    """A conversation, how far it has come, and what it came to."""

    def __init__(self, talk: Talk[R], neighbours: Iterable[str]):
        self._talk = talk
        self.heard: dict[str, list[bytes]] = {name: [] for name in neighbours}
        self._said: dict[str, list[bytes]] = {name: [] for name in self.heard}
        self._used = dict.fromkeys(self.heard, 0)
        self._turn: Turn | None = None
        self.ledger = Ledger()
        self.result: R | None = None
        self.done = False

    def begin(self) -> Letters:
        """The first messages."""
        return self._go_on(None)

    def hear(self, sender: str, said: Said) -> bool:
        """Whether this message is new and in order; others come again when they are asked for.

        One that contradicts itself before the agreement is complete stops the site: no agreement
        can come of it. Later it is only refused.
        """
        known = self.heard.get(sender)
        if known is None:
            raise MessageError(f"{sender} was no part of the agreement: expected it to join later")
        if said.which < len(known) and known[said.which] != said.message:
            wrong = MessageError if self.done else ConfigError
            raise wrong(
                f"{sender} says something else in place of its message {said.which}: its rows or "
                "settings have changed since this run began; begin a new run"
            )
        if self.done or said.which != len(known) or len(known) >= MOST:
            return False
        known.append(said.message)
        return True

    def advance(self) -> Letters:
        """All that follows from what was heard; to be sent once what was used is on disk.

        An error where that makes no sense, which ends the conversation: held again from what was
        on disk before, it asks for better.
        """
        letters: Letters = []
        while self._turn is not None and not self.waiting():
            answers = {name: self.heard[name][self._used[name]] for name in self._turn.expect}
            for name in answers:
                self._used[name] += 1
            letters += self._go_on(answers)
        return letters

    @property
    def used(self) -> dict[str, list[bytes]]:
        """Of what was heard, all that made sense; what came early has yet to."""
        return {name: said[: self._used[name]] for name, said in self.heard.items()}

    def waiting(self) -> list[str]:
        """For whom."""
        expected = () if self._turn is None else self._turn.expect
        return [name for name in expected if len(self.heard[name]) <= self._used[name]]

    def asks(self) -> list[tuple[str, Ask]]:
        """What to ask those one waits for."""
        return [(name, Ask(len(self.heard[name]))) for name in self.waiting()]

    def answer(self, ask: Ask, name: str) -> Said | None:
        """What was said to that neighbour, if it has been said."""
        said = self._said.get(name, [])
        return Said(ask.which, said[ask.which]) if ask.which < len(said) else None

    def _go_on(self, answers: Any) -> Letters:
        try:
            turn = self._talk.send(answers)
        except StopIteration as stop:
            self.result, self.done, self._turn = stop.value, True, None
            return []
        self._turn, self.ledger = turn, cost(self.ledger, turn)
        letters = []
        for name, message in turn.tell.items():
            letters.append((name, Said(len(self._said[name]), message)))
            self._said[name].append(message)
        return letters
