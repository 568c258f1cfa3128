"""What happened, round by round: as arrays, and to Parquet and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from coke.data.files import atomically
from coke.engines.process import Record
from coke.errors import FileError, InputError, unknown
from coke.maths.arrays import Mask
from coke.maths.sizes import sized

_COUNTS = ("round", "transmissions", "bytes", "wire_bytes")
LOSSES = ("train", "test", "global_train", "global_test")
GAPS = ("consensus_gap", "optimality_gap")
_KEY = b"coke"
_NOTHING: Mapping[str, Any] = {"loss": math.nan, **dict.fromkeys(_COUNTS[1:], 0)}  # before round 1


class Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the numbers are of."""

    algorithm: str
    metric: str  # the name of the mean loss, such as "mse"
    sites: list[str]


class History:
    """Columns of equal length, one entry a round: `history["train_mse"]`, `history.spoke`."""

    def __init__(self, algorithm: str, metric: str, sites: Iterable[str]):
        self.labels = Labels(algorithm, metric, list(sites))
        losses = tuple(f"{name}_{metric}" for name in LOSSES)
        self.names = (*_COUNTS, *losses, *GAPS)
        self._rows: list[tuple[float, ...]] = []
        self._spoke: list[NDArray[np.bool_]] = []

    def append(self, record: Record) -> None:
        """Keeps the numbers of a record, not its state."""
        gaps = (record.consensus_gap, record.optimality_gap)
        self._rows.append((record.k, *record.ledger, *record.score, *gaps))
        self._spoke.append(record.spoke)

    @classmethod
    def of_sites(
        cls, labels: Labels, told: Sequence[Sequence[Mapping[str, Any]]], T: Sequence[float]
    ) -> History:
        """From each site's own lines, as agents keep them; what none of them knows is NaN.

        A site with T_i rows that has no line of a round was silent, and is where it was.
        """
        history, last = cls(labels.algorithm, labels.metric, labels.sites), [_NOTHING] * len(told)
        by_round = [{line["round"]: line for line in lines} for lines in told]
        for k in sorted(set().union(*by_round)):
            now = [lines.get(k) for lines in by_round]
            last = [line or before for line, before in zip(now, last, strict=True)]
            spent = (sum(line[name] for line in last) for name in _COUNTS[1:])
            train = np.average([line["loss"] for line in last], weights=T)
            unknown_here = [math.nan] * (len(LOSSES) - 1 + len(GAPS))
            history._rows.append((k, *spent, float(train), *unknown_here))
            history._spoke.append(np.array([bool(line and line["spoke"]) for line in now]))
        return history

    def __repr__(self) -> str:
        """What it is of, and where it ended."""
        of = f"History of {self.labels.algorithm} at {len(self.labels.sites)} sites"
        if not self._rows:
            return f"<{of}: no round>"
        last, train = self.last(), f"train_{self.labels.metric}"
        spent = f"{last['transmissions']} messages, {sized(last['bytes'])}"
        return f"<{of}: {len(self)} rounds, {spent}, {train} {last[train]:.4g}>"

    def __len__(self) -> int:
        """Rounds so far."""
        return len(self._rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column by its name."""
        if name not in self.names:
            raise InputError(unknown("column", name, self.names))
        j = self.names.index(name)
        kind = np.int64 if name in _COUNTS else np.float64
        return np.array([row[j] for row in self._rows], dtype=kind)

    def last(self) -> dict[str, Any]:
        """The numbers of the last round by name; None where there is none (no test rows)."""
        if not self._rows:
            raise InputError("the history is empty: no round was run")
        row = dict(zip(self.names, self._rows[-1], strict=True))
        return {name: None if math.isnan(value) else value for name, value in row.items()}

    @property
    def spoke(self) -> NDArray[np.bool_]:
        """(rounds, N): who transmitted when."""
        return np.array(self._spoke, dtype=np.bool_).reshape(len(self), len(self.labels.sites))

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """All numbers (rounds, columns) and who spoke, for `restore`."""
        shape = (len(self), len(self.names))
        return np.array(self._rows, dtype=np.float64).reshape(shape), self.spoke

    def restore(self, rows: NDArray[Any], spoke: NDArray[Any]) -> None:
        """Takes back what `arrays` gave."""
        if rows.dtype != np.float64 or spoke.dtype != np.bool_:
            raise ValueError(f"a history of types {rows.dtype} and {spoke.dtype}")
        T = rows.shape[:1]
        wanted = (*T, len(self.names)), (*T, len(self.labels.sites))
        if (rows.shape, spoke.shape) != wanted:
            raise ValueError(f"a history of shapes {rows.shape} and {spoke.shape}")
        whole = len(_COUNTS)
        counts = rows[:, :whole]
        if not ((counts >= 0) & (counts < 2**62) & (counts == np.floor(counts))).all():
            raise ValueError("a history whose counts are no whole numbers")
        self._rows = [(*map(int, row[:whole]), *row[whole:]) for row in rows.tolist()]
        self._spoke = list(spoke)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the table's columns."""
        kinds = [pa.int64() if name in _COUNTS else pa.float64() for name in self.names]
        spoke = pa.list_(pa.bool_(), len(self.labels.sites))
        return pa.schema([*zip(self.names, kinds, strict=True), ("spoke", spoke)])

    def table(self) -> pa.Table:
        """As an Arrow table."""
        columns: dict[str, Any] = {name: as_arrow(self[name]) for name in self.names}
        flat = as_arrow(self.spoke.ravel())
        columns["spoke"] = pa.FixedSizeListArray.from_arrays(flat, len(self.labels.sites))
        labels = msgspec.json.encode(self.labels)
        return pa.table(columns).replace_schema_metadata({_KEY: labels})

    def to_frame(self) -> Any:
        """As a pandas data frame, a row a round; as an Arrow table, where there is no pandas."""
        return self.table() if find_spec("pandas") is None else self.table().to_pandas()

    def plot(self, x: str = "bytes") -> Any:
        """The loss against "bytes" or "round", a matplotlib Figure: `coke.plot(self)`."""
        import coke  # here: pictures are made above, and reached by the package's own door

        return coke.plot(self, x=x)

    def to_parquet(self, path: str | Path) -> None:
        """Writes a file that `from_parquet` reads back exactly."""
        atomically(path, lambda part: pa.parquet.write_table(self.table(), part))

    @classmethod
    def from_parquet(cls, path: str | Path) -> History:
        """Reads such a file."""
        try:
            table = pa.parquet.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"{path}: cannot be read as a history: {error}") from error
        return cls.from_table(table, str(path))

    @classmethod
    def from_table(cls, table: pa.Table, source: str = "the table") -> History:
        """The history such a table came from."""
        try:
            labels = msgspec.json.decode((table.schema.metadata or {})[_KEY], type=Labels)
            history = cls(labels.algorithm, labels.metric, labels.sites)
            history._take(table)
        # RecursionError: labels of a thousand brackets, one inside the other.
        except (KeyError, ValueError, RecursionError) as error:
            raise FileError(
                f"{source}: not a history written by coke: {error}; expected a file of "
                "`History.to_parquet`, unchanged"
            ) from error
        return history

    def _take(self, table: pa.Table) -> None:
        """Takes back what `table` gave."""
        if not table.schema.equals(self.schema):
            raise ValueError(f"columns {_said(table.schema)}, not {_said(self.schema)}")
        flat = table["spoke"].combine_chunks().flatten()
        if flat.null_count or any(column.null_count for column in table.columns):
            raise ValueError("values are missing")
        N = len(self.labels.sites)
        spoke = flat.to_numpy(zero_copy_only=False).reshape(table.num_rows, N)
        columns = [table[name].to_pylist() for name in self.names]
        self._spoke = list(spoke)
        self._rows = list(zip(*columns, strict=True))


def as_arrow(x: NDArray[Any], known: Mask | None = None) -> pa.Array:
    """Numbers (T,), those that are `known`; `pa.array` would load pandas, wherever there is one."""
    said, kept = (None if one is None else _bits(one) for one in (known, x))
    return pa.Array.from_buffers(pa.from_numpy_dtype(x.dtype), len(x), [said, kept])


def _bits(x: NDArray[Any]) -> pa.Buffer:
    """As they lie, or in bits."""
    return pa.py_buffer(np.packbits(x, bitorder="little") if x.dtype == np.bool_ else x)


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
