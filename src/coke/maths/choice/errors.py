"""Errors on rows that were left out: all of them from one decomposition."""

from __future__ import annotations

import numpy as np

from coke.maths.arrays import Array

NOISES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The noise over the signal's variance, α: the ridge of a kernel matrix."""
ROWS = 200


def left_out(K: Array, Y: Array) -> Array:
    """The mean squared error of kernel ridge regression on each row, left out; for each α.

    (Y − K(K + αI)⁻¹Y)_t over what the other rows leave of it: a_t/(K + αI)⁻¹_tt with
    a = (K + αI)⁻¹Y.
    """
    values, vectors = np.linalg.eigh(K)
    inner, squares = vectors.T @ Y, vectors**2
    found = []
    for noise in NOISES:
        weights = 1.0 / (np.maximum(values, 0.0) + noise)
        errors = (vectors @ (weights[:, None] * inner)) / (squares @ weights)[:, None]
        found.append(float(np.mean(errors**2)))
    return np.array(found)


def coefficients(Phi: Array, Y: Array, noise: float) -> Array:
    """Φᵀ(ΦΦᵀ + αI)⁻¹Y (D, K): ridge regression where rows are fewer than features."""
    K = Phi @ Phi.T
    K[np.diag_indices(len(K))] += noise
    return np.asarray(Phi.T @ np.linalg.solve(K, Y))
