"""`python benchmarks/streaming.py [--large]`: the feature pass against its floors and scikit-learn.

d = 77 inputs, L = 200 features (cos-phase), rows on disk as float32 in .npy and in Parquet with the
writer's default row groups. Ratios within one run, process CPU time, one BLAS thread, all sides by
turns. Memory is the growth of the peak during a pass, in a process of its own: at 1e6 rows, and
with --large at 1e7, whose files take 8 GB of the temporary folder while it runs.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before NumPy loads

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from coke.data.passes import Passing, stream_columns, stream_statistics
from coke.data.scaling import fit_scaling
from coke.data.streaming import Source, open_arrays, open_table
from coke.maths.features import FeatureSettings, draw_features

D, L, SIGMA, LAM = 77, 200, 9.0, 1e-3
T, FEW, TURNS = 1_000_000, 200_000, 5  # rows; rows of one turn; turns
PIECE = 1 << 20  # rows written at a time
OUT = Path("out/bench-streaming.json")
PHI = draw_features(FeatureSettings(L, sigma=SIGMA, mapping="cos-phase", seed=0), D)
GOALS = {"npy_share_of_products": 0.5, "npy_over_parquet": 0.5, "sklearn64": 4.0, "sklearn32": 1.0}
GROWTH = 300.0  # MB


def cpu(work: Callable[[], Any]) -> float:
    """CPU seconds of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


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
    if kind == "npy":
        return open_arrays(folder / "X.npy", folder / "y.npy")
    return open_table(folder / "rows.parquet", "y")


def run(rows: Source, how: Passing = Passing()) -> Any:  # noqa: B008
    return stream_statistics(rows, PHI, lam=LAM, how=how)


def floors() -> dict[str, float]:
    """What this core can do: GFLOP/s, cosines and bytes a second."""
    found = {}
    for kind in (np.float32, np.float64):
        a, name = np.ones((1500, 1500), kind), kind.__name__
        found[f"gemm_gflops_{name}"] = 2 * 1.5**3 / min(cpu(lambda a=a: a @ a) for _ in range(5))  # type: ignore[misc]
        x = np.linspace(0, 10, 1 << 18, dtype=kind)
        best = min(cpu(lambda x=x: [np.cos(x) for _ in range(20)]) for _ in range(3))  # type: ignore[misc]
        found[f"cos_per_second_{name}"] = 20 * len(x) / best
    long = np.ones(50_000_000)
    found["bytes_per_second"] = 8 * len(long) / min(cpu(lambda: long @ long) for _ in range(3))
    return found


def products(T: int, block: int = 1024) -> float:
    """CPU seconds of the two products alone, in cache: angles X ωᵀ and Φᵀ Φ."""
    X, W = rows(0, block)[0], PHI.omega.T.astype(np.float32)
    Phi = X @ W
    return cpu(lambda: deque(((X @ W, Phi.T @ Phi)[:0] for _ in range(T // block)), maxlen=0))


def sklearn_fit(kind: type[np.floating[Any]]) -> Callable[[], Any]:
    """RBFSampler + Ridge on rows in memory."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge

    X, y = (array.astype(kind) for array in rows(0, FEW))
    sampler = RBFSampler(gamma=0.5 / SIGMA**2, n_components=L, random_state=0)
    return lambda: Ridge(LAM * FEW).fit(sampler.fit_transform(X), y)


def speed(folder: Path) -> dict[str, float]:
    """CPU seconds per million rows, by turns, and the ratios asked for."""
    calls: dict[str, Callable[[], Any]] = {
        "npy": lambda: run(source(folder, "npy")),
        "parquet": lambda: run(source(folder, "parquet")),
        "npy_double": lambda: run(source(folder, "npy"), Passing("double")),
        "columns": lambda: stream_columns(source(folder, "npy")),
        "sklearn64": sklearn_fit(np.float64),
        "sklearn32": sklearn_fit(np.float32),
    }
    taken: dict[str, list[float]] = {name: [] for name in (*calls, "products", "peak")}
    for _ in range(TURNS):
        for name, call in calls.items():
            taken[name].append(cpu(call))
        taken["products"].append(products(FEW))
        taken["peak"].append(FEW * (2 * D * L + L * L) / (1e9 * floors()["gemm_gflops_float32"]))
    ratio = {
        "npy_share_of_products": ("products", "npy"),
        "npy_share_of_peak": ("peak", "npy"),
        "npy_over_parquet": ("npy", "parquet"),
        "sklearn64": ("sklearn64", "npy"),
        "sklearn32": ("sklearn32", "npy"),
    }
    pairs = {key: zip(taken[a], taken[b], strict=True) for key, (a, b) in ratio.items()}
    per_million = {f"seconds_{k}": 1e6 / FEW * statistics.median(v) for k, v in taken.items()}
    return per_million | {k: statistics.median(a / b for a, b in v) for k, v in pairs.items()}


def status(field: str) -> float:
    """A line of /proc/self/status in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(folder: Path, kind: str) -> dict[str, float]:
    """One pass for the scaling and one for the statistics, and how much the peak grew."""
    few = open_arrays(*rows(0, 5000))
    run(few)  # loads what is loaded once
    before, start, clock = status("VmRSS"), time.process_time(), time.perf_counter()
    found = source(folder, kind)
    scaling = fit_scaling("standard", D, stream_columns(found))
    seen: list[int] = []
    stream_statistics(found, PHI, scaling, lam=LAM, how=Passing(progress=seen.append))
    return {
        "rows": seen[-1],
        "cpu_seconds": time.process_time() - start,
        "rows_per_second_wall": 2 * seen[-1] / (time.perf_counter() - clock),
        "growth_mb": status("VmHWM") - before,
    }


def memory(T: int) -> dict[str, dict[str, float]]:
    """`measure` in processes of their own, on files that live as long."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), T)
        return {
            kind: json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--measure", folder, kind],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for kind in ("npy", "parquet")
        }


def main() -> int:
    """Runs all, prints a table, keeps the numbers as JSON."""
    if "--measure" in sys.argv:
        print(json.dumps(measure(Path(sys.argv[-2]), sys.argv[-1])))
        return 0
    results: dict[str, Any] = {"floors": floors()}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), FEW)
        results["speed"] = speed(Path(folder))
    for size in (T, 10 * T) if "--large" in sys.argv else (T,):
        for kind, row in memory(size).items():
            results[f"memory {kind} {size:.0e}"] = row
    for name, row in results.items():
        print(name)
        for key, value in row.items():
            print(f"  {key.replace('_', ' '):28s} {value:12.4g}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")
    missed = [k for k, goal in GOALS.items() if results["speed"][k] < goal]
    missed += [k for k, row in results.items() if row.get("growth_mb", 0.0) > GROWTH]
    print(f"goals missed: {missed or 'none'}; numbers in {OUT}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
