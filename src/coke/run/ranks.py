"""What ranks tell each other: rows of θ̂, sums, and everything at once for a checkpoint.

Everything goes through buffers: nothing is pickled. All functions here that take a communicator
are for all ranks to call together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import InputError
from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Mask
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.maths.stopping import Quiet
from coke.run.partition import Block, as_matrix, neighbours_of
from coke.run.simulate import Checkpoint, Record
from coke.threads import OneThread

if TYPE_CHECKING:
    from mpi4py import MPI

Rows = NDArray[Any]


def world() -> MPI.Comm:
    """All ranks of this job."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise InputError(
            "the MPI engine without the package mpi4py: pip install 'coke[mpi]', or run without it"
        ) from error
    return MPI.COMM_WORLD


def everyones(comm: MPI.Comm, row: Rows) -> Rows:
    """One row (…) of every rank (R, …), in the order of the ranks, at every rank."""
    row = np.ascontiguousarray(row)
    rows = np.empty((comm.size, *row.shape), row.dtype)
    comm.Allgather(row, rows)
    return rows


def gather(comm: MPI.Comm, own: Block, rows: Rows) -> Rows | None:
    """The rows of all agents (N, …) at rank 0, from every rank's (n, …); None elsewhere."""
    rows = np.ascontiguousarray(rows)
    if comm.rank:
        comm.Gatherv(rows, None)
        return None
    wide = int(np.prod(rows.shape[1:], dtype=np.int64))
    counts = np.bincount(own.parts, minlength=comm.size) * wide
    arrived = np.empty((len(own.parts), *rows.shape[1:]), rows.dtype)
    comm.Gatherv(rows, (arrived, counts.tolist()))
    whole = np.empty_like(arrived)
    whole[own.order()] = arrived
    return whole


def gather_record(comm: MPI.Comm, own: Block, record: Record) -> Record | None:
    """The record with all agents' state at rank 0: what `save_checkpoint` and a model need.

    A barrier: it returns once every rank has given its rows of the same round.
    """
    state = [gather(comm, own, part) for part in record.state]
    spent, quiet = gather(comm, own, record.spent), [gather(comm, own, q) for q in record.quiet]
    if comm.rank:
        return None
    whole = type(record.state)(*state)
    return record._replace(state=whole, spent=spent, quiet=Quiet(*quiet))  # type: ignore[arg-type]


def own_rows(own: Block, whole: Checkpoint) -> Checkpoint:
    """A rank's part of a checkpoint, whichever ranks or single process wrote it."""
    a = own.agents
    state = {name: np.asarray(rows[a]) for name, rows in whole.state.items()}
    count, countdown, short = whole.quiet
    quiet = Quiet(count[a], countdown[a], short[a])
    return Checkpoint(whole.k, whole.spent[a], quiet, state)


def whole_fingerprint(
    comm: MPI.Comm,
    own: Block,
    graph: Graph | sparse.csr_array,
    problem: Problem,
    algorithm: Algorithm,
) -> str:
    """`coke.run.checkpoint.fingerprint` of the whole problem: the same on any number of ranks."""
    ones = np.ones((len(own.agents), problem.train.size))
    with OneThread().limit():
        parts = [problem.train.T, problem.train.gradient(ones)]
        if problem.test is not None:
            parts += [problem.test.T, problem.test.losses(ones)]
    wholes, digest = [gather(comm, own, part) for part in parts], np.zeros(16, np.uint8)
    if not comm.rank:
        upper = sparse.triu(as_matrix(graph), 1).tocsr().sorted_indices()
        edges = np.column_stack(neighbours_of(sparse.csr_array(upper))).astype(np.int64)
        content = hashlib.blake2b(repr(algorithm).encode(), digest_size=16)
        for part in [edges, *wholes]:
            content.update(np.ascontiguousarray(part).tobytes())
        digest = np.frombuffer(content.digest(), np.uint8).copy()
    comm.Bcast(digest)
    return digest.tobytes().hex()


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
        own, size = self._own, self.hats.shape[1]
        said = {rank: spoke[at] for rank, at in own.sends.items()}
        bits = {rank: np.packbits(mask) for rank, mask in said.items()}
        lengths = {rank: part.stop - part.start for rank, part in own.receives.items()}
        masks = {rank: np.empty(-(-n // 8), np.uint8) for rank, n in lengths.items()}
        self._swap(bits, masks)
        speaking = {
            rank: np.flatnonzero(np.unpackbits(masks[rank], count=n)) for rank, n in lengths.items()
        }
        rows = {rank: np.empty((len(at), size)) for rank, at in speaking.items()}
        self._swap({rank: self.hats[at[said[rank]]] for rank, at in own.sends.items()}, rows)
        for rank, at in speaking.items():
            self.hats[self._n + own.receives[rank].start + at] = rows[rank]

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
