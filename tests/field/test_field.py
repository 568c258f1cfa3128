"""Real agents: processes, disks, mutual TLS on loopback; held against the simulation."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke import COKERegressor, Features, dkla
from coke.data.tables import read_rows
from coke.errors import InputError
from kit.field import Field, antisymmetric, are_the_simulation, made_rows

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")


@pytest.fixture
def fields(tmp_path: Path) -> Iterator[Callable[..., Field]]:
    made: list[Field] = []

    def make(*args: Any, **settings: Any) -> Field:
        made.append(Field(tmp_path / f"net{len(made)}", *args, **settings))
        return made[-1]

    yield make
    for field in made:
        field.end()


@pytest.mark.parametrize(("algorithm", "n", "edges"), [("auto", 4, 5), ("coke", 10, 28)])
def test_agents_are_the_simulation_bit_for_bit(
    fields: Callable[..., Field], data_file: Callable[[str], Path], algorithm: str, n: int,
    edges: int,
) -> None:  # fmt: skip
    """Energy at n sites: same model, proof and last round, same bytes in both accounts."""
    rows = read_rows(data_file("energy_adaraker.parquet"), "y")
    settings = {"features": {"n_features": 50, "sigma": 0.1}, "algorithm": algorithm}
    field = fields(rows, n, edges, **settings)
    field.start()
    assert field.wait() == [0] * n
    if algorithm == "coke":
        antisymmetric(field, field.names)
    are_the_simulation(field)


def test_who_dies_and_loses_frames_over_tls_is_the_simulation(
    fields: Callable[..., Field],
) -> None:
    """kill -9 between a write and a frame; `make bench-kills` has more of it, and of methods."""
    field = fields(made_rows(), 3, 3, algorithm="tree-newton")
    assert field.nursed(seed=1, kills=1, loss=0.1) == 3
    are_the_simulation(field)


def test_kills_at_random_moments_change_no_bit(fields: Callable[..., Field]) -> None:
    """25 × kill -9 with restart over 400 rounds: θ as in the undisturbed run, to the bit."""
    field = fields(made_rows(), 4, 5, rounds=400, tol=0.0)
    rng = np.random.default_rng(0)
    field.start()
    kills = 0
    while kills < 25:
        time.sleep(float(rng.uniform(0.0, 0.9)))
        name = str(rng.choice(field.names))
        if field.processes[name].poll() is None:
            field.kill(name)
            kills += 1
        field.start(name)
        if all(field.rounds(name) >= 400 for name in field.names):
            break
    assert kills == 25 or min(map(field.rounds, field.names)) >= 400
    assert kills >= 15, "the run was over too soon to mean much"
    assert field.wait() == [0] * 4
    rounds = {field.result(name)["rounds"] for name in field.names}
    (last,) = rounds
    assert last >= 400
    assert_array_equal(field.theta(), field.twin(last)[-1].state.theta)
    antisymmetric(field, field.names)


@pytest.mark.parametrize("model", ["plain", "auto"])
def test_the_estimator_can_run_on_agents(model: str) -> None:
    """engine="agents" gives the simulation's θ to the bit, and the same bytes."""
    rows = made_rows(300)
    features = Features(n_features=15)
    common: dict[str, Any] = {"model": model, "n_agents": 3, "features": features}
    field = COKERegressor(engine="agents", **common).fit(rows.X, rows.y)
    one = COKERegressor(**common).fit(rows.X, rows.y)
    assert_array_equal(field.thetas_, one.thetas_)
    assert field.n_iter_ == one.n_iter_
    assert field.converged_
    assert field.transmissions_ == one.transmissions_
    assert (field.bytes_, field.wire_bytes_) == (one.bytes_, one.wire_bytes_)
    assert_array_equal(field.predict(rows.X), one.predict(rows.X))
    with pytest.raises(InputError, match="unknown engine"):
        COKERegressor(engine="agent").fit(rows.X, rows.y)
    with pytest.raises(InputError, match="they know algorithms by name only"):
        COKERegressor(engine="agents", algorithm=dkla()).fit(rows.X, rows.y)


def test_a_frozen_peer_and_a_clean_stop(fields: Callable[..., Field]) -> None:
    """SIGSTOP for a while, SIGTERM and a new start: nobody notices but by waiting."""
    field = fields(made_rows(), 3, 3, rounds=200, tol=0.0)
    field.start()
    field.until(lambda: min(map(field.rounds, field.names)) > 5)
    a, b, _ = field.names
    field.processes[a].send_signal(signal.SIGSTOP)
    time.sleep(10)
    field.processes[a].send_signal(signal.SIGCONT)
    field.kill(b, signal.SIGTERM)
    assert field.processes[b].returncode == 143
    field.start(b)
    assert field.wait() == [0] * 3
    last = field.result(a)["rounds"]
    assert_array_equal(field.theta(), field.twin(last)[-1].state.theta)
