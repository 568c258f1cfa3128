"""`make bench-growth`: how the cost of a round and of the feature pass grows with N, L, T and E.

CPU seconds on one core, the best of a few, into out/bench-growth.json and docs/images/growth.png,
beside what reading the inverses from memory or the GEMM floor would take. The exponent of a curve
is its slope over the last three points.
"""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
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


def main() -> int:
    """Measures, prints the exponents, draws."""
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
    return int(not all(math.isfinite(p.exponent(name)) for p in found for name in p.curves))


if __name__ == "__main__":
    sys.exit(main())
