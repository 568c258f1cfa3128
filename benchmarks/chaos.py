"""`make bench-chaos`: an hour of trouble from seeds, with a liar in every other run.

Whole agents with disks of their own. Most runs are over the network in memory, on a clock that the
seed moves (`tests/kit/shaken.py`), so that a run which went wrong can be looked at again with
`--seed`: sites are killed between two frames, before, in the middle of and after a write, before
and after a frame; stopped, frozen, cut off with and without knowing, one way and both ways; frames
are lost, doubled, late and overtake each other; clocks jump, disks fill, old backups are restored;
sites leave, join, are forgotten and come back. One honest run in `TLS` is of real processes over
TLS, through wires that are cut, stalled and slow (`tests/kit/troubled.py`). After each it is
checked, and exit code 1 where it does not hold:

    all honest sites end, and none says that it has converged which has not
    g_ij = −g_ji on every edge whose ends are known, to the bit, hence Σγ = 0
    all agree on the same, to the bit, and every row was counted once
    the model is the simulation's to the bit, with its proof, rounds and bytes; where memory was
    lost, or sites came, went or were not waited for, the optimum of those who are there; with a
    liar, who is guarded against, the harm is at most what docs/trust.md says
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import math
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.aftermath import WORST
from kit.chaos import Found, shaken
from kit.plans import planned
from kit.troubled import troubled

TLS = 10  # one honest run in so many
LEAST = 200  # runs in an hour


class Tally:
    """What was tried, and what held."""

    def __init__(self, loud: bool) -> None:
        self.loud, self.begin = loud, time.monotonic()
        self.runs, self.lies, self.methods = Counter[str](), Counter[str](), Counter[str]()
        self.hit, self.held = Counter[str](), Counter[str]()
        self.broken: list[str] = []
        self.harms: list[float] = []

    def shaken(self, found: Found) -> None:
        """A run in memory."""
        plan = found.plan
        self.runs["in memory, one liar" if plan.lie else "in memory, all honest"] += 1
        self.methods[plan.method] += 1
        self.lies[plan.lie] += bool(plan.lie)
        self.harms += [] if math.isnan(found.harm) else [found.harm]
        self._add(str(plan), found.hit, found.held, found.broken)

    def troubled(self, about: str, hit: Counter[str], wrong: str) -> None:
        """A run of processes."""
        self.runs["processes over TLS"] += 1
        every = ["duals cancel to the bit", "the simulation's bits", "nobody is lost"]
        self._add(about, hit, [] if wrong else every, [wrong] if wrong else [])

    def failed(self, about: str) -> None:
        """A run that ended in an error of its own."""
        self.runs["that broke down"] += 1
        self._add(about, Counter(), [], [traceback.format_exc(limit=-4)])

    def _add(self, about: str, hit: Counter[str], held: list[str], broken: list[str]) -> None:
        self.hit += hit
        self.held.update(held)
        for why in broken:
            self.broken.append(f"{about}: {why}")
            print(f"BROKEN {self.broken[-1]}\n   after {dict(hit)}", flush=True)
        if self.loud and not broken:
            print(f"{about}: held", flush=True)

    def show(self) -> None:
        """All of it."""
        minutes, runs = (time.monotonic() - self.begin) / 60, self.runs.total()
        print(f"{runs} runs in {minutes:.1f} minutes: {_listed(self.runs)}")
        print(f"trained by: {_listed(self.methods)}")
        print(f"injected: {_listed(self.hit)}")
        print(f"lies: {_listed(self.lies)}")
        print(f"held: {_listed(self.held)}")
        if self.harms:
            far = sorted(self.harms)[int(0.9 * (len(self.harms) - 1))]
            print(
                f"harm of a liar, guarded against: median {statistics.median(self.harms):.3g}, "
                f"90 % {far:.3g}, worst {max(self.harms):.3g} (at most {WORST:g})"
            )
        print(f"broken: {len(self.broken)}")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.most_common() if n)


def one(seed: int, tally: Tally, every: int) -> None:
    """The run of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        over_tls = every > 0 and seed % (2 * every) == every // 2 * 2  # even: an honest one
        try:
            if over_tls:
                tally.troubled(*troubled(seed, Path(folder) / "network"))
            else:
                tally.shaken(shaken(seed, Path(folder)))
        except Exception:  # whatever it was is a finding
            tally.failed(f"seed {seed}, over TLS" if over_tls else str(planned(seed)))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the agents are ended, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--tls", type=int, default=TLS, help="one honest run in so many; 0: none")
    parser.add_argument("--loud", action="store_true", help="a line for every run")
    wanted = parser.parse_args()
    tally = Tally(wanted.loud or wanted.seed is not None)
    if wanted.seed is not None:
        one(wanted.seed, tally, wanted.tls)
    else:
        seed, until = wanted.first, time.monotonic() + 60 * wanted.minutes
        while time.monotonic() < until:
            one(seed, tally, wanted.tls)
            seed += 1
            if seed % 50 == 0:
                print(f"… {seed - wanted.first} runs, {len(tally.broken)} broken", flush=True)
    tally.show()
    few = wanted.seed is None and tally.runs.total() < LEAST * wanted.minutes / 60
    if few:
        print(f"fewer than {LEAST} runs an hour")
    return 1 if tally.broken or few else 0


if __name__ == "__main__":
    sys.exit(main())
