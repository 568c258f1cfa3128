"""The neighbours that a site's file names now: it may be changed while the agent runs."""

from __future__ import annotations

from pathlib import Path

from coke.data.files import stamp
from coke.errors import CokeError
from coke.field.carriers.base import Carrier, Event
from coke.settings.sites import read_site


class StillNamed:
    """Forgets whoever is taken out; whatever else is changed counts from the next start."""

    def __init__(self, path: Path, carrier: Carrier) -> None:
        self._path, self._carrier = path, carrier
        self._stamp = stamp(path)

    def __call__(self) -> list[Event]:
        """What is new."""
        now_there = stamp(self._path)
        if now_there == self._stamp:
            return []
        self._stamp = now_there
        try:
            gone = self._carrier.neighbours - read_site(self._path).site.neighbours.keys()
        except CokeError as error:  # half a file, perhaps: nobody is forgotten by mistake
            return [Event("spoilt", str(self._path), str(error))]
        self._carrier.forget(*gone)
        why = "its name was taken out of the site's file"
        return [Event("forgotten", name, why) for name in sorted(gone)]
