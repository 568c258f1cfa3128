"""Arrays that need not fit into memory."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from coke.errors import FileError
from coke.maths.arrays import Array

FLOAT = 8  # bytes


class OnDisk:
    """Arrays in nameless files of a folder, which the system pages in and out as it has memory.

    A file goes with the last array in it, also when the process is killed.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def __call__(self, shape: tuple[int, int]) -> Array:
        """Room for float64 numbers; all of it is set aside, for a full disk would kill later."""
        size = FLOAT * math.prod(shape)
        if not size:
            return np.empty(shape)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                room = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise FileError(
                f"{self._folder}: no room for {size / 1e9:.3g} GB of numbers: {error}; name a "
                "folder on a disk with that much free"
            ) from error
        return np.frombuffer(room, np.float64).reshape(shape)
