"""`make bench-communication`: what every method spends to reach 1 % of the optimum, on real data.

The four `*_adaraker` sets with the paper's σ, L, λ and cos-sin, N = 10, 28 edges, i.i.d. and sorted
by target, the model plain, sites with names of eight characters. One setting of ours for all; the
paper's COKE as published, for 5000 rounds. Then the synthetic problem, Adult (logistic) and
Beijing's twelve stations; what `auto` spends until it stops by itself, with a proof; and the eleven
tables of `make bench-model` with every default on, phase by phase. Prints the tables of
docs/communication.md and keeps the numbers as JSON; ends with what each promise came to.
`--seeds 1 --only energy` runs a part, `--only table` the tables; `--schedule` compares the rule by
which `coke` ends on the eight cases with proofs after rounds 10 · 1.5ʲ.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; two processes share the machine

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from accounts import CAST, METHODS, OURS, TABLE, TIGHT, Found, geometric, report
from coke.data.split import by_label, deal
from coke.data.split import split as split_rows
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, checked_rows, inputs_of, read_rows
from coke.engines.process import Record
from coke.learning.descending import Descending
from coke.learning.links import links_of
from coke.learning.open import open_ready
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.learning.train import Effects, Trained, train
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import build_graph
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES
from coke.maths.losses.excess import values
from coke.maths.losses.risk import Risk, local_only
from coke.settings.reading import checked_settings
from coke.studies.compare.compare import Comparison
from coke.studies.reproduce.recipes import _find_file
from coke.threads import OneThread
from model import NAMES, table

CASES = {  # σ, L, λ, v, μ of the paper's captions
    "twitter": (1.0, 100, 1e-3, 1.0, 0.97),
    "energy": (0.1, 100, 1e-3, 0.5, 0.98),
    "air_quality": (0.1, 200, 1e-5, 0.9, 0.97),
    "toms_hardware": (1.0, 100, 1e-2, 0.5, 0.95),
}
ROWS = 7150  # of a table at most: 5000 to train
STOPS = ("auto", "coke")  # until they stop by themselves
ROUNDING = 1e-9  # of F: what is nearer to the optimum has no excess to compare with
OUT = Path("out/bench-communication.json")


def ready_of(rows: Rows, parts: Any, edges: int, seed: int, **settings: Any) -> Ready:
    """Rows at sites, a random graph, and all that a method needs."""
    given = {"model": "plain", "loss": "quadratic", "seed": seed, **settings}
    wanted = checked_settings(given)
    numbers = LOSSES[wanted.loss].kind == "numbers"
    parts = {f"site-{i:03d}": rows for i, rows in enumerate(parts.values())}
    sites = split_rows(parts, test=0.3, seed=seed).kept(rows, numbers=numbers)
    graph = build_graph("random", len(parts), edges=edges, seed=seed)
    return agree(sites, graph, Terms(wanted, rows.columns))


def paper_task(name: str, split: str, seed: int) -> tuple[Ready, Rows, Any, dict[str, Any]]:
    """One of the paper's data sets at ten sites; and what it is made of."""
    sigma, L, lam, v, mu = CASES[name]
    rows = read_rows(_find_file(f"{name}_adaraker"), "y")
    how = {"lambda": lam, "v": v, "mu": mu, "data": {"scale": "none"}}
    how["features"] = {"n_features": L, "sigma": sigma}
    parts = deal(rows.y, 10, split=split, seed=seed)
    return ready_of(rows, parts, 28, seed, **how), rows, parts, how


def paper_case(name: str, split: str, seed: int, *, stops_only: bool) -> Found:
    """All methods on one of the paper's data sets, and ours once more to the tighter goal."""
    task, rows, parts, how = paper_task(name, split, seed)
    if stops_only:
        return {"rows": {}, "stop": stops(task), "paper": True}
    loose = Comparison(task, 1.01, 5000)
    found = {method: loose.row(method).document(loose.goal) for method in METHODS}
    tight = Comparison(task, 1.001, 5000)
    found[TIGHT] = tight.row("coke").document(tight.goal)
    found[CAST] = broadcast(rows, parts, 28, seed, **how)
    return {"rows": found, "stop": stops(task), "paper": True}


def broadcast(rows: Rows, parts: Any, edges: int, seed: int, **settings: Any) -> Found:
    """What `auto` takes, where one message reaches all neighbours."""
    comparison = Comparison(
        ready_of(rows, parts, edges, seed, links="broadcast", **settings), 1.01, 1
    )
    return comparison.row(OURS).document(comparison.goal)


def synthetic_case(split: str, seed: int) -> Found:
    """The paper's synthetic problem, N = 20, 95 edges."""
    rows = synthetic_rows(20, (4000, 6000), seed=seed)
    assert rows.sites is not None
    parts = by_label(rows.sites) if split == "iid" else deal(rows.y, 20, split=split, seed=seed)
    how = {"lambda": 5e-5, "features": {"sigma": 1.0}, "data": {"scale": "minmax"}}
    task = ready_of(rows, parts, 95, seed, **how)
    comparison = Comparison(task, 1.01, 2000)
    found = {name: comparison.row(name).document(comparison.goal) for name in METHODS[:3]}
    found[CAST] = broadcast(rows, parts, 95, seed, **how)
    return {"rows": found, "stop": stops(task)}


