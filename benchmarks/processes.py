"""What the system says of a process and its threads."""

from __future__ import annotations

import os
import re
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE") / 1024  # kB
THREADS = re.compile(r"\((rx|tx|net|acc|app)-")  # zenoh's, by name


def resident(pid: int) -> float:
    """kB in memory."""
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def cpu(stat: Path) -> float:
    """Seconds of a process or thread, user and system."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def zenoh_cpu(pid: int) -> float:
    """Seconds of zenoh's own threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return sum(cpu(stat) for stat in threads if THREADS.search(stat.read_text()))
