"""scikit-learn estimators: one process plays all the sites.

`fit(X, y, sites)` takes one site label per row; without it the rows are dealt out at random.
They work in Pipeline, GridSearchCV, cross_val_score and clone. What a fit cost to communicate
is in `transmissions_` and `bytes_`, all that happened in `history_`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coke.config import Config, feature_settings, from_settings
from coke.data.sites import by_label, deal, split_rows
from coke.data.tables import Labels, Rows, checked_rows
from coke.errors import DataError, InputError, unknown
from coke.loading import choices
from coke.maths.arrays import Array
from coke.maths.features import draw_features
from coke.maths.graph import Graph, build_graph, checked_graph
from coke.prepare import prepare
from coke.run.history import History
from coke.run.simulate import simulate


def _validated(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
    """scikit-learn's own checks, raised from this package's exception tree."""
    try:
        return validate_data(estimator, *args, dtype=np.float64, **kwargs)
    except ValueError as error:
        raise DataError(str(error)) from error


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """φ(x) with φ(x)ᵀφ(y) ≈ κ(x, y): the same for the same seed, on every machine.

    >>> import numpy as np
    >>> from coke import RandomFeatures
    >>> phi = RandomFeatures(n_features=50, seed=0).fit_transform(np.zeros((3, 2)))
    >>> phi.shape
    (3, 100)
    """

    def __init__(
        self,
        n_features: int = 100,
        kernel: str = "gaussian",
        sigma: float = 1.0,
        mapping: str = "cos-sin",
        sampling: str = "iid",
        seed: int = 0,
    ):
        self.n_features = n_features
        self.kernel = kernel
        self.sigma = sigma
        self.mapping = mapping
        self.sampling = sampling
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draws the features for inputs as wide as X; nothing else of X is used."""
        wanted = {"seed": self.seed, "features": {key: getattr(self, key) for key in FEATURES}}
        if isinstance(self.sigma, str):
            raise InputError(f"sigma={self.sigma!r}: expected a positive number")
        settings = feature_settings(from_settings(plain(wanted)))
        X = _validated(self, X)
        self.features_ = draw_features(settings, X.shape[1])
        self._n_features_out = self.features_.size
        return self

    def transform(self, X: Any) -> Array:
        """Φ, one row φ(x)ᵀ per row of X."""
        check_is_fitted(self)
        return self.features_(_validated(self, X, reset=False))


