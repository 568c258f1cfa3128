"""Numbers."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from coke.estimators.consensus import Consensus, validated
from coke.maths.losses import NUMBERS


class COKERegressor(RegressorMixin, Consensus):
    """Decentralised kernel ridge regression by COKE, DKLA or CTA on random features.

    Parameters
    ----------
    n_agents : sites to deal the rows out to, where `fit` is given no `sites`.
    graph, edges : a name ("random", with so many edges, "ring", …) or a networkx.Graph on labels.
    algorithm : a name: "coke" (nothing to tune), or the paper's "coke-paper", "dkla" and "cta"; or
        with settings: `Coke(…)`, `CokePaper(rho, v, mu)`, `DKLA(rho)`, `Diffusion(eta)`; or an
        `Algorithm` of your own, in simulations.
    loss : "quadratic".
    features : `Features(n_features, kernel, sigma, mapping, sampling)`.
    lam : λ, the regularisation of all sites together.
    scale : "standard", "minmax" or "none", for inputs and target, with numbers common to all sites;
        or "public", from `ranges`, {column: (low, high)} for every input ("x0", "x1", … or a data
        frame's names) and for "y", known before any row was looked at.
    limits : `Until(rounds, tol, max_bytes, max_transmissions)`.
    privacy : `DP(epsilon, …)` for differentially private statistics; see docs/privacy.md.
    engine : "simulation", all sites in this process; "agents", a process for each, talking over
        mutual TLS on this machine (needs `pip install 'coke[agent]'`); or
        `Agents(carrier="memory")`, a thread for each. All give the same bits.
    random_state : a whole number, the seed of the features, the graph and the dealing out. The same
        one gives the same bits, but for the noise of privacy, which is the system's entropy.

    Attributes
    ----------
    model_ : the agents' mean model (`model_.save(path)`).  thetas_ : θ_i (N, D).  optimum_ : θ*.
    history_, transmissions_, bytes_, wire_bytes_ : what happened and what it cost; with agents,
        history_ is a list of rounds for each site, and nobody knows optimum_.
    alone_, budget_ : with privacy, the sites' own models (N, D), for the owner of each alone; and
        all of (ε, δ) that was spent so far.
    sites_ : the labels.
    n_iter_, converged_ : rounds, and whether the agents settled within tol before the last.

    >>> import numpy as np
    >>> from coke import COKERegressor
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = COKERegressor(n_agents=5).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _kind = NUMBERS

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        X, y = validated(self, X, y, y_numeric=True)
        return self._fit(X, y, sites)

    def predict(self, X: Any, interval: float | None = None) -> Any:
        """Values, in the target's units; with interval=0.9 also the ends of 90 % intervals."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        return self.model_.predict(X) if interval is None else self.model_.interval(X, interval)
