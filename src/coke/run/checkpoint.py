"""A run's state and history in one file: go on exactly where it stopped."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coke.data.files import pack, read_file, unpack, write_file
from coke.errors import FileError
from coke.maths.problem import Problem
from coke.run.history import History
from coke.run.ledger import Ledger
from coke.run.simulate import Checkpoint, Record

KIND = "checkpoint"


class Saved(NamedTuple):
    """What a checkpoint file holds."""

    checkpoint: Checkpoint
    history: History
    config: dict[str, Any]  # the settings of the run, to start it again from the file alone


def save_checkpoint(
    path: str | Path, record: Record, history: History, problem: Problem, config: dict[str, Any]
) -> None:
    """Written whole or not at all."""
    meta = {
        "round": record.k,
        "ledger": list(record.ledger),
        "algorithm": history.labels.algorithm,
        "metric": history.labels.metric,
        "sites": history.labels.sites,
        "problem": fingerprint(problem),
        "config": config,
    }
    rows, spoke = history.arrays()
    state = {f"state.{name}": array for name, array in record.state._asdict().items()}
    write_file(path, pack(KIND, meta, {"rows": rows, "spoke": spoke, **state}))


def load_checkpoint(path: str | Path) -> tuple[Saved, str]:
    """What was saved, and the fingerprint of the problem it belongs to."""
    meta, arrays = unpack(read_file(path), KIND)
    try:
        history = History(meta["algorithm"], meta["metric"], meta["sites"])
        history.restore(arrays.pop("rows"), arrays.pop("spoke"))
        state = {name.removeprefix("state."): array for name, array in arrays.items()}
        checkpoint = Checkpoint(int(meta["round"]), Ledger(*map(int, meta["ledger"])), state)
        if len(history) != checkpoint.k:
            raise ValueError(f"{len(history)} rounds of history for round {checkpoint.k}")
        return Saved(checkpoint, history, dict(meta["config"])), str(meta["problem"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: the checkpoint's content does not fit: {error}") from error


def fingerprint(problem: Problem) -> str:
    """Changes whenever the rows, the features or λ do."""
    zero = np.zeros((len(problem.train.T), problem.train.size))
    parts = (problem.train.T, problem.train.gradient(zero), problem.optimum)
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def check_same(path: str | Path, saved: str, problem: Problem) -> None:
    """Refuses to go on with other data than the checkpoint's."""
    if saved != fingerprint(problem):
        raise FileError(
            f"{path}: the data or settings have changed since this checkpoint was written; "
            "restore them, or start a new run in another folder"
        )
