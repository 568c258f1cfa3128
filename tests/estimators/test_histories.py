"""What a fit tells of its rounds: one type on every engine, as a table, a picture and a line."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import coke
from coke import Agents, COKEClassifier, COKERegressor, Features, History, Until
from coke.engines.history import Labels
from coke.errors import DataError, InputError

RNG = np.random.default_rng(4)
X = RNG.normal(size=(150, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=150)
SITES = np.array(["Köln", "Bonn/Ost", "c"])[RNG.integers(0, 3, size=150)]


@cache
def fitted(engine: Any = "simulation", kind: Any = COKERegressor) -> Any:
    how = {"graph": "ring", "features": Features(n_features=15), "limits": Until(rounds=25)}
    wanted = Agents(carrier="memory") if engine == "agents" else engine
    y = Y if kind is COKERegressor else np.where(Y > 0, "up", "down")
    return kind(model="plain", engine=wanted, **how).fit(X, y, SITES)


@pytest.mark.parametrize("kind", [COKERegressor, COKEClassifier])
def test_agents_and_simulation_tell_the_same(kind: Any) -> None:
    """Who spoke, and the losses on own rows; losses on others' rows no agent knows."""
    here, there = fitted(kind=kind).history_, fitted("agents", kind).history_
    assert type(here) is type(there) is History
    assert here.names == there.names
    assert here.labels == there.labels
    assert_array_equal(there["round"], here["round"])
    assert_array_equal(there.spoke, here.spoke)
    metric = here.labels.metric
    assert_allclose(there[f"train_{metric}"], here[f"train_{metric}"], rtol=1e-6)
    assert np.isnan(there[f"global_train_{metric}"]).all()
    for name in ("transmissions", "bytes", "wire_bytes"):  # in a round; agreeing is counted apart
        assert_array_equal(np.diff(there[name]), np.diff(here[name]))


def test_a_site_without_a_line_was_silent() -> None:
    def line(k: int, spoke: bool, spent: int, loss: float) -> dict[str, Any]:
        sizes = dict.fromkeys(("transmissions", "bytes", "wire_bytes"), spent)
        return {"round": k, "spoke": spoke, "loss": loss, **sizes}

    told = [[line(1, True, 5, 2.0), line(2, False, 5, 1.0)], [line(2, True, 7, 4.0)]]
    found = History.of_sites(Labels("coke", "mse", ["a", "b"]), told, [3.0, 1.0])
    assert_array_equal(found.spoke, [[True, False], [False, True]])
    assert_array_equal(found["bytes"], [5, 12])
    assert_array_equal(found["train_mse"], [np.nan, (3 * 1.0 + 4.0) / 4])


def test_a_history_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    history = fitted().history_
    frame = history.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == [*history.names, "spoke"]
    for name in history.names:
        assert_array_equal(frame[name], history[name])
    assert_array_equal(np.stack(list(frame["spoke"])), history.spoke)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("coke.engines.history.find_spec", lambda name: None)
    assert isinstance(history.to_frame(), pa.Table)


def test_a_history_in_a_line() -> None:
    history = fitted().history_
    said = repr(history)
    assert "tree-newton at 3 sites" in said
    assert f"{len(history)} rounds" in said
    assert f"{history['train_mse'][-1]:.4g}" in said
    assert "no round" in repr(History("coke", "mse", "ab"))


@pytest.mark.parametrize("engine", ["simulation", "agents"])
@pytest.mark.parametrize("x", ["bytes", "round"])
def test_a_history_as_a_picture(engine: str, x: str) -> None:
    history = fitted(engine).history_
    (axes,) = history.plot(x).axes
    (line,) = axes.lines
    of = "global_train_mse" if engine == "simulation" else "train_mse"
    assert_array_equal(line.get_xdata(), history[x])
    assert_array_equal(line.get_ydata(), history[of])


def test_several_histories_in_one_picture() -> None:
    here, there = fitted().history_, fitted("agents").history_
    (axes,) = coke.plot(here, there).axes
    for line, history in zip(axes.lines, (here, there), strict=True):
        assert_array_equal(line.get_ydata(), history["train_mse"])  # which both know
    with pytest.raises(InputError, match='expected "bytes" or "round"'):
        coke.plot(here, x="rounds")
    with pytest.raises(InputError, match="of the same loss"):
        coke.plot()
    with pytest.raises(InputError, match="of the same loss"):
        coke.plot(here, History("coke", "logistic", "ab"))


def test_errors_name_every_column_at_fault() -> None:
    array = np.ones((9, 3))
    array[3, [0, 2]] = np.inf
    with pytest.raises(DataError) as error:
        COKERegressor(n_agents=2).fit(array, np.arange(9.0))
    assert "'x0' has inf in row 3; 'x2' has inf in row 3" in str(error.value)
    assert "x1" not in str(error.value)
    model = COKERegressor(n_agents=2).fit(np.ones((9, 3)), np.arange(9.0))
    with pytest.raises(DataError, match="'x0' has"):
        model.predict(array)


def test_a_column_of_two_kinds_is_named() -> None:
    frame = pd.DataFrame({"age": [1.0, "old"] * 5, "weight": 1.0})
    with pytest.raises(DataError, match="age"):
        COKERegressor(n_agents=2).fit(frame, np.arange(10.0))


def test_what_has_no_columns_is_refused_as_ever() -> None:
    for bad in ([[1.0, 2.0], [3.0]], [1.0, 2.0], None):
        with pytest.raises(DataError):
            COKERegressor(n_agents=1).fit(bad, [0.0, 1.0])
