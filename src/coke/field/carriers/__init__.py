"""How frames reach neighbours: the carriers by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coke.field.carriers.base import Carrier
    from coke.settings.declaration import SiteTable


class _Opening(NamedTuple):
    """A carrier of the house."""

    about: str
    module: str  # whose `opener` takes the [site] of a site's file
    together: bool = False  # whether its sites must be threads of one process

    def opener(self, site: SiteTable) -> Callable[[], Carrier]:
        """How that site's carrier is opened; what cannot be is refused now."""
        found: Callable[[], Carrier] = import_module(self.module).opener(site)
        return found


CARRIERS: dict[str, _Opening] = {
    "tls": _Opening("between machines, over mutual TLS", "coke.field.carriers.tls"),
    "zenoh": _Opening("between machines, over zenoh's mutual TLS", "coke.field.carriers.zenoh"),
    "memory": _Opening("between threads of one process", "coke.field.carriers.memory", True),
}
