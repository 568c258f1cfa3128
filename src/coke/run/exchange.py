"""The one thing that differs between one process and many: how Σ_n w_in θ̂_n comes about."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from coke.maths.arrays import Array


class Together:
    """All N agents in one process: one sparse product."""

    def __init__(self, W: sparse.csr_array):
        self._W = W

    def __call__(self, hat: Array) -> Array:
        """Heard (N, D) from θ̂ (N, D)."""
        return self._W @ hat


class Mailbox:
    """One agent among others: it keeps the last message of every agent it hears.

    The weights are its row of W, so the sum is the same product in the same order as `Together`'s,
    and the same bits.
    """

    def __init__(self, row: sparse.csr_array, size: int):
        self.senders: list[int] = row.indices.tolist()
        self._weights = sparse.csr_array(row.data[None, :])
        self._last = np.zeros((len(self.senders), size))

    def deliver(self, sender: int, hat: Array) -> None:
        """A message θ̂_n (D,); silence is no message."""
        self._last[self.senders.index(sender)] = hat

    def heard(self) -> Array:
        """Σ_n w_in θ̂_n (1, D) over the last messages."""
        return self._weights @ self._last
