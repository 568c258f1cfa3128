"""A few bytes of a problem, its network and its algorithm: whether a run is still the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from scipy import sparse

from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.graph import Graph, adjacency
from coke.maths.losses.problem import Problem
from coke.threads import OneThread


def fingerprint(problem: Problem, graph: Graph, algorithm: Algorithm) -> str:
    """Changes whenever the rows, the features, λ, the network or the algorithm's settings do."""
    return digest_of(problem, adjacency(graph), algorithm, marks(problem)).hex()


def marks(problem: Problem) -> list[Array]:
    """Of every agent a few numbers that change whenever its rows, the features or λ do."""
    ones = np.ones((len(problem.train.T), problem.train.size))  # its gradient sees A, b and G
    with OneThread().limit():
        parts = [problem.train.T, problem.train.gradient(ones)]
        if problem.test is not None:
            parts += [problem.test.T, problem.test.losses(ones)]
    return parts


def digest_of(
    problem: Problem,
    A: sparse.csr_array,
    algorithm: Algorithm,
    parts: Iterable[Array | None],
) -> bytes:
    """16 bytes of all agents' marks `parts`, the network and the algorithm's settings."""
    upper = sparse.csr_array(sparse.triu(A, 1)).sorted_indices().tocoo()
    edges = np.column_stack([upper.row, upper.col]).astype(np.int64)
    digest = hashlib.blake2b(repr(algorithm).encode(), digest_size=16)
    digest.update(repr(getattr(problem.train, "fast", False)).encode())  # other last bits
    for part in (edges, *parts):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()
