"""`make bench-streaming`: the feature pass against the GEMM floor, scikit-learn and its own memory.

d = 77 inputs, L = 200 features, rows on disk as float32 in .npy and in Parquet with the writer's
default row groups. The floor counts 2dL + D² operations a row (X ωᵀ, and half of the symmetric
ΦᵀΦ) at the speed of a large GEMM in the pass's precision; D = L (cos-phase) or 2L (cos-sin), and
nothing is counted for cosines, scaling, checks and reading. scikit-learn's sampler has L cosines
with phases, so it is compared with cos-phase.

Memory is the growth of the peak during two passes, in a process of its own: at 1e6 rows, and with
--large at 1e7, whose files take 8 GB of the temporary folder while it runs. Speed is measured on
1e5 rows: a second is about as long as a shared machine leaves one alone. With --large on 1e6.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge

from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.passes import stream_statistics
from coke.data.sources import Passing, Source, complete
from coke.data.units import Columns, columns_of, fit_scaling
from coke.maths import compiled
from coke.maths.features.features import DrawnFeatures, FeatureSettings, draw_features
from figures import Found, Goal, Section, by_turns, cpu, main, ratio
from floors import FLOORS, Kind, spent

D, L, SIGMA, LAM = 77, 200, 9.0, 1e-3
PIECE = 1 << 20  # rows written at a time
KINDS: dict[Kind, str] = {np.float32: "auto", np.float64: "double"}
WAYS = {"plain": Passing()} | ({"fast": Passing(fast=True)} if compiled.available() else {})


def stream_columns(rows: Source) -> Columns:
    """Moments and ranges of the inputs and, last, the target: what units take."""
    parts = (columns_of(np.column_stack([chunk.X, chunk.y])) for chunk in complete(rows))
    return reduce(Columns.merged, parts)


def features(mapping: str) -> DrawnFeatures:
    return draw_features(FeatureSettings(L, sigma=SIGMA, mapping=mapping, seed=0), D)


MAPS = {mapping: features(mapping) for mapping in ("cos-phase", "cos-sin")}


def rows(first: int, t: int) -> tuple[Any, Any]:
    """Rows first … first + t of an endless data set, float32."""
    rng = np.random.default_rng(first)
    X = rng.standard_normal((t, D), dtype=np.float32)
    return X, (np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(t, dtype=np.float32))


def write(folder: Path, T: int) -> None:
    """X.npy, y.npy and rows.parquet, a piece at a time."""
    names = [*(f"x{j}" for j in range(D)), "y"]
    schema = pa.schema([(name, pa.float32()) for name in names])
    X, y = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in (("X", (T, D)), ("y", (T,)))
    )
    with pa.parquet.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for first in range(0, T, PIECE):
            x, t = rows(first, min(PIECE, T - first))
            X[first : first + PIECE], y[first : first + PIECE] = x, t
            table = pa.table([*np.ascontiguousarray(x.T), t], schema=schema)
            writer.write_table(table, row_group_size=PIECE)


def source(folder: Path, kind: str) -> Source:
    arrays = folder / "X.npy", folder / "y.npy"
    if kind == "npy":
        return open_arrays(*arrays)
    if kind == "npy, 10 sites":
        T = len(np.load(arrays[1], mmap_mode="r"))
        return open_arrays(*arrays, np.random.default_rng(0).integers(0, 10, T))
    return open_table(folder / "rows.parquet", "y")


def floor(phi: DrawnFeatures, kind: Kind, T: int) -> float:
    """CPU seconds of the products of T rows at the speed of a large GEMM.

    As many are made as that is work: what disturbs three seconds of a pass would often miss the
    50 ms of one product.
    """
    return spent(kind, T * (2 * D * L + phi.size**2))


def products(T: int, block: int = 1024) -> float:
    """CPU seconds of the two products of cos-phase alone, in their shapes and in cache."""
    X, W = rows(0, block)[0], MAPS["cos-phase"].omega.T.astype(np.float32)
    Phi = X @ W
    return cpu(lambda: deque(((X @ W, Phi.T @ Phi)[:0] for _ in range(T // block)), maxlen=0))


def sklearn(kind: Kind, T: int) -> Callable[[], float]:
    """RBFSampler + Ridge on rows in memory."""
    X, y = (array.astype(kind) for array in rows(0, T))
    sampler = RBFSampler(gamma=0.5 / SIGMA**2, n_components=L, random_state=0)
    return lambda: cpu(lambda: Ridge(LAM * T).fit(sampler.fit_transform(X), y))


def speed(folder: Path, T: int, turns: int) -> Found:
    """CPU seconds of all sides, by turns, and the ratios asked for."""
    write(folder, T)

    def passing(kind: str, mapping: str, how: Passing) -> Callable[[], float]:
        def run() -> object:
            return stream_statistics(source(folder, kind), MAPS[mapping], lam=LAM, how=how)

        run()  # compiles, and warms the files' pages
        return lambda: cpu(run)

    sides: dict[str, Callable[[], float]] = {
        "products": lambda: products(T),
        "sklearn, float64": sklearn(np.float64, T),
        "sklearn, float32": sklearn(np.float32, T),
        "scaling": lambda: cpu(lambda: stream_columns(source(folder, "npy"))),
    }
    for mapping, phi in MAPS.items():
        for kind, precision in KINDS.items():
            sides[f"floor, {mapping}, {precision}"] = partial(floor, phi, kind, T)
            for way, how in WAYS.items():
                name = f"npy, {mapping}, {way}, {precision}"
                sides[name] = passing("npy", mapping, how._replace(precision=precision))
    for way, how in WAYS.items():
        sides[f"parquet, {way}"] = passing("parquet", "cos-phase", how)
        sides[f"sites, {way}"] = passing("npy, 10 sites", "cos-phase", how)
    return ratios(by_turns(sides, turns), T)


def ratios(taken: dict[str, list[float]], T: int) -> Found:
    """From CPU seconds."""
    found = {f"seconds for 1e6 rows, {k}": min(v) * 1e6 / T for k, v in taken.items() if "npy" in k}
    for mapping, way, precision in product(MAPS, WAYS, KINDS.values()):
        least, ours = (
            taken[f"{k}, {precision}"] for k in (f"floor, {mapping}", f"npy, {mapping}, {way}")
        )
        found[f"share of the GEMM floor, {mapping}, {way}, {precision}"] = ratio(least, ours)
    alone = ratio(taken["floor, cos-phase, auto"], taken["products"])
    found["share of the GEMM floor, cos-phase, products alone"] = alone
    for way in WAYS:
        ours = taken[f"npy, cos-phase, {way}, auto"]
        found[f"npy / Parquet, {way}"] = ratio(ours, taken[f"parquet, {way}"])
        found[f"10 sites in random order / one, {way}"] = ratio(taken[f"sites, {way}"], ours)
        for kind in ("float64", "float32"):
            found[f"scikit-learn {kind} / {way}"] = ratio(taken[f"sklearn, {kind}"], ours)
    return found


def status(field: str) -> float:
    """A line of /proc/self/status in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def growth(folder: Path, kind: str) -> float:
    """MB by which the peak grew in a pass for the scaling and one for the statistics."""
    phi, how = MAPS["cos-phase"], Passing()
    stream_statistics(open_arrays(*rows(0, 5000)), phi, lam=LAM)  # loads what is loaded once
    before, found = status("VmRSS"), source(folder, kind)
    scaling = fit_scaling("standard", D, stream_columns(found))
    stream_statistics(found, phi, scaling, lam=LAM, how=how)
    return status("VmHWM") - before


