"""What the system says of a process and its threads."""

from __future__ import annotations

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE") / 1024  # kB


def resident(pid: int) -> float:
    """kB in memory."""
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def cpu(stat: Path) -> float:
    """Seconds of a process or thread, user and system."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
