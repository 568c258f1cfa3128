"""`python frail.py SITE.toml`: an agent over real links that dies by kill -9 and loses frames.

How often is in the environment: COKE_FRAIL = "seed kills loss order". It kills itself before or
after a write to its disk or a frame to a neighbour, up to so many times in all; `deaths` in the
site's folder counts them. Of its frames it loses that part, and says as many twice. With an order
of a descent it dies once when it comes to it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOON = 80  # disturbances at most until the next death: some lives are a few words long
FRAIL = "COKE_FRAIL"


def frail(seed: int = 0, kills: int = 0, loss: float = 0.0, order: int = 0) -> dict[str, str]:
    """The environment of such an agent."""
    return {FRAIL: f"{seed} {kills} {loss} {order}"}


def deaths(site: Path) -> int:
    """How often the agent of that file has died by its own hand."""
    path = site.parent / "deaths"
    return path.stat().st_size if path.exists() else 0


def _end(site: Path) -> None:
    with (site.parent / "deaths").open("ab") as file:
        file.write(b"x")
    os.kill(os.getpid(), signal.SIGKILL)


def _lives(site: Path, draw: random.Random, kills: int) -> Iterator[None]:
    """A step for each moment at which it may die."""
    left = draw.randint(1, SOON) if deaths(site) < kills else 0
    while True:
        left -= 1
        if left == 0:
            _end(site)
        yield


def _dangerous(work: Callable[..., Any], life: Iterator[None]) -> Callable[..., Any]:
    def made(*args: Any, **named: Any) -> Any:
        next(life)
        found = work(*args, **named)
        next(life)
        return found

    return made


def main() -> None:
    from coke.cli.main import main as coke
    from coke.field import journal, store
    from coke.field.carriers.memory import lossy
    from coke.field.carriers.tls import TlsCarrier
    from coke.talk.descent import Descent

    site = Path(sys.argv[1])
    seed, kills, loss, order = os.environ[FRAIL].split()
    draw = random.Random(f"{seed} {site.parent.name} {deaths(site)}")
    life, carry = _lives(site, draw, int(kills)), TlsCarrier._transmit
    fault = lossy(draw.getrandbits(32), loss=float(loss), twice=float(loss))

    def transmit(self: TlsCarrier, neighbour: str, frame: bytes) -> bool:
        for arrived in fault(self.site, neighbour, frame):
            carry(self, neighbour, arrived)
        return True

    def sweep(self: Descent) -> Any:
        if self.k + 1 == int(order) and not deaths(site):
            _end(site)
        return swept(self)

    swept, Descent.sweep = Descent.sweep, sweep  # type: ignore[method-assign]
    TlsCarrier._transmit = _dangerous(transmit, life)  # type: ignore[method-assign]
    for room in (journal, store):
        for name in ("put", "write_file"):
            setattr(room, name, _dangerous(getattr(room, name), life))
    sys.argv = ["coke", "agent", str(site), "--json"]
    coke()


if __name__ == "__main__":
    main()
