"""A run's state and history in one file: go on exactly where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from coke.data.files import AGAIN, Arrays, pack, read_file, unpack, write_file
from coke.engines.history import History
from coke.engines.process import Checkpoint, Record
from coke.errors import FileError
from coke.maths.algorithms.stopping import Quiet
from coke.maths.ledger import Spent

_KIND = "checkpoint"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _CheckpointHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says beside its arrays."""

    round: _Count
    algorithm: str
    metric: str
    sites: list[str]
    problem: str  # its fingerprint
    settled: bool
    config: dict[str, Any]  # read by `coke.settings`, which trusts none of it


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
    header = _CheckpointHeader(
        round=record.k, algorithm=labels.algorithm, metric=labels.metric, sites=labels.sites,
        problem=problem, settled=record.settled, config=config,
    )  # fmt: skip
    rows, spoke = history.arrays()
    state = {f"state.{name}": array for name, array in record.state._asdict().items()}
    quiet = {f"quiet.{name}": array for name, array in record.quiet._asdict().items()}
    arrays = {"rows": rows, "spoke": spoke, "spent": record.spent, **quiet, **state}
    write_file(path, pack(_KIND, header, arrays))


def load_checkpoint(path: str | Path) -> tuple[Saved, str]:
    """What was saved, and the fingerprint of the problem it belongs to."""
    data = read_file(path)
    try:
        header, arrays = unpack(data, _KIND, _CheckpointHeader)
        history = History(header.algorithm, header.metric, header.sites)
        history.restore(arrays.pop("rows"), arrays.pop("spoke"))
        spent, quiet = _counts(arrays, len(header.sites))
        checkpoint = Checkpoint(header.round, spent, quiet, _state(arrays))
        if len(history) != checkpoint.k:
            raise ValueError(f"{len(history)} rounds of history for round {checkpoint.k}")
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise FileError(
            f"{path}: the checkpoint's content does not fit together: {error}; {AGAIN}"
        ) from error
    return Saved(checkpoint, history, header.config, header.settled), header.problem


def _counts(arrays: Arrays, N: int) -> tuple[Spent, Quiet]:
    """What the agents have sent, and how quiet they are."""
    spent, wanted = arrays.pop("spent"), ("<i8", "<i8", "|b1")
    quiet = Quiet(*(arrays.pop(f"quiet.{name}") for name in Quiet._fields))
    kinds = [(part.dtype.str, part.shape) for part in quiet]
    if kinds != [(kind, (N,)) for kind in wanted] or spent.dtype != np.int64:
        raise ValueError(f"counts of {kinds} and {spent.dtype}")
    numbers = [spent, quiet.count, quiet.countdown]
    if spent.shape != (N, 3) or not all(((n >= 0) & (n < 2**53)).all() for n in numbers):
        raise ValueError("counts that no run can have")
    return spent, quiet


def _state(arrays: Arrays) -> Arrays:
    """The arrays of an algorithm's state; whether their shapes fit is for the run to say."""
    state = {name.removeprefix("state."): array for name, array in arrays.items()}
    kinds = {name: str(array.dtype) for name, array in state.items()}
    if "theta" not in kinds or set(kinds.values()) != {"float64"}:
        raise ValueError(f"a state of {kinds}")
    return state


def check_same(path: str | Path, saved: str, now: str) -> None:
    """Refuses to go on with other data or settings than the checkpoint's; both are fingerprints."""
    if saved != now:
        raise FileError(
            f"{path}: the data or settings have changed since this checkpoint was written; "
            "restore them, or start a new run in another folder"
        )
