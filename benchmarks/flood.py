"""`make bench-flood`: strangers who connect as fast as they can, while neighbours meet or train.

10 000 connections on loopback: silent ones, junk, half a hello of TLS, a whole one and nothing
more, a garbled one, in turn and each kind alone (`tests/kit/floods.py`); 900 of them stay open.
Promised, and exit code 1 where it does not hold:

    two neighbours that have not met yet meet within 15 s (on free cores)
    the memory of the site that is flooded grows by less than 50 MB
    while agents train no link goes down, and every site has the simulation's θ, to the bit
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from coke.field import identity
from coke.field.carriers.address import Spot
from coke.field.carriers.base import Carrier
from coke.field.carriers.tls import TlsCarrier
from coke.field.carriers.zenoh import ZenohCarrier
from coke.settings.sites import read_site
from kit.field import Field, made_rows
from kit.floods import KINDS, flood
from kit.sessions import address
from processes import resident

CARRIERS = {"tls": TlsCarrier, "zenoh": ZenohCarrier}
MEET, GROWTH = 15.0, 50_000.0  # seconds, kB
GIVEN_UP = 60.0  # seconds
ROUNDS = 400


def meeting(carrier: str, folder: Path, number: int, kinds: list[str]) -> bool:
    """Two sites that meet while a third party floods one of them."""
    at, kind, now = address(), CARRIERS[carrier], datetime.now(UTC)
    a, b = (identity.load(folder, name, now) for name in "ab")
    with kind(Spot("a", "flood", (at,), {"b": None}, a)) as called:
        before, first = resident(os.getpid()), time.monotonic()
        with flood(at, number, *kinds) as stranger:
            while called.refusals() < 100 and time.monotonic() < first + 5:
                time.sleep(0.01)
            took = _took(kind(Spot("b", "flood", (), {"a": at}, b)), called)
            assert stranger.stdout is not None
            all_tried = float(stranger.stdout.readline().split()[1])
            grown = resident(os.getpid()) - before
    good = took <= MEET and grown < GROWTH
    print(
        f"{carrier}, {', '.join(kinds) or 'all kinds'}: {number / all_tried:.0f} connections/s, "
        f"met after {took:.2f} s, memory + {grown / 1000:.1f} MB{'' if good else '  MISSED'}"
    )
    return good


def _took(caller: Carrier, called: Carrier) -> float:
    """Seconds until both have a link."""
    begin = time.monotonic()
    with caller:
        while not (caller.alive() and called.alive()):
            if time.monotonic() > begin + GIVEN_UP:
                return float("inf")
            time.sleep(0.01)
        return time.monotonic() - begin


def training(folder: Path, number: int) -> bool:
    """Three agents whose listeners are flooded in turn while they train."""
    field = Field(
        folder, made_rows(), 3, 3, algorithm="coke", rounds=ROUNDS, tol=0.0, patience="auto"
    )
    table = read_site(field.paths[-1]).site
    try:
        field.start()
        field.until(lambda: min(map(field.rounds, field.names)) >= 20)
        pid = field.processes[table.name].pid
        before, began = resident(pid), min(map(field.rounds, field.names))
        with flood(table.listen[0], number) as stranger:
            assert stranger.stdout is not None
            all_tried = float(stranger.stdout.readline().split()[1])
            during = min(map(field.rounds, field.names)) - began
            grown = resident(pid) - before if field.processes[table.name].poll() is None else 0.0
            field.wait()
    finally:
        field.end()
    same = bool(np.array_equal(field.theta(), field.twin(ROUNDS)[-1].state.theta))
    down = sum('"down"' in str(line.get("events")) for name in field.names
               for line in field.log(name) if line.get("phase") == "train")  # fmt: skip
    good = same and not down and grown < GROWTH
    print(
        f"training: {number / all_tried:.0f} connections/s, {during} rounds meanwhile, links down "
        f"{down} times, θ {'as' if same else 'NOT as'} in the simulation, memory + "
        f"{grown / 1000:.1f} MB{'' if good else '  MISSED'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=10_000, help="connections")
    parser.add_argument("--zenoh", action="store_true", help="beside zenoh's own listener")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.now(UTC)
        identity.found(folder / "identity", "flood", now)
        for site in "ab":
            identity.issue(folder / "identity", site, now)
        place, number = folder / "identity", asked.number
        good = [meeting("tls", place, number, kinds) for kinds in ([], *([one] for one in KINDS))]
        if asked.zenoh:
            meeting("zenoh", place, number, [])
        good.append(training(folder / "field", number))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
