"""Errors on rows that were left out: all of them from one decomposition.

A site that has all rows knows them exactly (`left_out`). Of a model on all sites' rows it has its
own alone, and of the others' what the basis says of them (`heights`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from coke.errors import MessageError
from coke.maths.alike import alike
from coke.maths.arrays import Array

NOISES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The noise over the signal's variance, α: the ridge of a kernel matrix."""
ROWS = 200
_SLACK = 1e-9
_DRAWN = 1000  # rows in place of the other sites' at most


def left_out(K: Array, Y: Array, noises: Sequence[float] = NOISES) -> Array:
    """The mean squared error of kernel ridge regression on each row, left out; for each α.

    (Y − K(K + αI)⁻¹Y)_t over what the other rows leave of it: a_t/(K + αI)⁻¹_tt with
    a = (K + αI)⁻¹Y.
    """
    values, vectors = np.linalg.eigh(K)
    inner, squares = vectors.T @ Y, vectors**2
    found = []
    for noise in noises:
        weights = 1.0 / (np.maximum(values, 0.0) + noise)
        errors = (vectors @ (weights[:, None] * inner)) / (squares @ weights)[:, None]
        found.append(float(np.mean(errors**2)))
    return np.array(found)


def coefficients(Phi: Array, Y: Array, noise: float) -> Array:
    """Φᵀ(ΦΦᵀ + αI)⁻¹Y (D, K): ridge regression where rows are fewer than features.

    Φ may be in float32; what it stands for is solved in float64.
    """
    K = (Phi @ Phi.T).astype(np.float64, copy=False)
    K[np.diag_indices(len(K))] += noise
    return np.asarray(Phi.T @ np.linalg.solve(K, Y))


def heights(
    white: Array, R: Array, share: float, rows: float, times: Sequence[float] = (1.0,)
) -> Array:
    """h (m, n) of a site's rows C⁻¹φ (n, D): what each adds to its own prediction of all rows' fit.

    h_t = w ψ_tᵀ(w Σ ψψᵀ + (1 − share) B + R)⁻¹ψ_t with w = share/n, and so many times R. Own rows
    are as they are. B is of as many rows as the others have, drawn with the covariance I − R that
    the basis stands for: few rows leave directions empty, along which an own row has its way. A row
    that is left out has error e_t/(1 − h_t).
    """
    n, D = white.shape
    w, others = share / n, int(np.clip(rows - n, 1, _DRAWN))
    try:
        S = w * white.T @ white + (1.0 - share) * _others(R, others) + _SLACK * np.eye(D)
        roots = [cholesky(S + many * R, lower=True, check_finite=False) for many in times]
    except np.linalg.LinAlgError as error:
        raise MessageError("rows or inputs of all sites that leave no basis to judge in") from error
    solved = (solve_triangular(L, white.T, lower=True, check_finite=False) for L in roots)
    return w * np.array([np.sum(one**2, axis=0) for one in solved])


@alike
def _others(R: Array, rows: int) -> Array:
    """B (D, D) of so many rows, drawn."""
    C = np.linalg.cholesky((1.0 + _SLACK) * np.eye(len(R)) - R)
    drawn = np.random.default_rng(0).normal(size=(rows, len(R))) @ C.T
    return np.asarray(drawn.T @ drawn / rows)
