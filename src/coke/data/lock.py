"""A file to oneself: a lock that the system frees when its process dies. Without NumPy."""

from __future__ import annotations

import sys
from typing import IO

if sys.platform == "win32":
    import msvcrt

    def lock(file: IO[bytes], *, wait: bool = False) -> None:
        """The file to oneself until it is closed; OSError where another has it for too long."""
        file.seek(2**30)  # nobody may read what is locked, and what it says should be read
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock(file: IO[bytes], *, wait: bool = False) -> None:
        """The file to oneself until it is closed; OSError where another has it."""
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
