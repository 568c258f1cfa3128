"""loss = "auto": of numbers where the target is, else the loss of classes that fits the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coke import COKEClassifier
from coke.errors import ConfigError, DataError
from coke.learning.kinds import with_kind
from coke.settings.reading import checked_settings
from kit.commands import coke

RNG = np.random.default_rng(3)
X = RNG.normal(size=(240, 3))
F = X[:, 0] + X[:, 1] ** 2
TARGETS: dict[str, tuple[Any, str]] = {
    "numbers": (F, "quadratic"),
    "whole": ((10 * F).astype(np.int64), "quadratic"),
    "text": (np.where(F > 1, "high", "low"), "classes"),
    "truth": (F > 1, "classes"),
    "two": (np.where(F > 1, 2.0, 1.0), "classes"),
    "halves": (np.where(F > 1, 0.5, 1.0), "quadratic"),
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A table with a target of each kind, as Parquet, CSV and a folder of sites."""
    table = pa.table(
        {f"x{j}": X[:, j] for j in range(3)} | {name: y for name, (y, _) in TARGETS.items()}
    )
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    (tmp_path / "sites").mkdir()
    for name, part in (("a", table.slice(0, 120)), ("b", table.slice(120))):
        pa.parquet.write_table(part, tmp_path / "sites" / f"{name}.parquet")
    return tmp_path


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("where", ["rows.parquet", "rows.csv", "sites"])
def test_the_targets_type_says_of_which_kind_the_loss_is(rows: Path, where: str, name: str) -> None:
    data = {"file": str(rows / where), "target": name}
    assert with_kind(checked_settings({"loss": "auto", "data": data})).loss == TARGETS[name][1]


def test_a_loss_that_is_named_stays_and_a_column_that_is_not_there_is_told(rows: Path) -> None:
    data = {"file": str(rows / "rows.parquet"), "target": "whole"}
    assert with_kind(checked_settings({"loss": "hinge", "data": data})).loss == "hinge"
    with pytest.raises(DataError, match="unknown column 'which'"):
        with_kind(checked_settings({"loss": "auto", "data": {**data, "target": "which"}}))


@pytest.mark.parametrize(("name", "key"), [("numbers", "train_mse"), ("text", "train_accuracy")])
def test_a_run_takes_the_kind_from_the_file(rows: Path, name: str, key: str) -> None:
    others = [word for other in TARGETS if other != name for word in ("--drop", other)]
    run = ["run", "--data", "rows.parquet", "--target", name, *others, "--loss", "auto"]
    found = json.loads(coke(*run, "--model", "plain", "--agents", 4, "--json", cwd=rows).stdout)
    assert found[key] is not None


@pytest.mark.parametrize("model", ["plain", "auto"])
@pytest.mark.parametrize("n", [60, 240])
def test_classes_are_learnt_by_least_squares(n: int, model: str) -> None:
    found = COKEClassifier(model=model, n_agents=4).fit(X[:n], F[:n] > 1)
    assert found.model_.loss == "least-squares"


def test_what_a_column_of_numbers_is_taken_for_is_said(rows: Path) -> None:
    for name, word in (
        ("two", "1 and 2: taken as classes; for numbers --loss quadratic"),
        ("whole", "taken as numbers; for classes --loss classes"),
    ):
        said: list[str] = []
        data = {"file": str(rows / "rows.csv"), "target": name}
        with_kind(checked_settings({"data": data}), said.append)
        assert [line.endswith(word) for line in said] == [True]


def test_a_site_that_sees_two_values_asks_what_they_are(rows: Path) -> None:
    """Another site may have a third: which it is must be said at all sites alike."""
    data = {"file": str(rows / "rows.csv"), "target": "two"}
    with pytest.raises(ConfigError, match='loss = "classes", or numbers, loss = "quadratic"'):
        with_kind(checked_settings({"data": data}), alone=True)


def test_a_constant_target_is_said(rows: Path) -> None:
    table = pa.table({"x": X[:, 0], "y": np.ones(len(X))})
    pa.parquet.write_table(table, rows / "flat.parquet")
    said: list[str] = []
    data = {"file": str(rows / "flat.parquet"), "target": "y"}
    assert with_kind(checked_settings({"data": data}), said.append).loss == "quadratic"
    assert "nothing to learn" in said[0]


def test_text_that_names_hardly_two_rows_alike_is_no_target(tmp_path: Path) -> None:
    """Numbers with a word among them, or an id; a class in every second row is one."""
    lines = [f"{i % 7},{i / 8}" for i in range(60)]
    path = tmp_path / "rows.csv"
    data = {"file": str(path), "target": "y"}
    path.write_text("\n".join(["x,y", *lines, "3,Y"]))
    with pytest.raises(DataError, match="1 are no numbers, such as 'Y': --missing-values"):
        with_kind(checked_settings({"loss": "auto", "data": data}))
    path.write_text("\n".join(["x,y", *(f"1,u{i}" for i in range(60))]))
    with pytest.raises(DataError, match=r"60 different values in 60 rows.*name another column"):
        with_kind(checked_settings({"loss": "auto", "data": data}))
    path.write_text("\n".join(["x,y", *(f"1,u{i // 2}" for i in range(60))]))
    assert with_kind(checked_settings({"loss": "auto", "data": data})).loss == "classes"


def test_a_target_whose_name_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y,y\n1,2,3\n")
    data = {"file": str(tmp_path / "rows.csv"), "target": "y"}
    with pytest.raises(DataError, match=r"columns \['y'\] are there more than once"):
        with_kind(checked_settings({"loss": "auto", "data": data}))
