"""`make bench-liars`: what one liar among ten sites does to the others, with the guard and without.

Every lie of tests/kit/liars.py × alike, sorted and natural sites × random, ring, path and star
graphs × two seeds, on the agents' own nodes, by consensus; a table in turn for each. Harm is the
mean loss of the honest sites' models on honest rows after 120 rounds, or up to 240 until they have
settled, by that of the honest optimum; beside it the same by that of the optima of the parts that
are left where the liar is absent from the start, as a guard can do no more than see to that. Liars
say nothing in audits; `frank` ones state their edges as they are. Two liars that
pull together, next to each other, on a sixth of the cases. And honest runs, where nobody should be
cut or suspected: on the tables, and on hard ones (tests/kit/hard.py), with the bytes of the guard.
Lies in every other conversation (tests/kit/hearsay.py, falsehoods.py) on as many cases: in the
agreement on units and a model as it comes (`talks`), in the sums of a descent (`trees`, which are
not gone down with the guard), in the proof at the end of rounds (`proofs`). And lies in rounds with
a model as it comes (`defaults`).

`--share 10` takes every tenth case, `--only liars`, `talks` and so on, `--jobs 2` so many
processes, `--minutes 9` ends then. Results are kept in `--keep FILE`, and not made again: begin
with a new file when the code has changed. Needs the data sets (COKE_DATA). Fails on a missed
promise, or where not all is there.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

from coke.data.site import Kept
from coke.data.split import Index, deal
from coke.data.tables import Rows, checked_rows
from coke.errors import ConvergenceError
from coke.learning.doubts import outdone
from coke.learning.ready import Ready
from coke.learning.terms import Terms
from coke.settings.reading import checked_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.falsehoods import PROOF_LIES, TREE_LIES, fallen, proven
from kit.hard import hard_cases
from kit.hearsay import HEARSAY, heard, honest_floor, missed, overheard
from kit.liars import LIES, Network, Told, network
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
SWEEPS = 60  # of a descent at most: a lie can make it go on for as many as are allowed
PARTS = ("liars", "frank", "pairs", "defaults", "talks", "trees", "proofs")


class Case(NamedTuple):
    """One network of honest sites."""

    table: str
    sites: str
    graph: str
    seed: int

    def task(self, guard: bool = False, **settings: Any) -> Ready:
        """Its sites, which have agreed."""
        given: dict[str, Any] = {
            "data": {"scale": "standard"},
            "features": {"n_features": 15, "sigma": "auto"},
        }
        return ready(self.kept(), self.links, guard=guard, **(given | settings))

    @property
    def links(self) -> nx.Graph:
        """Who is whose neighbour."""
        return GRAPHS[self.graph](self.seed)

    @property
    def liar(self) -> int:
        """Never the hub of a star."""
        return N - 1 if self.graph == "star" else 3

    def kept(self, test: float = 0.0) -> Kept:
        """The sites' rows."""
        rows, parts = _natural(self.seed) if self.sites == "natural" else self._dealt()
        return held(rows, parts, test=test)

    def terms(self, guard: bool, plain: bool) -> Terms:
        """The defaults, but for the guard; or few features of the plain model."""
        how: dict[str, Any] = {"guard": guard, "rounds": SWEEPS}
        if plain:
            features = {"n_features": 15, "sigma": "auto"}
            how |= {"model": "plain", "lambda": 1e-3, "features": features}
        columns = self.kept().X[0].shape[1]
        return Terms(checked_settings(how), tuple(f"x{j}" for j in range(columns)))

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

    part: str  # one of `PARTS`, "honest" or "hard"
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
        "frank": [Job("frank", i, lie) for i in range(len(CASES)) for lie in LIES],
        "pairs": [Job("pairs", i, lie) for i in range(len(CASES)) for lie in LIES][::6],
        "defaults": [Job("defaults", i, lie) for i in range(len(CASES)) for lie in LIES],
        "talks": [Job("talks", i, lie) for i in range(len(CASES)) for lie in HEARSAY],
        "trees": [Job("trees", i, lie) for i in range(len(CASES)) for lie in TREE_LIES],
        "proofs": [Job("proofs", i, lie) for i in range(len(CASES)) for lie in PROOF_LIES],
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
    if job.part in CONVERSATIONS:
        return {"what": " ".join(map(str, case))} | CONVERSATIONS[job.part](case, job.lie)
    if job.part == "defaults":
        return {"what": " ".join(map(str, case))} | _by_default(case, job.lie)
    task = _task(case)
    found = {"what": " ".join(map(str, case)), "agreed": int(task.whitened[2].sum(axis=0)[2])}
    if job.part == "honest":
        by_name = case.task(guard=True)
        found["by_name"] = int(by_name.whitened[2].sum(axis=0)[2])
        return found | _told(network(task, True, {}, ROUNDS))
    who = [task.names[case.liar]]
    if job.part == "pairs":
        who.append(task.names[-2 if case.graph == "star" else 4])
    lies = dict.fromkeys(who, LIES[job.lie])
    if job.part == "frank":
        return found | {"guarded": _told(network(task, True, lies, ROUNDS, frank=True))}
    free, guarded = (network(task, guard, lies, ROUNDS) for guard in (False, True))
    return found | {"free": _told(free), "guarded": _told(guarded)}


