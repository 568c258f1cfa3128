"""What a site keeps on its disk: written whole or not at all, read with suspicion.

    agreement.coke   what it has heard of the agreement, and whose run that is
    site-0, -1.coke  its state in training, one write a round, in turn
    history.jsonl    one line a round; lines beyond the state's round are from before a crash
    lock             the process that works here; the system frees it when that process dies

A folder belongs to one run of one site, and to one process at a time. Anything else found in it
stops the agent, with the reason: it never starts again from zero by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import numpy as np

from coke.data.files import make_folder, pack, read_file, unpack, write_file
from coke.errors import FileError
from coke.field.slots import Slots

if sys.platform == "win32":
    import msvcrt

    def _alone(file: IO[bytes]) -> None:
        file.seek(2**30)  # nobody may read what is locked, and the number should be read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _alone(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


S = TypeVar("S")
KIND = "agreement"


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site has heard before training."""

    site: str
    run: str  # a digest of the rows and settings
    settings: dict[str, str]
    messages: dict[str, list[bytes]]  # by neighbour, in order
    totals: list[bytes] | None  # what a site that joins later was told instead


class Store:
    """One site's folder."""

    def __init__(self, folder: Path):
        make_folder(folder)
        self.folder = folder
        self._image, self._history = Slots(folder, "site"), folder / "history.jsonl"
        self._lines: IO[bytes] | None = None  # the history, while it is written

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder to oneself; FileError while another agent has it."""
        path = self.folder / "lock"
        try:
            file = path.open("a+b")
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error}; see whose it is") from error
        with file:
            try:
                _alone(file)
            except OSError as error:
                file.seek(0)
                who = file.read(20).decode(errors="replace").strip() or "unknown"
                raise FileError(
                    f"{self.folder}: another agent works here (process {who}): expected one at a "
                    "time; stop it first, or give this site another folder"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """Nothing more will be written."""
        self._image.close()
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    @property
    def begun(self) -> bool:
        """Whether training has begun."""
        return self._image.exist

    def heard(self, fresh: Heard) -> Heard:
        """What was heard before, or `fresh` where nothing was; refused if it is another run's."""
        path = self.folder / "agreement.coke"
        if not path.exists():
            if self.begun or self._history.exists():
                raise FileError(f"{path}: missing, but the site's state is there: restore it too")
            return fresh
        try:
            found, _ = unpack(read_file(path), KIND, Heard)
        except FileError as error:
            raise FileError(f"{path}: {error}") from error
        if (found.site, found.run) != (fresh.site, fresh.run):
            changed = [k for k in fresh.settings if found.settings.get(k) != fresh.settings[k]]
            what = f"the settings {', '.join(changed)}" if changed else "the rows or settings"
            raise FileError(
                f"{self.folder}: {what} of {fresh.site!r} have changed since the run of "
                f"{found.site!r} began: restore them, or begin a new run in another folder, with "
                "another run number"
            )
        return found

    def keep_heard(self, heard: Heard) -> None:
        """Before anything that depends on it is sent."""
        write_file(self.folder / "agreement.coke", pack(KIND, heard, {}))

    def image(self, read: Callable[[bytes], S]) -> S | None:
        """What `read` makes of the last state that is whole; None before the first."""
        if not self._image.exist and self._history.exists():
            raise FileError(
                f"{self._image}: missing, but rounds were made: restore them, or begin a new run "
                "in another folder, with another run number"
            )
        return self._image.read(read)

    @property
    def spoilt(self) -> list[Path]:
        """Files of the state that could not be read when it was."""
        return self._image.spoilt

    def keep_image(self, data: bytes) -> None:
        """Before anything of the round is sent."""
        self._image.write(data)

    def rounds(self, upto: int) -> list[dict[str, Any]]:
        """The history up to a round; what a crash left beyond it is forgotten."""
        self.close()
        found = list(_lines(self._history, upto))
        lines = b"".join(msgspec.json.encode(line) + b"\n" for line in found)
        if self._history.exists():
            write_file(self._history, lines)
        return found

    def append(self, line: dict[str, Any]) -> None:
        """One more round; not flushed to the disk: the state is what counts."""
        try:
            if self._lines is None:
                self._lines = self._history.open("ab")
            self._lines.write(msgspec.json.encode(line, enc_hook=_plain) + b"\n")
            self._lines.flush()
        except OSError as error:
            raise FileError(
                f"{self._history}: cannot be written: {error}; free space, and start again"
            ) from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else os.fspath(value)


def _lines(path: Path, upto: int) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    last = 0
    for text in read_file(path).splitlines():
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            return  # cut off by a crash
        k = line.get("round")
        if not isinstance(k, int) or not last < k <= upto:
            return
        last = k  # a kill between state and history leaves a gap
        yield line
