"""What this machine can do on one core: the floors beside which the other figures stand."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from figures import Found, Section, best, cpu

Kind = type[np.floating[Any]]
SIZE = 1500  # of the square matrices of a GEMM


def gemm(kind: Kind, times: int = 5) -> float:
    """Floating-point operations per CPU second of a product of large matrices."""
    a = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(kind)
    return 2 * SIZE**3 / best(lambda: a @ a, times)


def spent(kind: Kind, operations: float) -> float:
    """CPU seconds of about so many operations in products of large matrices, one after another."""
    a = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(kind)
    times = max(1, round(operations / (2 * SIZE**3)))
    taken = cpu(lambda: deque((a @ a for _ in range(times)), maxlen=0))
    return taken * operations / (2 * SIZE**3 * times)


def memory(times: int = 5, entries: int = 50_000_000) -> float:
    """Bytes per CPU second of reading 400 MB, which no cache holds."""
    x = np.ones(entries)
    return 8 * entries / best(lambda: x @ x, times)


def cosines(kind: Kind, entries: int = 1 << 18) -> float:
    """NumPy's cosines per CPU second, in cache."""
    x = np.linspace(0, 10, entries, dtype=kind)
    out = np.empty_like(x)
    return entries / best(lambda: np.cos(x, out=out), 20)


def measure(size: str) -> Found:
    """All of them."""
    found = {}
    for kind in (np.float64, np.float32):
        found[f"GEMM, {kind.__name__}, GFLOP/s"] = gemm(kind) / 1e9
        found[f"cos, {kind.__name__}, million/s"] = cosines(kind) / 1e6
    return found | {"reading from memory, GB/s": memory() / 1e9}


FLOORS = Section("floors", measure, {})
