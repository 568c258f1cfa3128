"""Conversations over links that lose things: one site's, driven by what arrives.

A site's messages are a function of what it heard. So it is enough to keep what it used: after a
crash the conversation is held again with the same answers, and says the same. Nothing is
acknowledged; who waits for a message asks for it until it comes.

There are two, each with numbers of its own: the agreement, which goes on in a descent where the
sites make one (`descending`), and the one after the last round (`closing`). Where sites go on
without a descent each may have heard more or less of it, but the closing begins alike for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace

from coke.errors import ConfigError, InputError, MessageError
from coke.field.frames import CLOSING, MOST, Ask, Letter, Said, Totals, Want
from coke.field.heard import Heard, Letters, Messages
from coke.field.mission import Mission
from coke.field.phases import Desk
from coke.field.store import Store
from coke.learning.ready import Ready, joining, site_talk
from coke.maths.ledger import Ledger
from coke.talk.conversation import Conversation, Talk
from coke.threads import OneThread

R = TypeVar("R")
EARLY = 8  # messages of a neighbour that are kept before they are of use, and bytes of them:
EARLY_BYTES = 2**22  # one of any length, and more where they are short


class Agreeing(Conversation[R]):
    """A conversation whose messages are numbered and kept, to be asked for again.

    `before` is what was used of it before a crash: the conversation is held again from there.
    """

    def __init__(
        self, talk: Talk[R], neighbours: Iterable[str], before: Mapping[str, Sequence[bytes]],
        first: int = 0,
    ):  # fmt: skip
        super().__init__(talk)
        self.heard: Messages = {name: [] for name in neighbours}
        self._said: Messages = {name: [] for name in self.heard}
        self._first = first  # number of a message
        self._kept = {name: len(messages) for name, messages in before.items()}  # on disk
        self._agreed = False  # once, even if a further conversation is going on
        for name, messages in before.items():
            for message in messages:
                self._keep(name, message)

    def further(self, talk: Talk[Any]) -> None:
        """Nothing that is said from now on can undo the agreement."""
        self._agreed = True
        super().further(talk)

    def go_on(self) -> list[tuple[str, bytes]]:
        """On one thread, as a simulation does: the last bits depend on how many there are."""
        with OneThread().limit():
            return super().go_on()

    def hear(self, sender: str, said: Said) -> bool:
        """Whether this message is new and in order; others come again when they are asked for.

        One that contradicts itself before the agreement is complete stops the site: no agreement
        can come of it. Later it is only refused. A few are kept before they are of use: a
        neighbour may be ahead, or begin the next conversation before this site does.
        """
        known, at = self.heard.get(sender), said.which - self._first
        if known is None:
            raise MessageError(f"{sender} was no part of the agreement: expected it to join later")
        if at < len(known) and known[at] != said.message:
            wrong = MessageError if self.done or self._agreed else ConfigError
            raise wrong(
                f"{sender} says something else in place of its message {at}: its rows or "
                "settings have changed since this run began; begin a new run"
            )
        early = self._came.get(sender, ())
        full = bool(early) and sum(map(len, early)) + len(said.message) > EARLY_BYTES
        enough = len(known) >= MOST or len(early) >= EARLY or full
        if enough or at != len(known):
            return False
        self._keep(sender, said.message)
        return True

    def instead(self, sender: str, message: bytes) -> None:
        """That message as the sender's next, in place of what came early from it."""
        early = self._came.get(sender, ())
        del self.heard[sender][len(self.heard[sender]) - len(early) :]
        self._came.pop(sender, None)
        self._keep(sender, message)

    def _keep(self, sender: str, message: bytes) -> None:
        self.heard[sender].append(message)
        self.take(sender, message)

    def letters(self, told: Iterable[tuple[str, bytes]]) -> Letters:
        """What `go_on` tells, numbered; to be sent once what was used is on disk.

        An error where what was heard makes no sense ends the conversation: held again from what
        was on disk before, it asks for better.
        """
        found: Letters = []
        for name, message in told:
            found.append((name, Said(self._first + len(self._said[name]), message)))
            self._said[name].append(message)
        return found

    def fresh(self) -> Letters:
        """Of what was heard, all that made sense since the last call; what came early has yet to.

        To be kept on disk.
        """
        found: Letters = []
        for name, said in self.heard.items():
            done, used = self._kept.get(name, 0), len(said) - len(self._came.get(name, ()))
            found += [(name, Said(self._first + i, said[i])) for i in range(done, used)]
            self._kept[name] = used
        return found

    def asks(self) -> list[tuple[str, Ask]]:
        """What to ask those one waits for."""
        return [(name, Ask(self._first + len(self.heard[name]))) for name in self.waiting()]

    def answer(self, ask: Ask, name: str) -> Said | None:
        """What was said to that neighbour, if it has been said."""
        said, at = self._said.get(name, []), ask.which - self._first
        return Said(ask.which, said[at]) if at < len(said) else None


def _not_yet() -> Talk[None]:
    """A conversation that has not begun."""
    return None
    yield


