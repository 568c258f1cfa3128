"""Every message and every byte, in two accounts.

The paper's: a broadcast reaches all neighbours and counts once, silence is free. The wire's: a
copy for each neighbour, a header on each, and a silent agent still sends the header, for
otherwise nobody could tell silence from absence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.maths.arrays import Array, Sizes

HEADER = 13  # bytes: flags 1, epoch 2, step 4, tag 4, quiet 2 (the edge protocol's word)


class Ledger(NamedTuple):
    """What has been sent so far."""

    transmissions: int = 0
    bytes: int = 0
    wire_bytes: int = 0

    def after(self, size: Sizes, d: Array) -> Ledger:
        """With one more round: agents sent so many bytes (N, 1) to d_i neighbours (N, 1)."""
        return Ledger(
            self.transmissions + int(np.count_nonzero(size)),
            self.bytes + int(size.sum()),
            self.wire_bytes + int((d * (HEADER + size)).sum()),
        )