def adult_case(split: str, seed: int) -> Found:
    """Logistic regression on Adult, dealt out at random or sorted by a feature."""
    table = pyarrow.parquet.read_table(_find_file("adult_a9a"))
    names = [name for name in table.column_names if name.startswith("x")]
    whole = checked_rows(inputs_of(table, names), table["y"].to_numpy())
    train = np.array(table["split"].to_pylist()) == "train"
    rows = Rows(whole.X[train], whole.y[train], None, whole.columns)
    # Sites sorted by the inputs' first principal direction: no single binary column splits ten.
    centred = rows.X - rows.X.mean(axis=0)
    by = rows.y if split == "iid" else centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1]
    parts = deal(by, 10, split=split, seed=seed)
    how = {"loss": "logistic", "features": {"sigma": 3.0}, "data": {"scale": "none"}}
    task = ready_of(rows, parts, 28, seed, **how)
    comparison = Comparison(task, 1.01, 60)
    methods = (*METHODS[:3], "tree-gradient")
    found = {name: comparison.row(name).document(comparison.goal) for name in methods}
    found[CAST] = broadcast(rows, parts, 28, seed, **how)
    return {"rows": found, "stop": stops(task)}


def beijing_case(split: str, seed: int) -> Found:
    """Twelve stations, rows with missing values left out: end to end as a user would."""
    settings = {
        "model": "plain",
        "seed": seed,
        "lambda": 1e-3,
        "data": {
            "file": str(_find_file("beijing_air_multisite")),
            "target": "y",
            "site": "site",
            "drop": ["wd"],
            "missing": "drop",
        },
    }
    task = open_ready(checked_settings(settings))
    ours = stops(task)
    test = task.problem.test
    assert test is not None
    share = test.T / test.T.sum()
    with OneThread().limit():
        centre = task.problem.score(task.problem.everywhere(task.problem.optimum))
        others = []
        for i, theta in enumerate(local_only(task.problem.train)):
            losses = test.losses(task.problem.everywhere(theta))
            others.append(float((share * losses).sum() - share[i] * losses[i]) / (1 - share[i]))
    extra = {"centre_test": centre.global_test, "local_elsewhere": others}
    return {"rows": {}, "stop": ours, "beyond": extra}


def table_case(name: str, split: str, seed: int) -> Found:
    """With every default on: the model is chosen, and errors are added up at the end."""
    X, y, _ = table(name)
    some = np.random.default_rng(seed).permutation(len(y))[:ROWS]
    rows = checked_rows(X[some], y[some])
    parts = deal(rows.y, 10, split=split, seed=seed)
    task = ready_of(rows, parts, 28, seed, model="auto")
    found = stop(task, "auto")
    sums = [int(spent[:, 1].sum()) for spent in (task.spent, task.whitened[2])]
    phases = (sums[0], sums[1] - sums[0], found["bytes"] - sums[1] - found["after"], found["after"])
    return {"rows": {}, "stop": {"auto": found}, "d": X.shape[1], "phases": phases}


def stops(task: Ready) -> Found:
    """Where the default, and coke, stop by themselves."""
    return {name: stop(task, name) for name in STOPS}


class Watched:
    """A run's sweeps or rounds: how many bytes went by while the model stayed where it was."""

    def __init__(self) -> None:
        self._u: Array | None = None
        self._before, self.idle = 0, 0

    def __call__(self, name: str, record: Record) -> None:
        """After a round."""
        u, so_far = record.state.theta[0].copy(), record.ledger.bytes
        if self._u is not None and np.array_equal(u, self._u):
            self.idle += so_far - self._before
        self._u, self._before = u, so_far


def stop(task: Ready, name: str) -> Found:
    """One run to its own end: what it took, what was proven and what is true."""
    watched = Watched()
    done = train(task, name, Effects(watch=watched, handled=False))
    spent, proven, theta = done.ended.ledger, done.certificate, done.theta
    assert proven is not None
    assert theta is not None
    excess, least = above(task, theta[0])
    score, best = (task.problem.score(task.problem.everywhere(x)) for x in (theta[0], task.optimum))
    proof = watched.idle if done.name == "tree-newton" else done.after.bytes
    return {
        "took": done.name, "rounds": done.ended.rounds, "settled": bool(done.settled),
        "certified": proven.holds, "within": proven.share, "excess": excess / least,
        "ratio": proven.gap / excess if excess > ROUNDING * least else None,
        "proof": proof / spent.bytes, "after": done.after.bytes,
        "duals": duals(done), "above": score.global_train / best.global_train - 1,
        "test": score.global_test, "ends": ends(task.whitened[0].train), **spent._asdict(),
    }  # fmt: skip


