"""How long a run may take and how much memory, before it starts: a few terms, fitted to runs.

Of the quadratic loss with rows in memory. The numbers are of one core at some 3 GHz: half or twice
as much is likely elsewhere. A site's cost follows its form (`coke.maths.losses.mixed`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.data.site import Kept, Sites
from coke.maths.losses import LOSSES
from coke.settings.declaration import AUTO, PLAIN, Settings

_MANY = 3000  # rows of all sites, from which on a chosen model may have the most frequencies
_START, _MEMORY = 1.0, 190e6  # seconds and bytes of anything at all


class Expected(NamedTuple):
    """At most, as far as can be told: runs end once they have settled."""

    seconds: float  # CPU
    bytes: float
    sites: int
    rounds: int

    def __str__(self) -> str:
        if self.seconds < 100:
            time = f"{self.seconds:.0f} seconds"
        else:
            time = f"{self.seconds / 60:.0f} minutes"
        memory = f"{max(self.bytes / 1e9, 0.1):.1f} GB"
        return (
            f"{self.rounds} rounds of {self.sites} sites take about {time} and {memory}; "
            "fewer rounds if they settle before"
        )


def expected(sites: Sites, settings: Settings) -> Expected | None:
    """Of such a run; None where nothing is known of its costs."""
    if not (isinstance(sites, Kept) and LOSSES[settings.loss].statistics):
        return None
    T, N = np.array(list(map(len, sites.y)), np.float64), len(sites.names)
    D = float(_entries(settings, sites.X[0].shape[1], int(T.sum())))
    few, chosen = T < D, settings.model == AUTO
    before = np.where(few, 1e-3 + (9e-9 + 6e-8 * (T >= 8)) * D**2, 1.1e-9 * D**3)
    before += chosen * (8e-3 + 6e-4 * np.minimum(T, 300))
    a_round = 5e-8 * D + np.where(few, 1.8e-10 * D**2 + 3.4e-9 * T * D, 1.7e-9 * D**2)
    kept = np.where(few, 8 * D * (60 + 6 * T), 64 * D**2)
    rounds = settings.rounds * len({settings.algorithm, *settings.beside})
    seconds = _START + float(before.sum()) + rounds * float(a_round.sum())
    return Expected(seconds, _MEMORY + 28.0 * N**2 + float(kept.sum()), N, rounds)


def _entries(settings: Settings, d: int, T: int) -> int:
    """D, of a model that is to be chosen the largest that may be."""
    L = settings.features.n_features
    if settings.model == AUTO:
        most = (300 if T >= _MANY else PLAIN["n_features"]) if L == AUTO else int(L)
        return 2 * most + d + 1
    wide = 1 if settings.features.mapping == "cos-phase" else 2
    return wide * int(PLAIN["n_features"] if L == AUTO else L)
