"""How one agent among others adds up what it hears, without an engine."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from coke.maths.arrays import Array


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
