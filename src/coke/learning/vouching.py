"""What a site says of itself, by name, before it trains under a guard."""

from __future__ import annotations

import numpy as np

from coke.maths.audit import Vouched
from coke.maths.guards import HonestBounds
from coke.maths.losses.risk import Risk


def vouching(risk: Risk, neighbours: tuple[str, ...], key: bytes) -> Vouched:
    """Of its own risk in the common basis, its neighbours and its key."""
    bounds, alone = HonestBounds.of(risk, 1), risk.alone()[0]
    size = float(np.sqrt(alone @ alone))
    return Vouched(bounds.bend, bounds.zero, size, neighbours, key)
