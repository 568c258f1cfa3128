"""What `make mutants` breaks still stands in the code, once, and the test that notices exists."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
MUTANTS = runpy.run_path(str(ROOT / "benchmarks" / "mutants.py"))["MUTANTS"]


def test_every_mutant_breaks_one_place() -> None:
    """A change of that place takes its mutant along."""
    stale = []
    for mutant in MUTANTS:
        (path,) = (ROOT / "src" / "coke").rglob(mutant.file)
        if path.read_text("utf-8").count(mutant.old) != 1:
            stale.append((mutant.what, mutant.file, mutant.old))
    assert stale == []


def test_every_mutant_has_its_test() -> None:
    gone = []
    for mutant in MUTANTS:
        file, _, name = mutant.test.partition("::")
        (path,) = (ROOT / "tests").rglob(file)
        if name not in path.read_text("utf-8"):
            gone.append((mutant.what, mutant.test))
    assert gone == []
