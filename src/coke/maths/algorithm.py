"""What an algorithm is: how it starts, what it does before it transmits, and after.

A round is split at its one communication, so that one process, a cluster and a network of
agents run the same code: `speak`, then an exchange that brings Σ_n w_in θ̂_n, then `listen`.
Axis 0 runs over whichever agents the caller holds. `docs/adding-an-algorithm.md` is a guide.
"""

from __future__ import annotations

from typing import Any, Protocol

from scipy import sparse

from coke.maths.arrays import Array, Sizes
from coke.maths.graph import Graph
from coke.maths.risks import Risk

State = Any
"""A named tuple of arrays with at least θ_i `theta`, θ̂_i `hat` (A, D) and `loss` (A,)."""


class Algorithm(Protocol):
    """Frozen settings and five functions; all that changes is in the state they hand on."""

    def weights(self, graph: Graph) -> sparse.csr_array:
        """w_in (N, N): with which weight agent i hears agent n."""
        ...

    def local(self, risk: Risk, d: Array) -> Any:
        """What stays fixed in a run for the agents of these risks, with d_i neighbours (A, 1)."""
        ...

    def start(self, risk: Risk) -> State:
        """The state before round 1."""
        ...

    def speak(self, own: Any, s: State, k: int) -> tuple[State, Sizes]:
        """Round k up to the transmission of θ̂_i; and the bytes of it (A, 1), 0 for silence."""
        ...

    def listen(self, own: Any, s: State, heard: Array) -> State:
        """The rest of the round, given Σ_n w_in θ̂_n (A, D)."""
        ...
