"""Classes as corners of a simplex, so that least squares learns all of them from one Gram matrix.

Class k of K has the code v_k (K − 1,), row k of V: the orthonormal columns of Helmert's matrix,
each the difference of one class from the mean of those before it. So all corners are equally far
apart, Σ_k v_k = 0, and VVᵀ = I − 11ᵀ/K. The target of a row is v_y − E v, the mean taken over the
classes' shares p, which all sites agree on: f = 0 then speaks for the shares alone.

A prediction f speaks for class k by its vote v_kᵀ(f + E v). Least squares learns E(v_y | x), so
votes learn P(k | x) − 1/K; probabilities are softmax(s · votes), with a sharpness s that makes
them right on average over all sites' rows. Where nobody may look at rows, s follows from
statistics: see `explained`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_softmax

from coke.errors import MessageError
from coke.maths.arrays import Array

if TYPE_CHECKING:
    from coke.maths.losses import Labels

SHARPNESSES = 2.0 ** np.arange(-1.0, 11.5, 0.5)
"""Those whose mean log loss the sites add up."""


@lru_cache
def corners(K: int) -> Array:
    """V (K, K − 1)."""
    V = np.zeros((K, K - 1))
    for k in range(1, K):
        V[:k, k - 1], V[k, k - 1] = -1.0, k
        V[:, k - 1] /= np.sqrt(float(k * (k + 1)))
    V.flags.writeable = False
    return V


def which(y: Any, classes: Labels) -> Any:
    """The numbers (T,) of labels y among the sorted classes."""
    return np.searchsorted(np.asarray(classes), y)


def code_size(K: int) -> float:
    """‖v_k‖ = √(1 − 1/K), the same for every class; ‖v_k − v_l‖ = √2."""
    return float(np.sqrt(1.0 - 1.0 / K))


def coded(y: Any, classes: Labels) -> Array:
    """v_y (T, K − 1) of the labels y."""
    return corners(len(classes))[which(y, classes)]


def votes(codes: Array) -> Array:
    """Vᵀ-coordinates f + E v (T, K − 1) ↦ how much they speak for each class (T, K)."""
    return codes @ corners(codes.shape[1] + 1).T


def surprises(given: Array, y: Array) -> Array:
    """The mean log loss of softmax(s · votes (T, K)) on classes y (T,), for each s."""
    rows = np.arange(len(y))
    return np.array([-log_softmax(s * given, axis=1)[rows, y].mean() for s in SHARPNESSES])


def explained(vf: float, ff: float, K: int, *, total: bool) -> float:
    """s = K c/√(1 − R²) from means of vᵀf and ‖f‖² alone, c = vf/ff and R² = vf²/((1 − 1/K) ff).

    Between two that are known: c f is the best prediction of v along f, so K c is the slope of
    probabilities 1/K + c · vote, too flat where classes are told apart; and if the f of each class
    were Gaussian around a multiple of v, s would be K c/(1 − R²), too steep where tails are heavy.
    Means from the `total` that f was fitted to, noise and all, overstate R², so they leave it out.
    """
    if not (vf > 0 and ff > 0):
        return float(K)
    share = 0.0 if total else min(vf * vf / ((1.0 - 1.0 / K) * ff), 0.99)
    s = K * (vf / ff) / np.sqrt(1.0 - share)
    return float(np.clip(s, SHARPNESSES[0], SHARPNESSES[-1]))


def sharpest(curve: Array) -> float:
    """The s of least loss: the lowest of those, and a parabola in log s through its neighbours."""
    if not (np.isfinite(curve).all() and (curve >= 0).all()):
        raise MessageError("log losses that cannot be: expected those of class probabilities")
    at = int(np.argmin(curve))
    if not 0 < at < len(curve) - 1:
        return float(SHARPNESSES[at])
    before, here, after = curve[at - 1 : at + 2]
    bend = before - 2.0 * here + after
    shift = 0.25 * (before - after) / bend if bend > 0 else 0.0  # in halves of a power of two
    return float(SHARPNESSES[at] * 2.0**shift)
