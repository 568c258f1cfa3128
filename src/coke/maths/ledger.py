"""Every message and every byte, in two accounts.

The paper's: a broadcast reaches all neighbours and counts once, silence is free. The wire's: a
copy for each neighbour, a header on each, and a silent agent still sends the header of a word, for
otherwise nobody could tell silence from absence.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER = 6  # bytes: flags 1, step 2, tag 2, quiet 1 (the edge protocol's word) …
LONG = 11  # … with an epoch of 2 and twice the bytes for step and quiet, where these are large
STEPS, COUNTS = 2**16, 2**7  # what a short header has room for: steps and counts below
LETTERHEAD = 3  # bytes: kind 1, number 2 (a message of a conversation, or of sums over a tree)
TICKHEAD = 8  # bytes: kind 1, tick 4, number 1, mark 2 (a message of a stream)

Spent = NDArray[np.int64]
"""(N, 3) what each agent has sent: the three numbers of a ledger, a row for each."""


class Ledger(NamedTuple):
    """What has been sent so far."""

    transmissions: int = 0
    bytes: int = 0
    wire_bytes: int = 0

    def told(
        self, size: int, *, messages: int = 1, copies: int = 1, header: int = LETTERHEAD
    ) -> Ledger:
        """With so many more messages of one size, each to so many neighbours at once."""
        return Ledger(
            self.transmissions + messages * (size > 0),
            self.bytes + messages * size,
            self.wire_bytes + messages * copies * (size + header),
        )

    def sent(self, messages: Collection[Sized], *, broadcast: bool) -> Ledger:
        """With these messages more, one for each of some neighbours; in a broadcast all alike."""
        if broadcast and messages:
            return self.told(len(next(iter(messages))), copies=len(messages))
        ledger = self
        for message in messages:
            ledger = ledger.told(len(message))
        return ledger

    @classmethod
    def of(cls, spent: Spent) -> Ledger:
        """All agents together."""
        return cls(*map(int, spent.sum(axis=0)))
