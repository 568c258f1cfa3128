"""`python benchmarks/mpi.py`: one process against ranks, and 10⁴ → 10⁵ → 10⁶ agents.

    python benchmarks/mpi.py              # 10⁴ and 10⁵ agents: simulate, 1 rank, 2 ranks
    python benchmarks/mpi.py --million    # and 10⁶ agents on 2 ranks, about 14 GiB

Every agent has 20 rows, L = 100, mean degree 6; COKE with h(k) = 0.5 · 0.95ᵏ. Each run is a job of
its own. Seconds are CPU seconds of the slowest rank a round, its waiting for others included: the
machine may be shared, and the clock then measures the others, too. Fails if θ differ in any bit.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.problem import Problem
from coke.maths.thin import Thin
from coke.maths.thresholds import Geometric
from coke.run.mpi import simulate_block
from coke.run.partition import Block, block, cut, edges_matrix, partition
from coke.run.ranks import everyones, world
from coke.run.simulate import Limits, Record, simulate

T, L, INPUTS, DEGREE, ROUNDS, LAM = 20, 100, 5, 6, 20, 1e-3
ALGORITHM = COKE(1e-2, Geometric(0.5, 0.95))
DRAWN = 1000  # agents whose rows are drawn together
OUT = Path("out/bench-mpi.json")

Index = NDArray[np.int64]


def edges(N: int) -> Index:
    """A random tree and further random pairs: mean degree 6, connected."""
    rng = np.random.default_rng(0)
    order, child = rng.permutation(N), np.arange(1, N)
    tree = np.c_[order[child], order[rng.integers(child)]]
    return np.concatenate([tree, rng.integers(N, size=(DEGREE * N // 2 - len(tree), 2))])


def problem(agents: Index, N: int, dtype: type[np.floating[Any]]) -> Problem:
    """The rows of those agents only: the same whoever else is held."""
    phi = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), INPUTS)
    F, z = np.empty((len(agents), T, L), dtype), np.empty((len(agents), T))
    for first in range(0, N, DRAWN):
        rng = np.random.default_rng((1, first))
        X, noise = rng.normal(size=(DRAWN, T, INPUTS)), rng.normal(size=(DRAWN, T))
        at = slice(*np.searchsorted(agents, [first, first + DRAWN]).tolist())
        X = X[agents[at] - first]
        y = np.sin(X.sum(axis=2)) + 0.1 * noise[agents[at] - first]
        F[at] = phi(X.reshape(-1, INPUTS)).reshape(-1, T, L) / np.sqrt(T)
        z[at] = y / np.sqrt(T)
    return Problem(Thin(F, z, np.full(len(agents), float(T)), LAM / N))


def digest(theta: NDArray[np.float64], agents: Index) -> int:
    """Of every bit of θ and whose it is; sums of ranks' are that of all."""
    places = np.arange(1, 2 * theta.shape[1], 2, dtype=np.uint64)
    with np.errstate(over="ignore"):
        rows = (theta.view(np.uint64) * places).sum(axis=1)
        return int((rows * (2 * agents.astype(np.uint64) + 1)).sum())


def timed(records: Iterable[Record]) -> Iterator[tuple[Record, float, float]]:
    """Each record with the CPU seconds and the seconds that it took."""
    cpu, clock = time.process_time(), time.perf_counter()
    for record in records:
        yield record, time.process_time() - cpu, time.perf_counter() - clock
        cpu, clock = time.process_time(), time.perf_counter()


def measured(records: Iterable[Record], agents: Index) -> dict[str, float]:
    """What one process or rank says of its rounds; the first also warms up."""
    cpu, clock = [], []
    for record, spent, passed in timed(records):
        cpu.append(spent)
        clock.append(passed)
        last = record
    return {
        "cpu": float(np.median(cpu[1:])),
        "clock": float(np.median(clock[1:])),
        "bytes": last.ledger.bytes,
        "wire_bytes": last.ledger.wire_bytes,
        "mse": last.score.global_train,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "digest": digest(last.state.theta, agents),
    }


