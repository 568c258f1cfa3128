"""Jobs of several MPI ranks, for the tests."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

STRICT = ("-W", "error", "-W", "ignore::ImportWarning")  # which NumPy gives for pinned arithmetic
SEVERAL = Path(__file__).parent / "several.py"


def on_ranks(
    R: int, *command: Any, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """`python` with these arguments on so many ranks; skips where there is no MPI."""
    if any(importlib.util.find_spec(name) is None for name in ("mpi4py", "pymetis")):
        pytest.skip("mpi4py or pymetis is not installed: pip install 'coke-learn[mpi]'")
    line = [mpiexec(), "-n", str(R), sys.executable, *STRICT, *map(str, command)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}  # for a test file as the program
    run = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert run.returncode == code, run.stdout + run.stderr
    return run


def commands_on_ranks(R: int, *commands: tuple[Path, Sequence[Any]], code: int = 0) -> list[str]:
    """What `coke` prints for each (folder, arguments), in one job: ranks start slowly."""
    told = [(str(cwd), code, list(map(str, args))) for cwd, args in commands]
    found: list[str] = json.loads(on_ranks(R, SEVERAL, json.dumps(told), code=code).stdout)
    return found


def mpiexec() -> str:
    """What starts ranks; skips where there is none."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec beside this Python or on the path: pip install 'coke-learn[mpi]'")
    return found
