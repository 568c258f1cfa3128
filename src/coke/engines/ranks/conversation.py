"""The conversations before training, with each rank's sites at that rank: their rows stay there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from coke.engines.ranks.collectives import all_or_none, everyones
from coke.errors import MessageError
from coke.maths.ledger import Ledger
from coke.talk.conversation import Letter, Sites, Talk

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")


def together_on_ranks(
    comm: MPI.Comm, rank_of: Mapping[str, int], talks: Mapping[str, Talk[R]]
) -> tuple[dict[str, R], dict[str, Ledger]]:
    """`together` where each rank brings its own sites' conversations, and gets what they come to.

    `rank_of` says where every site is. What a site hears does not depend on it.
    """
    own = Sites(talks)
    all_or_none(comm, own.begin)
    while everyones(comm, np.array([bool(own.waiting or own.leaving)])).any():
        heard, own.leaving = _posted(comm, rank_of, own.leaving), []
        moved = all_or_none(comm, partial(own.hear, heard))
        if not everyones(comm, np.array([moved])).any():
            raise own.stuck()
    return own.results, own.ledgers


def _posted(comm: MPI.Comm, rank_of: Mapping[str, int], leaving: list[Letter]) -> list[Letter]:
    """Delivers letters to every rank, and what the others sent here."""
    bags: list[list[Letter]] = [[] for _ in range(comm.size)]
    for letter in leaving:
        bags[rank_of[letter[1]]].append(letter)
    out = [msgspec.msgpack.encode(bag) for bag in bags]
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
