"""`make bench`: the floors of this machine and every figure of docs/performance.md, in one run.

make bench          all, into out/bench.json and a line of benchmarks/history.jsonl
make bench-short    less than a minute: without MPI, the network and memory; for CI
"""

from __future__ import annotations

import sys

from carrier import CARRIER
from figures import main
from fit import FIT
from floors import FLOORS
from mpi import MPI
from simulate import SIMULATE
from start import START
from streaming import STREAMING
from sweep import SWEEP

SHORT = (FLOORS, START, FIT, SIMULATE, STREAMING, SWEEP)

if __name__ == "__main__":
    sys.exit(main(*SHORT, *(() if "--short" in sys.argv else (CARRIER, MPI))))
