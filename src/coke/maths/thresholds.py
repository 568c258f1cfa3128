"""Censoring thresholds h(k), k = 1, 2, …: any non-increasing, non-negative sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coke.errors import InputError


@dataclass(frozen=True)
class Geometric:
    """h(k) = v μᵏ; v = 0 never censors, which is DKLA."""

    v: float = 1.0
    mu: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.mu < 1:
            raise InputError(f"mu={self.mu}: expected 0 < μ < 1; the paper uses 0.95 … 0.99")
        if not 0 <= self.v < math.inf:
            raise InputError(f"v={self.v}: expected v ≥ 0; v = 0 sends in every round (DKLA)")

    def __call__(self, k: int) -> float:
        """h(k)."""
        return self.v * self.mu**k


@dataclass(frozen=True)
class Sequential:
    """h(k) = values[k − 1]; the last value holds for ever after."""

    values: tuple[float, ...]

    def __init__(self, values: Sequence[float]):
        h = tuple(float(value) for value in values)
        if not h or not math.isfinite(h[0]) or h[-1] < 0:
            raise InputError(f"thresholds {h[:5]}…: expected at least one finite number ≥ 0")
        for k, (a, b) in enumerate(pairwise(h), start=2):
            if not b <= a:
                raise InputError(
                    f"h({k}) = {b} after h({k - 1}) = {a}: thresholds must not increase; "
                    "sort them or use a geometric sequence"
                )
        object.__setattr__(self, "values", h)

    def __call__(self, k: int) -> float:
        """h(k)."""
        return self.values[min(k, len(self.values)) - 1]


@dataclass(frozen=True)
class Shrinking:
    """h_i is `start` at first, and `factor` times smaller after every silent round of agent i.

    It stays after a send. So censoring goes on for as long as the run does, where v μᵏ falls below
    every innovation at last. And it never exceeds `start` · ceilingᵏ, which puts the censored agent
    under the paper's Theorem 2; in practice silence has long shrunk it below that.
    """

    start: float
    factor: float = 0.9
    ceiling: float = 0.99

    def __post_init__(self) -> None:
        if not (0 <= self.start < math.inf and 0 < self.factor < 1):
            raise InputError(
                f"start={self.start}, factor={self.factor}: expected start ≥ 0, 0 < factor < 1"
            )
        if not 0 < self.ceiling < 1:
            raise InputError(f"ceiling={self.ceiling}: expected 0 < ceiling < 1")

    def bound(self, k: int) -> float:
        """What h_i may be at most in round k."""
        return self.start * self.ceiling**k


Threshold = Callable[[int], float]
"""k ↦ h(k); one of the above, or any function that does not increase."""
NEVER_SILENT = Geometric(v=0.0)
