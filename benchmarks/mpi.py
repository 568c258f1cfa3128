"""`make bench-mpi`: one process against two ranks at 10⁵ agents; with --large 10⁴ to 10⁶ agents.

Every agent has 20 rows, L = 100, mean degree 6; COKE with h(k) = 0.5 · 0.95ᵏ. Each run is a job of
its own, the two by turns, and the best of each counts. Clock time says how much sooner two ranks
are done; where it is more than 1.1 of CPU time the cores were busy with other work, and no goal is
asked for. CPU time is that of the slowest rank, its waiting for
others included. A million agents take about 14 GiB. Fails if θ or the bytes differ in any bit.
"""

from __future__ import annotations

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
from scipy import sparse

from coke.engines.process import Record, simulate
from coke.engines.ranks.collectives import everyones, world
from coke.engines.ranks.engine import Block, block, partition
from coke.engines.ranks.rounds import simulate_block
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.algorithms.stopping import Limits
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses.problem import Problem
from coke.maths.losses.thin import Thin
from figures import Found, Goal, Section, main
from floors import FLOORS

T, L, INPUTS, DEGREE, ROUNDS, LAM = 20, 100, 5, 6, 20, 1e-3
ALGORITHM = COKE(1e-2, Geometric(0.5, 0.95))
DRAWN = 1000  # agents whose rows are drawn together
FREE = 1.1  # most clock time a CPU second of a job whose cores are free

Index = NDArray[np.int64]


def edges(N: int) -> Index:
    """A random tree and further random pairs: mean degree 6, connected."""
    rng = np.random.default_rng(0)
    order, child = rng.permutation(N), np.arange(1, N)
    tree = np.c_[order[child], order[rng.integers(child)]]
    return np.concatenate([tree, rng.integers(N, size=(DEGREE * N // 2 - len(tree), 2))])


def matrix(edges: Index, N: int) -> sparse.csr_array:
    """Their adjacency, for a graph object of a million agents takes too long to make."""
    i, n = edges[edges[:, 0] != edges[:, 1]].T
    A = sparse.csr_array((np.ones(2 * len(i)), (np.r_[i, n], np.r_[n, i])), shape=(N, N))
    A.sum_duplicates()  # sorts each row, too
    A.data[:] = 1.0
    return A


def problem(agents: Index, N: int, dtype: type[np.floating[Any]]) -> Problem:
    """The rows of those agents only: the same whoever else is held."""
    phi = draw_features(FeatureSettings(L, sigma=2.0, mapping="cos-phase", seed=0), INPUTS)
    F, z = np.empty((len(agents), T, L), dtype), np.empty((len(agents), T, 1))
    for first in range(0, N, DRAWN):
        rng = np.random.default_rng((1, first))
        X, noise = rng.normal(size=(DRAWN, T, INPUTS)), rng.normal(size=(DRAWN, T))
        at = slice(*np.searchsorted(agents, [first, first + DRAWN]).tolist())
        X = X[agents[at] - first]
        y = np.sin(X.sum(axis=2)) + 0.1 * noise[agents[at] - first]
        F[at] = phi(X.reshape(-1, INPUTS)).reshape(-1, T, L) / np.sqrt(T)
        z[at, :, 0] = y / np.sqrt(T)
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
    comm, A = world(), matrix(edges(N), N)
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
    crossing = np.count_nonzero(np.repeat(parts, np.diff(A.indptr)) != parts[A.indices]) / A.nnz
    total = sum(digests.ravel().tolist()) % 2**64
    return out | {"gib": float(every["gib"].sum()), "crossing": crossing, "digest": total}


def job(how: str, N: int, dtype: str = "float64") -> dict[str, Any]:
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


def speed_up(N: int, turns: int) -> Found:
    """One process against two ranks, by turns."""
    one, two = zip(*((job("simulate", N), job("2", N)) for _ in range(turns)), strict=True)
    waited = max(min(row["clock"] / row["cpu"] for row in side) for side in (one, two))
    busy = "" if waited <= FREE else ", cores busy"
    found = {"bits that differ, 2 ranks": differ(*one, *two)}
    for kind in ("clock", "cpu"):
        times = min(row[kind] for row in one) / min(row[kind] for row in two)
        found[f"{kind}, one process / 2 ranks, N = {N:.0e}{busy}"] = times
    return found


def differ(*rows: dict[str, Any]) -> float:
    """How many of the runs have another θ, or other bytes, than the first."""
    said = [(row["digest"], row["bytes"]) for row in rows]
    return float(sum(one != said[0] for one in said))


def growth() -> Found:
    """CPU seconds a round on two ranks, rows in float32, and the exponent of N."""
    taken = {N: job("2", N, "float32") for N in (10**4, 10**5, 10**6)}
    found = {f"seconds a round, 2 ranks, float32, N = {N:.0e}": r["cpu"] for N, r in taken.items()}
    found["exponent of N"] = math.log10(taken[10**6]["cpu"] / taken[10**4]["cpu"]) / 2.0
    return found | {"GiB, N = 1e+06": taken[10**6]["gib"]}


def measure(size: str) -> Found:
    """Bits, speed, and with `large` growth."""
    three = {"bits that differ, 3 ranks": differ(job("simulate", 10**4), job("3", 10**4))}
    found = three | speed_up(10**5, 1 if size == "short" else 3)
    return found | growth() if size == "large" else found


MPI = Section(
    "mpi",
    measure,
    {
        "bits that differ, 2 ranks": Goal(most=0.0),
        "bits that differ, 3 ranks": Goal(most=0.0),
        "clock, one process / 2 ranks, N = 1e+05": Goal(least=1.5),
        "exponent of N": Goal(most=1.1),
        "GiB, N = 1e+06": Goal(most=20.0),
    },
)


def work(how: str, N: int, kind: str) -> None:
    """The job itself."""
    found = (alone if how == "simulate" else ranks)(N, getattr(np, kind))
    if how == "simulate" or world().rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    if "--job" in sys.argv:
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main(FLOORS, MPI))
