"""Every message and every byte, in two accounts.

The paper's: a broadcast reaches all neighbours and counts once, silence is free. The wire's: a
copy for each neighbour, a header on each, and a silent agent still sends the header, for
otherwise nobody could tell silence from absence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array, Mask

HEADER = 13  # bytes: flags 1, epoch 2, step 4, tag 4, quiet 2 (the edge protocol's word)
FLOAT = 8  # bytes of an entry of θ


class Ledger(NamedTuple):
    """What has been sent so far."""

    transmissions: int = 0
    bytes: int = 0
    wire_bytes: int = 0

    def after(self, news: Mask, d: Array, payload: int) -> Ledger:
        """With one more round: agents with news (N, 1) sent so many bytes to d_i neighbours."""
        spoke = int(np.count_nonzero(news))
        copies = int(d[news].sum())
        return Ledger(
            self.transmissions + spoke,
            self.bytes + spoke * payload,
            self.wire_bytes + int(d.sum()) * HEADER + copies * payload,
        )
