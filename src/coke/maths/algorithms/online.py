"""COKE on a stream: one ordinary round whenever the data have grown by a twentieth.

    S_i, r_i, w_i   statistics with forgetting (`coke.maths.losses.streamed`)
    round           on the common clock, every max(1, w/20) ticks
    h_i             s_i √(D/(N w_i)): what the noise of all sites' rows leaves unknown of a model
    basis           û_i ← T⁻ᵀû_i and g_e ← T g_e with T = C'⁻¹C, on a grid that all share

The round itself is `coke.maths.algorithms.coke`'s. Duals are kept edge by edge: each is rounded
once, at both ends from the same numbers, and enters one end's sum as it is and the other's with the
other sign. So Σ_i γ_i = 0 to the last bit through every change of basis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from coke.maths.algorithms.algorithm import Spoken
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE, State, automatic, say
from coke.maths.arrays import Array, Mask
from coke.maths.features.whitening import Whitening
from coke.maths.graph import Shape, degrees
from coke.maths.losses.problem import Quadratic
from coke.maths.symmetric import positive

GROWTH = 0.05  # of the data between two rounds
_FARTHER = 4.0  # times, where the basis is to be agreed on anew
FAR = 30.0  # λ_max of a site's Gram matrix in a basis that fits
_STEP = 0.5  # of a batch's ρ: from round to round it is the rows that change, too
_PULL = 0.1  # towards zero, in units of P, of what everybody sends first
_EXPONENT = -30  # of the grid of a change of basis: sums of up to 2²³ stay exact


class Following:
    """h_i is whatever the state says: it follows the noise of the agent's rows, up or down."""

    start = 0.0

    def at(self, h: Array, k: int) -> Array:
        """As it is."""
        return h

    def after(self, h: Array, news: Mask) -> Array:
        """As it is."""
        return h


def noise(residual: Array, w: Array, N: int, D: int) -> Array:
    """s_i √(D/(N w_i)) (A, 1), for residuals of size s_i (A,) and w_i rows (A,)."""
    return (residual * np.sqrt(D / (N * np.maximum(w, 1.0))))[:, None]


class Clock(NamedTuple):
    """When rounds are, the same for all agents."""

    w: float = 0.0  # ticks remembered
    since: int = 0  # ticks since the last round

    def ticked(self, beta: float) -> Clock:
        """One tick later."""
        return Clock(beta * self.w + 1.0, self.since + 1)

    @property
    def due(self) -> bool:
        """Whether the data have grown enough for a round."""
        return self.since >= max(1, int(GROWTH * self.w))


class Edges(NamedTuple):
    """Who of the sites near talks to whom: the n that are here, among P that they hear or are."""

    W: sparse.csr_array  # (n, P)  a_in
    ends: sparse.csr_array  # (E, P)  1 at the first end of an edge, −1 at the other
    here: NDArray[np.int64]  # (n,)  places of the sites here

    @classmethod
    def of(cls, W: sparse.csr_array, here: NDArray[np.int64] | None = None) -> Edges:
        """Of an adjacency (P, P); all edges that end here: everywhere, where nobody says."""
        here = np.arange(W.shape[0]) if here is None else here
        upper = sparse.triu(W, 1).tocoo()
        some = np.isin(upper.row, here) | np.isin(upper.col, here)
        first, other = upper.row[some], upper.col[some]
        E = np.arange(len(first))
        rows, cols = np.r_[E, E], np.r_[first, other]
        signs = np.repeat([1.0, -1.0], len(first))
        ends = sparse.csr_array((signs, (rows, cols)), shape=(len(first), W.shape[0]))
        return cls(sparse.csr_array(W[here]), ends, here)

    @classmethod
    def star(cls, d: int) -> Edges:
        """Of one site, at place 0, with d neighbours."""
        W = sparse.lil_array((d + 1, d + 1))
        W[0, 1:] = W[1:, 0] = 1.0
        return cls.of(W.tocsr(), np.zeros(1, np.int64))

    @property
    def d(self) -> Array:
        """d_i (n, 1), how many neighbours each has."""
        return degrees(self.W)


class Linked(NamedTuple):
    """COKE's state, and what it does not tell apart: the dual of every edge."""

    coke: State
    duals: Array  # (E, K·D)  g_e: the edge's first end has it, the other −g_e
    said: Array  # (P, K·D)  û of the sites near


