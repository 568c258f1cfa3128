"""What a researcher writes first: a solve per agent and round, the MSE on raw rows.

Nothing here is clever and nothing is sabotaged: Gram matrices are formed once, NumPy does the
solving. It is the yardstick of `benchmarks/simulate.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def coke(
    Phi: list[Array],
    y: list[Array],
    neighbours: list[list[int]],
    lam: float,
    rho: float,
    v: float,
    mu: float,
    rounds: int,
) -> tuple[Array, int, float]:
    """COKE; returns θ (N, D), the number of transmissions and the last training MSE."""
    N, D = len(Phi), Phi[0].shape[1]
    T = sum(len(target) for target in y)
    A = [P.T @ P / len(P) for P in Phi]
    b = [P.T @ target / len(P) for P, target in zip(Phi, y, strict=True)]
    theta, hat, gamma = np.zeros((N, D)), np.zeros((N, D)), np.zeros((N, D))
    transmissions, mse = 0, 0.0
    for k in range(1, rounds + 1):
        for i in range(N):
            d = len(neighbours[i])
            pull = rho * (d * hat[i] + hat[neighbours[i]].sum(axis=0)) - gamma[i]
            H = 2 * (A[i] + (lam / N + rho * d) * np.eye(D))
            theta[i] = np.linalg.solve(H, 2 * b[i] + pull)
        for i in range(N):
            if np.linalg.norm(theta[i] - hat[i]) >= v * mu**k:
                hat[i] = theta[i]
                transmissions += 1
        for i in range(N):
            heard = hat[neighbours[i]].sum(axis=0)
            gamma[i] += rho * (len(neighbours[i]) * hat[i] - heard)
        mse = sum(float(np.sum((y[i] - Phi[i] @ theta[i]) ** 2)) for i in range(N)) / T
    return theta, transmissions, mse