ENGINES = ("simulation", "agents")
FEATURES = ("n_features", "kernel", "sigma", "mapping", "sampling")
NUMBERS = ("rho", "v", "mu", "eta", "rounds", "tol", "max_bytes", "max_transmissions", "seed")


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which is what configurations are made of."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _public(sample: Any, d: int) -> Array:
    """A public sample of inputs (n, d)."""
    X = np.asarray(sample, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != d or not len(X) or not np.isfinite(X).all():
        raise DataError(f"sample of shape {X.shape}: expected finite rows of {d} inputs")
    return X


class _Consensus(BaseEstimator):
    """What the regressor and the classifier share."""

    def __init__(
        self,
        n_agents: int = 10,
        graph: str | Graph = "random",
        edges: int | None = None,
        algorithm: str = "coke",
        loss: str = "auto",
        n_features: int = 100,
        kernel: str = "gaussian",
        sigma: float | str = "auto",
        mapping: str = "cos-sin",
        sampling: str = "iid",
        lam: float = 1e-3,
        rho: float = 1e-2,
        v: float = 1.0,
        mu: float = 0.95,
        eta: float = 0.99,
        rounds: int = 300,
        tol: float | None = None,
        max_bytes: int | None = None,
        max_transmissions: int | None = None,
        whitening: str = "mixture",
        sample: Any = None,
        scale: str = "standard",
        engine: str = "simulation",
        seed: int = 0,
    ):
        self.n_agents = n_agents
        self.graph = graph
        self.edges = edges
        self.algorithm = algorithm
        self.loss = loss
        self.n_features = n_features
        self.kernel = kernel
        self.sigma = sigma
        self.mapping = mapping
        self.sampling = sampling
        self.lam = lam
        self.rho = rho
        self.v = v
        self.mu = mu
        self.eta = eta
        self.rounds = rounds
        self.tol = tol
        self.max_bytes = max_bytes
        self.max_transmissions = max_transmissions
        self.whitening = whitening
        self.sample = sample
        self.scale = scale
        self.engine = engine
        self.seed = seed

    _losses: tuple[str, ...]  # the first is "auto"

    def _loss(self) -> str:
        loss = self._losses[0] if self.loss == "auto" else self.loss
        if loss not in self._losses:
            raise InputError(unknown(f"loss of {type(self).__name__}", loss, self._losses))
        return loss

    def _config(self) -> Config:
        """The parameters, checked for kinds and ranges as those of a configuration file are."""
        named = isinstance(self.graph, str)
        settings = {
            **{key: getattr(self, key) for key in ("algorithm", "whitening", *NUMBERS)},
            "sample": None if self.sample is None else "given",
            "loss": self._loss(),
            "lambda": self.lam,
            "data": {"agents": self.n_agents, "scale": self.scale, "test": 0.0},
            "features": {key: getattr(self, key) for key in FEATURES},
            "graph": {"kind": self.graph if named else "random", "edges": self.edges},
        }
        return from_settings(plain(settings))

    def _fit(self, X: Array, y: Labels, sites: Any) -> Self:
        """Site by site, round by round; the model is the agents' mean."""
        config = self._config()
        rows = checked_rows(X, y, sites)
        parts = (
            deal(y, self.n_agents, seed=self.seed) if rows.sites is None else by_label(rows.sites)
        )
        graph = self._network(list(parts))
        sample = None if self.sample is None else _public(self.sample, X.shape[1])
        if self.engine not in ENGINES:
            raise InputError(unknown("engine", self.engine, ENGINES))
        if self.engine == "agents":
            return self._fit_agents(config, rows, parts, graph)
        sites = split_rows(rows, parts, test=0.0, seed=self.seed)
        task = prepare(sites, self._column_names(rows), graph, choices(config, sample=sample))
        way = task.way(config.algorithms()[self.algorithm])
        self.history_: Any = History(self.algorithm, task.problem.train.metric, task.sites)
        for last in simulate(
            way.problem,
            graph,
            way.algorithm,
            rounds=self.rounds,
            tol=way.tolerance(config.tolerance(self.algorithm)),
            max_bytes=self.max_bytes,
            max_transmissions=self.max_transmissions,
            spent=way.spent,
        ):
            self.history_.append(last)
        self.sites_ = np.array(list(parts))
        self.thetas_ = way.theta(last.state.theta)
        self.optimum_ = task.problem.optimum
        self.model_ = task.model(self.thetas_.mean(axis=0))
        self.n_iter_, self.converged_ = last.k, last.settled
        self.transmissions_ = last.ledger.transmissions
        self.bytes_, self.wire_bytes_ = last.ledger.bytes, last.ledger.wire_bytes
        return self

    def _fit_agents(self, config: Config, rows: Rows, parts: Any, graph: Graph) -> Self:
        """The real thing: an agent for every site, each a process of its own, over mutual TLS."""
        from coke.networks import train_on_agents  # here: it needs the extra coke[agent]

        rows = rows._replace(columns=self._column_names(rows), sites=None)
        found = train_on_agents(config, rows, parts, graph)
        self.sites_ = np.array(list(parts))
        self.thetas_ = np.stack([model.theta.ravel() for model in found.models])
        mean = self.thetas_.mean(axis=0).reshape(found.models[0].theta.shape)
        self.model_ = found.models[0]._replace(theta=mean)
        self.history_ = found.history
        self.n_iter_, self.converged_ = found.rounds, found.converged
        self.transmissions_, self.bytes_, self.wire_bytes_ = found.ledger
        return self

    def _network(self, sites: list[Any]) -> Graph:
        if isinstance(self.graph, str):
            return build_graph(self.graph, len(sites), edges=self.edges, seed=self.seed)
        return checked_graph(self.graph, sites)

    def _column_names(self, rows: Rows) -> tuple[str, ...]:
        return tuple(map(str, getattr(self, "feature_names_in_", rows.columns)))


class COKERegressor(RegressorMixin, _Consensus):
    """Decentralised kernel ridge regression by COKE, DKLA or CTA on random features.

    Parameters
    ----------
    n_agents : sites to deal the rows out to, where `fit` is given no `sites`.
    graph : a name ("random", "ring", …) or a networkx.Graph on the site labels.
    edges : how many, for graph="random".
    algorithm : "coke" (nothing to tune), or the paper's "coke-paper" (ρ, and censored by
        h(k) = v μᵏ), "dkla" (ρ, never silent) and "cta" (step η).
    n_features, kernel, sigma, mapping, sampling : the random features, see `RandomFeatures`;
        sigma="auto" is √(Σ_j var_j / 2) over the scaled inputs.
    lam : λ, the regularisation of all sites together.
    rounds, tol : at most so many; fewer where no prediction moves by more than tol times the
        target's spread. None: 1e-3 for "coke", all rounds for the others.
    max_bytes, max_transmissions : a budget for all sites together, agreement included.
    whitening : how "coke" finds its basis: "mixture", "moments", "gram" or "sample", a public
        array of inputs in `sample`; see docs/communication.md.
    scale : "standard", "minmax" or "none", for inputs and target, with numbers common to all sites.
    engine : "simulation", all sites in this process; or "agents", a process for each, talking over
        mutual TLS on this machine (needs `pip install 'coke[agent]'`). Both give the same bits.
    seed : of the features, the graph and the dealing out. The same seed gives the same bits.

    Attributes
    ----------
    model_ : the agents' mean model (`model_.save(path)`).  thetas_ : θ_i (N, D).  optimum_ : θ*.
    history_, transmissions_, bytes_, wire_bytes_ : what happened and what it cost; with agents,
        history_ is a list of rounds for each site, and nobody knows optimum_.
    sites_ : the labels.
    n_iter_, converged_ : rounds, and whether the agents settled within tol before the last.

    >>> import numpy as np
    >>> from coke import COKERegressor
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = COKERegressor(n_agents=5, seed=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _losses = ("quadratic",)

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        X, y = _validated(self, X, y, y_numeric=True)
        return self._fit(X, y, sites)

    def predict(self, X: Any) -> Array:
        """Values, in the target's units."""
        check_is_fitted(self)
        return self.model_.predict(_validated(self, X, reset=False))


class COKEClassifier(ClassifierMixin, _Consensus):
    """Decentralised kernel classification, binary or one against the rest.

    `loss` is "logistic" (the default, with `predict_proba`) or "hinge" (a support vector machine).
    All other parameters and attributes are `COKERegressor`'s, and `classes_`.
    """

    _losses = ("logistic", "hinge")

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        X, y = _validated(self, X, y)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise DataError(str(error)) from error
        self._fit(X, y, sites)
        self.classes_ = self.model_.classes
        return self

    def predict(self, X: Any) -> Labels:
        """Class labels."""
        check_is_fitted(self)
        return self.model_.predict(_validated(self, X, reset=False))

    def decision_function(self, X: Any) -> Array:
        """θᵀφ(x): (T,) for two classes (positive: the second), else (T, n)."""
        check_is_fitted(self)
        f = self.model_.decision(_validated(self, X, reset=False))
        return f[:, 0] if f.shape[1] == 1 else f

    def _has_probabilities(self) -> bool:
        return self._loss() == "logistic"

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, for the logistic loss."""
        check_is_fitted(self)
        return self.model_.predict_proba(_validated(self, X, reset=False))
