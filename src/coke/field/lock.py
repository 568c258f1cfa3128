"""A folder for one process at a time: a lock that the system frees when its process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coke.data.lock import lock
from coke.errors import FileError

NAME = "lock"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The folder to oneself; FileError while another agent has it."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error}; see whose it is") from error
    with file:
        try:
            lock(file)
        except OSError as error:
            raise FileError(
                f"{folder}: another agent works here (process {_number(file) or 'unknown'}): "
                "expected one at a time; stop it first, or give this site another folder"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        file.flush()
        yield


def worker(folder: Path) -> int | None:
    """The process that works there now; None where nobody does."""
    try:
        with (folder / NAME).open("rb") as file:
            number = _number(file)
            if number is None or not _lives(number):
                return None  # the lock is not touched: an agent may be about to take it
            try:
                lock(file)
            except OSError:
                return number
            return None  # another process has that number by now
    except OSError:
        return None


def _number(file: IO[bytes]) -> int | None:
    file.seek(0)
    text = file.read(20).strip()
    return int(text) if text.isdigit() else None


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
