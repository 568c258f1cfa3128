"""`coke run --engine mpi`: the files of one process on any number of ranks, or one refusal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coke import History
from coke.engines.ranks.collectives import job
from coke.errors import InputError
from kit.commands import coke
from kit.jobs import commands_on_ranks, on_ranks

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

KINDS = np.array(["no", "perhaps", "yes"])


@pytest.fixture
def rows(folder: Path) -> Path:
    """Rows of five named sites, one of them incomplete; in both formats, and a folder by site."""
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(400, 3)), rng.integers(0, 5, 400)
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    X[17, 1] = np.nan
    names = np.array(["Köln", "Aachen", "Bonn", "Ulm", "Trier"])
    plain = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2].astype(np.float32), "y": y}
    table = pa.table({**plain, "where": names[where], "kind": KINDS[np.digitize(y, [0.5, 1.5])]})
    pa.parquet.write_table(table, folder / "rows.parquet")
    pa.csv.write_csv(table, folder / "rows.csv")
    return folder


def run(*arguments: Any, cwd: Path, ranks: int = 1, code: int = 0) -> str:
    if ranks == 1:
        return coke("run", *arguments, cwd=cwd, code=code, drawn=True).stdout
    command = ["-m", "coke", "run", "--engine", "mpi", *arguments]
    return on_ranks(ranks, *command, cwd=cwd, code=code).stdout


def same(one: Path, other: Path) -> None:
    """Every file but the report, which says how long it took."""
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    for name in names - {"report.html"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def said(text: str) -> dict[str, Any]:
    """A run's document without its times and places."""
    document: dict[str, Any] = json.loads(text)
    for part in (document, *document["beside"]):
        del part["seconds"]
    return {key: value for key, value in document.items() if key not in ("model", "report")}


TABLE = ["--site", "where", "--missing", "drop", "--rounds", 30]
TABLE += ["--model", "plain", "--features", 8]
NUMBERS = ["--target", "y", "--drop", "kind", *TABLE]
CLASSES = ["--target", "kind", "--drop", "y", *TABLE]
RAW = ["--target", "y", "--site", "where", "--rounds", 30, "--model", "plain", "--features", 8]
RUNS: dict[str, list[Any]] = {
    "raw": ["--data", "rows.parquet", *RAW],  # with a text and a gap
    "budget": ["--data", "rows.csv", *NUMBERS, "--max-bytes", 9000],
    "classes": ["--data", "rows.parquet", *CLASSES, "--loss", "hinge"],
    "out of core": ["--data", "rows.parquet", *NUMBERS, "--out-of-core", "--whitening", "gram"],
}


SYNTHETIC = ["small.toml", "--beside", "cta", "--beside", "coke-paper"]


def test_ranks_leave_the_files_of_one_process(rows: Path) -> None:
    """History, model, checkpoint, pictures and what is printed: bit for bit."""
    alone = run(*SYNTHETIC, "--out", "alone", "--json", cwd=rows)
    found = run(*SYNTHETIC, "--out", "ranks", "--json", cwd=rows, ranks=2)
    assert said(found) == said(alone)
    same(rows / "alone", rows / "ranks")


def test_ranks_leave_the_files_of_one_process_whatever_the_rows(rows: Path) -> None:
    """But for the pictures, which are left out here."""
    ranks = [
        (rows, ["run", *how, "--engine", "mpi", "--out", f"ranks {name}", "--json"])
        for name, how in RUNS.items()
    ]
    for (name, how), found in zip(RUNS.items(), commands_on_ranks(3, *ranks), strict=True):
        alone = coke("run", *how, "--out", f"alone {name}", "--json", cwd=rows).stdout
        assert said(found) == said(alone), name
        same(rows / f"alone {name}", rows / f"ranks {name}")


