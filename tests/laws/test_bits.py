"""The bits stay: what every face learns and spends, for every loss and algorithm, is stored.

A change that means to change bits renews the file and names the cases:
`python tests/laws/test_bits.py` writes it and prints what differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.faces import CASES, FACES, PINNED, wanted

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

HERE = Path(__file__).parent
STORED = HERE / "bits.json"


def computed(face: str) -> dict[str, Any]:
    """By the program, with pinned arithmetic."""
    done = subprocess.run(
        [sys.executable, HERE.parent / "kit/faces.py", face],
        env={**os.environ, **PINNED}, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("face", FACES)
def test_the_bits_are_those_that_are_stored(face: str) -> None:
    now, then = computed(face), json.loads(STORED.read_text())
    if now["arithmetic"] != then["arithmetic"]:
        pytest.skip("this processor's arithmetic has other last bits than the stored ones")
    for name, found in now.items():
        assert found == then[name], name


def test_ranks_have_one_processes_bits(tmp_path: Path) -> None:
    """Wherever they are computed."""
    (tmp_path / "one").mkdir()
    (tmp_path / "ranks").mkdir()
    cases = [case for case in CASES if wanted("mpi", case)]
    found = FACES["mpi"](cases, tmp_path / "ranks")
    for case, *both in zip(cases, found, FACES["run"](cases, tmp_path / "one"), strict=True):
        assert both[0] == both[1], case


if __name__ == "__main__":
    before = json.loads(STORED.read_text()) if STORED.exists() else {}
    after = {name: value for face in FACES for name, value in computed(face).items()}
    STORED.write_text(json.dumps(after, indent=1) + "\n")
    for name, value in after.items():
        if before.get(name) != value:
            sys.stdout.write(f"{name}: {before.get(name)} -> {value}\n")
