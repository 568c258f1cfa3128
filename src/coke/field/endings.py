"""The end of a stream, by agreement: at the last tick of all sites, once all know all last ticks.

A site whose source has nothing more says which tick was its last, and passes on what it hears of
others; beyond the last of all nobody begins a tick. These letters need no tick, and no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coke.field.phases import Desk
from coke.field.pulses import Ends

_NEVER = -(1 << 62)
_ENDS = "\0ends"  # after a neighbour's name: a timer of its own


@dataclass
class Endings:
    """What one site knows of them."""

    desk: Desk
    neighbours: Sequence[str]
    N: int
    _last: dict[int, int] = field(default_factory=dict)  # by short id

    @property
    def known(self) -> bool:
        """Whether all sites' are."""
        return len(self._last) == self.N

    @property
    def last(self) -> int:
        """The last tick of those that are known."""
        return max(self._last.values(), default=_NEVER)

    def tell(self, own: int, tick: int) -> None:
        """The own last tick, at once and again and again: a neighbour may have lost it."""
        if self._last.get(own) != tick:
            self._last[own] = tick
            self._pass_on()
        due = self.desk.due(name + _ENDS for name in self.neighbours)
        self.desk.post((name.removesuffix(_ENDS), Ends(self._last)) for name in due)

    def hear(self, last: dict[int, int]) -> None:
        """What a neighbour knows; of more sites than there are it cannot be."""
        new = not last.items() <= self._last.items()
        if new and len(self._last | last) <= self.N:
            self._last |= last
            self._pass_on()

    def _pass_on(self) -> None:
        self.desk.post((name, Ends(self._last)) for name in self.neighbours)
