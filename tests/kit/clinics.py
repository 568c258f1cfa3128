"""A network of sites with identities of their own, at a given time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coke.field.identity import found, issue

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
POSIX = pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")


def network(folder: Path, *sites: str, now: datetime = NOW) -> Path:
    found(folder, "clinics", now)
    for name in sites:
        issue(folder, name, now)
    return folder


def move(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())
