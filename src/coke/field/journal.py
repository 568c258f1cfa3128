"""Blocks of bytes that are only ever added, each on disk before anything follows from it.

    length (4, little endian) | check (12) | block

The first is written whole or not at all. Of the last a crash may leave a part, which is forgotten:
nothing that follows from it was sent.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from io import FileIO
from pathlib import Path

from coke.data.files import read_file, write_file
from coke.errors import FileError

_CHECK = 12
_HEAD = 4 + _CHECK
_flush = getattr(os, "fdatasync", os.fsync)  # not every platform has the cheaper one


class Journal:
    """One file; without `flushed`, for trials, a power cut may cost the last blocks."""

    def __init__(self, path: Path, *, flushed: bool = True):
        self.path, self._flushed = path, flushed
        self._file: FileIO | None = None
        self._end = 0  # of the last whole block, while the file is open

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return self.path.exists()

    def read(self) -> list[bytes]:
        """All whole blocks; FileError where that is none, or where more follows a spoilt one."""
        return self._read()[0]

    def _read(self) -> tuple[list[bytes], int]:
        """And where they end."""
        data, found, at = read_file(self.path), list[bytes](), 0
        while at + _HEAD <= len(data):
            end = at + _HEAD + int.from_bytes(data[at : at + 4], "little")
            block = data[at + _HEAD : end]
            if end > len(data) or data[at + 4 : at + _HEAD] != _check(block):
                break
            found.append(block)
            at = end
        else:
            end = len(data)
        if not found or end < len(data):
            raise FileError(f"{self.path}: truncated or altered; restore it from a backup")
        return found, at

    def begin(self, block: bytes) -> None:
        """With this block alone."""
        self.close()
        write_file(self.path, _framed(block))

    def add(self, block: bytes) -> None:
        """On disk when this returns; FileError where it cannot be."""
        if self._file is None:
            _, self._end = self._read()
            self._file = self.path.open("r+b", buffering=0)
            self._file.truncate(self._end)
        data = _framed(block)
        put(self._file, self._end, data, flushed=self._flushed)
        self._end += len(data)

    def close(self) -> None:
        """Nothing more will be written."""
        if self._file is not None:
            self._file.close()
            self._file = None


def put(file: FileIO, at: int, data: bytes, *, flushed: bool) -> None:
    """Over what is at that place of a file without a buffer; on disk when this returns."""
    rest = memoryview(data)
    try:
        file.seek(at)
        while rest:
            rest = rest[file.write(rest) :]
        if flushed:
            _flush(file.fileno())
    except OSError as error:
        raise FileError(
            f"{file.name}: cannot be written: {error}; free space, and start again"
        ) from error


def _check(block: bytes) -> bytes:
    return blake2b(block, digest_size=_CHECK).digest()


def _framed(block: bytes) -> bytes:
    return len(block).to_bytes(4, "little") + _check(block) + block
