"""An option that is warned of changes nothing, and one that changes something is not warned of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coke.maths.algorithms import ALGORITHMS
from coke.settings.declaration import KNOBS
from coke.settings.idle import _RULES
from kit.commands import coke

SHORT = ["--model", "plain", "--rounds", "4", "--features", "5", "--json"]
OWN = ["--data", "rows.csv", "--target", "y"]
NAMED = [*OWN, "--site", "site"]
DEALT = [*OWN, "--drop", "site", "--agents", "2"]
DRAWN = [*DEALT, "--size-range", "20", "40"]
FOLDER = ["--data", "sites", "--target", "y"]
SYNTHETIC = ["--agents", "2", "--size-range", "20", "30"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a column of sites, a folder with a file for each, and public inputs."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "sites").mkdir()
    X = np.random.default_rng(0).normal(size=(60, 3))
    lines = [",".join(map(repr, x)) for x in X.tolist()]
    (folder / "rows.csv").write_text(
        "a,b,y,site\n" + "".join(f"{line},{'AB'[i % 2]}\n" for i, line in enumerate(lines))
    )
    for i, name in enumerate("AB"):
        (folder / f"sites/{name}.csv").write_text("\n".join(["a,b,y", *lines[i::2]]) + "\n")
    (folder / "public.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    return folder


def document(rows: Path, *given: str) -> tuple[Any, str]:
    """What a run came to, but for how long it took; and what it said beside it."""
    run = coke("run", *SHORT, *given, cwd=rows)
    found = json.loads(run.stdout)
    for one in (found, *found["beside"]):
        del one["seconds"]
    return found, run.stderr


IDLE = [
    (NAMED, ["--agents", "5"], "the column 'site' names the sites"),
    (NAMED, ["--size-range", "2", "50"], "the column 'site' names the sites"),
    (NAMED, ["--sizes", "10", "--sizes", "50"], "the column 'site' names the sites"),
    (FOLDER, ["--agents", "5"], "are the sites"),
    (SYNTHETIC, ["--sizes", "10"], "draws its sites' sizes"),
    (
        [*DEALT, "--size-range", "20", "40"],
        ["--sizes", "10", "--sizes", "50"],
        "--size-range draws",
    ),
    (SYNTHETIC, ["--drop", "x0"], "name --data"),
    (SYNTHETIC, ["--missing", "drop"], "name --data"),
    (DEALT, ["--ranges", "a = [0, 1]"], "for --scale public"),
    ([*DEALT, "--loss", "huber"], ["--precision", "double"], "takes no sums of features"),
    (DEALT, ["--rho", "0.5"], "it is for coke-paper, dkla"),
    ([*DEALT, "--algorithm", "dkla"], ["--v", "0.5"], "it is for coke-paper"),
    ([*DEALT, "--algorithm", "dkla"], ["--mu", "0.5"], "it is for coke-paper"),
    ([*DEALT, "--algorithm", "dkla"], ["--eta", "0.5"], "it is for cta"),
    ([*DEALT, "--algorithm", "dkla"], ["--whitening", "gram"], "without a common basis"),
    (DEALT, ["--delta", "1e-7"], "without --privacy dp"),
    (DEALT, ["--colluding", "2"], "without --secure-sum"),
    (DEALT, ["--checkpoint", "5"], "without --out keeps nothing"),
]


@pytest.mark.parametrize(("given", "option", "why"), IDLE, ids=[" ".join(o) for _, o, _ in IDLE])
def test_what_is_warned_of_changes_nothing(
    rows: Path, given: list[str], option: list[str], why: str
) -> None:
    """The same document, to the last bit, with and without it."""
    with_it, said = document(rows, *given, *option)
    without, silence = document(rows, *given)
    assert with_it == without
    assert f"{option[0]} has no effect" in said
    assert why in said
    assert "has no effect" not in silence


USED = [
    (DEALT, ["--agents", "3"]),
    ([*NAMED, "--split", "iid"], ["--agents", "3"]),
    (SYNTHETIC, ["--agents", "3"]),
    (DEALT, ["--sizes", "20", "--sizes", "40"]),
    ([*DEALT, "--beside", "dkla"], ["--rho", "0.5"]),
    ([*DEALT, "--algorithm", "cta"], ["--eta", "0.5"]),
    (DEALT, ["--whitening", "gram"]),
    ([*DEALT, "--algorithm", "coke-paper"], ["--v", "0.5"]),
    ([*DEALT, "--algorithm", "coke-paper"], ["--mu", "0.5"]),
]


@pytest.mark.parametrize(("given", "option"), USED, ids=[" ".join(o) for _, o in USED])
def test_what_changes_something_is_not_warned_of(
    rows: Path, given: list[str], option: list[str]
) -> None:
    with_it, said = document(rows, *given, *option)
    assert with_it != document(rows, *given)[0]
    assert "has no effect" not in said


def test_every_command_warns_and_compare_takes_what_its_methods_do(rows: Path) -> None:
    short = [*NAMED, "--agents", "7", "--model", "plain", "--features", "5"]
    compare = ["compare", *short, "--rho", "0.1", "--eta", "0.1", "--method", "cta"]
    audit = ["audit", *short, "--no-probes", "--rounds", "4"]
    for command in (compare, audit, ["network", "init", "net", *short]):
        said = coke(*command, cwd=rows).stderr
        assert said.count("has no effect") == 1
        assert "warning: --agents has no effect" in said


def test_every_setting_of_some_algorithms_only_has_its_rule() -> None:
    tuned = {name for entry in ALGORITHMS.values() for name in entry.uses}
    assert tuned <= set(_RULES)
    assert set(_RULES) <= set(KNOBS)
