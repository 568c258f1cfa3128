"""What the regressor and the classifier share: from parameters to a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import structs
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from coke.data.coding import Coding
from coke.data.kinds import INPUTS, require
from coke.data.raw import RawRows, raw_numbers, raw_rows
from coke.data.split import Index, by_label, deal, split
from coke.data.tables import Labels, Rows, checked_rows, read_table
from coke.errors import ConvergenceError, DataError, InputError, unknown
from coke.learning.agreement import Terms
from coke.learning.kinds import why_numbers
from coke.learning.ready import agree
from coke.learning.train import train
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array, finite
from coke.maths.graph import Graph, graph_on
from coke.maths.losses import LOSSES, NUMBERS
from coke.settings.declaration import AUTO, Features, Settings
from coke.settings.groups import (
    DKLA,
    DP,
    Agents,
    Coke,
    CokePaper,
    Diffusion,
    Until,
    checked_seed,
    chosen,
    fields,
    group_of,
    plain,
)
from coke.settings.reading import checked_settings

ENGINES = ("simulation", "agents")


def validated(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
    """scikit-learn's own checks of numbers, raised from this package's exception tree."""
    try:
        return validate_data(estimator, *args, dtype=np.float64, **kwargs)
    except ValueError as error:
        raise DataError(str(error)) from error


def fitted_rows(estimator: BaseEstimator, X: Any, y: Any, **kwargs: Any) -> tuple[RawRows, Any]:
    """Rows and targets to learn from: numbers and NaN, or a table of anything."""
    raw = _raw(X)
    if raw is None:
        X, y = validated(estimator, X, y, ensure_all_finite="allow-nan", **kwargs)
        return RawRows(X, () if finite(X) else raw_numbers(X.shape[1])), y
    try:
        validate_data(estimator, X, skip_check_array=True)
        _, y = check_X_y(raw.X, y, ensure_all_finite="allow-nan", estimator=estimator, **kwargs)
    except ValueError as error:
        raise DataError(str(error)) from error
    return raw, y


def rows_to_predict(estimator: BaseEstimator, X: Any, coding: Coding | None) -> Any:
    """What a model takes: numbers, or where it has a coding a table as that was trained on."""
    if coding is None:
        return validated(estimator, X, reset=False)
    raw = _raw(X, coding)
    if raw is None:
        return validated(estimator, X, reset=False, ensure_all_finite="allow-nan")
    try:
        validate_data(estimator, X, skip_check_array=True, reset=False)
        check_array(raw.X, ensure_all_finite="allow-nan", estimator=estimator)
    except ValueError as error:
        raise DataError(str(error)) from error
    return raw


def _raw(X: Any, coding: Coding | None = None) -> RawRows | None:
    """The raw rows of a table; None of an array, and of numbers without gaps."""
    if not hasattr(X, "__arrow_c_stream__"):
        return None
    table = read_table(X)
    require(table, (table.column_names, INPUTS))
    fits = coding is not None and len(coding.codes) == len(table.column_names)
    found = raw_rows(table, table.column_names, coding.kinds() if coding and fits else ())
    return found if found.kinds else None


class Consensus(BaseEstimator):
    """Decentralised kernel learning; the kind of targets is a subclass's."""

    _kind: ClassVar[str]  # of the losses' targets

    def __init__(
        self,
        n_agents: int = 10,
        graph: str | Graph = "random",
        edges: int | None = None,
        algorithm: str | Coke | CokePaper | DKLA | Diffusion | Algorithm = "coke",
        loss: str = "auto",
        model: str = "auto",
        features: Features | None = None,
        lam: float | str = "auto",
        scale: str = "standard",
        ranges: dict[str, tuple[float, float]] | None = None,
        limits: Until | None = None,
        privacy: DP | None = None,
        engine: str | Agents = "simulation",
        random_state: int = 0,
    ):
        self.n_agents = n_agents
        self.graph = graph
        self.edges = edges
        self.algorithm = algorithm
        self.loss = loss
        self.model = model
        self.features = features
        self.lam = lam
        self.scale = scale
        self.ranges = ranges
        self.limits = limits
        self.privacy = privacy
        self.engine = engine
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; `features__sigma=2` changes one field of a group."""
        super().set_params(**{key: value for key, value in params.items() if "__" not in key})
        for key, value in params.items():
            name, inside, field = key.partition("__")
            if inside:
                group = group_of(name, getattr(self, name, None))
                try:
                    setattr(self, name, structs.replace(group, **{field: value}))
                except TypeError as error:
                    raise InputError(f"{key}: {name}={group!r} has no such field") from error
        return self

    @property
    def importance_(self) -> Array:
        """(n_features_in_,) shares of the columns; more is in `model_.importance()`."""
        check_is_fitted(self)
        return self.model_.importance().shares

    def _loss(self) -> str:
        known = [name for name, loss in LOSSES.items() if loss.kind == self._kind and name != AUTO]
        loss = known[0] if self.loss == AUTO else self.loss
        if loss not in known:
            raise InputError(unknown(f"loss of {type(self).__name__}", loss, known))
        return loss

    def _settings(self, targets: tuple[str, ...]) -> Settings:
        """The parameters, checked for kinds and ranges as those of a configuration file are."""
        named = isinstance(self.graph, str)
        settings = {
            "loss": self._loss(),
            **({} if isinstance(self.algorithm, Algorithm) else chosen(self.algorithm)),
            **fields("limits", group_of("limits", self.limits), Until),
            "privacy": "none" if self.privacy is None else "dp",
            **({} if self.privacy is None else fields("privacy", self.privacy, DP)),
            "seed": checked_seed(self.random_state),
            "model": self.model,
            "lambda": self.lam,
            "data": {
                "agents": self.n_agents, "scale": self.scale, "ranges": self.ranges or {},
                "test": 0.0, "target": list(targets),
            },
            "features": fields("features", group_of("features", self.features), Features),
            "graph": {"kind": self.graph if named else "random", "edges": self.edges},
        }  # fmt: skip
        settings.pop("releases", None)
        return checked_settings(plain(settings))

    def _fit(self, X: RawRows, y: Labels, sites: Any, targets: tuple[str, ...] = ("y",)) -> Self:
        """Site by site, round by round; the model is the agents' mean."""
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise InputError(unknown("engine", self.engine, ENGINES))
        fit = self._fit_here if self.engine == "simulation" else self._fit_agents
        return fit(X, y, sites, targets)

    def _given(
        self, X: RawRows, y: Labels, sites: Any, targets: tuple[str, ...]
    ) -> tuple[Settings, Rows, dict[Any, Index]]:
        """Settings and rows, checked, and whose the rows are."""
        settings = self._settings(targets)
        if X.kinds and (why := why_numbers(settings)):
            raise DataError(f"text, dates or gaps {why}: expected numbers, and none missing")
        rows = checked_rows(X.X, y, sites, gaps=True)
        labels = rows.sites
        parts = deal(y, self.n_agents, seed=settings.seed) if labels is None else by_label(labels)
        self.sites_ = np.array(list(parts))
        columns = tuple(map(str, getattr(self, "feature_names_in_", rows.columns)))
        rows = rows._replace(columns=columns, targets=targets, sites=None, kinds=tuple(X.kinds))
        return settings, rows, parts

    def __sklearn_tags__(self) -> Any:
        """Gaps are filled, and text is coded."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _public(self) -> Array:
        assert isinstance(self.algorithm, Coke)  # no other has a sample
        try:
            return np.asarray(validated(self, self.algorithm.sample, reset=False))
        except DataError as error:
            raise DataError(f"sample: {error}") from error

    def _fit_here(self, X: RawRows, y: Labels, sites: Any, targets: tuple[str, ...]) -> Self:
        """All sites in this process."""
        settings, rows, parts = self._given(X, y, sites, targets)
        numbers = LOSSES[settings.loss].kind == NUMBERS
        kept = split(parts, test=0.0, seed=settings.seed).kept(rows, numbers=numbers)
        graph = graph_on(list(parts), self.graph, self.edges, settings.seed)
        sample = None if settings.sample is None else self._public()
        folder = None if self.privacy is None else self.privacy.releases
        terms = Terms(settings, rows.columns, sample, None if folder is None else Path(folder))
        ready = agree(kept, graph, terms)
        own = self.algorithm if isinstance(self.algorithm, Algorithm) else None
        trained = train(ready, own or settings.algorithm)
        last = trained.last
        if trained.error is not None or last is None:
            raise ConvergenceError(trained.error)
        assert trained.theta is not None  # there was a round
        assert trained.model is not None
        self.history_: Any = trained.history
        self.thetas_, self.optimum_ = trained.theta, ready.optimum
        noised, self.choice_ = ready.noised, ready.agreement.choice
        self.agreement_bytes_ = int(ready.spent[:, 1].sum())
        self.alone_ = None if noised is None else noised.alone
        self.budget_ = None if noised is None else noised.budget
        self.model_ = trained.model
        self.n_iter_, self.converged_ = last.k, last.settled
        spent = zip(last.ledger, trained.after, strict=True)
        self.transmissions_, self.bytes_, self.wire_bytes_ = (a + b for a, b in spent)
        return self

    def _fit_agents(self, X: RawRows, y: Labels, sites: Any, targets: tuple[str, ...]) -> Self:
        """The real thing: an agent for every site, in processes over mutual TLS or in threads."""
        from coke.field.local import train_on_agents  # here: it needs the extra coke[agent]

        settings, rows, parts = self._given(X, y, sites, targets)
        graph = graph_on(list(parts), self.graph, self.edges, settings.seed)
        if self.privacy is not None and self.privacy.releases is not None:
            raise InputError('releases with engine="agents": write a network; its sites keep them')
        own = self.algorithm if isinstance(self.algorithm, Algorithm) else None
        wanted = Agents() if isinstance(self.engine, str) else self.engine
        carrier = fields("engine", wanted, Agents)["carrier"]
        found = train_on_agents(settings, rows, parts, graph, carrier, own)
        for unknown_here in ("choice_", "agreement_bytes_", "optimum_", "alone_", "budget_"):
            self.__dict__.pop(unknown_here, None)  # of a fit before: agents keep theirs
        self.thetas_ = np.stack([model.theta.ravel() for model in found.models])
        mean = self.thetas_.mean(axis=0).reshape(found.models[0].theta.shape)
        self.model_ = found.models[0]._replace(theta=mean)
        self.history_ = found.history
        self.n_iter_, self.converged_ = found.rounds, found.converged
        self.transmissions_, self.bytes_, self.wire_bytes_ = found.ledger
        return self
