"""Every benchmark can be started as its documentation says, from a checkout and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARED = re.compile(r"^(from|import) kit\b", re.MULTILINE)
BY_THEMSELVES = re.compile(r"^if __name__ ==", re.MULTILINE)
READ = """
import runpy, sys
base = sys.path[:]
for path in sys.argv[2:]:
    sys.path[:] = [sys.argv[1], *base]
    for name in [name for name in sys.modules if name.partition(".")[0] == "kit"]:
        del sys.modules[name]
    runpy.run_path(path, run_name="read")
"""


@pytest.mark.processes
def test_benchmarks_find_what_they_share_with_the_tests() -> None:
    """Those that use it, read one after the other with nobody's path but Python's own."""
    texts = {path: path.read_text("utf-8") for path in sorted(BENCHMARKS.glob("*.py"))}
    some = [str(p) for p, t in texts.items() if SHARED.search(t) and BY_THEMSELVES.search(t)]
    assert len(some) > 8
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", READ, str(BENCHMARKS), *some]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