def memory(T: int) -> Found:
    """`growth` in processes of their own, on files that live as long."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), T)
        found = {}
        for kind in ("npy", "parquet"):
            job = [sys.executable, __file__, "--growth", folder, kind]
            done = subprocess.run(job, check=True, capture_output=True, text=True)
            found[f"memory, {kind}, {T:.0e} rows, MB"] = float(json.loads(done.stdout))
        return found


def measure(size: str) -> Found:
    """Speed, and except in a short run memory."""
    T, turns = {"short": (40_000, 2), "usual": (10**5, 15), "large": (10**6, 5)}[size]
    with tempfile.TemporaryDirectory() as folder:
        found = speed(Path(folder), T, turns)
    for many in {"short": (), "usual": (10**6,), "large": (10**6, 10**7)}[size]:
        found |= memory(many)
    if size == "large":
        for kind in ("npy", "parquet"):
            small, large = (found[f"memory, {kind}, {T:.0e} rows, MB"] for T in (10**6, 10**7))
            found[f"memory, {kind}, 1e+07 / 1e+06 rows"] = large / small
    return found


STREAMING = Section(
    "streaming",
    measure,
    {
        "share of the GEMM floor, cos-sin, fast, auto": Goal(least=0.5),
        "npy / Parquet, plain": Goal(least=0.5),
        "npy / Parquet, fast": Goal(least=0.5),
        "scikit-learn float64 / plain": Goal(least=4.0),
        "scikit-learn float32 / plain": Goal(least=1.0),
        **{
            f"memory, {kind}, {T:.0e} rows, MB": Goal(most=300.0)
            for kind in ("npy", "parquet")
            for T in (10**6, 10**7)
        },
        **{f"memory, {kind}, 1e+07 / 1e+06 rows": Goal(most=1.1) for kind in ("npy", "parquet")},
    },
)

if __name__ == "__main__":
    if "--growth" in sys.argv:
        print(json.dumps(growth(Path(sys.argv[-2]), sys.argv[-1])))
    else:
        sys.exit(main(FLOORS, STREAMING))
