"""`make bench-kills`: agents over TLS that are killed and lose frames; and one that loses its root.

Real processes, real disks, TLS on loopback. In the first part every agent dies by kill -9 again
and again, before or after a write or a frame of its own (`tests/kit/frail.py`), and is started
again; a tenth of all frames is lost, a tenth comes twice. In the second the root of the tree dies
in the middle of a descent: the others go on by rounds, with it once it is back, or without.
Promised, and exit code 1 where it does not hold:

    every site has the simulation's θ, proof, rounds and bytes, to the bit
    with a root that comes back all sites end with one model that is certified
    g_ij = −g_ji on every edge, to the bit, hence Σγ = 0
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.field import Field, antisymmetric, are_the_simulation, made_rows

AGENTS, EDGES, EACH, LOSS = 4, 5, 7, 0.1
METHODS = {
    "tree-newton": {"algorithm": "tree-newton"},
    "auto": {"algorithm": "auto"},
    "coke": {"algorithm": "coke"},
    "tree-newton, logistic": {"algorithm": "tree-newton", "loss": "logistic"},
    "coke, logistic": {"algorithm": "coke", "loss": "logistic"},
}
ORDER = 4  # at which the root dies
LATE, LAST = 10, 40  # rounds of the others before it is back, and where it does not come


def killed(folder: Path, settings: dict[str, Any]) -> str:
    """Deaths it took, and that no bit differs."""
    rows = made_rows()
    if settings.get("loss") == "logistic":
        rows = rows._replace(y=(rows.y > 0).astype(float))
    field = Field(folder, rows, AGENTS, EDGES, **settings)
    try:
        deaths = field.nursed(kills=EACH, loss=LOSS)
    finally:
        field.end()
    are_the_simulation(field)
    return f"{deaths} × kill -9, the simulation's bits in {field.ledger().wire_bytes} bytes"


def rootless(folder: Path, *, back: bool) -> str:
    """What the others come to, with the root that is back after a while or without."""
    rounds = {} if back else {"rounds": LAST}
    field = Field(
        folder, made_rows(), AGENTS, EDGES, algorithm="tree-newton", patience=1.0, **rounds
    )
    try:
        root = field.orphaned(ORDER)
        rest = [name for name in field.names if name != root]
        field.until(lambda: min(map(field.rounds, rest)) >= LATE)
        if back:
            field.start(root)
        here = field.names if back else rest
        codes = [field.processes[name].wait() for name in here]
    finally:
        field.end()
    assert not any(codes), codes
    antisymmetric(field, here)
    ends = [field.result(name) for name in here]
    proofs = [end["certificate"] for end in ends]
    if not back:
        return (
            f"{len(here)} sites ended after {ends[0]['rounds']} rounds, every edge's duals cancel"
        )
    assert all(end["converged"] and not end["largest_asymmetry"] for end in ends), ends
    assert all(proof == proofs[0] for proof in proofs), proofs
    return f"all ended after {ends[0]['rounds']} rounds, duals cancel; {proofs[0]['text']}"


def cases(folder: Path) -> Iterator[tuple[str, Any]]:
    """What is tried, by name."""
    for i, (name, settings) in enumerate(METHODS.items()):
        yield name, lambda i=i, settings=settings: killed(folder / str(i), settings)
    yield "the root is back", lambda: rootless(folder / "back", back=True)
    yield "the root is lost", lambda: rootless(folder / "lost", back=False)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the agents are ended, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    only, failed = parser.parse_args().only, False
    with tempfile.TemporaryDirectory() as folder:
        for name, run in cases(Path(folder)):
            if only not in name:
                continue
            begin = time.monotonic()
            try:
                said = run()
            except AssertionError as error:
                said, failed = f"BROKEN: {str(error)[:2000]}", True
            print(f"{name}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
