"""What the ranks of a job do together: begin, tell each other a row, fail and end.

Everything goes through buffers: nothing is pickled. All functions here that take a communicator
are for all ranks to call together.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coke import errors
from coke.errors import CokeError, InputError, unknown

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
