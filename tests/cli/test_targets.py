"""Several targets on the command line: named once each; predicted, scored and shown by name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke import load_model
from coke.data.tables import read_rows
from coke.errors import ConfigError
from coke.settings.reading import checked_settings
from coke.talk.names import site_id
from kit.commands import coke
from kit.jobs import commands_on_ranks

T, DATA = 480, ["--data", "r.parquet", "--site", "site"]
RUN = [*DATA, "--target", "heat", "--target", "waste", "--drop", "kind", "--json"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three sites; two numbers in very different units, and a class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, 3))
    heat = 900.0 + 40.0 * np.sin(X[:, 0]) + 4.0 * rng.normal(size=T)
    waste = 1e-3 * (X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=T))
    table = pa.table(
        {
            **{f"x{j}": X[:, j] for j in range(3)}, "heat": heat, "waste": waste,
            "kind": np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])],
            "site": np.repeat(["Aachen", "Bonn", "Ulm"], T // 3),
        }
    )  # fmt: skip
    pa.parquet.write_table(table, tmp_path / "r.parquet", row_group_size=64)
    return tmp_path


def test_a_run_scores_every_target_by_its_name_and_predictions_carry_it(rows: Path) -> None:
    """The errors are those of the predictions; shares of the joint loss; in the target's units."""
    document = json.loads(coke("run", *RUN, "--out", "o", cwd=rows).stdout)
    model, given = load_model(rows / "o/model.coke"), document["targets"]
    assert model.targets == tuple(given) == ("heat", "waste")
    assert_allclose(sum(one["test_mse"] for one in given.values()), document["test_mse"], rtol=0.01)
    for name, scale in zip(given, model.scaling.y_scale, strict=True):
        assert_allclose(given[name]["test_rmse"], np.sqrt(given[name]["test_mse"]) * scale)
    found = read_rows(rows / "r.parquet", ["heat", "waste"], site="site", drop=["kind"])
    off = np.sqrt(np.mean((model.predict(found.X) - found.y) ** 2, axis=0))
    for name, rmse in zip(given, off, strict=True):
        either = sorted(given[name][f"{part}_rmse"] for part in ("train", "test"))
        assert either[0] * 0.999 <= rmse <= either[1] * 1.001
    page = (rows / "o/report.html").read_text()
    assert "heat test rmse" in page
    assert "waste test rmse" in page
    coke("predict", "o/model.coke", "r.parquet", "--interval", 0.9, "--out", "p.csv", cwd=rows)
    table = pa.csv.read_csv(rows / "p.csv")
    ends = model.interval(found.X, 0.9)
    for said, part in zip(("prediction", "low", "high"), ends, strict=True):
        for k, name in enumerate(("heat", "waste")):
            assert_allclose(table[f"{said}_{name}"].to_numpy(), part[:, k], rtol=1e-9)
    assert table.num_columns == 6


ON_RANKS = {
    "coke": RUN,
    "passed over": [*RUN, "--whitening", "gram", "--out-of-core"],
    "dkla": [*RUN, "--model", "plain", "--algorithm", "dkla", "--rounds", "30"],
    "classes passed over": [
        *DATA, "--target", "kind", "--drop", "heat", "--drop", "waste", "--loss", "least-squares",
        "--whitening", "gram", "--out-of-core", "--json",
    ],
}  # fmt: skip


def test_ranks_learn_what_one_process_does_bit_for_bit(rows: Path) -> None:
    ranks = [
        (rows, ["run", *how, "--engine", "mpi", "--out", f"ranks {name}"])
        for name, how in ON_RANKS.items()
    ]
    for (name, how), found in zip(ON_RANKS.items(), commands_on_ranks(2, *ranks), strict=True):
        one = json.loads(coke("run", *how, "--out", f"one {name}", cwd=rows).stdout)
        first, second = (rows / f"{who} {name}/model.coke" for who in ("one", "ranks"))
        assert first.read_bytes() == second.read_bytes(), name
        two = json.loads(found)
        for key in ("rounds", "bytes", "wire_bytes", "targets"):
            assert two[key] == one[key], name
        assert two.get("test_accuracy") == one.get("test_accuracy"), name


def test_classes_that_are_passed_over_are_learnt_as_in_memory(rows: Path) -> None:
    """To the rounding of sums in float32, in which rows go by in other blocks."""
    how = [
        *DATA, "--target", "kind", "--drop", "heat", "--drop", "waste", "--loss", "least-squares",
        "--whitening", "gram", "--features", "10", "--json",
    ]  # fmt: skip
    here = json.loads(coke("run", *how, "--out", "here", cwd=rows).stdout)
    there = json.loads(coke("run", *how, "--out-of-core", "--out", "there", cwd=rows).stdout)
    ours, theirs = (load_model(rows / name / "model.coke") for name in ("here", "there"))
    assert_array_equal(ours.classes, theirs.classes)
    assert_allclose(ours.theta, theirs.theta, atol=1e-6)
    assert ours.closed.sharpness == pytest.approx(theirs.closed.sharpness, rel=1e-3)
    assert here["test_accuracy"] == there["test_accuracy"] > 0.8


def test_sites_files_name_all_targets_and_compare_them(rows: Path) -> None:
    given = [arg for arg in RUN if arg != "--json"]
    coke("network", "init", "net", *given, "--rounds", 5, cwd=rows)
    bonn = rows / "net/sites" / site_id("Bonn")
    site = tomllib.loads((bonn / "site.toml").read_text())
    assert site["data"]["target"] == ["heat", "waste"]
    own = read_rows(bonn / "rows.parquet", ["heat", "waste"])
    assert own.columns == ("x0", "x1", "x2")
    assert own.y.shape == (T // 3, 2)


def test_a_list_of_one_target_is_its_name() -> None:
    """So that a site that says ["y"] agrees with one that says "y"."""
    one, other = (checked_settings({"data": {"target": said}}) for said in ("y", ["y"]))
    assert one == other
    assert one.data.targets == ("y",)
    assert checked_settings({}).data.targets == ("y",)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"loss": "huber"}, "no Gram matrix in common"),
        ({"loss": "softmax"}, "a class is one column"),
        ({"fast": True}, "fast with 2 targets: only rounds of one are compiled"),
        ({"data": {"target": []}}, "expected columns to predict, each once"),
        ({"data": {"target": ["a", "a"]}}, "expected columns to predict, each once"),
    ],
)
def test_what_several_targets_cannot_have_is_refused_with_the_reason(more: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked_settings({"data": {"target": ["a", "b"]}, **more})


def test_methods_are_compared_on_several_targets(rows: Path) -> None:
    """All reach the optimum that the sum over the tree of all Gram matrices is."""
    how = [*RUN, "--model", "plain", "--features", 10, "--rounds", 200]
    names = ("coke", "coke-tuned", "tree-cg", "tree-pcg", "tree-gram")
    methods = [part for name in names for part in ("--method", name)]
    document = json.loads(coke("compare", *how, *methods, cwd=rows).stdout)
    found = {row["method"]: row for row in document["rows"]}
    assert all(found[name]["reached"] for name in names)
    D = 20
    assert found["tree-gram"]["bytes"] % (8 * (D * (D + 1) // 2 + 2 * D)) == 0
