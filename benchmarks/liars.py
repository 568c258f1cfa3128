"""`make bench-liars`: what one liar among ten sites does to the others, with the guard and without.

Every lie of tests/kit/liars.py × alike, sorted and natural sites × random, ring, path and star
graphs × two seeds, on the agents' own nodes, by consensus; a table in turn for each. Harm is the
mean loss of the honest sites' models on honest rows, by that of the honest optimum. And honest
runs, where nobody should be cut or suspected: on the tables, and on hard ones (tests/kit/hard.py).

`--share 10` takes every tenth case, `--only honest` or `liars`. Needs the data sets (COKE_DATA).
Fails on a missed promise.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

from coke.data.split import Index, deal
from coke.data.tables import Rows, checked_rows
from coke.errors import ConvergenceError
from coke.learning.ready import Ready

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.hard import hard_cases
from kit.liars import LIES, network
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
MEDIAN, P90, WORST = 1.2, 2.6, 12.0  # of the harm with the guard, at most
HARD, FALSE = 200, 8  # hard tables, and how many of them may have a cut
LOUD = 2.0  # harm that must not pass without a warning


class Case(NamedTuple):
    """One network of honest sites."""

    table: str
    sites: str
    graph: str
    seed: int

    def task(self) -> Ready:
        """Its sites, which have agreed."""
        rows, parts = _natural(self.seed) if self.sites == "natural" else self._dealt()
        graph = GRAPHS[self.graph](self.seed)
        features = {"n_features": 15, "sigma": "auto"}
        return ready(held(rows, parts), graph, data={"scale": "standard"}, features=features)

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


def liars(share: int) -> int:
    """Promises missed by lies."""
    free, guarded, silent, alone, tried = [], [], 0, 0, 0
    for i, (case, lie) in enumerate(product(cases(), LIES)):
        if i % share:
            continue
        if not tried % 23:
            print(f"… {case}", file=sys.stderr)
        task, tried = _tasks(case), tried + 1
        who = task.names[-1 if case.graph == "star" else 3]  # never the hub of a star
        a, b = (network(task, guard, {who: LIES[lie]}, ROUNDS) for guard in (False, True))
        free.append(a.harm)
        guarded.append(b.harm)
        alone += b.harm > b.alone
        if a.harm > LOUD and not a.warned:
            silent += 1
            print(f"silent: {case} {lie}: {a.harm:.3g}")
        if b.harm > P90:
            print(f"harm {b.harm:.3g} (unguarded {a.harm:.3g}): {case} {lie}")
    for name, harm in (("without", free), ("with", guarded)):
        middle, most, worst = np.median(harm), np.quantile(harm, 0.9), np.max(harm)
        print(f"{name} the guard: harm median {middle:.3g}, 90 % {most:.3g}, worst {worst:.3g}")
    print(
        f"{tried} cases; worse than alone with the guard: {alone}; harm above 2 unnamed: {silent}"
    )
    misses = [np.median(guarded) > MEDIAN, np.quantile(guarded, 0.9) > P90, np.max(guarded) > WORST]
    return sum(map(int, misses)) + (silent > 0)


_KEPT: dict[Case, Ready] = {}


def _tasks(case: Case) -> Ready:
    if case not in _KEPT:
        _KEPT.clear()
        _KEPT[case] = case.task()
    return _KEPT[case]


def honest(share: int) -> int:
    """Honest runs in which somebody is cut or suspected."""
    cut = named = tried = 0
    every = [case._replace(seed=10 + i) for i in range(13) for case in cases()]  # 312
    for case in every[::share]:
        told, tried = network(case.task(), True, {}, ROUNDS), tried + 1
        cut, named = cut + bool(told.lost), named + bool(told.warned)
    print(f"honest runs on tables: {tried}, {cut} with a cut, {named} with a suspicion")
    wild = shut = seen = 0
    for hard in hard_cases(HARD // share):
        try:
            told, wild = network(hard.ready(), True, {}, ROUNDS), wild + 1
        except ConvergenceError:
            continue  # θ beyond what messages carry: the site stops, and says so
        if told.lost:
            print(f"cut in an honest run: {hard.name}")
        shut, seen = shut + bool(told.lost), seen + bool(told.warned)
    print(f"honest runs on hard tables: {wild}, {shut} with a cut, {seen} with a suspicion")
    return (cut > 0) + (shut > FALSE * wild / HARD)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="one case in so many")
    parser.add_argument("--only", choices=["liars", "honest"])
    wanted = parser.parse_args()
    missed = 0
    if wanted.only != "honest":
        missed += liars(wanted.share)
    if wanted.only != "liars":
        missed += honest(wanted.share)
    print(f"{missed} promises missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
