"""Networks in memory by their names, and what can go wrong in one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from coke.field.carriers.base import Carrier, Fault, Memory

if TYPE_CHECKING:
    from coke.settings.declaration import SiteTable

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
