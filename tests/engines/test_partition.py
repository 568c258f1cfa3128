"""Agents divided among ranks: nobody is lost, few edges cross, every bit stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from coke.engines.ranks.engine import block, partition
from coke.errors import GraphError, InputError
from coke.maths.graph import adjacency, build_graph, metropolis

N = 17
GRAPH = build_graph("random", N, edges=40, seed=3)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), R=st.integers(1, 5))
def test_blocks_hear_what_they_need_and_nobody_is_lost(seed: int, n: int, R: int) -> None:
    """Every agent has one rank; rows of W θ̂ from a block and its ghosts have all bits of W θ̂."""
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install 'coke-learn[mpi]'")
    A, R = adjacency(build_graph("random", n, seed=seed)), min(n, R)
    parts = partition(A, R)
    assert set(parts.tolist()) == set(range(R))
    blocks = [block(A, parts, rank) for rank in range(R)]
    W, hat = metropolis(A), np.random.default_rng(seed).normal(size=(n, 3))
    for own in blocks:
        assert_array_equal(own.columns(W) @ hat[[*own.agents, *own.ghosts]], (W @ hat)[own.agents])
        for other, sent in own.sends.items():
            there = blocks[other]
            assert_array_equal(own.agents[sent], there.ghosts[there.receives[own.rank]])
    between = {(i, int(parts[n])) for i, n in zip(*A.nonzero(), strict=True)}
    heard = sum(int(parts[i]) != rank for i, rank in between)
    assert sum(len(s) for own in blocks for s in own.sends.values()) == heard
    assert_array_equal(np.argsort(blocks[0].order()).argsort(), blocks[0].order())


def test_the_partition_cuts_a_grid_where_it_is_narrow() -> None:
    """40 × 40 into halves: 40 edges at best; blocks in a shuffled order cut half of all 3120."""
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install 'coke-learn[mpi]'")
    grid = adjacency(build_graph("grid", 1600, seed=0))
    order = np.random.default_rng(0).permutation(1600)
    shuffled = grid[order][:, order]
    parts = partition(shuffled, 2)
    i, n = shuffled.nonzero()
    assert 40 <= np.count_nonzero(parts[i] != parts[n]) // 2 <= 60
    assert np.bincount(parts).max() <= 830


def test_agents_that_nobody_can_reach_are_refused() -> None:
    pairs = sparse.block_diag([adjacency(build_graph("ring", 2, seed=0))] * 2, format="csr")
    with pytest.raises(GraphError, match="2 components"):
        partition(sparse.csr_array(pairs), 2)


def test_more_ranks_than_agents_are_refused() -> None:
    with pytest.raises(InputError, match="start fewer ranks"):
        partition(adjacency(GRAPH), N + 1)
