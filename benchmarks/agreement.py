"""`make bench-agreement`: what sites spend until they can train, beside the mixtures.

The wave and the units, with all sites in one process and what they say in the ledger. N = 10 with
28 edges, eight inputs and a target in standard units and names of eight characters, both accounts;
the same with names of forty; then how it grows with the edges, up to N = 3000, on random graphs of
the usual number of edges, and on rings and grids. At last the CPU time of `coke run` on 10 000
sites of ten rows. Ends with what each promise came to.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import math
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from coke.data.files import write_file
from coke.data.split import deal, split
from coke.data.tables import checked_rows
from coke.learning.ready import agree
from coke.learning.terms import Terms
from coke.maths.graph import build_graph
from coke.maths.ledger import Ledger
from coke.settings.reading import checked_settings

SEEDS = range(5)
SIZES = (10, 30, 100, 300, 1000, 3000)
MOST = {"wire": 3000, "exponent": 1.1, "names": 1.5, "minutes": 15.0}
broken: list[str] = []


def promise(what: str, kept: bool) -> None:
    """Prints it, and remembers a broken one."""
    print(f"  {'kept  ' if kept else 'BROKEN'}  {what}")
    if not kept:
        broken.append(what)


def agreed(kind: str, N: int, seed: int, length: int = 8, edges: int | None = None) -> Ledger:
    """What the wave and the units take on that graph, with names so long."""
    rng = np.random.default_rng(seed)
    X = rng.normal(rng.normal(size=8), rng.uniform(0.1, 10, 8), size=(5 * N, 8))
    rows = checked_rows(X, X[:, 0] + rng.normal(size=5 * N))
    parts = deal(rows.y, N, seed=seed)
    sites = split(parts, test=0.0, seed=seed).kept(rows)
    numbers = rng.choice(16**8, N, replace=False)
    names = tuple(f"{n:08x}".rjust(length, "s") for n in numbers)
    how = {"model": "plain", "loss": "quadratic", "features": {"n_features": 2}, "seed": seed}
    graph = build_graph(kind, N, edges=edges, seed=seed)
    terms = Terms(checked_settings(how), rows.columns)
    return Ledger.of(agree(replace(sites, names=names), graph, terms).spent)


def mean(found: list[Ledger]) -> Ledger:
    """Of several seeds."""
    return Ledger(*np.mean(found, axis=0).round().astype(int).tolist())


def few() -> None:
    """Ten sites."""
    print("N = 10, 28 edges, d = 8: transmissions, bytes, wire bytes")
    by_length = {}
    for length in (8, 40):
        found = [agreed("random", 10, seed, length, 28) for seed in SEEDS]
        by_length[length] = mean(found)
        most = max(one.wire_bytes for one in found)
        print(f"  names of {length}: {tuple(by_length[length])}, at most {most} of wire")
        if length == 8:
            promise(f"at most {MOST['wire']} bytes of wire: {most}", most <= MOST["wire"])
    ratio = by_length[40].wire_bytes / by_length[8].wire_bytes
    promise(f"names of 40 to names of 8: {ratio:.2f} ≤ {MOST['names']}", ratio <= MOST["names"])


def growth() -> None:
    """Wire bytes an edge, and the exponent of E from the smallest to the largest."""
    print("wire bytes an edge by N")
    for kind in ("random", "grid", "ring"):
        cells, points = [], []
        for N in SIZES:
            edges = 28 if (kind, N) == ("random", 10) else None
            E = build_graph(kind, N, edges=edges, seed=0).number_of_edges()
            seeds = SEEDS if N <= 100 else range(1)
            wire = mean([agreed(kind, N, seed, edges=edges) for seed in seeds]).wire_bytes
            cells.append(f"{N}: {wire / E:.0f}")
            points.append((E, wire))
        (E0, first), (E1, last) = points[0], points[-1]
        power = math.log(last / first) / math.log(E1 / E0)
        print(f"  {kind}: {', '.join(cells)}; E^{power:.2f}")
        if kind == "random":
            promise(f"E^{power:.3f} ≤ E^{MOST['exponent']}", power <= MOST["exponent"])


def many(N: int = 10_000) -> None:
    """CPU time of the command on very many small sites."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10 * N, 4))
    y = np.sin(X.sum(axis=1)) + 0.1 * rng.normal(size=len(X))
    with tempfile.TemporaryDirectory() as folder:
        rows = np.column_stack([X, y])
        lines = "\n".join(",".join(f"{v:.4f}" for v in row) for row in rows)
        write_file(Path(folder) / "rows.csv", f"a,b,c,d,y\n{lines}\n".encode())
        told = ["--data", "rows.csv", "--target", "y", "--model", "plain", "--agents", str(N)]
        command = [sys.executable, "-m", "coke", "run", *told, "--json"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    took = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (took.ru_utime + took.ru_stime) / 60
    text = f"coke run on {N} sites of 10 rows: {minutes:.1f} CPU minutes, "
    text += f"{took.ru_maxrss / 1e6:.1f} GB, at most {MOST['minutes']:.0f} minutes"
    promise(text, minutes <= MOST["minutes"])


if __name__ == "__main__":
    few()
    growth()
    many()
    sys.exit(1 if broken else 0)
