"""v_j ∝ exp(−η Σ_t βᵗ ℓ_j): a weight for each of several experts, from what they have cost so far.

With it, a fast layer on the site's own residual, free of messages (NLMS):

    f_j = (θ_i + δ_j)ᵀφ,   δ_j ← .999 δ_j + μ_j (y − f_j) φ/‖φ‖²,   μ ∈ {0, .1, .3}
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array, Mask

STEPS = np.array([0.0, 0.1, 0.3])  # μ_j; the first is the common model
_KEPT = 0.999  # of δ_j, a row
_ETA = 0.5  # of losses in units of the mean one
_PAST = 0.99  # of a loss, a row later
_MOST = 10.0  # of a loss, in these units: one row cannot settle it


def settled(cost: Array, eta: float = _ETA) -> Array:
    """v (…, J) ∝ exp(−η cost), sum one; costs in units of a usual loss."""
    v = np.exp(-eta * (cost - cost.min(axis=-1, keepdims=True)))
    return np.asarray(v / v.sum(axis=-1, keepdims=True))


class Hedge(NamedTuple):
    """What experts have cost, agent by agent."""

    cost: Array  # (N, J)  Σ_t βᵗ ℓ_j, in units of the mean loss
    mean: Array  # (N,)  of the first expert's losses
    seen: Array  # (N,)  rows, as much as is remembered of them

    @classmethod
    def even(cls, N: int, J: int) -> Hedge:
        """Nobody has cost anything."""
        return cls(np.zeros((N, J)), np.zeros(N), np.zeros(N))

    @property
    def v(self) -> Array:
        """(N, J) weights, sum one."""
        return settled(self.cost)

    def after(self, losses: Array, there: Mask) -> Hedge:
        """With one row more at the agents that are `there` (N,); losses (N, J)."""
        keep = np.where(there, _PAST, 1.0)
        seen = keep * self.seen + there
        usual = losses.min(axis=1)
        mean = np.where(there, self.mean + (usual - self.mean) / np.maximum(seen, 1.0), self.mean)
        unit = np.where(mean > 0, mean, 1.0)[:, None]
        paid = np.minimum(losses / unit, _MOST) * there[:, None]
        return Hedge(keep[:, None] * self.cost + paid, mean, seen)


class Fast(NamedTuple):
    """The fast layer of every site."""

    delta: Array  # (N, J, K, D)
    hedge: Hedge

    @classmethod
    def idle(cls, N: int, K: int, D: int) -> Fast:
        """Before the first row."""
        return cls(np.zeros((N, len(STEPS), K, D)), Hedge.even(N, len(STEPS)))

    def each(self, theta: Array, phi: Array) -> Array:
        """f_j (N, J, K) of one row φ (N, D) a site, θ_i being (N, K, D)."""
        base = np.vecdot(theta, phi[:, None, :])
        return base[:, None, :] + np.vecdot(self.delta, phi[:, None, None, :])

    def mixed(self, f: Array) -> Array:
        """Σ_j v_j f_j (N, K)."""
        return np.asarray(np.sum(self.hedge.v[:, :, None] * f, axis=1))

    def after(self, f: Array, y: Array, phi: Array, there: Mask) -> Fast:
        """Having seen the targets y (N, K) of sites that are `there`."""
        off = np.where(there[:, None, None], y[:, None, :] - f, 0.0)
        size = np.maximum(np.vecdot(phi, phi), 1e-300)
        step = STEPS[:, None] * off / size[:, None, None]
        keep = np.where(there, _KEPT, 1.0)[:, None, None, None]
        delta = keep * self.delta + step[..., None] * phi[:, None, None, :]
        return Fast(delta, self.hedge.after(np.sum(off**2, axis=2), there))
