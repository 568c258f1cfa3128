"""Symmetric matrices by their Cholesky factors: a third to a half of the work of general ones.

LAPACK reads columns where NumPy has rows, so its upper triangle is the lower one here.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from coke.maths.arrays import Array

BLOCK = 64  # rows and columns that are mirrored at a time, so that they stay in cache
_ABOVE = np.triu(np.ones((BLOCK, BLOCK), bool), 1)


def _mirrored(M: Array) -> Array:
    """M (D, D) with its lower triangle in place of the upper one, too."""
    for first in range(0, len(M), BLOCK):
        here, below = slice(first, first + BLOCK), slice(first + BLOCK, None)
        M[here, below] = M[below, here].T
        square = M[here, here]
        np.copyto(square, square.T.copy(), where=_ABOVE[: len(square), : len(square)])
    return M


def positive(M: Array) -> bool:
    """Whether M (D, D) is positive definite, to rounding."""
    return bool(_factor(M)[1] == 0)


def _factor(M: Array) -> tuple[Array, int]:
    """Cholesky's; 0 if there is one."""
    factor, failed = lapack.dpotrf(M.T, lower=0, clean=0)
    return factor, int(failed)


def inverse(M: Array) -> Array:
    """M⁻¹ (D, D); of one that is not positive definite, as a noised one may be, by rows."""
    factor, failed = _factor(M)
    if failed:
        return np.asarray(np.linalg.inv(M))
    return _mirrored(lapack.dpotri(factor, lower=0, overwrite_c=1)[0].T)


def inverse_and_size(M: Array) -> tuple[Array, float] | None:
    """M⁻¹ (D, D) and ½ log det M; None of one that is not positive definite."""
    factor, failed = _factor(M)
    if failed:
        return None
    size = float(np.log(np.diag(factor)).sum())
    return _mirrored(lapack.dpotri(factor, lower=0, overwrite_c=1)[0].T), size


def factored(M: Array) -> Array | None:
    """Cholesky's factor for `decrement`; None of one that is not positive definite."""
    factor, failed = _factor(M)
    return None if failed else factor


def decrement(factor: Array | None, g: Array) -> float:
    """Σ_k g_kᵀM⁻¹g_k of the rows of g (K, D); infinite where there is no factor."""
    if factor is None:
        return np.inf
    half = lapack.dtrtrs(factor, g.T, lower=0, trans=1)[0]
    return float(np.vdot(half, half))


def solution(M: Array, r: Array) -> Array:
    """M⁻¹r (D,)."""
    factor, failed = _factor(M)
    if failed:
        return np.asarray(np.linalg.solve(M, r))
    return np.asarray(lapack.dpotrs(factor, r, lower=0)[0])


def congruent(C: Array, A: Array) -> Array:
    """C⁻¹AC⁻ᵀ (D, D) for a lower triangle C."""
    return _mirrored(lapack.dsygst(A.T, C.T, itype=1, lower=0)[0].T)
