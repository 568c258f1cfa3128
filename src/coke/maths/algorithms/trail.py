"""Where the root of a tree has been, what the gradients were there, and where that points to.

Of the Hessian of F(u) = (1/N) Σ_i R_i(u) the root has two guesses: c I, for which the basis was
made, and its own, H. M is between them, c (H/c)ᵃ. Which power a is best the moves tell: for a move
s and what it changed the gradient by, y,

    (sᵀMs)(yᵀM⁻¹y) / (sᵀy)² ≥ 1,

and it is 1 where y = Ms. As F is nearly quadratic, the gradients g_j at the places u_j seen so far
tell which combination of these has the least gradient:

    β = argmin ‖Σ_j β_j g_j‖² + Σ_j β_j² ν_j in the norm of M⁻¹,   Σ_j β_j = 1,
    next u = Σ_j β_j (u_j − t M⁻¹g_j),

ν_j what rounding adds to g_j and t ≤ 1 (Anderson's mixing).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coke.maths.arrays import Array

_POWERS = (0.5, 0.3, 0.4, 0.6)  # a: of M at first, and later
_MOVES = (3, 6)  # that tell which is best: at least, and the last ones
_DAMPED, _LONGER = 1.5, 2.0  # M for the mean of the guesses; t for what the last step would allow
_LEAST, _TINY = 1e-12, 1e-13  # of the largest eigenvalue, and of products that are dependent


class Guess:
    """A positive-definite matrix (D, D), the same for every output, by its eigenvectors."""

    def __init__(self, values: Array, vectors: Array):
        self.values, self._V = np.maximum(values, _LEAST * float(values.max())), vectors

    @classmethod
    def of(cls, H: Array) -> Guess:
        """H (D, D)."""
        return cls(*np.linalg.eigh(H))

    def like(self, values: Array) -> Guess:
        """Another with its eigenvectors."""
        return Guess(values, self._V)

    def solved(self, X: Array) -> Array:
        """Its inverse times each row (n, K·D)."""
        return np.asarray((self._along(X) / self.values) @ self._V.T).reshape(X.shape)

    def square(self, X: Array) -> float:
        """Σ xᵀHx over the rows."""
        return float(np.sum(self._along(X) ** 2 * self.values))

    def squares(self, X: Array) -> Array:
        """Of each row (n, K·D) along each eigenvector, the outputs together (n, D)."""
        along = X.reshape(len(X), -1, len(self._V)) @ self._V
        return np.asarray((along**2).sum(axis=1))

    @property
    def inverse(self) -> float:
        """The trace of the inverse."""
        return float((1.0 / self.values).sum())

    def _along(self, X: Array) -> Array:
        return np.asarray(X.reshape(-1, len(self._V)) @ self._V)


class Trail:
    """Where the root has been, what the gradients were, and where that points to."""

    def __init__(self, guesses: Sequence[Guess], most: Guess | None = None, *, shared: bool):
        """`most` limits the first step; `shared`: each output shows what H is, to the last."""
        self._guesses, self._most, self._shared = guesses, most, shared
        self.M = guesses[0]
        self._seen: list[tuple[Array, Array, float]] = []

    @classmethod
    def between(cls, own: Guess, c: float, *, shared: bool) -> Trail:
        """From c I and the root's own Hessian in units of c."""
        guesses = [own.like(_DAMPED * c * own.values**power) for power in _POWERS]
        return cls(guesses, own.like(0.5 * c * (1.0 + own.values)), shared=shared)

    def step(self, u: Array, g: Array, noise: float) -> Array:
        """To the next place (K·D,), where the gradient's square is off by so much noise."""
        seen, width = self._seen, len(self.M.values) if self._shared else len(g)
        self._seen, G = [*seen, (u, g, noise)], g.reshape(-1, width)
        self.M = self._best()
        if not seen:
            return -self._down(G).ravel()
        S, Y = (np.stack([one[j] for one in seen]) - now for j, now in ((0, u), (1, g)))
        S, Y = S.reshape(-1, width), Y.reshape(-1, width)
        each = self.M.inverse / (len(self.M.values) * len(G))  # of the noise, by M⁻¹
        off = np.repeat([each * (one[2] + noise) for one in seen], len(G))
        beta = least(Y, self.M.solved(Y), off, G)
        p = -(beta @ S + self._down(G - beta @ Y)).ravel()
        return p if np.isfinite(p).all() else -self._down(G).ravel()

    def damped(self) -> None:
        """Forgets what was seen, and takes half the steps."""
        self._guesses = [guess.like(2.0 * guess.values) for guess in self._guesses]
        self.M, self._seen = self.M.like(2.0 * self.M.values), []

    def _best(self) -> Guess:
        """The guess that the last moves speak for."""
        least, last = _MOVES
        if len(self._seen) <= least or len(self._guesses) < 2:
            return self.M
        u, g, noise = map(np.array, zip(*self._seen[-last - 1 :], strict=True))
        S, Y, off = np.diff(u, axis=0), np.diff(g, axis=0), noise[1:] + noise[:-1]
        sy, s, y = np.vecdot(S, Y), self.M.squares(S), self.M.squares(Y)

        def apart(guess: Guess) -> float:
            size = np.maximum(y @ (1.0 / guess.values) - off * guess.inverse / len(y[0]), 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.where(sy > 0, (s @ guess.values) * size / sy**2, 1.0)
            return float(np.log(np.maximum(found, 1.0)).sum())

        return min(self._guesses, key=apart)

    def _down(self, G: Array) -> Array:
        """t M⁻¹ of each row."""
        Z = self.M.solved(G)
        return min(1.0, self._length(G, Z)) * Z

    def _length(self, G: Array, Z: Array) -> float:
        """How far Z, M⁻¹G, would best be followed: by the other guess, then by the last step."""
        gain, cost = 0.0, 0.0
        if len(self._seen) > 1:
            (u, g, _), (v, h, _) = self._seen[-2:]
            gain = _LONGER * float((g - h) @ (u - v))
            cost = float((g - h) @ self.M.solved(g - h))
        elif self._most is not None:
            gain, cost = float(np.vdot(G, Z)), self._most.square(Z)
        return gain / cost if gain > 0 and cost > 0 else 1.0


def least(Y: Array, MY: Array, off: Array, G: Array) -> Array:
    """β (K, n) that makes G − βY least by M⁻¹, each β² costing `off` (n,) beside."""
    inner = Y @ MY.T + np.diag(off)
    unit = 1.0 / np.sqrt(np.maximum(np.diag(inner), np.finfo(np.float64).tiny))
    inner = inner * np.outer(unit, unit) + _TINY * np.eye(len(inner))
    return np.asarray(np.linalg.solve(inner, unit[:, None] * (MY @ G.T)).T * unit)
