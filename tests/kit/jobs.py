"""Jobs of several MPI ranks, for the tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def on_ranks(
    R: int, *command: Any, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """`python` with these arguments on so many ranks; skips where there is no MPI."""
    if any(importlib.util.find_spec(name) is None for name in ("mpi4py", "pymetis")):
        pytest.skip("mpi4py or pymetis is not installed: pip install 'coke-learn[mpi]'")
    line = [mpiexec(), "-n", str(R), sys.executable, "-W", "error", *map(str, command)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}  # for a test file as the program
    run = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert run.returncode == code, run.stdout + run.stderr
    return run


def mpiexec() -> str:
    """What starts ranks; skips where there is none."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec beside this Python or on the path: pip install 'coke-learn[mpi]'")
    return found