class Online(NamedTuple):
    """Rounds of one algorithm on risks that change from one to the next.

    `start` and `round` are what the sites here do before they transmit, `heard` is what they do
    once they know what the sites near have said.
    """

    algorithm: COKE
    edges: Edges

    @classmethod
    def of(cls, kappa: float, shape: Shape, edges: Edges) -> Online:
        """Half a batch's step size, and thresholds that follow the noise."""
        rho = _STEP * automatic(kappa, shape, 1.0).rho
        return cls(COKE(rho, Following(), Coarse()), edges)

    def start(self, risk: Quadratic) -> tuple[Linked, Spoken]:
        """Everybody says argmin R_i(u) + 0.1 ‖u‖², in a basis that was just agreed on."""
        at = self.idle(risk)
        towards = risk.argmin(np.full((len(risk.T), 1), _PULL))
        theta, loss = towards(at.coke.hat, at.coke.theta)
        hat, spoken = say(theta, at.coke.hat, np.ones((len(theta), 1), bool), self.algorithm.codec)
        return at._replace(coke=at.coke._replace(theta=theta, hat=hat, loss=loss)), spoken

    def idle(self, risk: Quadratic) -> Linked:
        """Before anybody has said anything."""
        E, P = self.edges.ends.shape
        zero = np.zeros((E, risk.size)), np.zeros((P, risk.size))
        return Linked(self.algorithm.start(risk), *zero)

    def round(self, at: Linked, risk: Quadratic, h: Array) -> tuple[Linked, Spoken]:
        """One round of COKE, with the risks and thresholds (n, 1) of now."""
        own = self.algorithm.local(risk, self.edges.d)
        s, spoken = self.algorithm.speak(own, at.coke._replace(h=h), k=2)
        return at._replace(coke=s), spoken

    def heard(self, at: Linked, said: Array, moves: Array | None = None) -> Linked:
        """Once everybody has spoken: û (P, K·D) of the sites near.

        An edge's dual moves by û_i − û_n; where it rests, by what the caller says (E, K·D).
        """
        moves = self.edges.ends @ said if moves is None else moves
        return self.linked(at.coke, at.duals + moves, said)

    def linked(self, s: State, duals: Array, said: Array) -> Linked:
        """That state, with what follows from the duals and from what was said."""
        W, ends, here = self.edges
        g = ends[:, here].T @ duals
        return Linked(s._replace(heard=W @ said, g=g), duals, said)

    def around(self, at: Linked) -> Array:
        """(u_i + Σ_n û_n)/(1 + d_i) (n, K·D): what an agent predicts with, as it costs nothing.

        Its own u_i has the noise of its own rows; the neighbours' have other noise.
        """
        return (at.coke.theta + at.coke.heard) / (1.0 + self.edges.d)

    def moved(self, at: Linked, old: Whitening, new: Whitening) -> Linked:
        """The same in another basis; all compute it alike."""
        change = Change.of(old, new)
        said = _rounded(change.models(at.said))
        duals = _rounded(change.duals(at.duals))
        theta, hat = change.models(at.coke.theta), said[self.edges.here]
        return self.linked(at.coke._replace(theta=theta, hat=hat), duals, said)


class Change(NamedTuple):
    """From u = Cᵀθ to u' = C'ᵀθ."""

    T: Array  # (D, D)  C'⁻¹C, lower triangular

    @classmethod
    def of(cls, old: Whitening, new: Whitening) -> Change:
        """Between two bases."""
        return cls(np.asarray(solve_triangular(new.C, old.C, lower=True)))

    def models(self, u: Array) -> Array:
        """T⁻ᵀu (…, K·D), vector by vector: bits of one product depend on how many there are."""
        rows = u.reshape(-1, len(self.T))
        found = [solve_triangular(self.T, row, lower=True, trans="T") for row in rows]
        return np.array(found).reshape(u.shape)

    def duals(self, g: Array) -> Array:
        """T g (…, K·D), vector by vector."""
        rows = g.reshape(-1, len(self.T))
        return np.array([self.T @ row for row in rows]).reshape(g.shape)


def _rounded(x: Array) -> Array:
    """The nearest on the grid, to even: of −x it is the negative."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(x, -_EXPONENT)), _EXPONENT) + 0.0)


def within(level: float, A: Array) -> bool:
    """Whether λ_max(A) is below it."""
    return positive(level * np.eye(len(A)) - A)


def levels_of(A: Array) -> Array:
    """(n,) the least of 30, 60, 120, … above λ_max of each of the Gram matrices (n, D, D)."""
    return np.array([_level(own) for own in A])


def _level(A: Array) -> float:
    level = FAR
    while not within(level, A) and level < np.inf:
        level *= 2.0
    return level


def misfits(level: Array, A: Array) -> Mask:
    """(n,) whose Gram matrices (n, D, D) have grown away from the basis, which they were near."""
    pairs = zip(level, A, strict=True)
    return np.array([not within(_FARTHER * one, own) for one, own in pairs])
