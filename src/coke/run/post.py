"""The conversations before training, with each rank's sites at that rank: their rows stay there."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import numpy as np

from coke.errors import GraphError, MessageError
from coke.run.ledger import Ledger
from coke.run.ranks import all_or_none, everyones
from coke.run.talk import Talk, Turn, cost

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")
Letter = tuple[str, str, bytes]  # sender, recipient, message


def together_on_ranks(
    comm: MPI.Comm, rank_of: Mapping[str, int], talks: Mapping[str, Talk[R]]
) -> tuple[dict[str, R], dict[str, Ledger]]:
    """`together` where each rank brings its own sites' conversations, and gets what they come to.

    `rank_of` says where every site is. What a site hears does not depend on it.
    """
    own = _Sites(comm.rank, rank_of, talks)
    all_or_none(comm, own.begin)
    while everyones(comm, np.array([own.busy])).any():
        heard = _posted(comm, own.leaving)
        moved = all_or_none(comm, lambda heard=heard: own.hear(heard))  # type: ignore[misc]
        if not everyones(comm, np.array([moved])).any():
            raise GraphError(f"sites {sorted(own.waiting)[:8]} wait for each other for ever")
    return own.results, own.ledgers


class _Sites(Generic[R]):
    """The conversations of one rank's sites."""

    def __init__(self, rank: int, rank_of: Mapping[str, int], talks: Mapping[str, Talk[R]]):
        self._rank, self._rank_of, self._talks = rank, rank_of, talks
        self._box: dict[tuple[str, str], deque[bytes]] = {}
        self.leaving: dict[int, list[Letter]] = {}
        self.waiting: dict[str, Turn] = {}
        self.results: dict[str, R] = {}
        self.ledgers = dict.fromkeys(talks, Ledger())

    @property
    def busy(self) -> bool:
        """Somebody here has not come to an end, or has said something that is not delivered."""
        return bool(self.waiting or self.leaving)

    def begin(self) -> None:
        """Everybody's first turn."""
        for name in self._talks:
            self._go_on(name, None)

    def hear(self, letters: list[Letter]) -> bool:
        """Takes what came, lets everybody go on who can, and says whether anything moved."""
        self.leaving = {}
        for sender, name, message in letters:
            self._box.setdefault((sender, name), deque()).append(message)
        moved = bool(letters)
        while ready := [name for name, turn in self.waiting.items() if self._complete(name, turn)]:
            moved = True
            for name in ready:
                expect = self.waiting.pop(name).expect
                self._go_on(name, {other: self._box[other, name].popleft() for other in expect})
        return moved

    def _complete(self, name: str, turn: Turn) -> bool:
        return all(self._box.get((other, name)) for other in turn.expect)

    def _go_on(self, name: str, heard: Any) -> None:
        try:
            turn = self._talks[name].send(heard)
        except StopIteration as stop:
            self.results[name] = stop.value
            return
        self.waiting[name], self.ledgers[name] = turn, cost(self.ledgers[name], turn)
        for other, message in turn.tell.items():
            if self._rank_of[other] == self._rank:
                self._box.setdefault((name, other), deque()).append(message)
            else:
                letter = (name, other, message)
                self.leaving.setdefault(self._rank_of[other], []).append(letter)


def _posted(comm: MPI.Comm, leaving: Mapping[int, list[Letter]]) -> list[Letter]:
    """Delivers letters to every rank, and what the others sent here."""
    out = [msgspec.msgpack.encode(leaving.get(rank, [])) for rank in range(comm.size)]
    sizes, coming = np.array([len(data) for data in out]), np.empty(comm.size, np.int64)
    comm.Alltoall(sizes, coming)
    sent, got = np.frombuffer(b"".join(out), np.uint8), np.empty(coming.sum(), np.uint8)
    comm.Alltoallv((sent, sizes.tolist()), (got, coming.tolist()))
    ends = np.cumsum(coming)
    parts = [got[end - n : end].tobytes() for n, end in zip(coming, ends, strict=True)]
    return [letter for part in parts for letter in read_letters(part)]


def read_letters(data: bytes) -> list[Letter]:
    """What one rank packed for another."""
    try:
        return msgspec.msgpack.decode(data, type=list[Letter])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MessageError(
            f"{len(data)} bytes from another rank are no letters: {error}; "
            "start all ranks with the same release"
        ) from error
