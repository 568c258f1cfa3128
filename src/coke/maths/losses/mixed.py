"""Quadratic risks, each agent's in the smaller of two forms: a few `Thin` rows, or their sums.

A round reads T_i (2D + T_i) numbers of rows, or D² of sums: rows are fewer while T_i < (√2 − 1)D.

Which one is for T_i and D alone to say, and agents with different numbers of rows are never filled
up to a common one. So an agent's arithmetic is the same among any others: in a simulation, on a
rank, or alone in the field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from coke.maths.alike import frozen
from coke.maths.arrays import Array, FeatureMap
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import Argmin, Gather, GatherParts, Regulariser, penalty
from coke.maths.losses.thin import Thin

if TYPE_CHECKING:
    from coke.maths.features.whitening import Whitening

Index = NDArray[np.int64]
Form = Quadratic | Thin


def widths(T: Sequence[int], D: int) -> list[int]:
    """As many rows as agents keep of T_i: all if they are few, none where sums are shorter.

    D is 0 where λ is: few rows do not say which θ is best then, sums take the one of least norm.
    """
    return [t if t * (2 * D + t) < D * D else 0 for t in T]


def risks_of(
    phi: FeatureMap, X: Sequence[Array], y: Sequence[Array], G: Regulariser
) -> Form | Mixed:
    """Of each agent's rows X_i (T_i, d), y_i (T_i,) or (T_i, K)."""
    D = phi(X[0][:1]).shape[1]

    def made(kind: type[Quadratic] | type[Thin], at: Index) -> Form:
        return kind.from_rows(phi, [X[i] for i in at], [y[i] for i in at], G)

    few = widths(list(map(len, y)), D if np.any(G) else 0)
    return by_width(few, partial(made, Thin), partial(made, Quadratic))


def by_width(
    widths: Sequence[int], thin: Callable[[Index], Form], sums: Callable[[Index], Form]
) -> Form | Mixed:
    """Agents with so many rows in the one form, with none in the other."""
    agents = _alike(widths)
    return _joined([(thin if widths[at[0]] else sums)(at) for at in agents], agents)


def gathered(risk: Form | Mixed, rows: Gather, parts: GatherParts) -> Form | Mixed:
    """From everybody's, whatever their forms: W rows of D numbers each, or D of them of sums."""
    mixed = risk if isinstance(risk, Mixed) else Mixed((risk,), (np.arange(len(risk.T)),))
    own = dict[int, tuple[Array, Array]]()
    for one, at in mixed.both:
        own |= dict(zip(at.tolist(), zip(*_matrices(one), strict=True), strict=True))
    F, z = (parts([own[i][j] for i in range(len(own))]) for j in (0, 1))
    T, yy = rows(mixed.T), rows(mixed.each(_squares))  # (N,), (N, K)
    agents = _alike(list(map(len, F)))
    risks = [
        _risk(np.stack([F[i] for i in at]), np.stack([z[i] for i in at]), yy[at], T[at], mixed.G)
        for at in agents
    ]
    return _joined(risks, agents)


