"""`make test-busy`: the suite beside eight busy loops; tests of processes three times in a row.

A machine that is busy with something else must not change what a test says. Exits non-zero at the
first run that fails. `--processes` leaves the whole suite out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOPS, TIMES = 8, 3
TESTS = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile"]


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """While so many processes do nothing as fast as they can."""
    whole_life = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    spin = [sys.executable, "-c", whole_life]  # and none outlives this process
    running = [subprocess.Popen(spin) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", action="store_true", help="only tests of processes")
    only = [[*TESTS, "-m", "processes"]] * TIMES
    runs = only if parser.parse_args().processes else [TESTS, *only]
    with busy(LOOPS):
        for run in runs:
            started = time.monotonic()
            code = subprocess.run(run).returncode
            print(f"{' '.join(run[2:])}: {time.monotonic() - started:.0f} s, exit code {code}")
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
