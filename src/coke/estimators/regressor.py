"""Numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from coke.estimators.checks import fitted_rows, owned, rows_to_predict, streamed_rows, weighed
from coke.estimators.consensus import Consensus
from coke.estimators.streaming import learns_streams
from coke.learning.model import named
from coke.maths.arrays import side_by_side
from coke.maths.losses import NUMBERS


class COKERegressor(RegressorMixin, Consensus):
    """Decentralised kernel ridge regression by COKE, DKLA or CTA on random features.

    Parameters
    ----------
    n_agents : sites to deal the rows out to, where `fit` is given no `sites`.
    graph, edges : a name ("random", with so many edges, "ring", …) or a networkx.Graph on labels.
    algorithm : a name: "auto", the cheapest that will do; "tree-newton" or "coke" (nothing to
        tune); or the paper's "coke-paper", "dkla" and "cta"; or with settings: `Auto(…)`,
        `TreeNewton(…)`, `Coke(…)`, `CokePaper(rho, v, mu)`, `DKLA(rho)`, `Diffusion(eta)`; or an
        `Algorithm` of your own, in simulations.
    loss : "quadratic".
    model : "auto", the sites choose it together, without pooling rows (docs/choosing.md): inputs,
        bandwidths, a linear part, frequencies, their number and λ, and never worse than a linear
        model beyond noise; "plain": the paper's, 100 frequencies of a Gaussian kernel.
    features : `Features(n_features, kernel, sigma, mapping, sampling, frequencies, inputs, linear,
        weigh)` gives what is not to be chosen: L; κ; one bandwidth σ for all columns; "cos-sin" or
        "cos-phase", of the plain model; "iid" or "orthogonal", how frequencies are drawn;
        frequencies "drawn" instead of the useful ones of many; inputs "scaled" or "quantiles"; the
        weight of the linear part, 0 for none; whether "rows" weigh the same in training, as they do
        with model="auto", or "sites", as in the paper.
    lam : λ, the regularisation of all sites together; "auto": chosen, with model="plain" 1e-3 (of
        classes by least squares (2/K)^1.5 N/T).
    scale : "standard", "minmax" or "none", for inputs and target, with numbers common to all sites;
        or "public", from `ranges`, {column: (low, high)} for every input ("x0", "x1", … or a data
        frame's names) and for "y", of several targets "y0", "y1", … or a data frame's names, known
        before any row was looked at.
    limits : `Until(rounds, tol, max_bytes, max_transmissions)`.
    privacy : `DP(epsilon, …)` for differentially private statistics; see docs/privacy.md.
    engine : "simulation", all sites in this process; "agents", a process for each, talking over
        mutual TLS on this machine (needs `pip install 'coke-learn[agent]'`); or
        `Agents(carrier="memory")`, a thread for each. All give the same bits.
    random_state : a whole number, the seed of the features, the graph and the dealing out. The same
        one gives the same bits, but for the noise of privacy, which is the system's entropy.
    verbose : whether a simulation shows on stderr how far it has come: a bar on a terminal, or a
        line every few seconds. Agents are elsewhere, and show nothing.

    Attributes
    ----------
    model_ : the agents' mean model (`model_.save(path)`).  thetas_ : θ_i (N, D).  optimum_ : θ*.
    importance_ : (n_features_in_,) shares of the columns in how predictions change, sum one;
        `model_.importance()` has directions, too, and `model_.partial_dependence(column)` curves.
    choice_ : what the sites chose, a `Choice` with `words(columns)`; None with model="plain".
    agreement_bytes_ : what they sent for units and choice, in the paper's account.
        Agents keep both to themselves.
    verdict_ : whether joining paid, a `Verdict`: `str` is a sentence, `sites` has figures by site;
        of training rows, each as if it had been left out, found when it is first looked at. None
        of losses without sums, with privacy and with agents.
    history_, transmissions_, bytes_, wire_bytes_ : what happened and what it cost; with agents,
        nobody knows optimum_, nor history_ the losses of one site's model on others' rows.
        `history_.to_frame()` is a data frame, `history_.plot()` a picture.
    alone_, budget_ : with privacy, the sites' own models (N, D), for the owner of each alone; and
        all of (ε, δ) that was spent so far.
    sites_ : the labels.
    n_iter_, converged_ : rounds, and whether the agents settled within tol before the last; else
        there is a ConvergenceWarning.

    >>> import numpy as np
    >>> from coke import COKERegressor
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = COKERegressor(n_agents=5).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> f, low, high = model.predict(X, interval=0.9)  # the ends hold 9 of 10 new targets
    >>> bool(np.mean((low <= y) & (y <= high)) > 0.85)
    True
    >>> bool(abs(model.importance_.sum() - 1) < 1e-9)
    True
    """

    _kind = NUMBERS

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents.

        X is numbers, NaN where one is missing, or a pandas or polars frame with text and dates.
        y is (T,), or (T, K) of K columns, each in its own units. A row of weight w stands for w.
        """
        given = y
        raw, y = fitted_rows(self, X, y, y_numeric=True, multi_output=True)
        self._one = y.ndim == 1  # whether predictions are (T,)
        K = 1 if self._one else y.shape[1]
        rows = owned(raw, y[:, 0] if y.shape[1:] == (1,) else y, sites)
        return self._fit(weighed(rows, sample_weight)._replace(targets=_names(given, K)))

    @available_if(learns_streams)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: None = None, sites: Any = None, tick: Any = None
    ) -> Self:
        """Predicts rows that come now, then learns from them; see docs/streams.md.

        `sites` has a label a row; without it rows are dealt out in turn. `tick` has whole numbers,
        such as hours; without it a site's rows are at one tick after the other. The sites agree on
        units and a model from the first call's rows. `classes` is a classifier's.
        """
        rows = streamed_rows(self, X, y, sites, first=not self._begun())
        self._one = np.ndim(y) == 1
        K = 1 if rows.y.ndim == 1 else rows.y.shape[1]
        return self._partial(rows._replace(targets=_names(y, K)), tick)

    def predict(self, X: Any, interval: float | None = None, site: Any = None) -> Any:
        """Values, in the target's units; with interval=0.9 also the ends of 90 % intervals.

        They are added up from all sites' errors, with model="auto" and algorithm="coke". All are
        (T,), or (T, K) as y was. Of a stream a `site` may be named, for its fast layer.
        """
        check_is_fitted(self)
        model = self._model(site)
        X = rows_to_predict(self, X, model)
        found = [model.predict(X)] if interval is None else model.interval(X, interval)
        like = [part if self._one else side_by_side(part) for part in found]
        return like[0] if interval is None else tuple(like)

    def __sklearn_tags__(self) -> Any:
        """With several columns of targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _names(y: Any, K: int) -> tuple[str, ...]:
    """A data frame's names of its columns, where they are text; of one column y."""
    found = [name for name in getattr(y, "columns", ()) if isinstance(name, str)]
    return tuple(found) if len(found) == K > 1 else named(K)
