"""What rows that come 100 hours late cost others: an exact learner, and ours, nobody's link cut.

Beijing's twelve stations in one process. The rows of the two stations that `make bench-stations`
would have away, seed by seed, come when these would be back; the others' squared error is told
relative to that with all rows in time. *Exact*: at every round everybody gets the optimum of all
rows that have come, for nothing. What this loses, no network can be asked to keep.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from coke.learning.near import Asks
from coke.learning.prequential import Feed
from coke.learning.streaming import Stream
from coke.maths.arrays import Array
from twelve import AWAY, KILLS, NAMES, SETTINGS, opened, scene, scored, weather


class Exact(Stream):
    """Everybody has the optimum of all rows, and nobody says anything."""

    def _round(self, anew: bool) -> Asks[None]:
        self._join()
        self.theta[:] = self._risk().optimum().reshape(self.K, self.D)
        yield from ()


def paid(rows: pd.DataFrame, kind: type[Stream], leave: Mapping[int, str]) -> Array:
    """(N, 2) losses and rows of every site, the rows of those who leave coming late."""
    with tempfile.TemporaryDirectory() as folder:
        replay = opened(rows, Path(folder))
    feed = Feed(kind(replay.feed.stream.ready, SETTINGS["memory"]))
    assert isinstance(feed.stream, Stream)
    found, own = scored(feed.stream), np.array(NAMES)[replay.whose]
    comes = replay.rows.ticks.copy()
    for hour, who in leave.items():
        held = (own == who) & (comes >= hour) & (comes < hour + AWAY)
        comes[held] = hour + AWAY
    for hour in np.unique(comes):
        now = comes == hour
        some = replay.rows.some(np.flatnonzero(now))
        feed.take(some.X, some.y, replay.whose[now], some.ticks)
    return found


def costs(rows: pd.DataFrame, kind: type[Stream], seeds: int) -> list[float]:
    """The error with all rows in time; then the others', relative to that, seed by seed."""
    hours, whole = len(rows) // len(NAMES), paid(rows, kind, {})
    found = [float(np.divide(*whole.sum(axis=0)))]
    for seed in range(seeds):
        leave = scene(hours, KILLS, np.random.default_rng(seed)).leave
        others = [n for n, name in enumerate(NAMES) if name not in leave.values()]
        late = paid(rows, kind, leave)
        after, before = (np.divide(*x[others].sum(axis=0)) for x in (late, whole))
        found.append(float(after / before))
    return found


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    heads = ["hours", "learner", "error", *(f"seed {seed}" for seed in range(asked.seeds))]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for hours in asked.hours:
        for name, kind in (("exact", Exact), ("ours", Stream)):
            cells = [f"{cost:.4f}" for cost in costs(weather(hours), kind, asked.seeds)]
            print(f"| {hours} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
