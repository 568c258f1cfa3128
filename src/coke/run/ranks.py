"""What all ranks do together: sums, failures, and all rows at once for a checkpoint.

Everything goes through buffers: nothing is pickled. All functions here that take a communicator
are for all ranks to call together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.errors import CokeError, ConvergenceError, InputError
from coke.maths.algorithm import Algorithm
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.maths.stopping import Quiet
from coke.run.partition import Block, as_matrix, neighbours_of
from coke.run.simulate import Checkpoint, Record
from coke.threads import OneThread

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")
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


def all_or_none(comm: MPI.Comm, work: Callable[[], R]) -> R:
    """What the work gives; where it fails at one rank it does at all, for they would wait for it.

    The failing rank raises its own error, the others one that names the rank.
    """
    found, error = list[R](), None
    try:
        found.append(work())
    except CokeError as own:
        error = own
    failed = np.flatnonzero(everyones(comm, np.array([error is not None])))
    if error is not None:
        raise error
    if len(failed):
        raise ConvergenceError(f"stopped because rank {failed[0]} did: its own message says why")
    return found[0]


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
        content.update(repr(getattr(problem.train, "fast", False)).encode())  # other last bits
        for part in [edges, *wholes]:
            content.update(np.ascontiguousarray(part).tobytes())
        digest = np.frombuffer(content.digest(), np.uint8).copy()
    comm.Bcast(digest)
    return digest.tobytes().hex()
