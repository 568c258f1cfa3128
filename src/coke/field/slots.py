"""A state that is written in every round: two files in turn, so that one of them is always whole.

    sequence (8) | length (8) | check (16) | the state | zeros up to a whole block

Each write goes over the older file, in place and at full blocks, and is flushed once: no new name
and no new size has to reach the disk, which makes it eight times cheaper than a rename. A power cut
in the middle spoils that file only; nothing of its round has been sent, so the other file is the
right one. The check is over sequence, length and the state's own last bytes, its digest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from coke.data.files import DIGEST, read_file, write_file
from coke.errors import FileError

BLOCK = 4096
CHECK = 16
HEAD = 16 + CHECK
LAST = 2**63  # nobody writes so often
_flush = getattr(os, "fdatasync", os.fsync)  # not every platform has the cheaper one
S = TypeVar("S")


class Copy(NamedTuple):
    """What is in a file, as far as the check can tell."""

    sequence: int
    path: Path
    state: bytes


class Slots:
    """NAME-0.coke and NAME-1.coke in a folder."""

    def __init__(self, folder: Path, name: str):
        self.paths = [folder / f"{name}-{i}.coke" for i in (0, 1)]
        self.spoilt: list[Path] = []  # files that the last `read` could make nothing of
        self._files: list[IO[bytes] | None] = [None, None]
        self._sequence: int | None = None  # of the last write; None: not known yet

    def __str__(self) -> str:
        return f"{self.paths[0]} and {self.paths[1].name}"

    @property
    def exist(self) -> bool:
        """Whether anything was ever written."""
        return any(path.exists() for path in self.paths)

    def read(self, parse: Callable[[bytes], S]) -> S | None:
        """What `parse` makes of the newest state that is whole; None where nothing was written."""
        copies = [copy for path in self.paths if (copy := _copy(path)) is not None]
        self.spoilt = [p for p in self.paths if p.exists() and all(p != c.path for c in copies)]
        why = "truncated or altered"
        for sequence, path, state in sorted(copies, reverse=True):
            try:
                found = parse(state)
            except FileError as error:
                why = str(error)
                self.spoilt.append(path)
            else:
                self._sequence = sequence
                return found
        if self.spoilt:
            raise FileError(f"{self}: {why}; restore them from a backup, however old")
        self._sequence = 0
        return None

    def write(self, state: bytes) -> None:
        """On disk when this returns; FileError where it cannot be."""
        if self._sequence is None:
            self.read(bytes)
        assert self._sequence is not None
        self._over((self._sequence + 1) % 2, _framed(self._sequence + 1, state))
        self._sequence += 1

    def close(self) -> None:
        """Nothing more will be written."""
        for file in self._files:
            if file is not None:
                file.close()
        self._files = [None, None]

    def _over(self, i: int, data: bytes) -> None:
        file, path = self._files[i], self.paths[i]
        if file is None:  # a new name: it has to reach the disk, too
            write_file(path, data)
            self._files[i] = path.open("r+b")
            return
        try:
            file.seek(0)
            file.write(data)
            file.flush()
            _flush(file.fileno())
        except OSError as error:
            raise FileError(
                f"{path}: cannot be written: {error}; free space, and start again"
            ) from error


def _check(head: bytes, state: bytes) -> bytes:
    return blake2b(head + state[-DIGEST:], digest_size=CHECK).digest()


def _framed(sequence: int, state: bytes) -> bytes:
    head = sequence.to_bytes(8, "little") + len(state).to_bytes(8, "little")
    data = head + _check(head, state) + state
    return data + bytes(-len(data) % BLOCK)


def _copy(path: Path) -> Copy | None:
    """What is whole in a file, if anything; the rest of an earlier, longer state may follow it."""
    if not path.exists():
        return None
    data = read_file(path)
    head, check = data[:16], data[16:HEAD]
    length = int.from_bytes(head[8:], "little")
    state = data[HEAD : HEAD + length]
    sequence = int.from_bytes(head[:8], "little")
    whole = len(state) == length and check == _check(head, state)
    return Copy(sequence, path, state) if whole and sequence < LAST else None
