"""What a site says of itself, by name, before it trains under a guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coke.learning.case import Second
from coke.maths.audit import Vouched
from coke.maths.guards import HonestBounds
from coke.maths.losses.risk import Risk
from coke.talk.claiming import vouch
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep
from coke.threads import OneThread

if TYPE_CHECKING:
    from coke.learning.basis import Basis
    from coke.learning.ready import Ready


def vouching(risk: Risk, neighbours: tuple[str, ...], key: bytes, rows: float = 1.0) -> Vouched:
    """Of its own risk in the common basis, its neighbours and its key."""
    bounds, alone = HonestBounds.of(risk, 1), risk.alone()[0]
    size = float(np.sqrt(alone @ alone))
    return Vouched(bounds.bend, bounds.zero, size, neighbours, key, rows)


def vouched(
    sweep: Sweep, ready: Ready, basis: Basis, key: bytes, totals: Sequence[bytes]
) -> Talk[Second]:
    """What was agreed on last, and under a guard what all sites say of themselves.

    And that all hold the same `totals`. Not where noise hides what the rows of a site are.
    """
    told, (place,) = dict[str, Vouched](), ready.places
    if ready.agreement.terms.settings.guard and ready.noised is None:
        with OneThread().limit():
            risk = ready.problem.train.whitened(basis.whitening)
            rows = 1.0 if ready.agreement.terms.by_rows else float(risk.T[0])
            own = vouching(risk, tuple(sorted(place.degrees)), key, rows)
        told = yield from vouch(sweep, place, own, tuple(totals))
    return Second(basis, basis.spread, (), told)
