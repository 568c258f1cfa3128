"""Where a page or an endpoint is, for the owner of a folder. Without NumPy."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

FILE = "page.json"
LOOPBACK = "127.0.0.1"
_TOKEN = re.compile("[A-Za-z0-9_-]{22}")


class Access(msgspec.Struct, frozen=True):
    """Where a page is: what `coke agent status` reads."""

    port: int
    token: str
    pid: int

    @property
    def url(self) -> str:
        """For a browser on this machine."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"


def read_access(folder: Path, file: str = FILE) -> Access | None:
    """Of the page of whoever works there, if there is or was one."""
    try:
        found = msgspec.json.decode((folder / file).read_bytes(), type=Access)
    except (OSError, msgspec.DecodeError):
        return None
    good = 0 < found.port < 65536 and _TOKEN.fullmatch(found.token)
    return found if good else None
