"""privacy = "dp" from the configuration on: what is refused, what is kept, what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.cli.main import main
from coke.data.split import deal
from coke.data.tables import Rows
from coke.engines.process import simulate
from coke.errors import ConfigError, DataError, InputError
from coke.learning.ready import Ready
from coke.maths.graph import build_graph
from coke.maths.losses.problem import Problem, Quadratic
from coke.privacy.release import _load_release
from coke.settings.reading import checked_settings
from coke.studies.audit import RETRAINED, warnings
from kit.field import made_rows
from kit.ready import held, ready

RANGES = {f"x{j}": [-4.0, 4.0] for j in range(4)} | {"y": [-6.0, 6.0]}
SETTINGS: dict[str, Any] = {
    "privacy": "dp", "epsilon": 3.0, "lambda": 1e-3, "whitening": "range",
    "data": {"scale": "public", "ranges": RANGES, "test": 0.3, "target": "y", "file": "-"},
    "features": {"n_features": 15, "sigma": 1.0},
}  # fmt: skip
ROWS = made_rows(900)


def task(folder: Path, rows: Rows = ROWS, **changes: Any) -> Ready:
    sites = held(rows, deal(rows.y, 5, seed=0), test=0.3)
    graph, wanted = build_graph("ring", 5, seed=0), {**SETTINGS, **changes}
    lam = wanted.pop("lambda")
    return ready(sites, graph, columns=rows.columns, releases=folder, lam=lam, **wanted)


def messages(own: Ready) -> list[np.ndarray]:
    way = own.case("coke")
    records = simulate(way.problem, own.graph, way.algorithm, rounds=40, scored=())
    return [r.state.hat for r in records]


def spent(own: Ready) -> tuple[float, float] | None:
    return None if own.noised is None else own.noised.budget


def grams(own: Ready) -> np.ndarray:
    risk = own.problem.train.sums
    assert risk is not None
    return risk.A


def test_a_second_start_spends_nothing_and_says_the_same(tmp_path: Path) -> None:
    first, again = task(tmp_path), task(tmp_path)
    for a, b in zip(messages(first), messages(again), strict=True):
        assert_array_equal(a, b)
    release, _ = _load_release(tmp_path / "private-0.coke")
    assert release.total == (3.0, 1e-5)
    other = task(tmp_path / "new")
    assert not np.array_equal(other.problem.train.gram(0), first.problem.train.gram(0))


def test_other_rows_with_the_same_release_say_the_same_bytes(tmp_path: Path) -> None:
    """Post-processing: the messages are a function of the noised statistics alone."""
    own = task(tmp_path)
    assert own.rows is None  # no raw training row is in reach
    assert own.case("coke").spent[:, 1].sum() < 1000  # the flood and Σ 1/T², nothing of the rows
    before = messages(own)
    risk = own.problem.train
    assert isinstance(risk, Quadratic)
    for moved in (0.0, 5.0):  # whatever the raw targets' squares are, only the printed loss moves
        other = replace(own, problem=Problem(replace(risk, yy=risk.yy + moved)))
        for a, b in zip(before, messages(other), strict=True):
            assert_array_equal(a, b)


def test_a_secure_sum_gives_every_site_the_same_statistics_with_less_noise(tmp_path: Path) -> None:
    """Nearer to the exact sum than releases are; the same again on a second start."""
    exact = grams(task(tmp_path, privacy="none", epsilon=None)).mean(axis=0)
    own, summed = task(tmp_path), task(tmp_path, secure_sum=True)
    assert (grams(summed) == grams(summed)[0]).all()
    assert summed.rows is None
    far, near = (np.linalg.norm(grams(t).mean(axis=0) - exact) for t in (own, summed))
    assert near < far / 1.2
    assert 1e-3 / 5 < summed.own(0).G < own.own(0).G / 1.5
    for a, b in zip(messages(summed), messages(task(tmp_path, secure_sum=True)), strict=True):
        assert_array_equal(a, b)
    assert np.abs(messages(summed)[-1] - messages(summed)[-1][0]).max() < 1e-6
    with pytest.raises(DataError, match="rows, the features"):
        task(tmp_path, ROWS._replace(y=ROWS.y + 0.1), secure_sum=True)
    with pytest.raises(DataError, match="a second sum would show it"):
        task(tmp_path, secure_sum=True, colluding=2)
    with pytest.raises(InputError, match="colluding=5 of 5"):
        task(tmp_path / "new", secure_sum=True, colluding=5)


def test_changed_rows_need_a_new_budget(tmp_path: Path) -> None:
    task(tmp_path)
    changed = ROWS._replace(y=ROWS.y + 0.1)
    with pytest.raises(DataError, match="allow a new budget"):
        task(tmp_path, changed)
    with pytest.raises(DataError, match="budget became"):
        task(tmp_path, epsilon=1.0)
    assert spent(task(tmp_path, changed, new_budget=True)) == (6.0, 2e-5)
    assert spent(task(tmp_path, changed)) == (6.0, 2e-5)


def test_the_lambda_rule_and_the_owners_own_model(tmp_path: Path) -> None:
    own = task(tmp_path)
    assert own.own(0).G > 1e-3 / 5  # raised for the noise
    assert own.noised is not None
    assert own.noised.alone.shape == (5, 30)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": "logistic"}, "quadratic"),
        ({"whitening": "mixture"}, "moments of raw inputs"),
        ({"epsilon": None}, "without epsilon"),
        ({"epsilon": -1.0}, "expected 0 < ε"),
        ({"features": {"sigma": "auto"}}, "raw rows"),
        ({"data": {"scale": "standard"}, "whitening": "gram"}, "known beforehand"),
        ({"privacy": "none"}, "set both"),
        ({"privacy": "none", "epsilon": None, "secure_sum": True}, "secure_sum without privacy"),
        ({"secure_sum": True, "colluding": 0}, "colluding=0"),
        ({"privacy": "none", "epsilon": None, "new_budget": True}, "new_budget without"),
        ({"privacy": "none", "epsilon": None, "data": {"scale": "minmax"}}, "ranges"),
    ],
)
def test_what_would_look_at_raw_rows_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError if "epsilon" not in changes or changes["epsilon"] is None
                       else ValueError, match=said):  # fmt: skip
        checked_settings({**SETTINGS, **changes})


def test_ranges_must_be_given_for_every_column(tmp_path: Path) -> None:
    data = {**SETTINGS["data"], "ranges": {"x0": [-1, 1]}}
    with pytest.raises(ConfigError, match="x1, x2, x3, y"):
        task(tmp_path, data=data)


def test_plain_runs_warn_of_few_rows_one_neighbour_and_changed_rows(tmp_path: Path) -> None:
    """900 rows at five sites, 30 entries of θ; a path of sites; and the same folder again."""
    plain: dict[str, Any] = {"privacy": "none", "epsilon": None}
    own = task(tmp_path, **plain)
    assert warnings(own, tmp_path) == warnings(own, tmp_path) == []
    changed = ROWS._replace(y=ROWS.y + 0.1)
    assert warnings(task(tmp_path, changed, **plain), tmp_path) == [RETRAINED]
    assert warnings(task(tmp_path, changed, **plain), tmp_path) == []
    lonely = replace(own, graph=build_graph("star", 5, seed=0))
    assert ["4 sites have one neighbour" in line for line in warnings(lonely)] == [True]
    large = task(tmp_path, **plain, features={"n_features": 40, "sigma": 1.0})
    assert ["5 sites have at most 160 rows" in line for line in warnings(large)] == [True]
    private = task(tmp_path, features={"n_features": 40, "sigma": 1.0})
    assert warnings(private, tmp_path / "nowhere") == []  # nothing is left behind either


def test_the_command_prints_both_models(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    columns = {f"x{j}": ROWS.X[:, j] for j in range(4)}
    pa.parquet.write_table(pa.table({**columns, "y": ROWS.y}), tmp_path / "rows.parquet")
    lines = ['privacy = "dp"', "epsilon = 3.0", 'whitening = "range"', "[data]",
             'file = "rows.parquet"', 'target = "y"', 'scale = "public"', "agents = 5",
             "[data.ranges]", *(f"{k} = {v}" for k, v in RANGES.items()),
             "[features]", "n_features = 15", "sigma = 1.0"]  # fmt: skip
    (tmp_path / "c.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "c.toml", "--out", "o", "--json"], ["compare", "c.toml", "--json"]):
        monkeypatch.setattr("sys.argv", ["coke", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        document = json.loads(capsys.readouterr().out)
        if arguments[0] == "run":
            assert stop.value.code == 0
            assert (document["epsilon"], document["delta"]) == (3.0, 1e-5)
            assert document["epsilon_spent"] == 3.0
            alone = next(row for row in document["yardsticks"] if row["algorithm"] == "local-only")
            assert alone["test_mse"] > 0
            assert document["test_mse"] > 0
            assert len(list((tmp_path / "o").glob("private-*.coke"))) == 5
        else:
            assert stop.value.code == 2
            assert "raw rows" in document["error"]
