"""The agreement over links that lose things: one site's conversation, driven by what arrives.

A site's messages are a function of what it heard. So it is enough to keep what it used: after a
crash the conversation is held again with the same answers, and says the same. Nothing is
acknowledged; who waits for a message asks for it until it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from coke.errors import ConfigError, MessageError
from coke.field.frames import MOST, Ask, Said
from coke.talk.conversation import Conversation, Talk

R = TypeVar("R")
Letters = list[tuple[str, Said]]


class Agreeing(Conversation[R]):
    """A conversation whose messages are numbered and kept, to be asked for again.

    `before` is what was used of it before a crash: the conversation is held again from there.
    """

    def __init__(
        self, talk: Talk[R], neighbours: Iterable[str], before: Mapping[str, Sequence[bytes]]
    ):
        super().__init__(talk)
        self.heard: dict[str, list[bytes]] = {name: [] for name in neighbours}
        self._said: dict[str, list[bytes]] = {name: [] for name in self.heard}
        for name, messages in before.items():
            for message in messages:
                self._keep(name, message)

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
        self._keep(sender, said.message)
        return True

    def _keep(self, sender: str, message: bytes) -> None:
        self.heard[sender].append(message)
        self.take(sender, message)

    def advance(self) -> Letters:
        """All that follows from what was heard; to be sent once what was used is on disk.

        An error where that makes no sense, which ends the conversation: held again from what was
        on disk before, it asks for better.
        """
        letters: Letters = []
        for name, message in self.go_on():
            letters.append((name, Said(len(self._said[name]), message)))
            self._said[name].append(message)
        return letters

    @property
    def used(self) -> dict[str, list[bytes]]:
        """Of what was heard, all that made sense; what came early has yet to."""
        early = {name: len(came) for name, came in self._came.items()}
        return {name: said[: len(said) - early.get(name, 0)] for name, said in self.heard.items()}

    def asks(self) -> list[tuple[str, Ask]]:
        """What to ask those one waits for."""
        return [(name, Ask(len(self.heard[name]))) for name in self.waiting()]

    def answer(self, ask: Ask, name: str) -> Said | None:
        """What was said to that neighbour, if it has been said."""
        said = self._said.get(name, [])
        return Said(ask.which, said[ask.which]) if ask.which < len(said) else None
