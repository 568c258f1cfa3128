"""The agreement over links that lose things: one site's conversation, driven by what arrives.

A site's messages are a function of what it heard. So it is enough to keep what it used: after a
crash the conversation is held again with the same answers, and says the same. Nothing is
acknowledged; who waits for a message asks for it until it comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from coke.data.files import pack, read_file, unpack, write_file
from coke.errors import ConfigError, FileError, InputError, MessageError
from coke.field.frames import MOST, Ask, Letter, Said, Totals, Want
from coke.field.mission import Mission
from coke.field.phases import Desk
from coke.field.store import Store
from coke.learning.ready import Ready, joining, site_talk
from coke.maths.ledger import Ledger
from coke.talk.conversation import Conversation, Talk
from coke.threads import OneThread

R = TypeVar("R")
KIND, FILE = "agreement", "agreement.coke"
Letters = list[tuple[str, Said]]


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site has heard before training, and whose run that is."""

    site: str
    run: str  # a digest of the rows and settings
    settings: dict[str, str]
    messages: dict[str, list[bytes]]  # by neighbour, in order
    totals: list[bytes] | None  # what a site that joins later was told instead

    @classmethod
    def nothing(cls, mission: Mission) -> Heard:
        """Before anybody has spoken."""
        digest = hashlib.blake2b(msgspec.json.encode(mission.settings), digest_size=16)
        for part in (*mission.rows.X, *mission.rows.X_test):
            digest.update(np.ascontiguousarray(part).tobytes())
        for kind in mission.rows.kinds:
            digest.update(repr((kind.what, list(kind.levels))).encode())
        for labels in (*mission.rows.y, *mission.rows.y_test):
            digest.update(repr(labels.tolist()).encode())
        return cls(mission.name, digest.hexdigest(), mission.settings, {}, None)

    def before(self, store: Store) -> Heard:
        """What was kept of the same run, or itself where nothing was; another run's is refused."""
        path = store.folder / FILE
        if not path.exists():
            if store.traces:
                raise FileError(f"{path}: missing, but the site's state is there: restore it too")
            return self
        try:
            found, _ = unpack(read_file(path), KIND, Heard)
        except FileError as error:
            raise FileError(f"{path}: {error}") from error
        if (found.site, found.run) != (self.site, self.run):
            changed = [k for k in self.settings if found.settings.get(k) != self.settings[k]]
            what = f"the settings {', '.join(changed)}" if changed else "the rows or settings"
            raise FileError(
                f"{store.folder}: {what} of {self.site!r} have changed since the run of "
                f"{found.site!r} began: restore them, or begin a new run in another folder, with "
                "another run number"
            )
        return found

    def keep(self, store: Store) -> None:
        """Before anything that depends on it is sent."""
        write_file(store.folder / FILE, pack(KIND, self, {}))


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
        can come of it. Later it is only refused. Once all is agreed one more is kept: a neighbour
        may begin the sum after the last round before this site does.
        """
        known = self.heard.get(sender)
        if known is None:
            raise MessageError(f"{sender} was no part of the agreement: expected it to join later")
        if said.which < len(known) and known[said.which] != said.message:
            wrong = MessageError if self.done or self._agreed else ConfigError
            raise wrong(
                f"{sender} says something else in place of its message {said.which}: its rows or "
                "settings have changed since this run began; begin a new run"
            )
        enough = len(known) >= MOST or (self.done and bool(self._came.get(sender)))
        if enough or said.which != len(known):
            return False
        self._keep(sender, said.message)
        return True

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
            found.append((name, Said(len(self._said[name]), message)))
            self._said[name].append(message)
        return found

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
    _talking: Agreeing[Ready] | None = None

    @cached_property
    def _nothing(self) -> Heard:
        return Heard.nothing(self.mission)

    def begin(self) -> None:
        """The conversation as far as it went, with the neighbours that it began with.

        Neighbours that came later took over its totals; those that went are in them.
        """
        m, neighbours = self.mission, sorted(self.desk.carrier.neighbours)
        heard = self._nothing.before(self.store)
        if heard.totals is not None:
            self.result = joining(m.rows, m.terms, heard.totals, m.wanted)
        if heard.totals is not None or (m.joins and not heard.messages):
            return
        self.first = tuple(sorted(heard.messages) or neighbours)
        talk = site_talk(m.rows, self.first, m.terms, m.wanted)
        talking = self._talking = Agreeing(talk, self.first, heard.messages)
        self.desk.post(talking.letters(talking.go_on()))
        if not talking.done and [*self.first] != neighbours:
            raise ConfigError(
                f"the neighbours of {m.name!r} are {', '.join(neighbours)}, but the agreement "
                f"began with {', '.join(self.first)} and is not complete: restore them until it "
                "is, or begin a new run"
            )

    def over(self) -> bool:
        """Whether what all sites know alike is known here."""
        if self._talking is not None and self._talking.done:
            self.result, self.ledger = self._talking.result, self._talking.ledger
        if self.result is not None:
            self.desk.restart(self.desk.carrier.neighbours)
        return self.result is not None

    def further(self, talk: Talk[Any]) -> None:
        """One more conversation with the same neighbours, once all have trained."""
        if self._talking is not None:
            self._talking.further(talk)
            self._tell(self._talking, self._talking.letters(self._talking.go_on()))

    @property
    def talks(self) -> bool:
        """Whether a conversation is going on."""
        return self._talking is not None and not self._talking.done

    @property
    def closed(self) -> tuple[Any, Ledger] | None:
        """What the further conversation came to, and what it took; None before it is done."""
        talking = self._talking
        if talking is None or not talking.done or talking.result is self.result:
            return None
        spent = (a - b for a, b in zip(talking.ledger, self.ledger, strict=True))
        return talking.result, Ledger(*spent)

    @property
    def heard(self) -> int:
        """How many messages were heard so far."""
        return 0 if self._talking is None else sum(map(len, self._talking.heard.values()))

    def work(self) -> bool:
        """Goes on where it can, and asks those it waits for."""
        talking, asks = self._talking, dict[str, Letter]()
        if talking is None:
            asks = dict.fromkeys(self.greeted, Want())
        else:
            if not talking.waiting():
                self._tell(talking, talking.letters(talking.go_on()))
            asks = dict(talking.asks())
        self.missing = sorted(asks)
        self.desk.post((name, asks[name]) for name in self.desk.due(asks))
        return False

    def hear(self, sender: str, letter: Said | Ask | Want | Totals) -> None:
        """A message of the agreement, or a question about it, at any time."""
        match letter:
            case Said() if self._talking is not None:
                self._talking.hear(sender, letter)
            case Ask() if self._talking is not None:
                said = self._talking.answer(letter, sender)
                self.desk.post([] if said is None else [(sender, said)])
            case Want() if self.result is not None:
                self.desk.post([(sender, Totals(tuple(self.result.totals)))])
            case Totals(totals) if self.mission.joins:
                self._taken(sender, totals)

    def _tell(self, talking: Agreeing[Ready], letters: Letters) -> None:
        """On disk before what follows from it is sent; and only what something follows from."""
        replace(self._nothing, messages=talking.used).keep(self.store)
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
        replace(self._nothing, totals=list(totals)).keep(self.store)
        self.result = agreed
