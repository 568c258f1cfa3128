"""Whole networks in one process: agents in threads, chosen by a setting, with the same bits."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from coke import COKERegressor, Features, Until
from coke.cli.agent import agent
from coke.data.split import deal
from coke.errors import ConfigError, ConvergenceError
from coke.field.carriers import CARRIERS, memory
from coke.field.carriers.memory import Memory
from coke.field.fitting import train_on_agents
from coke.field.local import NetworkPlan, run_network, write_network
from coke.learning.model import load_model
from coke.maths.graph import build_graph
from coke.settings.reading import checked_settings
from coke.settings.sites import checked_site, read_site
from kit.field import made_rows

ROWS = made_rows(300)
PARTS = deal(ROWS.y, 3, seed=0)
GRAPH = build_graph("ring", 3, seed=0)
SMALL: dict[str, Any] = {
    "model": "plain", "rounds": 60, "seed": 0, "features": {"n_features": 15},
    "data": {"test": 0.0},
}  # fmt: skip


def written(folder: Path, **settings: Any) -> list[Path]:
    plan = NetworkPlan(
        network="trial", graph=GRAPH, rows=ROWS, parts=PARTS, settings=SMALL | settings,
        patience="wait", carrier="memory",
    )  # fmt: skip
    return write_network(folder, plan)


@pytest.mark.parametrize("model", ["plain", "auto"])
def test_agents_in_threads_have_the_simulations_bits(model: str) -> None:
    """θ, rounds and messages; nobody is left behind."""
    before = threading.active_count()
    config = checked_settings({**SMALL, "model": model})
    found = train_on_agents(config, ROWS, PARTS, GRAPH, "memory")
    one = COKERegressor(
        n_agents=3, graph="ring", model=model, features=Features(n_features=15),
        limits=Until(rounds=60),
    )  # fmt: skip
    one.fit(ROWS.X, ROWS.y)
    assert_array_equal([model.theta.ravel() for model in found.models], one.thetas_)
    assert (found.rounds, found.converged) == (one.n_iter_, one.converged_)
    assert found.ledger.transmissions == one.transmissions_
    assert_array_equal(found.history["round"], one.history_["round"])
    assert_array_equal(found.history.spoke, one.history_.spoke)
    assert threading.active_count() == before


def test_budgets_reach_the_agents() -> None:
    config = checked_settings({**SMALL, "max_transmissions": 60})
    found = train_on_agents(config, ROWS, PARTS, GRAPH, "memory")
    assert not found.converged
    assert found.ledger.transmissions <= 60


def test_a_written_network_runs_in_threads_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """No certificates, no ports; a second run finds that all is over."""
    paths = written(tmp_path)
    assert not list(tmp_path.rglob("*.key"))
    assert {read_site(path).site.carrier for path in paths} == {"memory"}
    first = run_network(paths, timeout=120)
    again = run_network(paths, timeout=120)
    for one, other in zip(first, again, strict=True):
        assert one["rounds"] == other["rounds"]
        assert_array_equal(load_model(one["model"]).theta, load_model(other["model"]).theta)
    assert first[0]["largest_asymmetry"] == 0.0


def test_what_stops_one_agent_stops_all(tmp_path: Path) -> None:
    paths = written(tmp_path)
    text = paths[1].read_text()
    paths[1].write_text(text.replace("seed = 0", "seed = 1"))
    with pytest.raises(ConfigError, match="seed is"):
        run_network(paths, timeout=120)


def test_agents_that_do_not_end_in_time_are_ended(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(ConvergenceError, match="did not end within 0 s"):
        run_network(written(tmp_path), timeout=0.0)
    assert threading.active_count() == before


def test_one_agent_alone_cannot_join_threads_of_another_process(tmp_path: Path) -> None:
    path = written(tmp_path)[0]
    with pytest.raises(ConfigError, match="coke network run"):
        agent(path)


def test_an_unknown_carrier_is_refused() -> None:
    site = {"name": "a", "network": "n", "neighbours": {"b": ""}, "carrier": "pigeon"}
    with pytest.raises(ConfigError, match="unknown carrier 'pigeon'"):
        checked_site({"data": {"file": "x", "target": "y"}, "site": site})


def test_networks_of_one_process_are_apart_by_name(tmp_path: Path) -> None:
    """And forgotten with their sites."""
    one = read_site(written(tmp_path)[0]).site
    carrier = CARRIERS["memory"].opener(one)()
    assert isinstance(memory._NETWORKS[one.network], Memory)
    carrier.close()
    del carrier
    gc.collect()
    assert one.network not in memory._NETWORKS


def test_agents_say_whether_joining_paid_by_their_own_rows(tmp_path: Path) -> None:
    """And what they cannot know, and that they have not settled."""
    data = {"test": 0.3}
    for one in run_network(written(tmp_path / "few", rounds=3, data=data), timeout=120):
        told = one["verdict"]
        assert told["rows"] == 30
        assert (told["alone"], told["pooled"], told["linear"], told["sites"]) == (None,) * 3 + ({},)
        assert "no site can know" in told["notes"][0]
        assert one["settled"] is False
        assert f"not settled after {one['rounds']} rounds" in one["warnings"][0]
        assert "not certified" in one["warnings"][0]
