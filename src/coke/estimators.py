"""scikit-learn estimators: one process plays all the sites.

`fit(X, y, sites)` takes one site label per row; without it the rows are dealt out at random.
They work in Pipeline, GridSearchCV, cross_val_score and clone. What a fit cost to communicate
is in `transmissions_` and `bytes_`, all that happened in `history_`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from coke.data.sites import by_label, deal, split_rows
from coke.data.tables import Labels, Rows, checked_rows
from coke.engines.history import History
from coke.engines.process import simulate
from coke.errors import DataError, InputError, unknown
from coke.learning.loading import choices
from coke.learning.prepare import prepare
from coke.learning.task import Task, algorithm_of
from coke.maths.arrays import Array
from coke.maths.graph import Graph, build_graph, checked_graph
from coke.privacy.release import place
from coke.settings.declaration import Settings
from coke.settings.reading import checked_settings
from coke.transformer import FEATURES, plain, validated

ENGINES = ("simulation", "agents")
SAME = (  # as in a configuration file
    "algorithm", "rho", "v", "mu", "eta", "rounds", "tol", "max_bytes", "max_transmissions",
    "whitening", "privacy", "epsilon", "delta", "secure_sum", "colluding", "new_budget", "seed",
)  # fmt: skip


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
        ranges: dict[str, tuple[float, float]] | None = None,
        privacy: str = "none",
        epsilon: float | None = None,
        delta: float = 1e-5,
        secure_sum: bool = False,
        colluding: int = 1,
        new_budget: bool = False,
        releases: str | Path | None = None,
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
        self.ranges = ranges
        self.privacy = privacy
        self.epsilon = epsilon
        self.delta = delta
        self.secure_sum = secure_sum
        self.colluding = colluding
        self.new_budget = new_budget
        self.releases = releases
        self.engine = engine
        self.seed = seed

    _losses: tuple[str, ...]  # the first is "auto"

    def _loss(self) -> str:
        loss = self._losses[0] if self.loss == "auto" else self.loss
        if loss not in self._losses:
            raise InputError(unknown(f"loss of {type(self).__name__}", loss, self._losses))
        return loss

    def _config(self) -> Settings:
        """The parameters, checked for kinds and ranges as those of a configuration file are."""
        named = isinstance(self.graph, str)
        data = {"agents": self.n_agents, "scale": self.scale, "test": 0.0}
        settings = {
            **{key: getattr(self, key) for key in SAME},
            "sample": None if self.sample is None else "given",
            "loss": self._loss(),
            "lambda": self.lam,
            "data": {**data, "ranges": self.ranges or {}},
            "features": {key: getattr(self, key) for key in FEATURES},
            "graph": {"kind": self.graph if named else "random", "edges": self.edges},
        }
        return checked_settings(plain(settings))

    def _fit(self, X: Array, y: Labels, sites: Any) -> Self:
        """Site by site, round by round; the model is the agents' mean."""
        config = self._config()
        rows = checked_rows(X, y, sites)
        labels = rows.sites
        parts = deal(y, self.n_agents, seed=self.seed) if labels is None else by_label(labels)
        graph, self.sites_ = self._network(list(parts)), np.array(list(parts))
        rows = rows._replace(columns=self._column_names(rows), sites=None)
        if self.engine not in ENGINES:
            raise InputError(unknown("engine", self.engine, ENGINES))
        if self.engine == "agents":
            return self._fit_agents(config, rows, parts, graph)
        return self._simulated(config, self._task(config, rows, parts, graph))

    def _task(self, config: Settings, rows: Rows, parts: Any, graph: Graph) -> Task:
        sample = None if self.sample is None else self._public()
        sites = split_rows(rows, parts, test=0.0, seed=self.seed)
        with place(self.releases) as folder:
            how = choices(config, rows.columns, sample, folder)
            return prepare(sites, rows.columns, graph, how)

    def _public(self) -> Array:
        try:
            return np.asarray(validated(self, self.sample, reset=False))
        except DataError as error:
            raise DataError(f"sample: {error}") from error

    def _simulated(self, config: Settings, task: Task) -> Self:
        way = task.way(algorithm_of(config, self.algorithm))
        self.history_: Any = History(self.algorithm, task.problem.train.metric, task.sites)
        limits = {key: getattr(self, key) for key in ("rounds", "max_bytes", "max_transmissions")}
        tol, how = way.tolerance(config.tolerance(self.algorithm)), way.algorithm
        for last in simulate(way.problem, task.graph, how, tol=tol, spent=way.spent, **limits):
            self.history_.append(last)
        self.thetas_ = way.theta(last.state.theta)
        self.optimum_ = task.problem.optimum
        self.alone_, self.budget_ = task.alone, task.budget
        self.model_ = task.model(self.thetas_.mean(axis=0))
        self.n_iter_, self.converged_ = last.k, last.settled
        self.transmissions_, self.bytes_, self.wire_bytes_ = last.ledger
        return self

    def _fit_agents(self, config: Settings, rows: Rows, parts: Any, graph: Graph) -> Self:
        """The real thing: an agent for every site, each a process of its own, over mutual TLS."""
        from coke.field.local import train_on_agents  # here: it needs the extra coke[agent]

        if self.releases is not None:
            raise InputError('releases with engine="agents": write a network; its sites keep them')
        found = train_on_agents(config, rows, parts, graph)
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
    graph, edges : a name ("random", with so many edges, "ring", …) or a networkx.Graph on labels.
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
    scale : "standard", "minmax" or "none", for inputs and target, with numbers common to all sites;
        or "public", from `ranges`, {column: (low, high)} for every input ("x0", "x1", … or a data
        frame's names) and for "y", known before any row was looked at.
    privacy, epsilon, delta : "dp" for differentially private statistics; with secure_sum and
        colluding, by a sum that shows none of its parts; see docs/privacy.md.
    releases : a folder for the sites' noised statistics. Without it they are forgotten, and every
        fit, also one of a grid search, draws its noise anew and spends epsilon once more.
    engine : "simulation", all sites in this process; or "agents", a process for each, talking over
        mutual TLS on this machine (needs `pip install 'coke[agent]'`). Both give the same bits.
    seed : of the features, the graph and the dealing out. The same seed gives the same bits,
        but for the noise of privacy, which comes from the system's entropy.

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
    >>> model = COKERegressor(n_agents=5, seed=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _losses = ("quadratic",)

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        X, y = validated(self, X, y, y_numeric=True)
        return self._fit(X, y, sites)

    def predict(self, X: Any) -> Array:
        """Values, in the target's units."""
        check_is_fitted(self)
        return self.model_.predict(validated(self, X, reset=False))


class COKEClassifier(ClassifierMixin, _Consensus):
    """Decentralised kernel classification, binary or one against the rest.

    `loss` is "logistic" (the default, with `predict_proba`) or "hinge" (a support vector machine).
    All other parameters and attributes are `COKERegressor`'s, and `classes_`.
    """

    _losses = ("logistic", "hinge")

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        X, y = validated(self, X, y)
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
        return self.model_.predict(validated(self, X, reset=False))

    def decision_function(self, X: Any) -> Array:
        """θᵀφ(x): (T,) for two classes (positive: the second), else (T, n)."""
        check_is_fitted(self)
        f = self.model_.decision(validated(self, X, reset=False))
        return f[:, 0] if f.shape[1] == 1 else f

    def _has_probabilities(self) -> bool:
        return self._loss() == "logistic"

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, for the logistic loss."""
        check_is_fitted(self)
        return self.model_.predict_proba(validated(self, X, reset=False))
