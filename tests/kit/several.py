"""A program for ranks: commands one after the other, and what each has printed, as a JSON list."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mpi4py import MPI

from kit.commands import coke

if __name__ == "__main__":
    said = [coke(*args, cwd=Path(cwd), code=code) for cwd, code, args in json.loads(sys.argv[1])]
    if MPI.COMM_WORLD.rank == 0:
        sys.stdout.write(json.dumps([one.stdout for one in said]) + "\n")
