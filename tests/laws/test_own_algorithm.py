"""An algorithm of one's own, written from public names, runs on every face; or the reason is said.

Run as a program under `mpiexec`, this file is the ranks' side of the test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import coke
from kit.jobs import on_ranks
from kit.problems import case
from kit.tracked import GradientTracking

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

N, ROUNDS = 6, 40
GRAPH = nx.cycle_graph(N)
TRACKING = GradientTracking(eta=0.1)


def problem(agents: list[int]) -> coke.Problem:
    c = case(N, lam=0.5)
    X, y = ([part[i] for i in agents] for part in (c.X, c.y))
    return coke.Problem(coke.Quadratic.from_rows(c.features, X, y, 0.5 / N))


def rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    return X, np.sin(X[:, 0]) + X[:, 1], np.arange(240) % 4


def fitted(**how: Any) -> coke.COKERegressor:
    X, y, where = rows()
    features = coke.Features(n_features=8, sigma=2.0)
    limits = coke.Until(rounds=2000, tol=1e-2)
    own = coke.COKERegressor(
        model="plain", graph="ring", algorithm=TRACKING, features=features, lam=0.5, limits=limits,
        **how,
    )  # fmt: skip
    return own.fit(X, y, sites=where)


def test_the_mean_of_what_they_track_is_the_mean_gradient() -> None:
    """Σ_i y_i = Σ_i ∇R_i(θ_i) in every round, whatever is rounded away; so a rest is at θ*."""
    own = problem([*range(N)])
    for r in coke.simulate(own, GRAPH, TRACKING, rounds=60):
        assert_allclose(r.state.y.sum(axis=0), r.state.slope.sum(axis=0), atol=1e-9)
    *_, last = coke.simulate(own, GRAPH, TRACKING, rounds=5000, tol=1e-6)
    assert last.settled
    assert last.optimality_gap < 1e-4


def test_it_needs_a_fraction_of_the_exact_bytes() -> None:
    *_, last = coke.simulate(problem([*range(N)]), GRAPH, TRACKING, rounds=100)
    exact = 2 * 8 * problem([0]).train.size * last.ledger.transmissions
    assert 5 * last.ledger.bytes < exact


def test_ranks_have_one_processes_bits(tmp_path: Path) -> None:
    on_ranks(2, __file__, tmp_path / "theta.npy", cwd=tmp_path)
    *_, last = coke.simulate(problem([*range(N)]), GRAPH, TRACKING, rounds=ROUNDS, tol=1e-3)
    assert_array_equal(np.load(tmp_path / "theta.npy"), last.state.theta)


def test_agents_have_the_simulations_bits() -> None:
    """Threads over memory carriers, in lockstep, with a tolerance."""
    one, other = fitted(), fitted(engine=coke.Agents(carrier="memory"))
    assert other.converged_
    assert other.n_iter_ == one.n_iter_
    assert_array_equal(other.thetas_, one.thetas_)


def test_where_it_cannot_run_the_reason_is_said() -> None:
    with pytest.raises(coke.CokeError, match="know algorithms by name only"):
        fitted(engine="agents")
    X, y, where = rows()
    raw = coke.COKERegressor(algorithm="cta", engine=coke.Agents(carrier="memory"))
    with pytest.raises(coke.CokeError, match="raw float64"):
        raw.fit(X, y, sites=where)


def _rank(out: Path) -> None:
    """One rank's agents; the first leaves everybody's θ."""
    from coke.engines.ranks.collectives import world
    from coke.engines.ranks.engine import Ranks
    from coke.maths.algorithms.stopping import Limits
    from coke.maths.graph import adjacency

    engine = Ranks(world(), adjacency(GRAPH), tuple(map(str, range(N))))
    here = [*engine.agents(N)]
    spent = np.zeros((len(here), 3), np.int64)
    limits = Limits(ROUNDS, 1e-3)
    for record in engine.rounds(problem(here), GRAPH, TRACKING, limits, spent, None):
        theta = engine.everyones(record.state.theta)
    if engine.first:
        np.save(out, theta)


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
