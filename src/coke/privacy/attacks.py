"""What a site's messages give away: attacks on plain COKE, so that nobody takes it for private.

An agent's θ_iᵏ minimises a quadratic whose linear part is known to whoever hears its neighbours:

    A_i θ_iᵏ − b_i = ½ rᵏ − (G + ρ d_i) θ_iᵏ,    rᵏ = −γ_iᵏ⁻¹ + ρ Σ_n (θ̂_i + θ̂_n)ᵏ⁻¹,

one linear equation in (A_i, b_i) a message, and D + 1 messages determine both. Of K outputs a
message has K such equations in one A_i, so (D + K)/K messages do. A gradient at a known place is
such an equation too, ½∇R_i(u) − Gu = A_i u − b_i: what a leaf of the tree tells its parent. From
A_i and b_i follow rows of small sites, the row that came between two runs, and who was in the data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coke.errors import InputError
from coke.maths.algorithms.coke import COKE
from coke.maths.arrays import Array, Mask
from coke.maths.features.features import DrawnFeatures
from coke.maths.graph import Graph, adjacency, degrees
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Regulariser, Risk
from coke.privacy.noise import Statistics

STEPS = 60  # of Levenberg and Marquardt
PRIOR = 0.1  # weight of a guess of A_i beside equations that count 1
FOUND = 1e-9  # a residual this small is a solution
_LEVEL = 1e-200  # of a slope that is none: nothing leads on, and nothing is divided by zero


class Known(NamedTuple):
    """What everybody knows of agent i: the settings and the graph are no secret."""

    G: Regulariser  # λ/N, or the whitened regulariser
    rho: float
    d: int  # neighbours
    warm: bool = False  # the first message is the agent's own minimum


class _View(NamedTuple):
    """What was said around agent i in rounds 1 … R."""

    hat: Array  # (R, K·D)    θ̂_iᵏ
    heard: Array  # (R, K·D)  Σ_n θ̂_nᵏ, or what an onlooker takes for it
    spoke: Mask  # (R,)       whether i said something in round k


def full_view(hats: Array, spoke: Mask, graph: Graph, i: int) -> _View:
    """All messages around agent i, from θ̂ (R, N, K·D) and who spoke (R, N)."""
    return _View(hats[:, i], hats[:, sorted(graph[i])].sum(axis=1), spoke[:, i])


def neighbours_view(hats: Array, spoke: Mask, graph: Graph, i: int, n: int) -> _View:
    """What neighbour n of i receives; for a neighbour of i that it cannot hear it takes θ̂_i.

    If i has no neighbour but n, or none that n does not hear, this is the full view.
    """
    if n not in graph[i]:
        raise InputError(f"agent {n} is no neighbour of {i}: expected one of {sorted(graph[i])}")
    within = {n, *graph[n]}
    seen = hats[:, sorted(within.intersection(graph[i]))].sum(axis=1)
    unseen = len(set(graph[i]) - within)
    return _View(hats[:, i], seen + unseen * hats[:, i], spoke[:, i])


def reconstruct(
    view: _View, known: Known, guess: Array | None = None, outputs: int = 1
) -> Statistics:
    """(A_i, b_i) by least squares from all rounds in which i spoke.

    A `guess` of A_i, such as the agreed P, helps where messages are coarse: least squares with
    PRIOR² ‖A − guess‖² added.
    """
    D = view.hat.shape[1] // outputs
    theta, right = _equations(view, known, D)
    off = np.sqrt(1.0 + np.vecdot(theta, theta))  # each equation counts alike
    return _solved(theta, right, off, guess)


class Gradients(NamedTuple):
    """What a parent on the tree is told of a leaf, m times."""

    u: Array  # (m, K·D)  where
    g: Array  # (m, K·D)  ∇R_i(u), rounded
    step: Array  # (m,)   to multiples of this


def from_gradients(told: Gradients, G: Regulariser, guess: Array, outputs: int = 1) -> Statistics:
    """(A_i, b_i) by least squares, each equation weighed by its rounding, against a guess of A_i.

    A is found along differences of places only: with fewer than D of them the rest is the guess.
    """
    D = told.u.shape[1] // outputs
    u, g = (x.reshape(len(x), outputs, D) for x in (told.u, told.g))
    unsure = 3.0 * np.linalg.norm(guess) / D  # of an entry of the guess
    off = 0.5 * told.step[:, None] / np.sqrt(12.0) / (PRIOR * unsure)
    return _solved(u, 0.5 * g - u @ matrix(G, D), np.maximum(off, 1e-9), guess)


def _solved(theta: Array, right: Array, off: Array, guess: Array | None) -> Statistics:
    """A θ − b = right (R, K, D), each equation (R, K) divided by how far it may be off."""
    rounds, K, D = theta.shape
    left = np.concatenate([theta, np.broadcast_to(-np.eye(K), (rounds, K, K))], axis=2)
    left, right = ((x / off[:, :, None]).reshape(rounds * K, -1) for x in (left, right))
    if guess is not None:
        prior = PRIOR * np.eye(D, D + K)
        left, right = np.vstack([left, prior]), np.vstack([right, PRIOR * guess])
    solution = np.linalg.lstsq(left, right, rcond=None)[0]
    A = solution[:D]
    return Statistics(0.5 * (A + A.T), solution[D:].ravel())


def _equations(view: _View, known: Known, D: int) -> tuple[Array, Array]:
    """θ_iᵏ and ½ rᵏ − (G + ρ d_i) θ_iᵏ (R, K, D) of the rounds in which i spoke."""
    nothing = np.zeros((1, view.hat.shape[1]))
    hat = np.vstack([nothing, view.hat[:-1]])
    heard = np.vstack([nothing, view.heard[:-1]])
    g = np.cumsum(known.d * hat - heard, axis=0)  # γ/ρ
    pull = np.full((len(hat), 1), known.rho * known.d)
    pull[0] *= not known.warm
    r = known.rho * (known.d * hat + heard - g)
    theta, right = (x.reshape(len(hat), -1, D) for x in (view.hat, 0.5 * r - pull * view.hat))
    return theta[view.spoke], (right - theta @ matrix(known.G, D))[view.spoke]


class Probing(NamedTuple):
    """An active neighbour's plan."""

    spy: int
    victim: int
    probes: Array  # (n, D)  δ, one after the other
    patience: int  # rounds between two


