"""A run's state and history in one file: go on exactly where it stopped."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from coke.data.files import AGAIN, Arrays, pack, read_file, unpack, write_file
from coke.errors import FileError
from coke.maths.algorithm import Algorithm
from coke.maths.graph import Graph
from coke.maths.problem import Problem
from coke.run.history import History
from coke.run.ledger import Ledger
from coke.run.simulate import Checkpoint, Record
from coke.threads import OneThread

KIND = "checkpoint"

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says beside its arrays."""

    round: Count
    ledger: tuple[Count, Count, Count]
    algorithm: str
    metric: str
    sites: list[str]
    problem: str  # its fingerprint
    settled: bool
    config: dict[str, Any]  # read by `coke.config`, which trusts none of it


class Saved(NamedTuple):
    """What a checkpoint file holds."""

    checkpoint: Checkpoint
    history: History
    config: dict[str, Any]  # the settings of the run, to start it again from the file alone
    settled: bool  # to the tolerance of those settings: there is nothing to go on with


def save_checkpoint(
    path: str | Path, record: Record, history: History, problem: str, config: dict[str, Any]
) -> None:
    """Written whole or not at all; `problem` is the run's fingerprint."""
    labels = history.labels
    named = (labels.algorithm, labels.metric, labels.sites)
    meta = Meta(record.k, record.ledger, *named, problem, record.settled, config)
    rows, spoke = history.arrays()
    state = {f"state.{name}": array for name, array in record.state._asdict().items()}
    write_file(path, pack(KIND, meta, {"rows": rows, "spoke": spoke, **state}))


def load_checkpoint(path: str | Path) -> tuple[Saved, str]:
    """What was saved, and the fingerprint of the problem it belongs to."""
    data = read_file(path)
    try:
        meta, arrays = unpack(data, KIND, Meta)
        history = History(meta.algorithm, meta.metric, meta.sites)
        history.restore(arrays.pop("rows"), arrays.pop("spoke"))
        checkpoint = Checkpoint(meta.round, Ledger(*meta.ledger), _state(arrays))
        if len(history) != checkpoint.k:
            raise ValueError(f"{len(history)} rounds of history for round {checkpoint.k}")
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise FileError(
            f"{path}: the checkpoint's content does not fit together: {error}; {AGAIN}"
        ) from error
    return Saved(checkpoint, history, meta.config, meta.settled), meta.problem


def _state(arrays: Arrays) -> Arrays:
    """The arrays of an algorithm's state; whether their shapes fit is for the run to say."""
    state = {name.removeprefix("state."): array for name, array in arrays.items()}
    kinds = {name: str(array.dtype) for name, array in state.items()}
    if "theta" not in kinds or set(kinds.values()) != {"float64"}:
        raise ValueError(f"a state of {kinds}")
    return state


def fingerprint(problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
    """Changes whenever the rows, the features, λ, the network or the algorithm's settings do."""
    ones = np.ones((len(problem.train.T), problem.train.size))  # its gradient sees A, b and G
    edges = np.array(sorted(tuple(sorted(edge)) for edge in graph.edges), dtype=np.int64)
    digest = hashlib.blake2b(repr(algorithm).encode(), digest_size=16)
    with OneThread().limit():
        parts = [edges, problem.train.T, problem.train.gradient(ones)]
        if problem.test is not None:
            parts += [problem.test.T, problem.test.losses(ones)]
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def check_same(path: str | Path, saved: str, now: str) -> None:
    """Refuses to go on with other data or settings than the checkpoint's; both are fingerprints."""
    if saved != now:
        raise FileError(
            f"{path}: the data or settings have changed since this checkpoint was written; "
            "restore them, or start a new run in another folder"
        )