@lru_cache(maxsize=4)
def _default(case: Case, guard: bool) -> Ready:
    return case.task(guard, model="auto", lam="auto", features={})


def _by_default(case: Case, lie: str) -> dict[str, Any]:
    """A lie in rounds of a model as it comes."""
    found = {}
    for which, guard in (("free", False), ("guarded", True)):
        task = _default(case, guard)
        net = Network(task, guard, {task.names[case.liar]: LIES[lie]})
        found[which] = _told(net.run(ROUNDS)) | {"doubted": _doubted(net)}
    return found


def _doubted(net: Network) -> int:
    """Honest sites whose own rows tell them that something is wrong."""
    task, way = net.task, net.task.case("coke")
    each = enumerate(task.names)
    thetas = {i: way.theta(net.nodes[name].theta[0]) for i, name in each if name in net.watches}
    return sum(bool(outdone(task, theta, i)) for i, theta in thetas.items())


@lru_cache(maxsize=4)
def _floor(case: Case, guard: bool) -> float:
    return honest_floor(case.kept(0.3), case.links, case.terms(guard, False), case.liar)[0]


def talks(case: Case, lie: str) -> dict[str, Any]:
    """A lie in a sum of the agreement; of the basis, by what rounds in it come to."""
    found, plain = {}, lie.startswith("basis")
    for which, guard in (("free", False), ("guarded", True)):
        terms, way = case.terms(guard, plain), HEARSAY[lie]
        if plain:
            task, _ = overheard(case.kept(), case.links, terms, case.liar, way)
            net = Network(task, guard, {})
            found[which] = _told(net.run(ROUNDS)) | {"doubted": _doubted(net)}
            continue
        floor = _floor(case, guard)
        told = heard(case.kept(0.3), case.links, terms, case.liar, way, floor)
        found[which] = told._asdict() | {"alone": math.inf, "lost": 0}
    return found


def trees(case: Case, lie: str) -> dict[str, Any]:
    """A lie in the sums of a descent, which a guard does not go down by."""
    task = _tree(case)
    fell, floor = fallen(task, "tree-newton", TREE_LIES[lie], case.liar), _tree_floor(case)
    if fell.refused:
        return {"free": {"harm": 1.0, "warned": N, "refused": fell.refused}}
    theta = task.case("tree-newton").theta(next(iter(fell.u.values())))
    warned = sum(bool(outdone(task, theta, i)) for i in range(N) if i != case.liar)
    warned += N * (not fell.certified)  # all then say that nothing is proven
    harm = missed(task, theta, case.liar) / floor
    return {"free": {"harm": harm, "warned": warned, "certified": fell.certified}}


