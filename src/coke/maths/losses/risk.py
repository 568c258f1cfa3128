"""Local empirical risks R_i(θ) = (1/T_i) Σ_t ℓ(φ(x_it)ᵀθ, y_it) + θᵀGθ, one per agent.

G, the regulariser, is λ/N times the identity (a float) or a positive-definite matrix (D, D).
An algorithm asks a risk for few things only, so losses and algorithms know nothing else of
each other. Row i of every answer depends on row i of the question alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Array

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening

Regulariser = float | Array
Argmin = Callable[[Array, Array], tuple[Array, Array]]
"""(p, start), each (N, D) → argmin_θ R_i(θ) + ρ d_i ‖θ‖² − p_iᵀθ (N, D), and its loss (N,)."""


class Risk(Protocol):
    """N local risks over vectors of D entries."""

    @property
    def metric(self) -> str:
        """The name of the mean loss: mse, logistic or hinge."""
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
    def size(self) -> int:
        """D, entries of θ."""
        ...

    def rows(self, agents: slice) -> Risk:
        """The risks of those agents alone."""
        ...

    def argmin(self, pull: Array) -> Argmin:
        """The exact local solver for `pull` = ρ d_i (N, 1), all that depends on it prepared."""
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


def checked_regulariser(G: Regulariser, size: int) -> Regulariser:
    """G as a float ≥ 0 or a symmetric matrix (D, D) without negative eigenvalues, or why not."""
    if np.ndim(G) == 0:
        if not 0 <= float(G) < np.inf:
            raise InputError(f"regulariser {G}: expected λ/N ≥ 0")
        return float(G)
    G = np.asarray(G, dtype=np.float64)
    if G.shape != (size, size) or not np.allclose(G, G.T, rtol=1e-10, atol=0):
        raise InputError(f"regulariser of shape {G.shape}: expected symmetric, {(size, size)}")
    lowest = float(np.linalg.eigvalsh(G)[0])
    if lowest < 0:
        raise InputError(
            f"the regulariser's smallest eigenvalue is {lowest:.1e}: expected a positive-definite "
            "matrix, such as λ/N times the identity"
        )
    return G


def penalty(G: Regulariser, theta: Array) -> Array:
    """θ_iᵀ G θ_i (N,)."""
    return np.asarray(np.vecdot(theta, pulled(G, theta)))


def pulled(G: Regulariser, theta: Array) -> Array:
    """G θ_i (N, D); one matrix–vector product a row, for a GEMM's bits depend on the row count."""
    return G * theta if isinstance(G, float) else np.matvec(G, theta)


def matrix(G: Regulariser, size: int) -> Array:
    """G as a matrix (D, D)."""
    return G * np.eye(size) if isinstance(G, float) else G


def pooled(losses: Array, T: Array) -> float:
    """Σ_i T_i loss_i / Σ_i T_i: the mean over all rows of every agent's loss on its own."""
    return float(losses @ T / T.sum())
