"""What attacks have found of a site, and what follows from its statistics once they are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coke.learning.case import Case
from coke.learning.ready import Ready
from coke.maths.arrays import Array
from coke.privacy.attacks import auc, membership_scores, population, recovered_rows
from coke.privacy.noise import Statistics, projected

GRAM = "relative error of the Gram matrix"
FEW = 20  # rows that can be searched for one by one
SEARCHED = 200  # starting points of such a search
SOME = 400  # rows of each kind for the membership test
SMALL = 24  # entries of θ up to which membership of products is computed in seconds


class Finding(NamedTuple):
    """One attack and what it found."""

    attack: str
    measure: str
    value: float
    guessing: float  # what the same measure is without the attack
    meaning: str
    learns: bool  # more than everybody knows


class Audit(NamedTuple):
    """The site that was attacked, and what was found."""

    site: str
    neighbour: str  # who attacks
    overheard: str  # how long
    findings: list[Finding]


def off(found: Array, truth: Array) -> float:
    """‖found − truth‖/‖truth‖."""
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def of_gram(who: str, miss: float, base: float, private: bool) -> Finding:
    """How near an attack has come to a site's Gram matrix, and to guessing."""
    said = "no better than what the agreement tells everybody"
    if miss < 1e-3:
        what = "noised Gram matrix, which is no secret," if private else "Gram matrix"
        said = f"the site's {what} is known"
    elif miss < 0.5 * base:
        said = "partly known"
    learns = miss < 0.5 * base and not (private and miss < 1e-3)
    return Finding(who, GRAM, miss, base, said, learns)


def of_rows(ready: Ready, case: Case, found: Statistics, i: int) -> list[Finding]:
    """From the Gram matrix to rows, and to who is in the data."""
    plain, rows = _plain(case, found, float(ready.times[i])), ready.rows
    assert rows is not None
    X, y = rows.X[i], ready.agreement.making.coded(rows.y[i])
    out = []
    if len(X) <= FEW:
        rng = np.random.default_rng(0)
        spread = np.maximum(X.std(axis=0), 1e-3)
        starts = X.mean(axis=0) + spread * rng.normal(size=(SEARCHED, X.shape[1]))
        got, _ = recovered_rows(ready.agreement.features, plain, len(X), starts)
        hit = sum(bool((np.abs(got - x).max(axis=1) < 1e-3).any()) for x in X) if len(got) else 0
        said = f"{hit} of {len(X)} rows read off"
        share = hit / len(X)
        out.append(
            Finding("inverts the features", "share of rows found", share, 0.0, said, hit > 0)
        )
    if ready.agreement.features.size <= SMALL and sum(map(len, rows.y)) > 2 * SOME:
        out.append(_membership(ready, plain, i, (X, y)))
    return out


def _plain(case: Case, found: Statistics, times: float) -> Statistics:
    """In the plain features: A = C Ã Cᵀ, b = C b̃; of a site's own rows, whose number is known."""
    A, b = times * found.A, times * found.b
    if case.basis is None:
        return Statistics(projected(A), b)
    C = case.basis.C
    return Statistics(projected(C @ A @ C.T), (b.reshape(-1, len(C)) @ C.T).ravel())


def _membership(ready: Ready, found: Statistics, i: int, own: tuple[Array, Array]) -> Finding:
    (X, y), rows = own, ready.rows
    assert rows is not None
    others = [n for n in range(len(rows.X)) if n != i]
    Z = ready.agreement.features(np.concatenate([rows.X[n] for n in others]))
    z = np.concatenate([ready.agreement.making.coded(rows.y[n]) for n in others])
    rng, half = np.random.default_rng(0), len(Z) // 2
    order, some = rng.permutation(len(Z)), rng.permutation(len(X))[:SOME]
    Z, z, X_some, y_some = Z[order], z[order], X[some], y[some]
    usual = population(Z[:half], z[:half])
    mine = membership_scores(found, len(X), usual, ready.agreement.features(X_some), y_some)
    theirs = membership_scores(found, len(X), usual, Z[half:][:SOME], z[half:][:SOME])
    share = auc(mine, theirs)
    learns = share > 0.6
    said = "who is in the data can be told" if learns else "hardly better than guessing"
    return Finding("asks who is in the data", "ranked right (AUC)", share, 0.5, said, learns)


def verdict_of(site: str, found: Sequence[Finding]) -> str:
    """In one sentence, who learns more of a site than everybody knows."""
    learn = [one for one in found if one.learns]
    more = f"more of site {site} than everybody knows"
    if not learn:
        return f"none of {len(found)} attacks learns {more}"
    such = f"such as whoever {learn[0].attack}: {learn[0].meaning}"
    return f"{len(learn)} of {len(found)} attacks learn {more}, {such}"


def as_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    """For JSON and tables."""
    return [finding._asdict() for finding in findings]
