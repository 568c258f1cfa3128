"""What an agent is told to do, and what it tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from coke.field.carriers.base import Event
from coke.field.edge import Setup
from coke.maths.ledger import Ledger
from coke.talk.conversation import Talk

R = TypeVar("R")


class Mission(Protocol[R]):
    """What the agent is for: its rows and settings, and how they become a risk to minimise."""

    @property
    def name(self) -> str:
        """The site."""
        ...

    @property
    def settings(self) -> dict[str, str]:
        """What must be the same at all sites, in words."""
        ...

    @property
    def run(self) -> str:
        """A digest of the site's rows and settings: what a state folder belongs to."""
        ...

    @property
    def rounds(self) -> int:
        """At most so many."""
        ...

    @property
    def joins(self) -> bool:
        """Whether the others have agreed already, without this site, or have closed its edges."""
        ...

    def talk(self, neighbours: Sequence[str]) -> Talk[R]:
        """The conversation to come to an agreement."""
        ...

    def join(self, totals: Sequence[bytes]) -> R:
        """The same from what the others have agreed on."""
        ...

    def totals(self, agreed: R) -> Sequence[bytes]:
        """What sites that join later need to know."""
        ...

    def setup(self, agreed: R) -> Setup:
        """What stays fixed in training."""
        ...

    def widest(self, agreed: R) -> int:
        """N − 1: no graph of the sites that agreed has a larger diameter, whoever leaves."""
        ...


class Status(NamedTuple):
    """What there is to tell."""

    phase: str  # meet, agree, train, part or over
    round: int
    alive: tuple[str, ...]  # neighbours with a live link
    missing: tuple[str, ...]  # those one waits for
    spoke: bool  # whether the last round's words had news
    loss: float
    ledger: Ledger
    away: float  # how far from tol: 1 or less once this site is content
    countdown: int | None
    events: tuple[Event, ...]
    refused: int  # frames that made no sense
