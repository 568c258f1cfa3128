"""`make bench-growth`: how the cost of a round and of the feature pass grows with N, L, T and E.

CPU seconds on one core, the best of a few, into out/bench-growth.json and docs/images/growth.png,
beside what reading the inverses from memory or the GEMM floor would take. The exponent of a curve
is its slope over the last three points.

Then whole runs of many sites: `coke run` as it comes on N sites of 10 rows, and with the plain
model. With --sites only these; a missed bound makes the exit code 1.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import naive
from coke.data.npy import open_arrays
from coke.data.passes import stream_statistics
from coke.data.sources import Passing
from coke.engines.process import simulate
from coke.maths import compiled
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from coke.maths.graph import build_graph
from coke.maths.losses.problem import Problem, Quadratic
from coke.report.plots import COLOURS, STYLE, png
from coke.threads import OneThread
from figures import OUT, best, cpu
from floors import gemm, memory

PICTURE = Path("docs/images/growth.png")
WAYS = ("plain", "fast") if compiled.available() else ("plain",)
LAM, RHO, V, MU = 1e-3, 1e-2, 1.0, 0.95
ROUNDS, TIMES = 20, 3


MANY, BOUNDS = (250, 500, 1000), {"CPU s": 60.0, "MB": 1000.0}  # of the largest


class Panel(NamedTuple):
    """Some curves over one size."""

    size: str  # its symbol
    fixed: str  # the other sizes
    at: Sequence[int]
    curves: dict[str, list[float]]  # seconds
    floors: dict[str, list[float]]

    def exponent(self, name: str) -> float:
        """The slope of a curve's last three points, both axes logarithmic."""
        x, y = np.log(self.at[-3:]), np.log(self.curves[name][-3:])
        return float(np.polyfit(x, y, 1)[0])


def quadratic(N: int, D: int) -> Quadratic:
    """Statistics of no particular rows."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(min(N, 50), D, D)) / np.sqrt(D)
    A = (Z @ Z.swapaxes(1, 2))[np.arange(N) % len(Z)]
    return Quadratic(A, rng.normal(size=(N, D)), np.full(N, 9.0), np.full(N, 5000.0), LAM / N)


def round_seconds(risk: Quadratic, E: int, way: str) -> float:
    """CPU seconds of a round with its training MSE, counts and gaps."""
    graph = build_graph("random", len(risk.T), edges=E, seed=0)
    rounds = max(ROUNDS, 20_000 // len(risk.T))
    problem, algorithm = Problem(replace(risk, fast=way == "fast")), COKE(RHO, Geometric(V, MU))
    records = simulate(problem, graph, algorithm, rounds=TIMES * rounds + 1, scored=())
    next(records)  # prepares
    return best(lambda: deque(islice(records, rounds), maxlen=0), TIMES) / rounds


Sizes = Callable[[int], tuple[int, int, int]]
"""The number at which a panel stands ↦ N, D, E."""


def over(size: str, fixed: str, at: Sequence[int], sizes: Sizes) -> Panel:
    """A round's cost."""
    curves: dict[str, list[float]] = {f"round, {way}": [] for way in WAYS}
    for N, D, E in map(sizes, at):
        risk = quadratic(N, D)
        for way in WAYS:
            curves[f"round, {way}"].append(round_seconds(risk, E, way))
    speed = memory()
    floor = [8 * N * D * D / speed for N, D, _ in map(sizes, at)]
    return Panel(size, fixed, at, curves, {"reading N inverses from memory": floor})


def over_rows(at: Sequence[int], N: int = 20, L: int = 100, d: int = 5) -> Panel:
    """The pass over T rows of each of N sites, a round after it, and the naive script's round."""
    phi = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), d)
    found = [costs(phi, N, T) for T in at]
    curves = {name: [cost[name] for cost in found] for name in found[0]}
    speed = gemm(np.float32)
    floor = [N * T * (2 * d * L + L * L) / speed for T in at]
    return Panel("T", f"N = {N}, L = {L}, d = {d}", at, curves, {"GEMM floor of the pass": floor})


def costs(phi: DrawnFeatures, N: int, T: int) -> dict[str, float]:
    """CPU seconds by what they are for."""
    X = np.random.default_rng(0).normal(size=(N * T, phi.omega.shape[1])).astype(np.float32)
    y, sites = np.sin(X.sum(axis=1)), np.repeat(np.arange(N), T)
    source, few = open_arrays(X, y, sites), open_arrays(X[:9], y[:9])
    passes, rounds = {}, {}
    for way in WAYS:
        run = partial(stream_statistics, features=phi, lam=LAM, how=Passing(fast=way == "fast"))
        run(few)  # compiles
        passes[f"pass over all rows, {way}"] = best(partial(run, source), TIMES)
        rounds[f"round, {way}"] = round_seconds(run(source).risk, 95, way)
    graph = build_graph("random", N, edges=95, seed=0)
    neighbours = [sorted(graph[i]) for i in range(N)]
    rows = [phi(x.astype(np.float64)) for x in np.split(X, N)], np.split(y.astype(np.float64), N)
    slow = cpu(lambda: naive.coke(*rows, neighbours, LAM, RHO, V, MU, 5)) / 5
    return passes | {"round, naive script": slow} | rounds


