"""What all ranks do together: sums, failures, and all rows at once for a checkpoint.

Everything goes through buffers: nothing is pickled. All functions here that take a communicator
are for all ranks to call together.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke import errors
from coke.engines.checkpoint import digest_of, marks
from coke.engines.process import Checkpoint, Record
from coke.engines.ranks.partition import Block
from coke.errors import CokeError, InputError, unknown
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.stopping import Quiet
from coke.maths.graph import Graph
from coke.maths.losses.problem import Problem

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")
Rows = NDArray[Any]
ENGINES = ("simulation", "mpi")
GRACE = 1.0  # seconds for a message to get out
REFUSED = 2  # the exit code


def job(engine: str) -> MPI.Comm | None:
    """The ranks of this job, for engine "mpi"; None where this process is all there is."""
    if engine not in ENGINES:
        raise InputError(unknown("engine", engine, ENGINES))
    comm = world() if engine == "mpi" else None
    return None if comm is None or comm.size == 1 else comm


@contextmanager
def ended_together(comm: MPI.Comm, speak: Callable[[], None]) -> Iterator[None]:
    """Whatever one rank fails of ends all, once it has been said: the others would wait for ever.

    Where all fail alike the first one says it; another rank gives it time to, then calls `speak`.
    """
    try:
        yield
    except SystemExit:
        raise
    except BaseException:
        if comm.rank:
            time.sleep(GRACE)
            speak()
        atexit.register(_abort, comm)
        raise


def _abort(comm: MPI.Comm) -> None:
    """Once all is said, and has reached mpirun: what is still on its way would be lost."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(GRACE / 2)
    comm.Abort(REFUSED)


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

    All raise the error of the first rank that failed.
    """
    found, error = list[R](), None
    try:
        found.append(work())
    except CokeError as own:
        error = own
    failed = np.flatnonzero(everyones(comm, np.array([error is not None])))
    if len(failed):
        raise _same(comm, error, int(failed[0])) from error
    return found[0]


def _same(comm: MPI.Comm, error: CokeError | None, rank: int) -> CokeError:
    """That rank's error, at all ranks."""
    said = b"" if error is None else f"{type(error).__name__} {error}".encode()
    size = everyones(comm, np.array([len(said)]))[rank]
    text = np.frombuffer(said.ljust(size[0])[: size[0]], np.uint8).copy()
    comm.Bcast(text, root=rank)
    name, message = text.tobytes().decode().split(" ", 1)
    kind: type[CokeError] = getattr(errors, name)
    return kind(message)


def gather(comm: MPI.Comm, own: Block, rows: Rows) -> Rows | None:
    """The rows of all agents (N, …) at rank 0, from every rank's (n, …); None elsewhere."""
    arrived = _arrived(comm, rows, np.bincount(own.parts, minlength=comm.size))
    if arrived is None:
        return None
    whole = np.empty_like(arrived)
    whole[own.order()] = arrived
    return whole


def gather_parts(comm: MPI.Comm, own: Block, parts: Sequence[Rows]) -> tuple[Rows, ...] | None:
    """The same of agents with T_i rows each, (T_i, …)."""
    T = everyones_rows(comm, own, np.array([len(part) for part in parts]))
    arrived = _arrived(comm, np.concatenate(parts), np.bincount(own.parts, T).astype(np.int64))
    if arrived is None:
        return None
    order = own.order()
    pieces = np.split(arrived, np.cumsum(T[order])[:-1])
    return tuple(pieces[place] for place in np.argsort(order))


def everyones_rows(comm: MPI.Comm, own: Block, rows: Rows) -> Rows:
    """The rows of all agents (N, …) at every rank."""
    whole = gather(comm, own, rows)
    if whole is None:
        whole = np.empty((len(own.parts), *rows.shape[1:]), rows.dtype)
    comm.Bcast(whole)
    return whole


def _arrived(comm: MPI.Comm, rows: Rows, counts: NDArray[np.int64]) -> Rows | None:
    """At rank 0 so many rows of every rank, rank after rank; None elsewhere."""
    rows = np.ascontiguousarray(rows)
    if comm.rank:
        comm.Gatherv(rows, None)
        return None
    arrived = np.empty((counts.sum(), *rows.shape[1:]), rows.dtype)
    wide = int(np.prod(rows.shape[1:], dtype=np.int64))
    comm.Gatherv(rows, (arrived, (counts * wide).tolist()))
    return arrived


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
    """`fingerprint` of the whole problem: the same on any number of ranks."""
    wholes, digest = [gather(comm, own, part) for part in marks(problem)], np.zeros(16, np.uint8)
    if not comm.rank:
        found = digest_of(problem, graph, algorithm, wholes)
        digest = np.frombuffer(found, np.uint8).copy()
    comm.Bcast(digest)
    return digest.tobytes().hex()
