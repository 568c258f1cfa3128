"""`make bench-liars`: what one liar among ten sites does to the others, with the guard and without.

Every lie of tests/kit/liars.py × alike, sorted and natural sites × random, ring, path and star
graphs × two seeds, on the agents' own nodes, by consensus; a table in turn for each. Harm is the
mean loss of the honest sites' models on honest rows after 120 rounds, or up to 240 until they have
settled, by that of the honest optimum. Two liars that
pull together, next to each other, on a sixth of the cases. And honest runs, where nobody should be
cut or suspected: on the tables, and on hard ones (tests/kit/hard.py), with the bytes of the guard.

`--share 10` takes every tenth case, `--only liars`, `pairs` or `honest`, `--jobs 2` so many
processes, `--minutes 9` ends then. Results are kept in `--keep FILE`, and not made again: begin
with a new file when the code has changed. Needs the data sets (COKE_DATA). Fails on a missed
promise, or where not all is there.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

from coke.data.split import Index, deal
from coke.data.tables import Rows, checked_rows
from coke.errors import ConvergenceError
from coke.learning.ready import Ready

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.hard import hard_cases
from kit.liars import LIES, Told, network
from kit.ready import held, ready

N, ROWS, ROUNDS = 10, 1500, 120
TABLES = ("energy", "air_quality_adaraker", "tables/uci_airfoil", "tables/uci_wine")
NATURAL = "beijing_air_multisite"
GRAPHS = {
    "random": lambda seed: nx.gnm_random_graph(N, 20, seed=seed + 3),
    "ring": lambda seed: nx.cycle_graph(N),
    "path": lambda seed: nx.path_graph(N),
    "star": lambda seed: nx.star_graph(N - 1),
}
SITES = ("iid", "sorted", "natural")
BYTES = 2.0  # times as many with the guard, at most
MEDIAN, P90, WORST = 1.2, 2.6, 12.0  # of the harm with the guard, at most
HARD, FALSE = 200, 8  # hard tables, and how many of them may have a cut
LOUD = 2.0  # harm that must not pass without a warning


class Case(NamedTuple):
    """One network of honest sites."""

    table: str
    sites: str
    graph: str
    seed: int

    def task(self, guard: bool = False) -> Ready:
        """Its sites, which have agreed."""
        rows, parts = _natural(self.seed) if self.sites == "natural" else self._dealt()
        graph = GRAPHS[self.graph](self.seed)
        features = {"n_features": 15, "sigma": "auto"}
        data = {"scale": "standard"}
        return ready(held(rows, parts), graph, data=data, features=features, guard=guard)

    def _dealt(self) -> tuple[Rows, dict[object, Index]]:
        table = _read(self.table)
        some = np.random.default_rng(self.seed).permutation(len(table))[:ROWS]
        rows = checked_rows(table[some, :-1], table[some, -1])
        return rows, deal(rows.y, N, split=self.sites, seed=self.seed)


def _read(name: str) -> np.ndarray:
    """The numbers of a table, its target last; rows with gaps are left out."""
    path = Path(os.environ["COKE_DATA"]) / f"{name}.parquet"
    table = pq.read_table(path).to_pandas()
    table = table[[c for c in table if c != "y"] + ["y"]].select_dtypes("number").dropna()
    return table.to_numpy(np.float64)


def _natural(seed: int) -> tuple[Rows, dict[object, Index]]:
    """Ten stations of Beijing, 150 hours of each."""
    path = Path(os.environ["COKE_DATA"]) / f"{NATURAL}.parquet"
    table, rng = pq.read_table(path).to_pandas().dropna(), np.random.default_rng(seed)
    names = sorted(table["site"].unique())[:N]
    places = [rng.choice(np.flatnonzero(table["site"] == name), ROWS // N) for name in names]
    some = table.iloc[np.concatenate(places)]
    X = some.drop(columns=["y"]).select_dtypes("number").to_numpy(np.float64)
    size = ROWS // N
    parts = {name: np.arange(i * size, (i + 1) * size) for i, name in enumerate(names)}
    return checked_rows(X, some["y"].to_numpy(np.float64)), parts


def cases() -> Iterator[Case]:
    """A table in turn."""
    for i, (sites, graph, seed) in enumerate(product(SITES, GRAPHS, range(2))):
        yield Case(NATURAL if sites == "natural" else TABLES[i % len(TABLES)], sites, graph, seed)


CASES = [*cases()]
HONEST = [case._replace(seed=10 + i) for i in range(13) for case in CASES]  # 312


class Job(NamedTuple):
    """One thing to measure."""

    part: str  # "liars", "pairs", "honest" or "hard"
    number: int
    lie: str = ""

    @property
    def key(self) -> str:
        """Under which its result is kept."""
        return f"{self.part} {self.number} {self.lie}".strip()


def jobs(share: int, only: str | None) -> list[Job]:
    """One in so many of each part."""
    every = {
        "liars": [Job("liars", i, lie) for i in range(len(CASES)) for lie in LIES],
        "pairs": [Job("pairs", i, lie) for i in range(len(CASES)) for lie in LIES][::6],
        "honest": [Job("honest", i) for i in range(len(HONEST))],
        "hard": [Job("hard", i) for i in range(HARD)],
    }
    wanted = {"honest": ("honest", "hard"), None: tuple(every)}.get(only, (str(only),))
    return [job for part in wanted for job in every[part][::share]]


@lru_cache(maxsize=1)
def _task(case: Case) -> Ready:
    return case.task()


def measured(job: Job) -> dict[str, Any]:
    """What became of it, in numbers."""
    if job.part == "hard":
        hard = next(islice(hard_cases(job.number + 1), job.number, None))
        try:
            task = hard.ready()
            return _told(network(task, True, {}, ROUNDS)) | {"what": hard.name}
        except ConvergenceError:
            return {"what": hard.name, "stopped": True}  # θ beyond what messages carry: it says so
    case = (HONEST if job.part == "honest" else CASES)[job.number]
    task = _task(case)
    found = {"what": " ".join(map(str, case)), "agreed": int(task.whitened[2].sum(axis=0)[2])}
    if job.part == "honest":
        by_name = case.task(guard=True)
        found["by_name"] = int(by_name.whitened[2].sum(axis=0)[2])
        return found | _told(network(task, True, {}, ROUNDS))
    who = [task.names[-1 if case.graph == "star" else 3]]  # never the hub of a star
    if job.part == "pairs":
        who.append(task.names[-2 if case.graph == "star" else 4])
    lies = dict.fromkeys(who, LIES[job.lie])
    free, guarded = (network(task, guard, lies, ROUNDS) for guard in (False, True))
    return found | {"free": _told(free), "guarded": _told(guarded)}


def _told(told: Told) -> dict[str, Any]:
    return told._asdict() | {"lost": len(told.lost), "warned": len(told.warned)}


def liars(part: str, found: Mapping[str, Any]) -> int:
    """Promises missed by lies."""
    rows = {key: one for key, one in found.items() if key.startswith(part)}
    if not rows:
        return 0
    harm = {which: [one[which]["harm"] for one in rows.values()] for which in ("free", "guarded")}
    alone = sum(one["guarded"]["harm"] > one["guarded"]["alone"] for one in rows.values())
    loud = {key: one for key, one in rows.items() if one["free"]["harm"] > LOUD}
    silent = {key: one for key, one in loud.items() if not one["free"]["warned"]}
    for key, one in silent.items():
        print(f"silent: {key}, {one['what']}: {one['free']['harm']:.3g}")
    for key, one in rows.items():
        if one["guarded"]["harm"] > P90:
            print(f"harm {one['guarded']['harm']:.3g}: {key}, {one['what']}")
    for which, values in harm.items():
        middle, most, worst = np.median(values), np.quantile(values, 0.9), np.max(values)
        print(f"{part}, {which}: harm median {middle:.3g}, 90 % {most:.3g}, worst {worst:.3g}")
    print(f"{len(rows)} cases; worse than alone with the guard: {alone}; harm above 2 without it:")
    print(f"{len(loud)}, {len(silent)} of them unnamed")
    if part == "pairs":
        return 0  # stated, not promised
    told = np.median(harm["guarded"]), np.quantile(harm["guarded"], 0.9), np.max(harm["guarded"])
    return sum(int(a > b) for a, b in zip(told, (MEDIAN, P90, WORST), strict=True)) + bool(silent)


def honest(found: Mapping[str, Any]) -> int:
    """Honest runs in which somebody is cut or suspected, and what the guard costs."""
    missed = 0
    for part, most in (("honest", 0.0), ("hard", FALSE / HARD)):
        rows = {k: one for k, one in found.items() if k.startswith(part) and "lost" in one}
        cut = [f"{key}, {one['what']}" for key, one in rows.items() if one["lost"]]
        named = sum(one["warned"] > 0 for one in rows.values())
        print(f"{part}: {len(rows)} runs, {len(cut)} with a cut, {named} with an alarm")
        print("\n".join(f"cut in an honest run: {one}" for one in cut), end="\n" if cut else "")
        missed += len(cut) > most * len(rows)
    rows = {key: one for key, one in found.items() if key.startswith("honest")}
    if rows:
        parts = [(one["by_name"] + one["wire"] + one["guarded"]) / (one["agreed"] + one["wire"])
                 for one in rows.values()]  # fmt: skip
        mean, worst = np.mean(parts), np.max(parts)
        print(f"bytes on the wire with the guard: {mean:.2f} times as many, {worst:.2f} at most")
        missed += bool(worst > BYTES)
    return missed


def _all(wanted: list[Job], options: argparse.Namespace) -> dict[str, Any]:
    """What is kept of these jobs, once the others are made."""
    path = Path(options.keep)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found = {one["key"]: one for one in map(json.loads, lines)}
    rest, until = [job for job in wanted if job.key not in found], time.monotonic()
    until += 60 * options.minutes
    with ProcessPoolExecutor(options.jobs) as pool, path.open("a", encoding="utf-8") as file:
        size = 6  # in one process, one after the other: most have one task
        for first in range(0, len(rest), size * options.jobs):
            some = rest[first : first + size * options.jobs]
            for job, told in zip(some, pool.map(measured, some, chunksize=size), strict=True):
                found[job.key] = told | {"key": job.key}
                print(json.dumps(found[job.key]), file=file, flush=True)
            print(f"{len(found)} of {len(wanted)}", file=sys.stderr)
            if time.monotonic() > until:
                break
    return {job.key: found[job.key] for job in wanted if job.key in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="one case in so many")
    parser.add_argument("--only", choices=["liars", "pairs", "honest"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--keep", default="out/liars.jsonl")
    options = parser.parse_args()
    wanted = jobs(options.share, options.only)
    found = _all(wanted, options)
    missed = liars("liars", found) + liars("pairs", found)
    if options.only in (None, "honest"):
        missed += honest(found)
    left = len(wanted) - len(found)
    print(f"{missed} promises missed; {left} of {len(wanted)} cases not run")
    return 1 if missed or left else 0


if __name__ == "__main__":
    sys.exit(main())
