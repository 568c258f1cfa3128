"""`make bench-communication`: what every method spends to reach 1 % of the optimum, on real data.

The four `*_adaraker` sets with the paper's σ, L, λ and cos-sin, N = 10, 28 edges, i.i.d. and sorted
by target. One setting of ours for all; the paper's COKE as published, for 5000 rounds.
Prints the table of docs/communication.md and the ratios, keeps the numbers as JSON.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; two processes share the machine

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from coke.data.paper import find_file
from coke.data.sites import deal, split_rows
from coke.data.tables import read_rows
from coke.maths.features import FeatureSettings
from coke.maths.graph import build_graph
from coke.run.compare import Case, Comparison, Paper
from coke.task import prepare

CASES = {  # σ, L, λ, v, μ of the paper's captions
    "twitter": (1.0, 100, 1e-3, 1.0, 0.97),
    "energy": (0.1, 100, 1e-3, 0.5, 0.98),
    "air_quality": (0.1, 200, 1e-5, 0.9, 0.97),
    "toms_hardware": (1.0, 100, 1e-2, 0.5, 0.95),
}
METHODS = ("coke", "coke-paper", "coke-tuned", "tree-cg", "tree-pcg", "tree-gradient", "tree-gram")
OUT = Path("out/bench-communication.json")


def comparison(name: str, split: str, seed: int, goal: float) -> Comparison:
    """One case as the methods see it."""
    sigma, L, lam, v, mu = CASES[name]
    rows = read_rows(find_file(f"{name}_adaraker"), "y")
    parts = deal(rows.y, 10, split=split, seed=seed)
    sites = split_rows(rows, parts, test=0.3, seed=seed)
    settings = FeatureSettings(L, "gaussian", sigma, "cos-sin", "iid", seed)
    task = prepare(sites, rows.columns, settings, loss="quadratic", lam=lam, scale="none")
    graph = build_graph("random", 10, edges=28, seed=seed)
    spread = float(np.concatenate(sites.y).std())
    case = Case(task.problem, task.features, sites.X, graph, spread, sigma, seed)
    return Comparison(case, Paper(1e-2, v, mu, 0.99, 5000), goal)


def run(job: tuple[str, str, int]) -> dict[str, Any]:
    """All methods on one case, and ours once more to the tighter goal."""
    one = comparison(*job, 1.01)
    rows = {name: one.row(name)._asdict() for name in METHODS}
    rows["coke, 1.001"] = comparison(*job, 1.001).row("coke")._asdict()
    print(".", end="", flush=True)
    return {"case": f"{job[0]} {job[1]}", "seed": job[2], "rows": rows}


def mean(found: list[dict[str, Any]], case: str, method: str, key: str) -> float:
    """Over the seeds of a case."""
    return float(np.mean([r["rows"][method][key] for r in found if r["case"] == case]))


def main() -> int:
    """Three seeds unless told otherwise."""
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    jobs = [(name, split, seed) for name in CASES for split in ("iid", "sorted") for seed in seeds]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(run, jobs))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    cases = list(dict.fromkeys(r["case"] for r in found))
    methods = [*METHODS, "coke, 1.001"]
    print("\n\nkB / wire kB / sends (settled share)\n| case | " + " | ".join(methods) + " |")
    print("|---" * (len(methods) + 1) + "|")
    for case in cases:
        cells = []
        for m in methods:
            kB, wire = (mean(found, case, m, key) / 1e3 for key in ("bytes", "wire_bytes"))
            share = mean(found, case, m, "reached")
            miss = "" if share == 1 else f" ({share:.0%})"
            cells.append(
                f"{kB:.1f} / {wire:.0f} / {mean(found, case, m, 'transmissions'):.0f}{miss}"
            )
        print(f"| {case} | " + " | ".join(cells) + " |")
    print("\ntheirs ÷ ours, geometric mean over cases (worst)")
    for m in METHODS[1:]:
        for key in ("bytes", "wire_bytes", "transmissions"):
            ratios = [mean(found, c, m, key) / mean(found, c, "coke", key) for c in cases]
            print(f"  {m:14s} {key:13s} {np.exp(np.mean(np.log(ratios))):8.1f} ({min(ratios):.2f})")
    rounds = [
        max(r["rows"]["coke, 1.001"]["rounds"] for r in found if r["case"] == c) for c in cases
    ]
    more = [mean(found, c, "coke, 1.001", "bytes") / mean(found, c, "coke", "bytes") for c in cases]
    print(f"goal 1.001: at most {max(rounds)} rounds, at most {max(more):.1f} × the bytes of 1.01")
    return 0


if __name__ == "__main__":
    sys.exit(main())
