"""What the ranks of a job do together: begin, tell each other rows and letters, fail, end.

Everything goes through buffers: nothing is pickled. All functions here that take a communicator
are for all ranks to call together.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from coke import errors
from coke.engines.process import Rows
from coke.errors import CokeError, InputError, MessageError, unknown
from coke.talk.conversation import Letter

if TYPE_CHECKING:
    from mpi4py import MPI

R = TypeVar("R")
ENGINES = ("simulation", "mpi")
_GRACE = 1.0  # seconds for a message to get out
_REFUSED = 2  # the exit code


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
            time.sleep(_GRACE)
            speak()
        atexit.register(_abort, comm)
        raise


def _abort(comm: MPI.Comm) -> None:
    """Once all is said, and has reached mpirun: what is still on its way would be lost."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_GRACE / 2)
    comm.Abort(_REFUSED)


def world() -> MPI.Comm:
    """All ranks of this job."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise InputError(
            "the MPI engine without mpi4py: pip install 'coke-learn[mpi]', or run without it"
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


def posted(
    comm: MPI.Comm, rank_of: Mapping[str, int], go_on: Callable[[], list[Letter]]
) -> list[Letter] | None:
    """Lets each rank's sites go on, delivers their letters, and gives what came for those here.

    None once no site of any rank has anything to say. A letter's way does not matter to a site.
    """
    bags: list[list[Letter]] = [[] for _ in range(comm.size)]
    for letter in all_or_none(comm, go_on):
        bags[rank_of[letter[1]]].append(letter)
    if not everyones(comm, np.array([any(bags)])).any():
        return None
    out = [msgspec.msgpack.encode(bag) for bag in bags]
    sizes, coming = np.array([len(data) for data in out]), np.empty(comm.size, np.int64)
    comm.Alltoall(sizes, coming)
    sent, got = np.frombuffer(b"".join(out), np.uint8), np.empty(coming.sum(), np.uint8)
    comm.Alltoallv((sent, sizes.tolist()), (got, coming.tolist()))
    parts = np.split(got, np.cumsum(coming)[:-1])
    try:
        bags = [msgspec.msgpack.decode(part.tobytes(), type=list[Letter]) for part in parts]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MessageError(
            f"{coming.tolist()} bytes from the ranks are no letters: {error}; "
            "start all ranks with the same release"
        ) from error
    return [letter for bag in bags for letter in bag]