@lru_cache(maxsize=2)
def _tree(case: Case) -> Ready:
    return overheard(case.kept(0.3), case.links, case.terms(False, True), case.liar, None)[0]


@lru_cache(maxsize=2)
def _tree_floor(case: Case) -> float:
    return missed(_tree(case), _tree(case).optimum, case.liar)


def proofs(case: Case, lie: str) -> dict[str, Any]:
    """A lie in the proof of what rounds have come to, with the guard."""
    harm, kept = proven(_task(case), PROOF_LIES[lie], case.liar)
    told = {"harm": harm, "alone": math.inf, "warned": kept, "lost": 0}
    return {"guarded": told}


CONVERSATIONS = {"talks": talks, "trees": trees, "proofs": proofs}


def _told(told: Told) -> dict[str, Any]:
    return told._asdict() | {"lost": len(told.lost), "warned": len(told.warned)}


def liars(part: str, found: Mapping[str, Any]) -> int:
    """Promises missed by lies."""
    rows = {key: one for key, one in found.items() if key.split()[0] == part}
    if not rows:
        return 0
    ways = [which for which in ("free", "guarded") if which in next(iter(rows.values()))]
    harm = {which: [one[which]["harm"] for one in rows.values()] for which in ways}
    guarded = [one["guarded"] for one in rows.values() if "guarded" in one]
    alone = sum(one["harm"] > one["alone"] for one in guarded)
    free = {key: one["free"] for key, one in rows.items() if "free" in one}
    loud = {key: rows[key] for key, one in free.items() if one["harm"] > LOUD}
    silent = {key: one for key, one in loud.items() if not _warned(one["free"])}
    for key, one in silent.items():
        print(f"silent: {key}, {one['what']}: {one['free']['harm']:.3g}")
    for key, one in rows.items():
        if "guarded" in one and one["guarded"]["harm"] > P90:
            print(f"harm {one['guarded']['harm']:.3g}: {key}, {one['what']}{_absent(one)}")
    for which, values in harm.items():
        print(f"{part}, {which}: harm {_three(values)}")
    beyond = [one["harm"] / one["parted"] for one in guarded if "parted" in one]
    if beyond:
        absent = _three([one["parted"] for one in guarded])
        print(f"{part}, absent from the start: {absent}; guarded, by that: {_three(beyond)}")
    print(f"{len(rows)} cases; worse than alone with the guard: {alone}; harm above 2 without it:")
    print(f"{len(loud)}, {len(silent)} of them unnamed")
    if part == "pairs":
        return 0  # stated, not promised
    if not guarded:
        return bool(silent)
    told = np.median(harm["guarded"]), np.quantile(harm["guarded"], 0.9), np.max(harm["guarded"])
    return sum(int(a > b) for a, b in zip(told, (MEDIAN, P90, WORST), strict=True)) + bool(silent)


def _three(values: Sequence[float]) -> str:
    middle, most, worst = np.median(values), np.quantile(values, 0.9), np.max(values)
    return f"median {middle:.3g}, 90 % {most:.3g}, worst {worst:.3g}"


def _absent(one: Mapping[str, Any]) -> str:
    """What his absence alone costs."""
    told = one["guarded"]
    return f" (absent from the start: {told['parted']:.3g})" if "parted" in told else ""


def _warned(one: Mapping[str, Any]) -> int:
    """Honest sites that say something."""
    return int(one["warned"]) + int(one.get("doubted", 0))


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
    parser.add_argument("--only", choices=[*PARTS, "honest"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--keep", default="out/liars.jsonl")
    options = parser.parse_args()
    wanted = jobs(options.share, options.only)
    found = _all(wanted, options)
    missed = sum(liars(part, found) for part in PARTS)
    if options.only in (None, "honest"):
        missed += honest(found)
    left = len(wanted) - len(found)
    print(f"{missed} promises missed; {left} of {len(wanted)} cases not run")
    return 1 if missed or left else 0


if __name__ == "__main__":
    sys.exit(main())