def probe(risk: Risk, graph: Graph, algorithm: COKE, plan: Probing) -> Array:
    """The victim's replies (n, D) to a neighbour's probes, on the edge between them.

    The neighbour says 0 until little moves any more, then one probe, then 0 again. Others hear of
    the probe only through the victim, so its next message has moved by 2ρ M δ alone.
    """
    W = adjacency(graph)
    own, s, k = algorithm.local(risk, degrees(W)), algorithm.start(risk), 0
    replies = np.empty_like(plan.probes)
    for j, delta in enumerate(plan.probes):
        before = s.hat[plan.victim]
        for said in (*[0.0 * delta] * plan.patience, delta, 0.0 * delta):
            before, k = s.hat[plan.victim], k + 1
            s, _ = algorithm.speak(own, s, k)
            hat = s.hat.copy()
            hat[plan.spy] = said
            s = algorithm.listen(own, s._replace(hat=hat), W @ hat)
        replies[j] = s.hat[plan.victim] - before
    return replies


def from_probes(probes: Array, replies: Array, known: Known) -> Array:
    """A_i = ½ M⁻¹ − G − ρ d_i from replies 2ρ M δ to probes δ on one edge."""
    M = np.linalg.lstsq(2 * known.rho * probes, replies, rcond=None)[0]
    A = 0.5 * np.linalg.inv(0.5 * (M + M.T)) - matrix(known.G, len(M))
    return np.asarray(A - known.rho * known.d * np.eye(len(M)))


def _preimages(features: DrawnFeatures, Q: Array, t: Array, starts: Array) -> tuple[Array, Array]:
    """From every start (S, d) an x with small ‖Qφ(x) − t‖, and that norm (S,)."""
    x, damping = starts.copy(), np.full(len(starts), 1e-2)
    miss = features(x) @ Q.T - t
    for _ in range(STEPS):
        J = Q @ _slopes(features, x)
        JT = J.swapaxes(1, 2)
        H = JT @ J
        size = damping * np.maximum(np.trace(H, axis1=1, axis2=2), _LEVEL)
        H += size[:, None, None] * np.eye(H.shape[-1])
        step = np.linalg.solve(H, JT @ miss[:, :, None])[:, :, 0]
        now = features(x - step) @ Q.T - t
        better = np.vecdot(now, now) < np.vecdot(miss, miss)
        x[better] -= step[better]
        miss[better] = now[better]
        damping = np.clip(np.where(better, damping / 10, damping * 5), 1e-15, 1e3)
    return x, np.sqrt(np.vecdot(miss, miss))