def scheduled(task: Ready) -> Found:
    """`coke` with a proof after rounds 10 · 1.5ʲ, until one holds; those refused count, too."""
    case, due, proofs, more = task.case("coke"), 10.0, 0, np.zeros(3, np.int64)
    assert case.goal is not None
    alone = case._replace(goal=case.goal._replace(further=False))  # a proof, and no ladder
    links, limits = links_of(task, case), Limits(task.agreement.terms.settings.rounds)
    rounds = task.engine.rounds(case.problem, links, case.algorithm, limits, case.spent, None)
    for record in rounds:
        if record.k < due:
            continue
        due, proofs, proof = 1.5 * due, proofs + 1, Descending(task, alone, record.state)
        more = more + np.sum([spent.sum(axis=0) for spent in proof.sweeps()], axis=0)
        if proof.certificate is not None and proof.certificate.holds:
            break
    spent = Ledger(*map(sum, zip(record.ledger, more.tolist(), strict=True)))
    return {"rounds": record.k, "proofs": proofs, **spent._asdict()}


def schedule_case(job: tuple[str, str, int]) -> tuple[str, tuple[float, float]]:
    """A row of a table: kB / wire kB / rounds by either rule; bytes and wire, theirs over ours."""
    task = paper_task(*job)[0]
    ours, theirs = stop(task, "coke"), scheduled(task)
    cells = [f"{r['bytes'] / 1e3:.1f} / {r['wire_bytes'] / 1e3:.0f} / {r['rounds']}"
             for r in (ours, theirs)]  # fmt: skip
    kB, wire = (theirs[key] / ours[key] for key in ("bytes", "wire_bytes"))
    name = f"{job[0]} {job[1]}, seed {job[2]}"
    row = f"| {name} | {' | '.join(cells)} | {theirs['proofs']} | {kB:.2f} / {wire:.2f} |"
    return row, (kB, wire)


def schedule(jobs: list[tuple[str, str, int]], workers: int) -> None:
    """All of them, and geometric means."""
    print("| case | coke: kB / wire kB / rounds | 10 · 1.5ʲ | proofs | theirs over ours |")
    ratios = list[tuple[float, float]]()
    with ProcessPoolExecutor(workers) as pool:
        for row, ratio in pool.map(schedule_case, jobs):
            print(row, flush=True)
            ratios.append(ratio)
    kB, wire = (geometric(both) for both in zip(*ratios, strict=True))
    print(f"geometric mean of theirs over ours: {kB:.3f} of bytes, {wire:.3f} of the wire")


def above(task: Ready, theta: Array) -> tuple[float, float]:
    """F(θ) − min F, and min F."""
    risk, at = task.problem.train, task.problem.everywhere
    here, least = (float(values(risk, at(x)).sum()) for x in (theta, task.optimum))
    return here - least, least


def duals(done: Trained) -> float:
    """The largest entry of the duals' sum, of a consensus."""
    g = getattr(done.last.state, "g", None) if done.last else None
    return 0.0 if g is None else float(np.abs(g.sum(axis=0)).max())


def ends(risk: Risk) -> tuple[float, float] | None:
    """The least and largest eigenvalue of the mean Hessian over κ: near one where P fits."""
    mean = risk.total(np.full(len(risk.T), 1.0 / len(risk.T)))
    if mean is None:
        return None  # the loss has another Hessian everywhere
    values = np.linalg.eigvalsh(mean.A[0] + mean.G)
    return float(values[0]), float(values[-1])


KINDS = {"synthetic": synthetic_case, "adult": adult_case, "beijing": beijing_case}


def run(job: tuple[str, str, int, bool]) -> Found:
    """One case."""
    name, split, seed, brief = job
    if name in CASES:
        found = paper_case(name, split, seed, stops_only=brief)
    else:
        case = KINDS.get(name, partial(table_case, name.removeprefix(TABLE)))
        found = case(split, seed)
    print(".", end="", flush=True)
    return {"case": f"{name} {split}", "seed": seed, **found}


def main() -> int:
    """Three seeds and all cases, unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[""], help="cases whose names hold this")
    parser.add_argument("--stops", action="store_true", help="the eight cases without yardsticks")
    parser.add_argument("--schedule", action="store_true", help="proofs by a schedule, for coke")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    names = [*CASES, "synthetic", "adult", *(TABLE + name for name in NAMES)]
    cases = [(name, split) for name in names for split in ("iid", "sorted")] + [("beijing", "iid")]
    jobs = [
        (*case, seed, wanted.stops)
        for case in cases
        for seed in range(wanted.seeds)
        if any(word in " ".join(case) for word in wanted.only)
    ]
    if wanted.schedule:
        schedule([job[:3] for job in jobs if job[0] in CASES], wanted.workers)
        return 0
    with ProcessPoolExecutor(wanted.workers) as pool:
        found = list(pool.map(run, jobs))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if report(found, [f"{name} {split}" for name, split in cases]) else 0


if __name__ == "__main__":
    sys.exit(main())
