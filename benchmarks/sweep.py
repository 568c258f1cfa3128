"""`python benchmarks/sweep.py`: 64 settings at once against 64 runs, N = 100 agents, L = 200.

Whole runs, set-up included, and rounds alone. Ratios within one run, process CPU time, one BLAS
thread, both sides by turns; the single runs are every eighth setting. Fails if a setting of the
sweep is not GOAL times cheaper than a run of its own, or is not the same run.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before NumPy loads

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.problem import Problem
from coke.maths.quadratic import Quadratic
from coke.maths.thresholds import Geometric
from coke.run.simulate import simulate
from coke.run.sweep import sweep

GOAL, N, L, T, D, ROUNDS, LAM = 4.0, 100, 200, 300, 5, 100, 1e-3
GRID = product(np.geomspace(1e-4, 1e-1, 16).tolist(), (0.1, 1.0), (0.85, 0.95))  # ρ, v, μ
SETTINGS = [COKE(rho, Geometric(v, mu)) for rho, v, mu in GRID]
ALONE = range(3, len(SETTINGS), 8)
OUT = Path("out/bench-sweep.json")
Out = TypeVar("Out")


def timed(work: Callable[[], Out]) -> tuple[float, Out]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def problem() -> Problem:
    """The paper's kind: cos-phase features, D = L entries."""
    rng = np.random.default_rng(0)
    features = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), D)
    X = [rng.normal(loc=0.01 * i, size=(T, D)) for i in range(N)]
    y = [np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=T) for x in X]
    found = Problem(Quadratic.from_rows(features, X, y, LAM / N))
    found.optimum  # noqa: B018  computed once, outside the clock
    return found


def whole(records: Iterator[Any]) -> tuple[float, float, Any]:
    """CPU seconds of the first round with its set-up, of the others, and the last record."""
    first, _ = timed(lambda: next(records))
    others, last = timed(lambda: deque(records, maxlen=1)[0])
    return first, others, last


def measure() -> dict[str, float]:
    """Per setting: CPU seconds of both, by turns."""
    made, graph = problem(), build_graph("random", N, seed=0)
    runs: list[float] = []
    rounds: list[float] = []
    costs: list[float] = []
    alone_costs: list[float] = []
    worst = 0.0
    for s in ALONE:
        start, swept = timed(lambda: sweep(made, graph, SETTINGS, rounds=ROUNDS, scored=()))
        first, others, last = whole(swept)
        share = 1.0 / len(SETTINGS)
        begin, single = timed(
            lambda s=s: simulate(made, graph, SETTINGS[s], rounds=ROUNDS, scored=())  # type: ignore[misc]
        )
        one_first, one_others, one = whole(single)
        costs.append(share * (start + first + others))
        alone_costs.append(begin + one_first + one_others)
        runs.append(alone_costs[-1] / costs[-1])
        rounds.append(one_others / (share * others))
        worst = max(worst, float(abs(last.theta[:, s] - one.state.theta).max()))
        assert last.ledger(s) == one.ledger
    return {
        "settings": len(SETTINGS),
        "rounds": ROUNDS,
        "sweep_seconds_per_setting": statistics.median(costs),
        "single_seconds": statistics.median(alone_costs),
        "ratio_whole_runs": statistics.median(runs),
        "ratio_lowest": min(runs),
        "ratio_rounds_alone": statistics.median(rounds),
        "largest_difference_of_theta": worst,
    }


def main() -> int:
    """Prints a table, keeps the numbers as JSON."""
    found = measure()
    for key, value in found.items():
        print(f"  {key.replace('_', ' '):28s} {value:12.4g}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(f"goal {GOAL:.0f} times; numbers in {OUT}")
    return int(found["ratio_whole_runs"] < GOAL or found["largest_difference_of_theta"] > 1e-10)


if __name__ == "__main__":
    sys.exit(main())
