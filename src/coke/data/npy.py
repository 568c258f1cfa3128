"""Arrays as a source of rows, in memory or in .npy files.

Files are read, not mapped: the pages of a map count as memory of the process, and a file that
shrinks under a map kills it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coke.data.formats import CHUNK, as_classes, encoded, guarded
from coke.data.kinds import exact_float
from coke.data.sources import Chunk, Numbers, Source
from coke.data.tables import plain
from coke.errors import DataError, FileError


def open_arrays(
    X: Any, y: Any = None, sites: Any = None, *, classes: bool = False, chunk: int = CHUNK
) -> Source:
    """X (T, d), y (T,) and one site label a row: each an array, or the path of a .npy file.

    y are numbers, or with `classes` class labels; zeros where there are none, and no sites then.
    Several targets are numbers (T, K), or a list of paths.
    """
    given = (X, y, sites) if y is not None else (X, np.broadcast_to(0.0, _Slices.of(X).shape[:1]))
    parts = [_Slices.of(part) for part in given if part is not None]
    shapes = [part.shape for part in parts]
    rows = [shape[: 1 if i == 1 and not classes else None] for i, shape in enumerate(shapes)]
    if len(shapes[0]) != 2 or any(shape != shapes[0][:1] for shape in rows[1:]):
        raise DataError(f"X, y, sites of shape {shapes}: expected (T, d), (T,), (T,)")
    for part, name in zip(parts[:2], "Xy", strict=True):
        labels = classes and name == "y"
        if part.dtype.kind not in ("biufUO" if labels else "biuf"):
            what = "text or numbers" if labels else "numbers; encode text as numbers"
            raise DataError(f"{name} holds {part.dtype}: expected {what}")
    T, d = shapes[0]

    def chunks(inputs: bool = True, near: frozenset[str] | None = None) -> Iterator[Chunk]:
        for first in range(0, T, chunk):
            t = min(chunk, T - first)
            target, *label = (part.read(first, t) for part in parts[1:])
            codes, labels = _coded(label[0], "the site labels") if label else (None, ())
            if near is None or not near.isdisjoint(map(str, labels)):
                x = parts[0].read(first, t) if inputs else np.empty((t, 0), np.float32)
                some = x.astype(exact_float(x.dtype), copy=False)
                told = as_classes(*_coded(target, "y")) if classes else (target.astype(float), None)
                yield Chunk(some, told[0], codes, labels, told[1])

    def only(names: frozenset[str]) -> Source:
        some = partial(chunks, near=names)
        return Source(columns, None, some, partial(some, inputs=False), part=True)

    columns = tuple(f"x{j}" for j in range(d))
    return Source(
        columns, T, chunks, partial(chunks, inputs=False), only if sites is not None else None
    )


def _coded(labels: Numbers, said: str) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    native = labels.astype(labels.dtype.newbyteorder("="), copy=False)  # Arrow knows no other
    found = guarded(said, DataError, lambda: pa.array(native, from_pandas=True))
    return encoded(plain(found))  # None and NaN are missing


class _Slices(NamedTuple):
    """Rows first … first + t of an array or of a .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Numbers]

    @classmethod
    def of(cls, part: Any) -> _Slices:
        if isinstance(part, str | Path):
            return _npy(Path(part))
        if isinstance(part, list) and isinstance(part[0], str | Path):
            return cls.beside(list(map(cls.of, part)))
        values = np.asarray(part)
        return cls(values.shape, values.dtype, lambda first, t: values[first : first + t])

    @classmethod
    def beside(cls, columns: Sequence[_Slices]) -> _Slices:
        """Several (T,) as one (T, K)."""
        shapes = {column.shape for column in columns}
        if len(shapes) > 1 or len(columns[0].shape) != 1:
            raise DataError(f"targets of shape {sorted(shapes)}: expected (T,), all of one length")
        dtype = np.result_type(*(column.dtype for column in columns))
        return cls(
            (*columns[0].shape, len(columns)), dtype,
            lambda *at: np.column_stack([column.read(*at) for column in columns]),
        )  # fmt: skip


def _npy(path: Path) -> _Slices:
    head = guarded(str(path), FileError, partial(np.load, path, "r", allow_pickle=False))
    good = isinstance(head, np.memmap) and head.ndim in (1, 2) and head.dtype.kind in "biufSU"
    if not good:
        raise DataError(f"{path}: expected one array of numbers or text, in one or two dimensions")
    shape, offset, dtype = head.shape, head.offset, head.dtype
    by_column = not head.flags.c_contiguous
    del head  # or the map stays open
    T, d = shape[0], math.prod(shape[1:])

    def items(first: int, n: int) -> Numbers:
        found = np.empty(n, dtype)
        room = found.view(np.uint8).data
        with path.open("rb", buffering=0) as file:  # `fromfile` would copy everything twice
            file.seek(offset + first * dtype.itemsize)
            while len(room):
                if not (some := file.readinto(room)):
                    raise OSError("it ends too early, as if it was cut off while it was read")
                room = room[some:]
        return found

    def rows(first: int, t: int) -> Numbers:
        if by_column:
            return np.stack([items(j * T + first, t) for j in range(d)]).T
        return items(first * d, t * d).reshape(t, *shape[1:])

    return _Slices(shape, dtype, lambda *at: guarded(str(path), FileError, lambda: rows(*at)))
