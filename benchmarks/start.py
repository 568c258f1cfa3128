"""`make bench-start`: the CPU time of help and refusals, against what any start must import."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

from figures import Found, Goal, Section, by_turns, main, ratio
from floors import FLOORS

BARE = ("-c", "import typer, rich")
COMMANDS = {
    "coke --help": ("--help",),
    "coke run --help": ("run", "--help"),
    "coke run --rounds 0": ("run", "--rounds", "0"),
}


def process(*arguments: str) -> float:
    """CPU seconds of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(size: str) -> Found:
    """By turns."""
    sides = {name: partial(process, "-m", "coke", *line) for name, line in COMMANDS.items()}
    taken = by_turns({"bare": partial(process, *BARE), **sides}, 5 if size == "short" else 20)
    return {f"{name} / import typer, rich": ratio(taken[name], taken["bare"]) for name in COMMANDS}


START = Section("start", measure, {"coke --help / import typer, rich": Goal(most=1.5)})

if __name__ == "__main__":
    sys.exit(main(FLOORS, START))
