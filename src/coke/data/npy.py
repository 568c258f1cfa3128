"""NumPy's .npy files, a few rows at a time and without its pickles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from coke.errors import DataError, FileError


class Npy(NamedTuple):
    """What the head of a .npy file says."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool  # columns one after the other, instead of rows
    offset: int  # bytes before the first number

    def slices(self, chunk: int) -> Iterator[NDArray[Any]]:
        """The rows in order, up to `chunk` at a time."""
        try:
            with self.path.open("rb") as file:
                for first in range(0, self.shape[0], chunk):
                    yield self._rows(file, first, min(chunk, self.shape[0] - first))
        except OSError as error:
            raise FileError(f"{self.path}: cannot be read: {error}") from error

    def _rows(self, file: BinaryIO, first: int, t: int) -> NDArray[Any]:
        T, width = self.shape[0], math.prod(self.shape[1:])
        if not self.fortran:
            flat = self._numbers(file, first * width, t * width)
            return flat.reshape(t, *self.shape[1:])
        columns = [self._numbers(file, j * T + first, t) for j in range(width)]
        return np.stack(columns, axis=1).reshape(t, *self.shape[1:])

    def _numbers(self, file: BinaryIO, first: int, n: int) -> NDArray[Any]:
        values = np.empty(n, self.dtype)
        file.seek(self.offset + first * self.dtype.itemsize)
        if file.readinto(memoryview(values.view(np.uint8))) != values.nbytes:  # type: ignore[attr-defined]
            raise OSError("it ends too early; was it cut off while it was read?")
        return values


def open_npy(path: Path) -> Npy:
    """Reads and checks the head: one or two dimensions, plain numbers or text, nothing cut off."""
    try:
        with path.open("rb") as file:
            head = Npy(path, *_head(file), file.tell())
            size = file.seek(0, 2) - head.offset
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            f"{path}: cannot be read: {error}; expected a .npy file as np.save writes it"
        ) from error
    if head.dtype.kind not in "biufSU" or len(head.shape) not in (1, 2):
        raise DataError(
            f"{path}: {head.dtype} of shape {head.shape}: expected numbers (or text for site "
            "labels) in one or two dimensions"
        )
    wanted = math.prod(head.shape) * head.dtype.itemsize
    if size != wanted:
        raise FileError(
            f"{path}: {size} bytes of numbers, expected {wanted} for {head.dtype} of shape "
            f"{head.shape}: the file is damaged or was cut off; write it again"
        )
    return head


def _head(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(file)
    if version not in readers:
        raise ValueError(f"version {version} of the format is for arrays with named fields")
    shape, fortran, dtype = readers[version](file)
    if any(n < 0 for n in shape):
        raise ValueError(f"the shape {shape} is none")
    return shape, dtype, fortran
