"""A sum that shows none of its parts: masks between every two sites, which cancel modulo 2⁶⁴.

    m_i = v_i + Σ_{j > i} p_ij − Σ_{j < i} p_ij,     Σ_i m_i = Σ_i v_i

v_i are whole numbers, and p_ij = p_ji is a stream that only i and j can draw. So the masks cancel
to the last bit, and whoever lacks one pair's stream sees in m_i, and in every sum with only one of
the two, nothing but uniform numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from coke.maths.arrays import Array

Words = NDArray[np.uint64]  # sums of them wrap around at 2⁶⁴


def _stream(secret: bytes, n: int) -> Words:
    """N uniform words that follow from a secret, and tell nothing of it: SHAKE-256."""
    return np.frombuffer(hashlib.shake_256(secret).digest(8 * n), "<u8").astype(np.uint64)


def masked(whole: Array, me: str, secrets: Mapping[str, bytes]) -> Words:
    """m_i of whole numbers (n,) below 2⁵³; `secrets` are those shared with every other site."""
    words = whole.astype(np.int64).view(np.uint64)
    for other, secret in secrets.items():
        mask = _stream(secret, len(words))
        words = words + mask if me < other else words - mask
    return words


def unmasked(total: Words) -> Array:
    """Σ_i v_i (n,), if it is below 2⁶³, from Σ_i m_i."""
    return total.view(np.int64).astype(np.float64)