@dataclass(frozen=True)
class Mixed:
    """N quadratic risks of several forms or numbers of rows."""

    risks: tuple[Form, ...]
    agents: tuple[Index, ...]  # whose each of these are, in order
    metric: ClassVar[str] = Quadratic.metric
    kappa: ClassVar[float] = Quadratic.kappa

    @property
    def size(self) -> int:
        """Entries of θ."""
        return self.risks[0].size

    @property
    def G(self) -> Regulariser:
        """Common to all."""
        return self.risks[0].G

    @cached_property
    def T(self) -> Array:
        """T_i (N,)."""
        return self.each(lambda risk, at: risk.T)

    @cached_property
    def sums(self) -> Quadratic:
        """All agents by their sums."""
        every = [risk.sums for risk in self.risks]
        order = np.argsort(np.concatenate(self.agents), kind="stable")
        A, b, yy, T, squares = (
            np.concatenate([getattr(one, name) for one in every])[order]
            for name in ("A", "b", "yy", "T", "squares")
        )
        return Quadratic(A, b, yy, T, self.G, squares=squares)

    def counted(self, rows: float) -> Mixed:
        """Every form by itself."""
        return Mixed(tuple(risk.counted(rows) for risk in self.risks), self.agents)

    def total(self, weights: Array) -> Quadratic:
        """Σ_i w_i (A_i, b_i, y²_i)."""
        every = [risk.total(weights[at]) for risk, at in self.both]
        A, b, yy = (
            reduce(np.add, [getattr(one, name) for one in every]) for name in ("A", "b", "yy")
        )
        return Quadratic(A, b, yy, np.ones(1), self.G)

    def rows(self, agents: slice) -> Form | Mixed:
        """The risks of those agents alone."""
        first, last, _ = agents.indices(len(self.T))
        some = list[tuple[Form, Index]]()
        for risk, at in self.both:
            a, b = np.searchsorted(at, [first, last]).tolist()
            if b > a:
                some.append((risk.rows(slice(a, b)), at[a:b] - first))
        risks, whose = zip(*some, strict=True)
        return _joined(risks, whose)

    def gathered(self, rows: Gather, parts: GatherParts) -> Form | Mixed:
        """From everybody's."""
        return gathered(self, rows, parts)

    def argmin(self, pull: Array) -> Argmin:
        """Each form's own."""
        solvers = [risk.argmin(pull[at]) for risk, at in self.both]

        def solve(p: Array, start: Array) -> tuple[Array, Array]:
            theta, loss = np.empty_like(p), np.empty(len(p))
            for own, at in zip(solvers, self.agents, strict=True):
                theta[at], loss[at] = own(p[at], start[at])
            return theta, loss

        return solve

    def approach(self, pull: Array) -> Argmin:
        """The minimum: no step costs less."""
        return self.argmin(pull)

    def alone(self) -> Array:
        """Each form's own."""
        return self.each(lambda risk, at: risk.alone())

    def losses(self, theta: Array) -> Array:
        """Mean loss of θ_i on the rows of agent i."""
        return self.each(lambda risk, at: risk.losses(theta[at]))

    def gradient(self, theta: Array) -> Array:
        """∇R_i(θ_i)."""
        return self.each(lambda risk, at: risk.gradient(theta[at]))

    def decrements(self, g: Array) -> Array:
        """g_iᵀ(A_i + G)⁻¹g_i (N,)."""
        return self.each(lambda risk, at: risk.decrements(g[at]))

    def gram(self, i: int) -> Array:
        """A_i."""
        for risk, at in self.both:
            place = int(np.searchsorted(at, i))
            if place < len(at) and at[place] == i:
                return risk.gram(place)
        raise IndexError(i)

    def global_losses(self, theta: Array) -> Array:
        """The loss on the rows of all agents together."""
        return self._pooled.global_losses(theta)

    def objectives(self, theta: Array) -> Array:
        """The mean over agents, and the regulariser."""
        return self._mean.global_losses(theta) + penalty(self.G, theta)

    def optimum(self) -> Array:
        """(Σ_i A_i + N G)⁻¹ Σ_i b_i."""
        return self._mean.optimum()

    def whitened(self, basis: Whitening) -> Mixed:
        """The same risks as functions of u = Cᵀθ."""
        G = frozen(basis.regulariser(self.G))  # shared by all forms
        return Mixed(tuple(risk.whitened(basis, G) for risk in self.risks), self.agents)

    @property
    def both(self) -> zip[tuple[Form, Index]]:
        """Each form, and whose it is."""
        return zip(self.risks, self.agents, strict=True)

    def each(self, answer: Callable[[Form, Index], Array]) -> Array:
        """What each form answers for its agents, in the order of all agents (N, …)."""
        found = [answer(risk, at) for risk, at in self.both]
        whole = np.empty((sum(map(len, found)), *found[0].shape[1:]))
        for at, part in zip(self.agents, found, strict=True):
            whole[at] = part
        return whole

    @cached_property
    def _pooled(self) -> Quadratic:
        return self.total(self.T / self.T.sum())

    @cached_property
    def _mean(self) -> Quadratic:
        return self.total(np.full(len(self.T), 1.0 / len(self.T)))


def _joined(risks: Sequence[Form], agents: Sequence[Index]) -> Form | Mixed:
    """Of one form alone, that."""
    return risks[0] if len(risks) == 1 else Mixed(tuple(risks), tuple(agents))


def _alike(wide: Sequence[int]) -> tuple[Index, ...]:
    """The agents of each width."""
    return tuple(np.flatnonzero(np.array(wide) == W) for W in sorted(set(wide)))


def _matrices(risk: Form) -> tuple[Array, Array]:
    """Of each agent F_i (W, D) and z_i (W, K), or A_i (D, D) and b_i (D, K)."""
    if isinstance(risk, Thin):
        return risk.F, risk.z
    return risk.A, risk.b.reshape(len(risk.b), -1, risk.A.shape[-1]).swapaxes(1, 2)


def _squares(risk: Form, at: Index) -> Array:
    """y²_i of each output."""
    if isinstance(risk, Thin):
        return np.asarray((risk.z**2).sum(axis=1))
    return risk.yy[:, None] if risk.squares is None else risk.squares


def _risk(F: Array, z: Array, yy: Array, T: Array, G: Regulariser) -> Form:
    """What `_matrices` has taken apart: only A is square, for rows are fewer than features."""
    if F.shape[1] < F.shape[2]:
        return Thin(F, z, T, G)
    b = z.swapaxes(1, 2).reshape(len(z), -1)
    return Quadratic(F, b, yy.sum(axis=1), T, G, squares=yy)
