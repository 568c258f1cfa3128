"""The command as a user meets it: real processes, real files, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose

from coke import History, load_model
from coke.cli.main import main
from coke.errors import ConfigError
from coke.maths.graph import build_graph
from coke.settings.reading import checked_settings, example, read_toml
from kit.commands import coke

KEYS = """algorithm agents edges rounds transmissions bytes wire_bytes train_mse test_mse
global_train_mse global_test_mse optimum_train_mse optimum_test_mse consensus_gap optimality_gap
seconds"""


def test_run_gives_one_json_document_with_the_documented_keys(folder: Path) -> None:
    run = coke("run", "small.toml", "--beside", "dkla", "--json", cwd=folder)
    document = json.loads(run.stdout)
    assert set(KEYS.split()) <= set(document)
    assert document["algorithm"] == "coke"
    assert document["agents"] == 5
    assert document["rounds"] == 60
    (beside,) = document["beside"]
    assert beside["bytes"] == beside["transmissions"] * 20 * 8
    assert 10 * document["bytes"] < beside["bytes"]
    assert beside["transmissions"] == 300
    assert document["transmissions"] < 300
    names = [row["algorithm"] for row in document["yardsticks"]]
    assert names == ["local-only", "one-shot-average", "optimum"]
    assert document["yardsticks"][2]["train_mse"] == document["optimum_train_mse"]
    # Without the regulariser, by which a model within the accuracy may fit a little better.
    assert document["optimum_train_mse"] <= 1.01 * document["global_train_mse"]


def test_run_leaves_its_files_and_the_same_seed_the_same_bytes(folder: Path) -> None:
    for out in ("one", "two"):
        run = coke("run", "small.toml", "--model", "auto", "--out", out, cwd=folder, drawn=True)
        assert f"{out}/report.html" in run.stdout.splitlines()[-1]
    names = {path.name for path in (folder / "one").iterdir()}
    assert names == {
        "checkpoint-coke.coke",
        "coverage.png",
        "curves.png",
        "gain.png",
        "history-coke.parquet",
        "importance.png",
        "loss-rounds.png",
        "loss-bytes.png",
        "model.coke",
        "network.png",
        "predictions.png",
        "rows.digest",
        "report.html",
        "settings.json",
        "speakers.png",
    }
    for name in names - {"report.html"}:  # the report says how long the run took
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes(), name
    page = (folder / "one" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 9
    assert 'src="http' not in page
    other = coke("run", "small.toml", "--seed", 1, "--out", "three", cwd=folder)
    assert other.returncode == 0
    assert (folder / "one/model.coke").read_bytes() != (folder / "three/model.coke").read_bytes()


def test_predict_writes_what_the_model_says(folder: Path) -> None:
    coke("run", "small.toml", "--out", "o", cwd=folder)
    X = np.random.default_rng(0).normal(size=(7, 5))
    table = pa.table({f"x{j}": X[:, j] for j in range(5)})
    pa.parquet.write_table(table, folder / "new.parquet")
    run = coke("predict", "o/model.coke", "new.parquet", "--out", "p.parquet", "--json", cwd=folder)
    nothing: dict[str, int] = {}
    said = {"rows": 7, "out": "p.parquet", "score": None, "gaps": nothing, "other_levels": nothing}
    assert json.loads(run.stdout) == said
    found = pa.parquet.read_table(folder / "p.parquet")["prediction"].to_numpy()
    assert_allclose(found, load_model(folder / "o/model.coke").predict(X), rtol=1e-5)
    coke("predict", "o/model.coke", "new.parquet", cwd=folder)
    assert (folder / "predictions.csv").read_text().startswith('"prediction"\n')


def test_a_users_own_file_with_sites_and_classes(folder: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 2))
    table = pa.table(
        {
            "u": X[:, 0],
            "v": X[:, 1],
            "clinic": np.repeat(["Aachen", "Bonn", "Köln"], 80),
            "ill": np.where(X[:, 0] * X[:, 1] > 0, "yes", "no"),
        }
    )
    pa.parquet.write_table(table, folder / "rows.parquet")
    arguments = ["--data", "rows.parquet", "--target", "ill", "--site", "clinic"]
    settings = ["--loss", "logistic", "--rho", 0.1, "--rounds", 80, "--features", 50]
    run = coke("run", *arguments, *settings, "--out", "o", "--json", cwd=folder)
    document = json.loads(run.stdout)
    assert document["agents"] == 3
    assert document["test_accuracy"] > 0.9
    assert {"train_logistic", "global_test_logistic", "optimum_train_logistic"} <= set(document)
    history = History.from_parquet(folder / "o/history-tree-newton.parquet")
    assert history.labels.sites == ["Aachen", "Bonn", "Köln"]
    coke("predict", "o/model.coke", "rows.parquet", "--proba", cwd=folder)
    first = (folder / "predictions.csv").read_text().splitlines()[0]
    assert first == '"prediction","p_no","p_yes"'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.toml"], "cannot be read"),
        (["bad.toml"], "not a TOML file"),
        (["typo.toml"], "unknown key 'data.agnets'. Did you mean 'agents'?"),
        (["kind.toml"], "Expected `int`, got `str` - at `$.rounds`"),
        (["--rho", "0"], "rho=0.0: expected"),
        (["--lambda", "-1"], "expected λ ≥ 0"),
        (["--mu", "1.5"], "expected 0 < μ < 1"),
        (["--features", "0"], "expected at least one random feature"),
        (["--algorithm", "cok"], "Did you mean 'coke'?"),
        (["--beside", "dlka"], "Did you mean 'dkla'?"),
        (["--graph", "rign"], "Did you mean 'ring'?"),
        (["--loss", "squared"], "unknown loss 'squared'"),
        (["--loss", "hinge"], "needs class labels"),
        (["--scale", "z"], "unknown scale 'z'"),
        (["--rounds", "0"], "at least 1"),
        (["--edges", "3"], "3 edges among 20 agents"),
        (["--data", "x.csv"], "name the target column"),
        (["--target", "y"], "name the file"),
        (["--data", "absent.csv", "--target", "y"], "cannot be read"),
        (["small.toml", "--out", "small.toml"], "not a folder to write to"),
        (["--resume", "empty"], "no checkpoint"),
        (["small.toml", "--resume", "empty"], "keeps its own settings"),
        (["--resume", "empty", "--rho", "5"], "with rho: a resumed run keeps its own settings"),
        (["--resume", "empty", "--out", "other"], "stays in its folder"),
        (["--resume", "nowhere"], "no such folder"),
        (["--rounds", "many"], "Invalid value for '--rounds'"),
        (["--nonsense"], "No such option"),
        (["--tol", "-1"], "tol=-1.0: expected"),
        (["--agents", "0"], "agents=0: expected at least 1"),
        (["--data", "numbers.csv", "--target", "y", "--loss", "logistic"], "whole number"),
        (["--data", "none [/].csv", "--target", "y"], "none [/].csv"),
    ],
)
def test_bad_input_is_one_line_of_advice(
    folder: Path, arguments: list[str], said: str, monkeypatch: Any, capsys: Any
) -> None:
    (folder / "bad.toml").write_text("rounds = = 3")
    (folder / "typo.toml").write_text("[data]\nagnets = 3")
    (folder / "kind.toml").write_text('rounds = "many"')
    (folder / "numbers.csv").write_text("x,y\n" + "".join(f"{i},{i / 7}\n" for i in range(60)))
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["coke", "run", *arguments, "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert not (folder / "nowhere").exists()
    assert said in json.loads(out)["error"]
    assert said in err.replace("\n", " ")


def test_a_damaged_model_is_refused(folder: Path) -> None:
    (folder / "m.coke").write_bytes(b"not a model")
    (folder / "x.csv").write_text("a\n1\n")
    run = coke("predict", "m.coke", "x.csv", "--json", cwd=folder, code=2)
    assert "not a coke model file" in json.loads(run.stdout)["error"]
    run = coke("predict", "m.coke", "x.csv", "--out", "p.txt", cwd=folder, code=2)
    assert ".csv or .parquet" in run.stderr


def test_another_algorithm_may_diverge_without_harm(folder: Path) -> None:
    run = coke("run", "small.toml", "--beside", "cta", "--eta", 50, "--rounds", 500,
               "--out", "o", "--json", cwd=folder)  # fmt: skip
    document = json.loads(run.stdout)
    assert document["beside"] == []
    assert document["failed"][0]["algorithm"] == "cta"
    assert "smaller step size" in document["failed"][0]["error"]
    assert {"model.coke", "report.html", "history-cta.parquet"} <= {
        path.name for path in (folder / "o").iterdir()
    }
    run = coke("run", "small.toml", "--algorithm", "cta", "--eta", 50, "--rounds", 500,
               "--out", "p", "--json", cwd=folder, code=2)  # fmt: skip
    assert json.loads(run.stdout)["kind"] == "ConvergenceError"
    assert (folder / "p" / "history-cta.parquet").exists()  # what was done is kept


@pytest.mark.parametrize("rounds", [1, 3])
def test_pictures_of_silence_and_odd_names(folder: Path, rounds: int) -> None:
    """Nobody speaks; names that are long, alike, or look like formulas."""
    names = ["St. Elisabeth hospital, ward north", "St. Elisabeth hospital, ward south", "$x_1$"]
    table = pa.table({"x": np.arange(30.0), "s": names * 10, "y": np.ones(30)})
    pa.parquet.write_table(table, folder / "rows.parquet")
    source = ["--data", "rows.parquet", "--target", "y", "--site", "s", "--rounds", rounds]
    paper = [*source, "--algorithm", "coke-paper"]
    run = coke("run", *paper, "--v", 1e9, "--out", "o", "--json", cwd=folder, drawn=True)
    assert json.loads(run.stdout)["transmissions"] == 0
    coke("run", *paper, "--v", 0, "--out", "p", cwd=folder, drawn=True)
    coke("run", *source, "--out", "q", cwd=folder, drawn=True)


def test_version_and_help(folder: Path) -> None:
    assert coke("--version", cwd=folder).stdout.startswith("coke 0.")
    assert "--resume" in coke("run", "--help", cwd=folder).stdout
    assert "Commands" in coke(cwd=folder, code=2).stdout
    for arguments in (["--graph", "ring"], ["--agents", 5]):  # one option changed from the default
        coke("run", *arguments, "--rounds", 1, cwd=folder)


def test_the_default_configuration_is_the_papers() -> None:
    config = checked_settings(example())
    graph = build_graph(config.graph.kind, 20, edges=config.graph.edges, seed=config.seed)
    assert (config.data.agents, graph.number_of_edges()) == (20, 95)
    assert (config.lam, config.rho, config.v, config.mu, config.eta) == (5e-5, 1e-2, 1, 0.95, 0.99)
    assert (config.features.n_features, config.features.sigma) == (100, 1.0)
    assert checked_settings(config.plain()) == config


def test_a_misspelt_key_names_the_nearest(folder: Path) -> None:
    (folder / "t.toml").write_text("lamda = 1")
    with pytest.raises(ConfigError, match=r"'lamda'\. Did you mean 'lambda'"):
        checked_settings(read_toml(folder / "t.toml"))
