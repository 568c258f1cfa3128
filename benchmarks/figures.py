"""What the benchmarks share: CPU time by turns, goals, the table, the JSON file and the history.

Figures are ratios within one run: process CPU time, one BLAS thread, the sides by turns, the best
turn of each. The machine may be shared and noisy, and absolute times mean little. A goal that is
missed is said and makes the exit code 1. With --short sizes are small, and only half of every goal
is asked for. With --keep the figures are added to the history; what earlier runs on such a machine
found stands beside them with or without it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coke.threads import OneThread

OUT = Path("out")
HISTORY = Path(__file__).with_name("history.jsonl")
SLACK = 2.0  # of goals, with --short

Found = dict[str, float]


class Goal(NamedTuple):
    """Where a figure should be."""

    least: float = -math.inf
    most: float = math.inf

    def missed(self, value: float, slack: float = 1.0) -> bool:
        """NaN misses every goal."""
        return not self.least / slack <= value <= self.most * slack

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if math.isfinite(self.least) else f"≤ {self.most:g}"


class Section(NamedTuple):
    """One benchmark; its measure is told how large it may be: short, usual or large."""

    name: str
    measure: Callable[[str], Found]
    goals: dict[str, Goal]


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def best(work: Callable[[], object], times: int) -> float:
    """The fewest CPU seconds of so many calls: what the machine can do when nobody disturbs it."""
    return min(cpu(work) for _ in range(times))


def by_turns(sides: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """What each side says in each turn; disturbances come to all of them."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            found[name].append(side())
    return found


def ratio(a: list[float], b: list[float]) -> float:
    """a/b in seconds, the best turn of each: what disturbs a turn only makes it slower."""
    return min(a) / min(b)


def machine() -> str:
    """The machine in a few words, without its name."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    model = next((line.split(":")[1] for line in lines if line.startswith("model name")), "")
    name = " ".join((model or platform.machine()).split())
    return f"{name}, {os.cpu_count()} cores, NumPy {np.__version__}"


def main(*sections: Section) -> int:
    """Measures, prints a table, keeps the numbers; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("short", "large", "keep"):
        parser.add_argument(f"--{name}", action="store_true")
    asked = parser.parse_args()
    size = "short" if asked.short else "large" if asked.large else "usual"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for processes started from here
    said = {"machine": machine(), "size": size, "load": round(os.getloadavg()[0], 2)}
    print(*(f"{key}: {value}" for key, value in said.items()), sep=", ", flush=True)
    figures: dict[str, Found] = {}
    missed = []
    for section in sections:
        with OneThread().limit():
            figures[section.name] = section.measure(size)
        before = earlier(said, section.name)
        print(*lines(section, figures[section.name], before), sep="\n", flush=True)
        slack = SLACK if asked.short else 1.0
        missed += [
            f"{section.name}: {name}"
            for name, goal in section.goals.items()
            if name in figures[section.name] and goal.missed(figures[section.name][name], slack)
        ]
    path = OUT / (f"bench-{sections[-1].name}.json" if len(sections) == 2 else "bench.json")
    keep(said | {"figures": figures}, path, HISTORY if asked.keep else None)
    print(f"numbers in {path};", f"below the goal: {'; '.join(missed)}" if missed else "all well")
    return int(bool(missed))


def lines(section: Section, found: Found, before: dict[str, list[float]]) -> list[str]:
    """A table: figure, value, goal, and the median of earlier runs with the change since."""
    told = [section.name]
    for name, value in found.items():
        goal = str(section.goals[name]) if name in section.goals else ""
        line = f"  {name:48s} {value:11.4g}  {goal:8s}"
        if before.get(name):
            usual = statistics.median(before[name])
            change = f"{value / usual - 1.0:+.0%}" if usual else ""
            line += f"  was {usual:.4g} in {len(before[name])} runs, {change}"
        told.append(line.rstrip())
    return told


def earlier(said: dict[str, Any], section: str) -> dict[str, list[float]]:
    """What runs of the same size on such a machine have found, figure by figure."""
    found: dict[str, list[float]] = {}
    for line in HISTORY.read_text("utf-8").splitlines() if HISTORY.exists() else []:
        run = json.loads(line)
        if (run["machine"], run["size"]) == (said["machine"], said["size"]):
            for name, value in run["figures"].get(section, {}).items():
                found.setdefault(name, []).append(value)
    return found


def keep(run: dict[str, Any], path: Path, history: Path | None) -> None:
    """The run as JSON, and as one more line of the history."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if history is not None:
        run = {"date": datetime.now(UTC).date().isoformat()} | run
        with history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run, ensure_ascii=False) + "\n")
