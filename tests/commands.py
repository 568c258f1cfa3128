"""The command line for tests: as a process, and in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coke.cli import main

COKE = [sys.executable, "-c", "from coke.cli import main; main()"]


def coke(*args: Any, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [*COKE, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
    return run


def command(monkeypatch: Any, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["coke", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    code = stop.value.code
    assert isinstance(code, int)
    return code
