"""When to stop, and how a budget is shared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Mask, Sizes
from coke.maths.ledger import Ledger, Spent


class Limits(NamedTuple):
    """When to stop."""

    rounds: int
    tol: float | None = None  # once nobody moves by more, in the norm of θ
    max_bytes: int | None = None  # of all agents together
    max_transmissions: int | None = None

    def checked(self) -> Limits:
        """The same, or why not."""
        if self.rounds < 1:
            raise InputError(f"rounds={self.rounds}: expected at least 1")
        if self.tol is not None and not self.tol >= 0:
            raise InputError(f"tol={self.tol}: expected a tolerance, or None to run all rounds")
        for name in ("max_bytes", "max_transmissions"):
            most = getattr(self, name)
            if most is not None and not most > 0:
                raise InputError(f"{name}={most}: expected a positive number, or None for no limit")
        return self

    def over(self, spent: Spent, size: Sizes, N: int) -> Mask:
        """Whose message (A, 1) would exceed its share of the budget, a part in N."""
        share = (self.max_transmissions, self.max_bytes)
        most = np.array([np.inf if total is None else total / N for total in share])
        beyond = after_sending(spent, size) > most
        return np.asarray(beyond.any(axis=1, keepdims=True) & (size > 0))

    def too_small(self, taken: Ledger, need: Spent) -> InputError:
        """For a budget below `need` (2,), the transmissions and bytes of the first messages."""
        budget = {name: n for name, n in self._asdict().items() if name.startswith("max")}
        least = zip(("max_transmissions", "max_bytes"), need, strict=True)
        enough = " and ".join(f"{name}={n}" for name, n in least if budget[name] is not None)
        return InputError(
            f"a budget of {budget}: too small for the agreement, which took {taken.bytes} bytes in "
            f"{taken.transmissions} transmissions, and one message of every site; the smallest "
            f"that would do is {enough}"
        )


def after_sending(spent: Spent, size: Sizes) -> Spent:
    """Transmissions and bytes (A, 2) of each agent once it has sent a message of that size."""
    return spent[:, :2] + np.hstack([size > 0, size])
