"""Raw files through the commands: said in a line what was found, and predicted as they came."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from coke.cli.main import main
from coke.settings.declaration import KNOBS
from coke.settings.knobs import Face
from kit.commands import coke
from kit.sheets import workbook

FEW = ("--model", "plain", "--rounds", 5, "--features", 5, "--json")
ROWS = [(i % 7, (i * i) % 11 / 2, i % 5 / 4) for i in range(40)]


def test_a_folder_of_hospitals_needs_no_header(
    data_file: Callable[[str], Path], tmp_path: Path
) -> None:
    raw = data_file("raw/heart_disease")
    run = coke(
        "run", "--data", raw, "--target", "last", "--missing", "drop", "--drop", "c1[1-3]",
        *FEW, "--out", "out", cwd=tmp_path,
    )  # fmt: skip
    assert "processed.va.data: utf-8, separated by ',', no header: columns c1 … c14" in run.stderr
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert kept["data"]["target"] == "c14"
    coke("predict", "out/model.coke", raw / "processed.cleveland.data", cwd=tmp_path)
    assert len(pyarrow.csv.read_csv(tmp_path / "predictions.csv")) == 303


def test_every_form_gives_the_same_run(tmp_path: Path) -> None:
    """Text of two dialects, a sheet and a database: to the last bit."""
    lines = [f"{a};{b};{c}".replace(".", ",") for a, b, c in ROWS]
    (tmp_path / "semicolons.csv").write_text("\n".join(["a;b;y", *lines]))
    (tmp_path / "blanks.data").write_text("\n".join(f"{a}  {b} {c}" for a, b, c in ROWS))
    (tmp_path / "sheet.xlsx").write_bytes(workbook([("a", "b", "y"), *ROWS]))
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("create table t (a, b, y)")
        database.executemany("insert into t values (?, ?, ?)", ROWS)
    database.close()
    found = []
    for name in ("semicolons.csv", "blanks.data", "sheet.xlsx", "rows.db"):
        asked = ("--query", "select a, b, y from t") if name == "rows.db" else ()
        told = ("--data", name, "--target", "last", "--agents", 2, *asked, *FEW)
        run = coke("run", *told, "--out", f"out {name}", cwd=tmp_path)
        found.append(json.loads(run.stdout)["train_mse"])
        coke("predict", f"out {name}/model.coke", name, *asked, cwd=tmp_path)
        assert len(pyarrow.csv.read_csv(tmp_path / "predictions.csv")) == len(ROWS)
    assert np.ptp(found) == 0


def test_what_was_found_can_be_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("3,1,2\n" + "4,5,6\n7,8,9\n1,1,2\n" * 4)
    read = ("theory", "--data", "rows.csv", "--target", "last", "--agents", 2)
    assert "no header" in coke(*read, cwd=tmp_path).stderr
    assert "with a header" in coke(*read, "--header", "yes", cwd=tmp_path).stderr
    said = coke(*read, "--separator", ";", cwd=tmp_path, code=2).stderr
    assert "',' would give 3" in said


def test_a_query_is_for_a_database(tmp_path: Path) -> None:
    said = coke(
        "run", "--data", "rows.csv", "--target", "y", "--query", "select 1", cwd=tmp_path, code=2
    ).stderr
    assert "a query is for a database" in said


def test_an_address_is_no_path(tmp_path: Path) -> None:
    told = (
        "--data",
        "postgresql://me@nowhere.invalid/rows",
        "--target",
        "y",
        "--query",
        "select 1",
    )
    pytest.importorskip("coke")
    said = coke("run", *told, cwd=tmp_path, code=2).stderr
    assert "postgresql://" in said


def test_predict_has_the_settings_of_reading(capsys: pytest.CaptureFixture[str]) -> None:
    import sys
    from unittest import mock

    with mock.patch.object(sys, "argv", ["coke", "predict", "--help"]), pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    for one in KNOBS.values():
        assert (f"--{one.option} " in shown) == (Face.PREDICT in one.knob.faces), one.key
