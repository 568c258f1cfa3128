"""The command line for tests: as a process, and in this one."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from coke.cli.main import main

BLANK = b"\x89PNG"
COKE = [sys.executable, "-c", "from coke.cli.main import main; main()"]


def coke(
    *args: Any, cwd: Path, code: int = 0, process: bool = False, drawn: bool = False
) -> subprocess.CompletedProcess[str]:
    """What it prints and leaves; in this process, where that is quicker and says the same.

    Pictures of a run take a second: they are blank unless a test is about them.
    """
    blank = "run" in args[:1] and not (process or drawn)
    with mock.patch("coke.report.page.png", return_value=BLANK) if blank else nullcontext():
        run = (_started if process else _called)([*map(str, args)], cwd)
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
    return run


def _started(args: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COKE, *args], cwd=cwd, capture_output=True, text=True, timeout=120)


def _called(args: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(cwd), redirect_stdout(out), redirect_stderr(err),
        mock.patch.object(sys, "argv", ["coke", *args]),
        pytest.raises(SystemExit) as stop,
    ):  # fmt: skip
        main()
    code = stop.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def command(monkeypatch: Any, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["coke", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    code = stop.value.code
    assert isinstance(code, int)
    return code
