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


def computed() -> dict[str, Any]:
    """By the program, with pinned arithmetic."""
    done = subprocess.run(
        [sys.executable, HERE.parent / "kit/faces.py"],
        env={**os.environ, **PINNED}, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return computed()


@pytest.fixture(scope="module")
def then() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(STORED.read_text())
    return stored


@pytest.mark.parametrize("face", FACES)
def test_the_bits_are_those_that_are_stored(
    face: str, now: dict[str, Any], then: dict[str, Any]
) -> None:
    if now["arithmetic"] != then["arithmetic"]:
        pytest.skip("this processor's arithmetic has other last bits than the stored ones")
    for case in CASES:
        if wanted(face, case):
            assert now[f"{face}: {case}"] == then[f"{face}: {case}"], case


def test_ranks_have_one_processes_bits(now: dict[str, Any]) -> None:
    for case in CASES:
        if wanted("mpi", case):
            assert now[f"mpi: {case}"] == now[f"run: {case}"], case


if __name__ == "__main__":
    before, after = json.loads(STORED.read_text()) if STORED.exists() else {}, computed()
    STORED.write_text(json.dumps(after, indent=1) + "\n")
    for name, value in after.items():
        if before.get(name) != value:
            sys.stdout.write(f"{name}: {before.get(name)} -> {value}\n")
