"""Quadratic forms that all risks share, such as their regulariser θᵀGθ."""

from __future__ import annotations

import numpy as np

from coke.errors import InputError
from coke.maths.arrays import Array
from coke.maths.losses.risk import Regulariser
from coke.maths.symmetric import positive

STRIP = 256  # rows of a matrix that stay in cache


def checked_regulariser(G: Regulariser, size: int) -> Regulariser:
    """G as a float ≥ 0 or a symmetric matrix (D, D) without negative eigenvalues, or why not."""
    if np.ndim(G) == 0:
        if not 0 <= float(G) < np.inf:
            raise InputError(f"regulariser {G}: expected λ/N ≥ 0")
        return float(G)
    G = np.asarray(G, dtype=np.float64)
    if G.shape != (size, size) or not np.allclose(G, G.T, rtol=1e-10, atol=0):
        raise InputError(f"regulariser of shape {G.shape}: expected symmetric, {(size, size)}")
    lowest = 0.0 if positive(G) else float(np.linalg.eigvalsh(G)[0])
    if lowest < 0:
        raise InputError(
            f"the regulariser's smallest eigenvalue is {lowest:.1e}: expected a positive-definite "
            "matrix, such as λ/N times the identity"
        )
    return G


def across(x: Array, M: Array) -> Array:
    """M_k x_i for a symmetric M (…, D, D) and vectors x (N, K·D) end to end, agent by agent.

    One product an agent: the bits of one for all of them would depend on how many there are.
    """
    D = M.shape[-1]
    if x.shape[-1] == D:
        return np.vecmat(x, M)  # as M is symmetric; reads it faster than matvec
    return (x.reshape(len(x), -1, D) @ M).reshape(x.shape)


def together(x: Array, M: Array) -> Array:
    """The same for one M in one product, where last bits do not matter."""
    return (x.reshape(-1, len(M)) @ M).reshape(x.shape)


def penalty(G: Regulariser, theta: Array) -> Array:
    """θ_iᵀ G θ_i (N,)."""
    return np.asarray(np.vecdot(theta, pulled(G, theta)))


def pulled(G: Regulariser, theta: Array) -> Array:
    """G θ_i (N, K·D); one product a vector, for a GEMM's bits depend on how many there are.

    A few rows of G at a time, which stay in cache from one agent to the next.
    """
    if isinstance(G, float):
        return G * theta
    each = theta.reshape(*theta.shape[:-1], -1, len(G))
    found = np.empty_like(each)
    for first in range(0, len(G), STRIP):
        np.matvec(G[first : first + STRIP], each, out=found[..., first : first + STRIP])
    return found.reshape(theta.shape)


def matrix(G: Regulariser, size: int) -> Array:
    """G as a matrix (D, D)."""
    return G * np.eye(size) if isinstance(G, float) else G