def _slopes(features: DrawnFeatures, X: Array) -> Array:
    """∂φ/∂x (S, D, d)."""
    omega, angle = features.omega, X @ features.omega.T
    if len(features.phase):
        waves = [-np.sin(angle + features.phase)[:, :, None] * omega]
    else:
        waves = [-np.sin(angle)[:, :, None] * omega, np.cos(angle)[:, :, None] * omega]
    slopes = features.height * np.concatenate(waves, 1)
    if not features.linear:
        return np.asarray(slopes)
    lines = features.linear * np.eye(X.shape[1] + 1, X.shape[1])
    return np.concatenate([slopes, np.broadcast_to(lines, (len(X), *lines.shape))], 1)


def _inverted(features: DrawnFeatures, phi: Array, starts: Array) -> tuple[Array, float]:
    """X (d,) with φ(x) nearest to phi (D,), and how far it is."""
    x, miss = _preimages(features, np.eye(len(phi)), phi, starts)
    return x[miss.argmin()], float(miss.min())


def recovered_rows(
    features: DrawnFeatures, found: Statistics, T: int, starts: Array
) -> tuple[Array, Array]:
    """Rows X (t, d), y (t,) or (t, K) of a site with few rows: the x with φ(x) in the range of A.

    Rows found are taken away, so that the range of the rest is smaller and the search easier.
    """
    X = np.empty((0, features.omega.shape[1]))
    for _ in range(T):
        left = T * found.A - features(X).T @ features(X)
        beyond = np.linalg.eigh(left)[1][:, : features.size - (T - len(X))]
        x, miss = _preimages(features, beyond.T, np.zeros(beyond.shape[1]), starts)
        fresh = _distinct(X, x[miss.argsort()][np.sort(miss) < FOUND])[: T - len(X)]
        X = np.vstack([X, fresh])
        if len(X) == T or not len(fresh):
            break
    b = found.b.reshape(-1, features.size)
    y = np.linalg.lstsq(features(X).T, T * b.T, rcond=None)[0]
    return X, np.asarray(y[:, 0] if len(b) == 1 else y)


def _distinct(X: Array, new: Array) -> Array:
    """Those of the new rows that are neither in X nor among the new ones before them."""
    have, first = list(X), len(X)
    for x in new:
        if all(np.abs(x - other).max() > 1e-4 for other in have):
            have.append(x)
    return np.array(have[first:]).reshape(-1, X.shape[1])


def _added_row(
    features: DrawnFeatures, before: Statistics, after: Statistics, T: int, starts: Array
) -> tuple[Array, float, float]:
    """The row (x, y) that came between two runs with T and T + 1 rows, and how far φ(x) is off.

    (T + 1)A' − TA = φφᵀ and (T + 1)b' − Tb = φy; φ is known up to its sign, which only one x fits.
    """
    values, vectors = np.linalg.eigh((T + 1) * after.A - T * before.A)
    phi = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    tried = [(_inverted(features, sign * phi, starts), sign) for sign in (1.0, -1.0)]
    (x, miss), sign = min(tried, key=lambda one: one[0][1])
    y = sign * float(phi @ ((T + 1) * after.b - T * before.b)) / max(values[-1], 1e-300)
    return x, y, miss


class _Population(NamedTuple):
    """Moments of v = (φφᵀ, φy) over rows like the site's: what an attacker knows beforehand."""

    mean: Array  # (V,)
    values: Array  # (V,)      eigenvalues of the covariance
    vectors: Array  # (V, V)


def population(Phi: Array, y: Array) -> _Population:
    """From rows Φ (R, D), y (R,) or (R, K) of the same kind."""
    v = _products(Phi, y)
    values, vectors = np.linalg.eigh(np.cov(v, rowvar=False))
    return _Population(v.mean(axis=0), np.maximum(values, 0.0), vectors)


def membership_scores(found: Statistics, T: int, usual: _Population, Phi: Array, y: Array) -> Array:
    """(v − m)ᵀ(Σ + τ)⁻¹(v̄ − m) of each row: larger for rows that are in the site's mean v̄."""
    mean = np.concatenate([found.A[np.tril_indices(len(found.A))], found.b])
    tau = usual.values.sum() / T
    weights = 1 / (usual.values + tau)
    direction = usual.vectors @ (weights * ((mean - usual.mean) @ usual.vectors))
    return np.asarray((_products(Phi, y) - usual.mean) @ direction)


def _products(Phi: Array, y: Array) -> Array:
    rows, columns = np.tril_indices(Phi.shape[1])
    targets = y.reshape(len(y), -1).T
    return np.hstack([Phi[:, rows] * Phi[:, columns], *(Phi * z[:, None] for z in targets)])


def auc(members: Array, others: Array) -> float:
    """The chance that a member scores higher than another: ½ is guessing, 1 is certainty."""
    beaten = [np.searchsorted(np.sort(others), members, side).mean() for side in ("left", "right")]
    return float(sum(beaten) / (2 * len(others)))  # a tie counts half