def alone(N: int, dtype: type[np.floating[Any]]) -> dict[str, Any]:
    """`simulate`."""
    graph = nx.empty_graph(N)
    graph.add_edges_from(edges(N).tolist())
    everything = problem(np.arange(N), N, dtype)
    records = simulate(everything, graph, ALGORITHM, rounds=ROUNDS, scored=())
    return measured(records, np.arange(N))


def ranks(N: int, dtype: type[np.floating[Any]]) -> dict[str, Any]:
    """One rank of a job; the numbers of all."""
    comm, A = world(), edges_matrix(edges(N), N)
    parts = partition(A, comm.size)
    own: Block = block(A, parts, comm.rank)
    start = time.perf_counter()
    mine = problem(own.agents, N, dtype)
    limits = Limits(ROUNDS)
    records = simulate_block(comm, own, A, mine, ALGORITHM, limits=limits, scored=())
    row = measured(records, own.agents) | {"set_up": time.perf_counter() - start}
    digests = everyones(comm, np.array([row.pop("digest")], np.uint64))
    every = dict(zip(row, everyones(comm, np.array(list(row.values()))).T, strict=True))
    out = {name: float(values.max()) for name, values in every.items()}
    crossing = cut(A, parts).edges / (A.nnz // 2)
    total = sum(digests.ravel().tolist()) % 2**64
    return out | {"gib": float(every["gib"].sum()), "crossing": crossing, "digest": total}


def job(how: str, N: int, dtype: str) -> dict[str, Any]:
    """Runs one job and reads its numbers; `how` is simulate or a number of ranks."""
    mpiexec = [Path(sys.executable).parent / "mpiexec", "-n", how] if how != "simulate" else []
    runs = ["-m", "mpi4py"] if mpiexec else []
    command = [*mpiexec, sys.executable, *runs, __file__, "--job", how, str(N), dtype]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    print(
        f"N = {N:<8d} {how if how == 'simulate' else 'ranks: ' + how:9s} {dtype}  "
        f"CPU {found['cpu']:.3f} s, clock {found['clock']:.3f} s a round, "
        f"{found['gib']:.1f} GiB, {found['bytes']:.0f} bytes, mse {found['mse']:.4f}, "
        f"crossing {found.get('crossing', 0):.0%}",
        flush=True,
    )
    return found


def main() -> int:
    """One job, or all of them and a comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", nargs=3)
    parser.add_argument("--million", action="store_true")
    asked = parser.parse_args()
    if asked.job:
        how, N, dtype = asked.job
        run = alone if how == "simulate" else ranks
        found = run(int(N), getattr(np, dtype))
        if how == "simulate" or world().rank == 0:
            print(json.dumps(found))
        return 0
    ways = [(how, N, "float64") for N in (10**4, 10**5) for how in ("simulate", "1", "2")]
    ways += [("2", 10**4, "float32"), ("2", 10**5, "float32")]
    if asked.million:
        ways.append(("2", 10**6, "float32"))
    results = {way: job(*way) for way in ways}
    return summary(results)


def summary(results: dict[tuple[str, int, str], dict[str, Any]]) -> int:
    """Ratios, growth, and whether every bit agreed."""
    same = True
    for N in (10**4, 10**5):
        way = [results[how, N, "float64"] for how in ("simulate", "1", "2")]
        same &= len({row["digest"] for row in way}) == len({row["bytes"] for row in way}) == 1
        one, two = way[0]["cpu"] / way[1]["cpu"], way[0]["cpu"] / way[2]["cpu"]
        print(f"N = {N}: against simulate, 1 rank {one:.2f} times as fast, 2 ranks {two:.2f} times")
    single = {N: row["cpu"] for (how, N, kind), row in results.items() if kind == "float32"}
    low, high = min(single), max(single)
    power = math.log(single[high] / single[low]) / math.log(high / low)
    print(f"{low} → {high} agents: CPU a round grows with exponent {power:.2f}")
    print("θ and bytes: the same bits in one process and on ranks" if same else "BITS DIFFER")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({" ".join(map(str, way)): r for way, r in results.items()}, indent=2))
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
