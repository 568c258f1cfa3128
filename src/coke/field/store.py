"""What a site keeps on its disk: written whole or not at all, read with suspicion.

    agreement.coke   what it has heard beside words, a journal: `coke.field.agreeing`
    site-0, -1.coke  its state in training, one write a round, in turn
    stream.coke      what a site on a stream has read and heard since stream-0, -1.coke
    history.jsonl    one line a round; lines beyond the state's round are from before a crash; where
                     it would grow beyond `HISTORY` every other line of its older half goes
    lock             the process that works here; the system frees it when that process dies

A folder belongs to one run of one site, and to one process at a time. Anything else found in it
stops the agent, with the reason: it never starts again from zero by itself.

The state goes to two files in turn, so that one of them is always whole:

    sequence (8) | length (8) | check (16) | the state | zeros up to a whole block

Each write goes over the older file, in place and at full blocks, and is flushed once: no new name
and no new size has to reach the disk, which makes it eight times cheaper than a rename. A power cut
in the middle spoils that file only; nothing of its round has been sent, so the other file is the
right one. The check is over sequence, length and the state's own last bytes, its digest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from coke.data.files import DIGEST, read_file, write_file
from coke.errors import FileError
from coke.field.journal import Journal, put
from coke.field.lock import alone

S = TypeVar("S")
BLOCK = 4096
CHECK = 16
HEAD = 16 + CHECK
LAST = 2**63  # nobody writes so often
HISTORY = 2**24  # bytes of a history, at most: some hundred thousand rounds


class Store:
    """One site's folder; without `flushed`, for trials, a power cut may cost the last rounds."""

    def __init__(self, folder: Path, *, flushed: bool = True):
        self.folder = folder
        self._image, self.history = Slots(folder, "site", flushed), folder / "history.jsonl"
        self.heard = Journal(folder / "agreement.coke", flushed=flushed)
        self.stream = Journal(folder / "stream.coke", flushed=flushed)
        self.streamed = Slots(folder, "stream", flushed)  # images, from which it begins anew
        self.spoilt: list[Path] = []  # files of the state that could not be read when it was
        self._lines: FileIO | None = None  # the history, while it is written …
        self._length = 0  # … and how long it is
        self._look()

    def _look(self) -> None:
        self.begun = any(path.exists() for path in self._image.paths)  # whether it has trained
        self.traces = self.begun or self.history.exists()  # whether anything says so

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder to oneself; FileError while another agent has it."""
        with alone(self.folder):
            self._look()  # another agent may have worked here until now
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """Nothing more will be written."""
        self._image.close()
        self.heard.close()
        self.stream.close()
        self.streamed.close()
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def image(self, read: Callable[[bytes], S]) -> S | None:
        """What `read` makes of the last state that is whole; None before the first."""
        if not self.begun and self.history.exists():
            raise FileError(
                f"{self._image}: missing, but rounds were made: restore them, or begin a new run "
                "in another folder, with another run number"
            )
        found = self._image.read(read)
        self.spoilt = self._image.spoilt
        return found

    def keep_image(self, data: bytes) -> None:
        """Before anything of the round is sent."""
        self._image.write(data)
        self.begun = True

    def rounds(self, upto: int) -> list[dict[str, Any]]:
        """The history up to a round; what a crash left beyond it is forgotten."""
        self.close()
        found = list(_lines(self.history, upto))
        lines = b"".join(msgspec.json.encode(line) + b"\n" for line in found)
        if self.history.exists():
            write_file(self.history, lines)
        return found

    def append(self, line: dict[str, Any]) -> None:
        """One more round; not flushed to the disk: the state is what counts."""
        try:
            if self._lines is None:
                self._lines = self.history.open("ab", buffering=0)
                self._length = self._lines.tell()
            rest = memoryview(msgspec.json.encode(line, enc_hook=_plain) + b"\n")
            self._length += len(rest)
            while rest:
                rest = rest[self._lines.write(rest) :]
            if self._length > HISTORY:
                self._thin()
        except OSError as error:
            raise FileError(
                f"{self.history}: cannot be written: {error}; free space, and start again"
            ) from error

    def _thin(self) -> None:
        """Every other line of the older half goes: an agent may make rounds for months."""
        self.close()
        lines = read_file(self.history).splitlines(keepends=True)
        half = len(lines) // 2
        write_file(self.history, b"".join([*lines[:half:2], *lines[half:]]))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else os.fspath(value)


def _lines(path: Path, upto: int) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    last = 0
    for text in read_file(path).splitlines():
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # cut off by a crash
        k = line.get("round")
        if not isinstance(k, int) or not last < k <= upto:
            return
        last = k  # a kill between state and history leaves a gap
        yield line


class _Copy(NamedTuple):
    """What is in a file, as far as the check can tell."""

    sequence: int
    path: Path
    state: bytes


class Slots:
    """NAME-0.coke and NAME-1.coke in a folder."""

    def __init__(self, folder: Path, name: str, flushed: bool = True):
        self.paths, self._flushed = [folder / f"{name}-{i}.coke" for i in (0, 1)], flushed
        self.spoilt: list[Path] = []  # files that the last `read` could make nothing of
        self._files: list[FileIO | None] = [None, None]
        self._sequence: int | None = None  # of the last write; None: not known yet

    def __str__(self) -> str:
        return f"{self.paths[0]} and {self.paths[1].name}"

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
        sequence = (self._sequence or 0) + 1
        self._over(sequence % 2, _framed(sequence, state))
        self._sequence = sequence

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
            self._files[i] = path.open("r+b", buffering=0)
            return
        put(file, 0, data, flushed=self._flushed)


def _check(head: bytes, state: bytes) -> bytes:
    return blake2b(head + state[-DIGEST:], digest_size=CHECK).digest()


def _framed(sequence: int, state: bytes) -> bytes:
    head = sequence.to_bytes(8, "little") + len(state).to_bytes(8, "little")
    data = head + _check(head, state) + state
    return data + bytes(-len(data) % BLOCK)


def _copy(path: Path) -> _Copy | None:
    """What is whole in a file, if anything; the rest of an earlier, longer state may follow it."""
    if not path.exists():
        return None
    data = read_file(path)
    head, check = data[:16], data[16:HEAD]
    length = int.from_bytes(head[8:], "little")
    state = data[HEAD : HEAD + length]
    sequence = int.from_bytes(head[:8], "little")
    whole = len(state) == length and check == _check(head, state)
    return _Copy(sequence, path, state) if whole and sequence < LAST else None