def panels() -> list[Panel]:
    """N, L, E and T."""
    return [
        over("N", "L = 100, E = 3N", (10, 30, 100, 300, 1000, 3000), lambda N: (N, 100, 3 * N)),
        over("L", "N = 100, E = 300", (25, 50, 100, 200, 400), lambda L: (100, L, 300)),
        over(
            "E",
            "N = 1000, L = 100",
            (1000, 3000, 10_000, 30_000, 100_000),
            lambda E: (1000, 100, E),
        ),
        over_rows((100, 300, 1000, 3000, 10_000, 30_000)),
    ]


def drawn(axes: Axes, panel: Panel) -> None:
    """One panel; what a curve is stands beside it with its exponent."""
    for colour, (name, seconds) in zip(COLOURS, panel.curves.items(), strict=False):
        label = f"{name}: {panel.size}$^{{{round(panel.exponent(name), 1) + 0.0}}}$"  # no −0
        axes.plot(panel.at, seconds, "o-", color=colour, markersize=4, label=label)
    for name, seconds in panel.floors.items():
        axes.plot(panel.at, seconds, "--", color="black", linewidth=1, label=name)
    axes.set(xscale="log", yscale="log", xlabel=f"{panel.size}   ({panel.fixed})")
    axes.set_xticks(panel.at, [f"{n:,}".replace(",", "\u2009") for n in panel.at])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    room = 3.0 * 1.8 ** len(panel.curves)  # for the legend
    axes.set_ylim(10.0 ** math.floor(math.log10(low)), high * room)
    axes.legend(fontsize=8, loc="upper left")


def picture(found: list[Panel]) -> Figure:
    """All panels."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 7.4), layout="constrained")
        for axes, panel in zip(figure.subplots(2, 2).flat, found, strict=True):
            drawn(axes, panel)
        figure.supylabel("CPU seconds, one core", fontsize=10)
    return figure


def site_rows(N: int, T: int = 10, d: int = 5) -> pa.Table:
    """T rows of each of N sites."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(N * T, d)), rng.normal(size=N * T)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * noise
    columns = {f"x{j}": X[:, j] for j in range(d)}
    return pa.table({**columns, "y": y, "who": np.repeat(np.arange(N), T)})


def whole_run(N: int, model: str) -> dict[str, float]:
    """CPU seconds and the largest memory of the command, in a process of its own."""
    with TemporaryDirectory() as folder:
        pa.parquet.write_table(site_rows(N), f"{folder}/rows.parquet")
        command = "-m coke run --data rows.parquet --target y --site who --json --model"
        run = subprocess.Popen(
            [sys.executable, *command.split(), model], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        _, run.returncode, used = os.wait4(run.pid, 0)
        assert run.returncode == 0
    return {"CPU s": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024}


def many_sites() -> bool:
    """Prints whole runs, and whether the largest are within the bounds."""
    within = True
    for model in ("plain", "auto"):
        found = [whole_run(N, model) for N in MANY]
        print(f"coke run --model {model}, N sites of 10 rows")
        for N, one in zip(MANY, found, strict=True):
            print(f"  N = {N:5d}", *(f"{value:8.1f} {name}" for name, value in one.items()))
        for name, most in BOUNDS.items():
            slope = np.polyfit(np.log(MANY), np.log([one[name] for one in found]), 1)[0]
            good = found[-1][name] <= most
            print(f"  {name}: N^{slope:.2f}, {'within' if good else 'ABOVE'} {most:g}", flush=True)
            within &= good
    return within


def main() -> int:
    """Measures, prints the exponents, draws."""
    if "--sites" in sys.argv:
        return int(not many_sites())
    with OneThread().limit():
        found = panels()
    for panel in found:
        print(f"{panel.size} ({panel.fixed})")
        for name in panel.curves:
            print(f"  {name:32s} {panel.size}^{panel.exponent(name):.2f}")
    OUT.mkdir(exist_ok=True)
    told = [panel._asdict() for panel in found]
    (OUT / "bench-growth.json").write_text(json.dumps(told, indent=2) + "\n")
    PICTURE.write_bytes(png(picture(found)))
    finite = all(math.isfinite(p.exponent(name)) for p in found for name in p.curves)
    return int(not (many_sites() and finite))


if __name__ == "__main__":
    sys.exit(main())
