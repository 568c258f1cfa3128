"""A network in one process, the twin of a real one, faults included, and quick; and its name."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from coke.field.carriers.base import Allowance, Carrier

if TYPE_CHECKING:
    from coke.settings.declaration import SiteTable

Fault = Callable[[str, str, bytes], Iterable[bytes]]  # sender, receiver, frame ↦ what arrives


def faithful(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
    """Every frame once."""
    return (frame,)


class Memory:
    """A network in one process. `fault` may change at any time; `cut` and `heal` partition it."""

    def __init__(self, fault: Fault = faithful) -> None:
        self.fault = fault
        self._sites: dict[str, Carrier] = {}
        self._cuts: set[frozenset[str]] = set()
        self._lock = threading.Lock()  # one frame at a time: a seeded fault is then reproducible

    def join(
        self, site: str, neighbours: Iterable[str], allowance: Allowance | None = None
    ) -> Carrier:
        """A site's carrier; joining again is a restart, and the old carrier is closed."""
        if site in self._sites:
            self._sites[site].close()
        self._sites[site] = _MemoryCarrier(self, site, neighbours, allowance or Allowance())
        return self._sites[site]

    def cut(self, a: str, b: str) -> None:
        """No frames between a and b, either way."""
        self._cuts.add(frozenset((a, b)))

    def heal(self, a: str, b: str) -> None:
        """Frames between a and b again."""
        self._cuts.discard(frozenset((a, b)))

    def other(self, site: str, neighbour: str) -> Carrier | None:
        """The neighbour's carrier, if it is there, names the site too, and no cut is between."""
        there = self._sites.get(neighbour)
        mutual = there is not None and not there.closed and site in there.neighbours
        return there if mutual and frozenset((site, neighbour)) not in self._cuts else None

    def carry(self, sender: str, receiver: str, frame: bytes) -> bool:
        """Deliver what the fault makes of a frame; False where there is no link."""
        with self._lock:
            there = self.other(sender, receiver)
            if there is not None:
                for arrived in self.fault(sender, receiver, frame):
                    there.arrived(sender, arrived)
        return there is not None


class _MemoryCarrier(Carrier):
    def __init__(
        self, network: Memory, site: str, others: Iterable[str], allowance: Allowance
    ) -> None:
        super().__init__(site, others, allowance)
        self._network = network

    def _transmit(self, neighbour: str, frame: bytes) -> bool:
        return self._network.carry(self.site, neighbour, frame)

    def _linked(self) -> frozenset[str]:
        return frozenset(n for n in self.neighbours if self._network.other(self.site, n))

    def _hang_up(self) -> None:
        pass  # the network sees that we are closed


_NETWORKS: WeakValueDictionary[str, Memory] = WeakValueDictionary()  # as long as a site is in one
_NAMING = threading.Lock()


def lossy(seed: int, *, loss: float, twice: float = 0.0) -> Fault:
    """Lose some frames, repeat some of the others; the same ones for the same seed."""
    draw = random.Random(seed).random

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        return () if draw() < loss else (frame,) * (1 + (draw() < twice))

    return fault


def opener(site: SiteTable) -> Callable[[], Carrier]:
    """How that site joins the network of its name, among the threads of this process."""
    with _NAMING:
        network = _NETWORKS.get(site.network) or Memory()
        _NETWORKS[site.network] = network
    return partial(network.join, site.name, site.neighbours)