@dataclass
class Agree:
    """Until the site knows what all sites know alike; from its own talk, or from a neighbour."""

    name: ClassVar[str] = "agree"
    desk: Desk
    mission: Mission
    store: Store
    greeted: set[str]  # who has the same settings
    result: Ready | None = None
    first: tuple[str, ...] = ()  # the neighbours of the agreement; none where one joins
    missing: Sequence[str] = ()
    together: ClassVar[tuple[str, ...]] = ()
    ledger: Ledger = field(default_factory=Ledger)  # what it took
    _talking: Agreeing[Any] | None = None  # None: this site takes over what others agreed on
    _closing: Agreeing[Any] | None = None
    _closes: bool = False  # whether the last conversation has begun

    @cached_property
    def _nothing(self) -> Heard:
        return Heard.nothing(self.mission)

    def begin(self) -> None:
        """The conversation as far as it went, with the neighbours that it began with.

        Neighbours that came later took over its totals; those that went are in them.
        """
        m, neighbours = self.mission, sorted(self.desk.carrier.neighbours)
        heard, *said = self._nothing.before(self.store)
        if heard.totals is not None:
            self.result = joining(m.rows, m.terms, heard.totals, m.wanted)
        if heard.totals is not None or (m.joins and not heard.neighbours):
            return
        self.first = tuple(heard.neighbours or neighbours)
        talking = self._held(*said)
        self.desk.post(talking.letters(talking.go_on()))
        if not talking.done and [*self.first] != neighbours:
            raise self._others()

    def _others(self) -> ConfigError:
        now, first = (", ".join(sorted(x)) for x in (self.desk.carrier.neighbours, self.first))
        began = f"the agreement began with {first} and is not complete: restore them, or begin anew"
        return ConfigError(f"the neighbours of {self.mission.name!r} are {now}, but {began}")

    def _held(self, said: Messages, last: Messages) -> Agreeing[Any]:
        """Both conversations, from what was kept of them."""
        m, first, want = self.mission, self.first, self.mission.wants(self.store.folder)
        self._talking = Agreeing(site_talk(m.rows, first, m.terms, want), first, said)
        self._closing = Agreeing(_not_yet(), first, last, CLOSING)
        self._closing.go_on()
        return self._talking

    def again(self) -> None:
        """The agreement once more, from what is on disk: what came since makes no sense."""
        talking = self._held(*self._nothing.before(self.store)[1:])
        talking.letters(talking.go_on())

    def over(self) -> bool:
        """Whether what all sites know alike is known here."""
        if (talking := self._talking) is not None and talking.done:
            self.result, self.ledger = talking.result, talking.ledger
        if self.result is not None:
            self.desk.restart(self.desk.carrier.neighbours)
        return self.result is not None

    def further(self, talk: Talk[Any]) -> None:
        """The same conversation goes on, once it has come to an end."""
        self._go_on(self._talking, talk)

    def close(self, talk: Talk[Any]) -> None:
        """The last conversation begins."""
        self._closes = True
        self._go_on(self._closing, talk)

    @property
    def whole(self) -> bool:
        """Whether this site has held the agreement itself, so that others wait for it."""
        return self._talking is not None

    @property
    def spent(self) -> Ledger:
        """On the agreement, and what followed from it."""
        return Ledger() if self._talking is None else self._talking.ledger

    @property
    def closed(self) -> tuple[Any, Ledger] | None:
        """What the last conversation came to, and what it took; None before it is done."""
        last = self._closing
        return None if last is None or not last.done else (last.result, last.ledger)

    @property
    def heard(self) -> int:
        """How many messages of the last conversation were heard so far."""
        return sum(map(len, self._closing.heard.values())) if self._closing else 0

    @property
    def waits(self) -> list[str]:
        """Whose next message the agreement, or what follows from it, waits for."""
        return [] if self._talking is None else self._talking.waiting()

    def instead(self, sender: str, message: bytes) -> None:
        """Goes on with that as a neighbour's next message, whoever has told it."""
        assert self._talking is not None  # it waits for one
        self._talking.instead(sender, message)
        self._go_on(self._talking)

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
        talking, asks = self._closing if self._closes else self._talking, dict[str, Letter]()
        if not self._closes and not self.desk.carrier.neighbours.issuperset(self.first):
            raise self._others()  # one was taken out of the file
        if talking is None:
            asks = dict.fromkeys(self.greeted, Want())
        else:
            if not talking.waiting():
                self._go_on(talking)
            asks = dict(talking.asks())
        self.missing = sorted(asks)
        self.desk.post((name, asks[name]) for name in self.desk.due(asks))
        return False

    def hear(self, sender: str, letter: Said | Ask | Want | Totals) -> None:
        """A message of a conversation, or a question about it, at any time."""
        match letter:
            case Said(which) if (talking := self._of(which)) is not None:
                talking.hear(sender, letter)
            case Ask(which) if (talking := self._of(which)) is not None:
                said = talking.answer(letter, sender)
                self.desk.post([] if said is None else [(sender, said)])
            case Want() if self.result is not None:
                self.desk.post([(sender, Totals(tuple(self.result.totals)))])
            case Totals(totals) if self.mission.joins:
                self._taken(sender, totals)

    def _of(self, which: int) -> Agreeing[Any] | None:
        return self._talking if which < CLOSING else self._closing

    def _go_on(self, talking: Agreeing[Any] | None, talk: Talk[Any] | None = None) -> None:
        """On disk before what follows from it is sent; and only what something follows from."""
        if talking is None:
            return
        if talk is not None:
            talking.further(talk)
        letters = talking.letters(talking.go_on())
        replace(self._nothing, neighbours=[*self.first]).keep(self.store.heard, talking.fresh())
        self.desk.post(letters)
        self.desk.restart(talking.heard)

    def _taken(self, sender: str, totals: Sequence[bytes]) -> None:
        """Kept only where they lead somewhere: another neighbour may tell better ones."""
        m = self.mission
        if self.result is not None or self._talking is not None or sender not in self.greeted:
            return
        try:
            agreed = joining(m.rows, m.terms, totals, m.wanted)
        except InputError as error:
            raise MessageError(f"{sender} tells totals that are of no use: {error}") from error
        replace(self._nothing, totals=list(totals)).keep(self.store.heard, [])
        self.result = agreed
