"""Runs that are interrupted or over, and go on: exactly, and only from the same data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coke import History
from coke.cli.main import main
from kit.commands import COKE, coke
from kit.processes import LONG, ctrl_c, group, wait_until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


def interrupt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command and sends Ctrl-C once it is well into its rounds."""
    command = [*COKE, "run", "--checkpoint", "0.05", *arguments]
    ends = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with group(command, cwd=folder, **ends) as process:
        wait_until((folder / "o" / "checkpoint-coke.coke").exists, process)
        ctrl_c(process)
        out, err = process.communicate(timeout=LONG)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_ctrl_c_keeps_what_was_done_and_resume_goes_on_exactly(folder: Path) -> None:
    long = ["small.toml", "--rounds", "4000", "--beside", "cta"]
    run = interrupt(folder, *long, "--rounds", "100000", "--out", "o", "--json")
    assert run.returncode == 130
    document = json.loads(run.stdout)
    assert document["interrupted"] is True
    done = document["rounds"]
    assert 0 < done < 100_000
    assert len(History.from_parquet(folder / "o/history-coke.parquet")) == done
    goal = str(done + 500)
    resumed = coke("run", "--resume", "o", "--rounds", goal, "--json", cwd=folder)
    assert json.loads(resumed.stdout)["rounds"] == done + 500
    coke("run", *long, "--rounds", goal, "--out", "whole", cwd=folder)
    for name in ("history-coke.parquet", "history-cta.parquet", "model.coke"):
        assert (folder / "o" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_ctrl_c_before_the_first_round_says_so_too(monkeypatch: Any, capsys: Any) -> None:
    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("coke.cli.running.open_ready", interrupted)
    monkeypatch.setattr(sys, "argv", ["coke", "run", "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert json.loads(capsys.readouterr().out)["kind"] == "Stop"


def test_resume_keeps_the_rounds_asked_for_last(folder: Path) -> None:
    """Whichever algorithm's checkpoint comes first in the alphabet."""
    coke("run", "small.toml", "--algorithm", "dkla", "--beside", "coke", "--out", "o", cwd=folder)
    coke("run", "--resume", "o", "--rounds", 90, cwd=folder)
    run = coke("run", "--resume", "o", "--json", cwd=folder)
    document = json.loads(run.stdout)
    assert (document["rounds"], document["beside"][0]["rounds"]) == (90, 90)


def test_resume_refuses_changed_data(folder: Path) -> None:
    (folder / "rows.csv").write_text("x,y\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))
    arguments = ["--data", "rows.csv", "--target", "y", "--agents", 3, "--rounds", 10]
    coke("run", *arguments, "--out", "o", cwd=folder)
    (folder / "rows.csv").write_text("x,y\n" + "".join(f"{i},{i % 5}\n" for i in range(60)))
    run = coke("run", "--resume", "o", "--rounds", 20, cwd=folder, code=2)
    assert "have changed" in run.stderr.replace("\n", " ")


def test_resume_refuses_a_run_that_is_not_there_any_more(folder: Path) -> None:
    """A new run in the same folder takes the place of the old one's checkpoints."""
    coke("run", "small.toml", "--out", "o", cwd=folder)
    coke("run", "small.toml", "--algorithm", "dkla", "--out", "o", cwd=folder)
    run = coke("run", "--resume", "o", "--rounds", 70, "--json", cwd=folder)
    assert json.loads(run.stdout)["algorithm"] == "dkla"


def test_a_settled_run_stays_settled(folder: Path) -> None:
    settle = ["--tol", 0.2, "--rounds", 500]
    done = json.loads(coke("run", "small.toml", *settle, "--out", "o", "--json", cwd=folder).stdout)
    assert done["rounds"] < 500
    again = json.loads(coke("run", "--resume", "o", "--json", cwd=folder).stdout)
    assert again["rounds"] == done["rounds"]
    further = coke("run", "--resume", "o", "--tol", 0, "--rounds", 510, "--json", cwd=folder)
    assert json.loads(further.stdout)["rounds"] == 510
