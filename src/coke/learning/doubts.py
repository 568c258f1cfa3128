"""What a site can see of the agreement by its own rows: units that are not of rows like these.

Where units are moments of all rows, Σ_s T_s (m_s² + sd_s²) = T in every scaled column: a site's
m² + sd² is at most T/T_i. And where one site has claimed means, deviations or rows out of all
proportion, the others' rows lie on one spot of every scale, or count for nothing.
"""

from __future__ import annotations

import numpy as np

from coke.data.units import Columns, Scaling
from coke.learning.ready import Ready

_ROUNDED = 1.1  # numbers are told to a part in 2⁸, and merged along the tree
_SPOT = 1e-3  # of a scale: all columns of a site within that are on one spot
_NOTHING = 1e-6  # of all rows


def doubts(ready: Ready, i: int = 0) -> list[str]:
    """In words, of site i of those here; nothing where units are public or rows out of reach."""
    agreement = ready.agreement
    if ready.noised is not None or agreement.terms.settings.data.scale != "standard":
        return []
    total = agreement.told.columns.T
    return doubted(ready.sites.columns(i), agreement.units, total, agreement.terms.settings.guard)


def doubted(own: Columns, units: Scaling, total: float, clipped: bool = False) -> list[str]:
    """Of its columns in these units; claims may have been clipped."""
    found, d = [], len(units.x_scale)
    moved = (own.mean[:d] - units.x_shift) / units.x_scale
    spread = own.sd[:d] / units.x_scale
    if own.T / total < _NOTHING:
        found.append(
            f"{total:.3g} rows are said to be at all sites, of which this one's {own.T:.0f} count "
            "for nothing: ask who has so many"
        )
    varies = own.sd[:d] > 0
    if varies.any() and (spread[varies] < _SPOT).all():
        found.append(
            "the units agreed on are far too coarse for this site's rows: one site may have "
            "claimed means or deviations that it does not have; see docs/trust.md, guard"
        )
    most = _ROUNDED * np.sqrt(max(total / own.T, 1.0))
    if not clipped and (np.hypot(moved, spread) > most).any():
        found.append(
            "the units agreed on cannot be those of all rows, this site's included: one of the "
            "sites has changed what others told; see docs/trust.md"
        )
    return found
