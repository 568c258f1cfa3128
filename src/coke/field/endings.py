"""The end of a stream, by agreement: at the last tick of all sites, once all know all last ticks.

A site whose source has nothing more says which tick was its last, and passes on what it hears of
others; beyond the last of all nobody begins a tick. Once that is over a site tells every neighbour
whose edge does not rest that it is here, and tries to end when all neighbours are: so both ends of
an edge try, whoever dies meanwhile. These letters need no tick, and no order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coke.field.phases import Desk
from coke.field.pulses import Ends
from coke.talk.names import short_id

_NEVER = -(1 << 62)
_ENDS = "\0ends"  # after a neighbour's name: a timer of its own


@dataclass
class Endings:
    """What one site knows of them."""

    desk: Desk
    name: str
    neighbours: Sequence[str]
    N: int
    _last: dict[int, int] = field(default_factory=dict)  # by short id
    _here: Mapping[str, int] = field(default_factory=dict)  # what neighbours were told last
    _there: dict[str, int] = field(default_factory=dict)  # for which try to end they are there

    def over(self, tick: int | None) -> bool:
        """Whether that tick is the last one of all sites."""
        return len(self._last) == self.N and tick == self.last

    @property
    def last(self) -> int:
        """The last tick of those that are known."""
        return max(self._last.values(), default=_NEVER)

    def together(self, attempt: int) -> bool:
        """Whether all neighbours are there for that try, and will not go without this site."""
        return all(self._there.get(name, 0) >= attempt for name in self.neighbours)

    def tell(self, tick: int, here: Collection[str], attempt: int) -> None:
        """The own last tick, and to whom this site is here, for which try; again and again."""
        own = short_id(self.name)
        if own not in self._last or not here:  # once it was here its last tick stays the last
            self._learn({own: tick})
        now = dict.fromkeys(here, attempt)
        changed = [name for name in self.neighbours if now.get(name) != self._here.get(name)]
        self._here = now
        due = self.desk.due(name + _ENDS for name in self.neighbours)
        self._post({*changed, *(name.removesuffix(_ENDS) for name in due)})

    def hear(self, sender: str, letter: Ends) -> None:
        """What a neighbour knows; of more sites than there are it cannot be. It may lack some."""
        if len(self._last | letter.last) > self.N:
            return
        new = self._learn(letter.last)
        if letter.last == self._last:
            self._there[sender] = letter.here
        elif not new:
            self._post([sender])

    def _learn(self, last: Mapping[int, int]) -> bool:
        """Whether that is news, which all neighbours are told."""
        known = {name: max(tick, self._last.get(name, tick)) for name, tick in last.items()}
        new = not known.items() <= self._last.items()
        if new:
            self._last |= known
            self._here, self._there = {}, {}
            self._post(self.neighbours)
        return new

    def _post(self, names: Iterable[str]) -> None:
        told = [(name, Ends(self._last, self._here.get(name, 0))) for name in sorted(names)]
        self.desk.post(told)
