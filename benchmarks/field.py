"""`make bench-field`: ten agents on this machine learn Energy, from their start to all models.

Real processes, disks and mutual TLS, as `coke network run` starts them; the data set is looked for
in COKE_DATA. Clock is what a user waits: it means something on free cores only, as ten processes
share them. CPU is of all agents together, with the share that goes into starting (Python, imports,
reading rows, until a site greets its neighbours) and what follows the last round (the last letters,
the model, the history, the report). No site may wait out the time that a site lingers at the end.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coke.data.split import deal
from coke.data.tables import read_rows
from coke.field.local import LOG, NetworkPlan, _started, write_network
from coke.maths.graph import build_graph
from figures import Found, Goal, Section, main
from floors import FLOORS
from processes import cpu

DATA = Path(os.environ.get("COKE_DATA", "../shared/data"))
AGENTS, EDGES, MODELS = 10, 28, ("plain", "auto")
LONGEST = 600.0  # seconds
PHASES = ("meet", "agree", "descend", "train", "close", "part", "over")


class Site(NamedTuple):
    """One agent: its folder, its process, and what it had taken when it came to a phase."""

    folder: Path
    process: subprocess.Popen[bytes]
    at: dict[str, tuple[float, float]]  # phase ↦ clock, CPU seconds

    def lines(self) -> list[dict[str, Any]]:
        """What it has said so far; nothing before the agent has begun its log."""
        log = self.folder / LOG
        text = log.read_text().rpartition("\n")[0] if log.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def look(self) -> bool:
        """Notes new phases; whether the process is still there."""
        stat = Path(f"/proc/{self.process.pid}/stat")  # there until `poll` has seen the end
        if stat.exists():
            taken = time.monotonic(), cpu(stat)
            if (self.folder / "state" / "model.coke").exists():
                self.at.setdefault("model", taken)
            for line in self.lines():
                self.at.setdefault(line["phase"], taken)
        return self.process.poll() is None

    def taken(self, phase: str) -> float:
        """CPU seconds until it came to a phase, or to a later one, if that was over too soon."""
        later = PHASES[PHASES.index(phase) :]
        return min(self.at[name][1] for name in later if name in self.at)

    def lingered(self) -> bool:
        """Whether it gave up on a neighbour at the end."""
        events = [event for line in self.lines() for event in line.get("events", ())]
        return any(event["kind"] == "late" for event in events)


def written(folder: Path, model: str) -> list[Path]:
    """A network of the data set; the sites' files."""
    rows = read_rows(str(DATA / "energy.parquet"), "y", drop=["date"])
    graph = build_graph("random", AGENTS, edges=EDGES, seed=0)
    plan = NetworkPlan(
        network="bench", graph=graph, rows=rows, parts=deal(rows.y, AGENTS, seed=0),
        settings={"model": model}, patience="wait",
    )  # fmt: skip
    return write_network(folder, plan)


def run(model: str) -> Found:
    """What it takes, and where it goes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        paths, begin = written(Path(folder) / "net", model), time.monotonic()
        sites = [Site(path.parent, _started(path), {}) for path in paths]
        try:
            while sum(site.look() for site in sites) and time.monotonic() < begin + LONGEST:
                time.sleep(0.02)
        finally:
            for site in sites:
                site.process.kill()
                site.process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return _figures(sites, begin, whole)


def _figures(sites: Sequence[Site], begin: float, whole: float) -> Found:
    last = [site.lines()[-1] for site in sites]
    assert all(line["phase"] == "result" for line in last), last
    took = {name: sum(site.taken(name) for site in sites) for name in ("meet", "descend", "over")}
    return {
        "clock, start to all models, s": max(site.at["model"][0] for site in sites) - begin,
        "CPU of all agents, s": whole,
        "of it until they greet": took["meet"] / whole,
        "agreeing": (took["descend"] - took["meet"]) / whole,
        "training": (took["over"] - took["descend"]) / whole,
        "models, histories, reports": 1 - took["over"] / whole,
        "sites that lingered": float(sum(site.lingered() for site in sites)),
        "rounds": float(last[0]["rounds"]),
    }


def measure(size: str) -> Found:
    """Both models; the short size has the plain one alone."""
    models = MODELS[:1] if size == "short" else MODELS
    return {f"{model}: {name}": x for model in models for name, x in run(model).items()}


GOALS = {
    f"{model}: {name}": Goal(most=most)
    for model in MODELS
    for name, most in {"clock, start to all models, s": 15.0, "sites that lingered": 0.0}.items()
}
FIELD = Section("field", measure, GOALS)

if __name__ == "__main__":
    sys.exit(main(FLOORS, FIELD))
