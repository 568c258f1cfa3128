"""Lines in a file that does not grow for ever: full, it becomes FILE.1, and a new one is begun."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from coke.errors import FileError

MOST = 2**23  # bytes of the file; the one before has as many


class RollingLog:
    """One process's log, for its owner alone: it may tell where a page is, with its token."""

    def __init__(self, path: Path, most: int = MOST):
        self.path, self._most = path, most
        self._file = self._opened()

    @property
    def before(self) -> Path:
        """Where the lines are that were here before."""
        return self.path.with_name(f"{self.path.name}.1")

    def write(self, line: bytes) -> None:
        """With an end of line, and on its way to the disk."""
        if self._file.tell() + len(line) >= self._most:
            self._file.close()
            self.path.replace(self.before)
            self._file = self._opened()
        self._file.write(line + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Nothing more will be written."""
        self._file.close()

    def _opened(self) -> IO[bytes]:
        try:
            number = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be written: {error}; choose another") from error
        return os.fdopen(number, "ab")
