"""The slow yardstick: agent by agent, straight from the paper; imports nothing of coke."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Neighbours = list[list[int]]


class Trace(NamedTuple):
    """After every round: all θ_i, all γ_i, and how many messages were sent in it."""

    theta: list[list[Vector]]
    gamma: list[list[Vector]]
    messages: list[int]


def phi(x: Vector, omega: list[Vector], b: list[float] | None) -> Vector:
    """φ_L(x) of equations (realRF1), cosines first, and (realRF2) where phases b are given."""
    L = len(omega)
    if b is not None:
        values = [math.sqrt(2) * math.cos(omega[m] @ x + b[m]) for m in range(L)]
    else:
        values = [math.cos(w @ x) for w in omega] + [math.sin(w @ x) for w in omega]
    return math.sqrt(1 / L) * np.array(values)


def coke(
    Phi: list[Vector],
    y: list[Vector],
    neighbours: Neighbours,
    lam: float,
    rho: float,
    h: Callable[[int], float],
    rounds: int,
) -> Trace:
    """Algorithm 2 with the quadratic loss; h = 0 is Algorithm 1. Φ_i has one row per sample."""
    N, D = len(Phi), Phi[0].shape[1]
    theta: list[Vector] = [np.zeros(D) for _ in range(N)]
    hat = [np.zeros(D) for _ in range(N)]
    gamma = [np.zeros(D) for _ in range(N)]
    trace = Trace([], [], [])
    for k in range(1, rounds + 1):
        for i in range(N):
            T, d = len(y[i]), len(neighbours[i])
            bracket = gamma[i] - rho * sum((hat[i] + hat[n] for n in neighbours[i]), np.zeros(D))
            # stationarity: (2/T)Φᵀ(Φθ − y) + 2(λ/N)θ + 2ρdθ + bracket = 0
            H = 2 / T * Phi[i].T @ Phi[i] + 2 * (lam / N + rho * d) * np.eye(D)
            theta[i] = np.array(np.linalg.solve(H, 2 / T * Phi[i].T @ y[i] - bracket), float)
        sent = [bool(np.linalg.norm(hat[i] - theta[i]) - h(k) >= 0) for i in range(N)]
        for i in range(N):
            if sent[i]:
                hat[i] = theta[i].copy()
        for i in range(N):
            for n in neighbours[i]:
                gamma[i] = gamma[i] + rho * (hat[i] - hat[n])
        trace.theta.append([t.copy() for t in theta])
        trace.gamma.append([g.copy() for g in gamma])
        trace.messages.append(sum(sent))
    return trace


def cta(
    Phi: list[Vector],
    y: list[Vector],
    neighbours: Neighbours,
    lam: float,
    eta: float,
    rounds: int,
) -> Trace:
    """Combine then adapt with Metropolis weights and the gradient of R_i."""
    N, D = len(Phi), Phi[0].shape[1]
    theta = [np.zeros(D) for _ in range(N)]
    trace = Trace([], [], [])
    for _ in range(rounds):
        combined = []
        for i in range(N):
            own, total = 1.0, np.zeros(D)
            for n in neighbours[i]:
                w = 1 / (1 + max(len(neighbours[i]), len(neighbours[n])))
                total, own = total + w * theta[n], own - w
            combined.append(total + own * theta[i])
        for i in range(N):
            psi, T = combined[i], len(y[i])
            gradient = 2 / T * Phi[i].T @ (Phi[i] @ psi - y[i]) + 2 * lam / N * psi
            theta[i] = psi - eta * gradient
        trace.theta.append([t.copy() for t in theta])
        trace.messages.append(N)
    return trace


def optimum(Phi: list[Vector], y: list[Vector], lam: float) -> Vector:
    """θ* of equation (optimal_KRR_RF): every sample scaled by 1/√T_i, then ridge regression."""
    rows = np.concatenate([P / math.sqrt(len(P)) for P in Phi])
    target = np.concatenate([t / math.sqrt(len(t)) for t in y])
    return np.linalg.solve(rows.T @ rows + lam * np.eye(rows.shape[1]), rows.T @ target)


def mse(Phi: list[Vector], y: list[Vector], theta: list[Vector]) -> float:
    """MSE(k) = (1/T) Σ_i Σ_t (y_it − θ_iᵀφ(x_it))²."""
    T = sum(len(t) for t in y)
    return sum(float(np.sum((t - P @ w) ** 2)) for P, t, w in zip(Phi, y, theta, strict=True)) / T
