"""How Σ_n w_in θ̂_n comes about where the agents are divided among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coke.engines.ranks.collectives import Rows
from coke.engines.ranks.partition import Block, Index
from coke.maths.arrays import Mask

if TYPE_CHECKING:
    from mpi4py import MPI

ROWS = 4096  # to each rank at a time: buffers for all of them would be another copy of θ̂


class Between:
    """Blocks on several ranks: a bit for each agent heard elsewhere, then the rows of those set.

    `hats` (n + m, D) are the block's own θ̂_i, which the caller writes, and then the last heard.
    """

    def __init__(self, comm: MPI.Comm, own: Block, size: int):
        self._comm, self._own, self._n = comm, own, len(own.agents)
        self.hats = np.zeros((self._n + len(own.ghosts), size))
        self.sent = 0  # bytes to other ranks

    def __call__(self, spoke: Mask) -> None:
        """Tells the other ranks θ̂_i of those agents (n,) that spoke, and hears theirs."""
        own = self._own
        said = {rank: spoke[at] for rank, at in own.sends.items()}
        bits = {rank: np.packbits(mask) for rank, mask in said.items()}
        lengths = {rank: part.stop - part.start for rank, part in own.receives.items()}
        masks = {rank: np.empty(-(-n // 8), np.uint8) for rank, n in lengths.items()}
        self._swap(bits, masks)
        speaking = {
            rank: np.flatnonzero(np.unpackbits(masks[rank], count=n)) for rank, n in lengths.items()
        }
        saying = {rank: at[said[rank]] for rank, at in own.sends.items()}
        places = {rank: self._n + own.receives[rank].start + at for rank, at in speaking.items()}
        longest = max(map(len, [*saying.values(), *places.values()]), default=0)
        for first in range(0, longest, ROWS):
            self._rows(_few(saying, first), _few(places, first))

    def _rows(self, saying: dict[int, Index], places: dict[int, Index]) -> None:
        """Some rows to every rank, and as many from it as it has to say at this turn."""
        heard = {rank: np.empty((len(at), self.hats.shape[1])) for rank, at in places.items()}
        self._swap({rank: self.hats[at] for rank, at in saying.items()}, heard)
        for rank, at in places.items():
            self.hats[at] = heard[rank]

    def words(self, words: Rows) -> Rows:
        """A row (n, …) of every agent, followed by the ghosts' (n + m, …)."""
        own = self._own
        heard = np.empty((len(own.ghosts), *words.shape[1:]), words.dtype)
        self._swap(
            {rank: words[at] for rank, at in own.sends.items()},
            {rank: heard[at] for rank, at in own.receives.items()},
        )
        return np.concatenate([words, heard])

    def _swap(self, out: dict[int, Rows], into: dict[int, Rows]) -> None:
        """Sends to and receives from every rank at once; empty parts do not travel."""
        waiting = [self._comm.Irecv(part, rank) for rank, part in into.items() if part.size]
        waiting += [self._comm.Isend(part, rank) for rank, part in out.items() if part.size]
        self.sent += sum(part.nbytes for part in out.values())
        for request in waiting:
            request.Wait()


def _few(rows: dict[int, Index], first: int) -> dict[int, Index]:
    return {rank: at[first : first + ROWS] for rank, at in rows.items()}
