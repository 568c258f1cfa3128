"""Local empirical risks R_i(θ) = (1/T_i) Σ_t ℓ(φ(x_it)ᵀθ, y_it) + θᵀGθ, one per agent.

G, the regulariser, is λ/N times the identity (a float) or a positive-definite matrix (D, D).
An algorithm asks a risk for few things only, so losses and algorithms know nothing else of
each other. Row i of every answer depends on row i of the question alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from coke.errors import InputError
from coke.maths.alike import alike, frozen
from coke.maths.arrays import Array
from coke.maths.symmetric import positive

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening
    from coke.maths.losses.problem import Quadratic

STRIP = 256  # rows of a matrix that stay in cache

Regulariser = float | Array
Weights = Sequence[Array | None] | None
"""Of each agent's rows (T_i,), a row of weight w standing for w rows; None: all alike."""
Argmin = Callable[[Array, Array], tuple[Array, Array]]
"""(p, start), each (N, D) → argmin_θ R_i(θ) + ρ d_i ‖θ‖² − p_iᵀθ (N, D), and its loss (N,)."""
Gather = Callable[[Array], Array]
"""Rows of the agents here (n, …) ↦ the rows of all agents (N, …)."""
GatherParts = Callable[[Sequence[Array]], tuple[Array, ...]]
"""The same of a part (T_i, …) for each agent."""


class Risk(Protocol):
    """N local risks over vectors of D entries."""

    @property
    def metric(self) -> str:
        """What the mean loss is called, see `coke.maths.losses`."""
        ...

    @property
    def kappa(self) -> float:
        """κ, the curvature of the loss."""
        ...

    @property
    def T(self) -> Array:
        """T_i (N,), rows per agent."""
        ...

    @property
    def G(self) -> Regulariser:
        """The regulariser, common to all agents and outputs."""
        ...

    @property
    def size(self) -> int:
        """D, entries of θ."""
        ...

    @property
    def sums(self) -> Quadratic | None:
        """The same risks as sums over their rows, where sums say all; None where they do not."""
        ...

    def total(self, weights: Array) -> Quadratic | None:
        """One risk with Σ_i w_i (A_i, b_i, y²_i), w_i ≥ 0 (N,); None where sums do not suffice."""
        ...

    def counted(self, rows: float) -> Risk:
        """The risks with loss T_i/rows times: every row weighs the same, whoever holds it.

        An agent then counts as one with that many rows. With (1/N) Σ_i T_i of them the mean over
        agents is the mean over all rows. Takes the arrays of what it is called on.
        """
        ...

    def rows(self, agents: slice) -> Risk:
        """The risks of those agents alone."""
        ...

    def gathered(self, rows: Gather, parts: GatherParts) -> Risk:
        """The risks of all agents, from what several processes hold of them."""
        ...

    def argmin(self, pull: Array) -> Argmin:
        """The exact local solver for `pull` = ρ d_i (N, 1), all that depends on it prepared."""
        ...

    def approach(self, pull: Array) -> Argmin:
        """The same, or a few steps towards it where those do for a round."""
        ...

    def alone(self) -> Array:
        """argmin R_i(θ) (N, D): what each agent would learn without a message."""
        ...

    def losses(self, theta: Array) -> Array:
        """Mean loss (N,) of θ_i on the rows of agent i, without regulariser."""
        ...

    def global_losses(self, theta: Array) -> Array:
        """Mean loss (M,) of each row of theta (M, D) on the rows of all agents together."""
        ...

    def objectives(self, theta: Array) -> Array:
        """(1/N) Σ_i R_i(θ) (M,) of each row of theta (M, D), regulariser included."""
        ...

    def gradient(self, theta: Array) -> Array:
        """∇R_i(θ_i) (N, D)."""
        ...

    def gram(self, i: int) -> Array:
        """A_i = (1/T_i) Σ_t φφᵀ (d, d) of agent i, d the entries of one feature vector."""
        ...

    def whitened(self, basis: Whitening) -> Risk:
        """The same risks as functions of u = Cᵀθ."""
        ...

    def optimum(self) -> Array:
        """θ* = argmin Σ_i R_i(θ) (D,): what one centre with all rows would learn.

        Every agent weighs the same, so a row of an agent with few weighs more (as in the paper).
        """
        ...


def apart(risk: Risk) -> Array:
    """`Risk.alone` by the local solver, where nothing else is quicker."""
    nobody, zero = np.zeros((len(risk.T), 1)), np.zeros((len(risk.T), risk.size))
    return risk.argmin(nobody)(zero, zero)[0]


def local_only(risk: Risk) -> Array:
    """Each agent alone: argmin R_i(θ) (N, D), without a message."""
    return risk.alone()


def one_shot_average(risk: Risk) -> Array:
    """The mean of the agents' own models (D,): 2(N − 1) messages up and down a tree, once."""
    return np.asarray(local_only(risk).mean(axis=0))


R = TypeVar("R")


def some_of(risk: R, agents: slice, *parts: str) -> R:
    """A dataclass of those agents alone. What was checked when it was built is not again."""
    some: R = object.__new__(type(risk))
    for one in fields(risk):  # type: ignore[arg-type]
        value = getattr(risk, one.name)
        own = value[agents] if one.name in parts and value is not None else value
        object.__setattr__(some, one.name, own)
    return some


def checked_regulariser(G: Regulariser, size: int) -> Regulariser:
    """G as a float ≥ 0 or a symmetric matrix (D, D) without negative eigenvalues, or why not."""
    if np.ndim(G) == 0:
        if not 0 <= float(G) < np.inf:
            raise InputError(f"regulariser {G}: expected λ/N ≥ 0")
        return float(G)
    return _checked_matrix(frozen(np.asarray(G, dtype=np.float64)), size)


def _checked(G: Array, size: int) -> Array:
    square = G.shape == (size, size)
    if not (square and (np.array_equal(G, G.T) or np.allclose(G, G.T, rtol=1e-10, atol=0))):
        raise InputError(f"regulariser of shape {G.shape}: expected symmetric, {(size, size)}")
    lowest = 0.0 if positive(G) else float(np.linalg.eigvalsh(G)[0])
    if lowest < 0:
        raise InputError(
            f"the regulariser's smallest eigenvalue is {lowest:.1e}: expected a positive-definite "
            "matrix, such as λ/N times the identity"
        )
    return G


_checked_matrix = alike(_checked, 2)  # risks made of others have the same one


def penalty(G: Regulariser, theta: Array) -> Array:
    """θ_iᵀ G θ_i (N,)."""
    return np.asarray(np.vecdot(theta, pulled(G, theta)))


def pulled(G: Regulariser, theta: Array) -> Array:
    """G θ_i (N, K·D); one product a vector, for a GEMM's bits depend on how many there are.

    A few rows of G at a time, which stay in cache from one agent to the next.
    """
    if isinstance(G, float):
        return G * theta
    if len(theta) > 1 and theta.strides[0] == 0:  # one θ for all
        return np.broadcast_to(_pulled(G, theta[:1]), theta.shape)
    return _pulled(G, theta)


def _pulled(G: Array, theta: Array) -> Array:
    each = theta.reshape(*theta.shape[:-1], -1, len(G))
    found = np.empty_like(each)
    for first in range(0, len(G), STRIP):
        np.matvec(G[first : first + STRIP], each, out=found[..., first : first + STRIP])
    return found.reshape(theta.shape)
