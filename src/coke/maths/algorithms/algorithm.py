"""What an algorithm is: how it starts, what it does before it transmits, and after.

A round is split at its one communication, so that one process, a cluster and a network of agents
run the same code: `speak`, then an exchange that brings Σ_n w_in θ̂_n, then `listen`. Axis 0 runs
over whichever agents the caller holds. `docs/adding-an-algorithm.md` is a guide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from scipy import sparse

from coke.maths.algorithms.codecs import Codec
from coke.maths.arrays import Array, Sizes
from coke.maths.losses.risk import Risk

State = Any
"""A named tuple of arrays with at least θ_i `theta`, θ̂_i `hat` (A, W) and `loss` (A,)."""


class Payloads(Mapping[int, bytes]):
    """Row ↦ its message, packed when it is asked for."""

    def __init__(self, rows: Sequence[int], message: Callable[[int], bytes]):
        self._at, self._message = {row: at for at, row in enumerate(rows)}, message

    def __getitem__(self, row: int) -> bytes:
        return self._message(self._at[row])

    def __iter__(self) -> Iterator[int]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


class Spoken(NamedTuple):
    """What agents transmit in a round."""

    size: Sizes  # (A, 1)  bytes of each message; 0 is silence
    payloads: Mapping[int, bytes] = {}  # row ↦ its message, where messages are coded


class Algorithm(ABC):
    """Frozen settings and a few functions; all that changes is in the state they hand on."""

    codec: Codec | None = None  # of its messages; without one they are float64, for one machine
    elastic: ClassVar[bool] = False  # whether it bears neighbours that miss rounds, come or go

    def weights(self, A: sparse.csr_array) -> sparse.csr_array:
        """w_in (N, N): with which weight agent i hears agent n; by default those of A, all one."""
        return A

    def width(self, risk: Risk) -> int:
        """W, the numbers in a message; by default as many as in θ."""
        return risk.size

    def told(self, hat: Array) -> Array:
        """θ_i as the messages θ̂ (A, W) tell it (A, D): what a tolerance compares."""
        return hat

    @abstractmethod
    def local(self, risk: Risk, d: Array) -> Any:
        """What stays fixed in a run for the agents of these risks, with d_i neighbours (A, 1)."""

    @abstractmethod
    def start(self, risk: Risk) -> State:
        """The state before round 1."""

    @abstractmethod
    def speak(self, own: Any, s: State, k: int) -> tuple[State, Spoken]:
        """Round k up to the transmission of θ̂_i, and what is transmitted."""

    @abstractmethod
    def listen(self, own: Any, s: State, heard: Array) -> State:
        """The rest of the round, given Σ_n w_in θ̂_n (A, W)."""