def test_a_run_goes_on_with_other_ranks_and_in_one_process(rows: Path) -> None:
    """20 rounds on two ranks, 15 on three, 15 in one process: those of one run of 50."""
    coke("run", "small.toml", "--rounds", 50, "--out", "whole", cwd=rows)
    begun = ["run", "small.toml", "--rounds", 20, "--out", "parts", "--engine", "mpi"]
    commands_on_ranks(2, (rows, begun))
    commands_on_ranks(3, (rows, ["run", "--resume", "parts", "--rounds", 35, "--engine", "mpi"]))
    coke("run", "--resume", "parts", "--rounds", 50, cwd=rows)
    same(rows / "whole", rows / "parts")


REFUSED: dict[str, list[Any]] = {
    "rho=0.0: expected a step size": ["small.toml", "--rho", 0],  # all ranks alike
    "b (1)": ["--data", "rows.csv", *NUMBERS, "--missing", "refuse"],
    "3 ranks for 2 agents": ["small.toml", "--agents", 2],
}


def test_what_is_refused_is_said_once(rows: Path) -> None:
    asked = [(rows, ["run", "--engine", "mpi", *how, "--json"]) for how in REFUSED.values()]
    for text, found in zip(REFUSED, commands_on_ranks(3, *asked, code=2), strict=True):
        assert text in json.loads(found)["error"]


ALONE = """
import sys
from mpi4py import MPI
from coke.cli.main import main
from coke.errors import DataError
from coke.data.blocks import BareFeatures

made = BareFeatures.__call__
def fails(*given, **how):
    if MPI.COMM_WORLD.rank == 1:
        raise {error}
    return made(*given, **how)
BareFeatures.__call__ = fails
sys.argv[0] = "coke"
main()
"""


@pytest.mark.parametrize("error", ["DataError: rows of rank 1", "ValueError: a bug"])
def test_one_rank_that_fails_ends_all(folder: Path, error: str) -> None:
    """Whether its rows are refused, or nobody thought of it."""
    kind, text = error.split(": ")
    (folder / "fails.py").write_text(ALONE.format(error=f"{kind}({text!r})"))
    job = on_ranks(2, "fails.py", "run", "small.toml", "--engine", "mpi", cwd=folder, code=2)
    assert job.stderr.count(f"{text}\n") == 1
    assert ("Traceback" in job.stderr) == (kind == "ValueError")


INTERRUPTED = """
import signal, sys
from pathlib import Path
from mpi4py import MPI
from coke.cli.main import main
from coke.engines.ranks.engine import Ranks

asked, came = Ranks.any, []

def interrupted(self, *flags):
    # The worst moment: this rank has said that nobody asks for an end.
    found = asked(self, *flags)
    if not came and Path("o/checkpoint-coke.coke").exists():
        came.append(signal.raise_signal(signal.SIGINT))
    return found

if MPI.COMM_WORLD.rank == 1:
    Ranks.any = interrupted
sys.argv[0] = "coke"
main()
"""


def test_ctrl_c_at_one_rank_ends_all_after_the_same_round(folder: Path) -> None:
    """And what was done is kept: it goes on as if nothing had happened."""
    (folder / "interrupted.py").write_text(INTERRUPTED)
    long = ["--rounds", 20_000, "--checkpoint", 0.05, "--engine", "mpi", "--out", "o", "--json"]
    job = on_ranks(2, "interrupted.py", "run", "small.toml", *long, cwd=folder, code=130)
    document = json.loads(job.stdout)
    done = document["rounds"]
    assert document["interrupted"]
    assert len(History.from_parquet(folder / "o/history-coke.parquet")) == done < 20_000
    run("--resume", "o", "--rounds", done + 20, cwd=folder)
    run("small.toml", "--rounds", done + 20, "--out", "whole", cwd=folder)
    same(folder / "o", folder / "whole")


def test_one_rank_is_one_process(folder: Path) -> None:
    """Outside mpirun there is one rank."""
    pytest.importorskip("mpi4py", reason="needs the extra coke-learn[mpi]")
    run("small.toml", "--engine", "mpi", "--out", "one", cwd=folder)
    run("small.toml", "--out", "other", cwd=folder)
    same(folder / "one", folder / "other")


def test_engines_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job("simulation") is None
    with pytest.raises(InputError, match="Did you mean 'mpi'"):
        job("mip")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(InputError, match=r"coke-learn\[mpi\]"):
        job("mpi")
