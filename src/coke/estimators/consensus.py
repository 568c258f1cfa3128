"""What the regressor and the classifier share: from parameters to a trained model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import structs
from sklearn.utils.validation import check_is_fitted

from coke.data.split import Index, by_label, deal, split
from coke.data.tables import Rows
from coke.errors import ConvergenceError, DataError, InputError, unknown
from coke.estimators.checks import validated
from coke.estimators.streaming import Streaming
from coke.learning.assessing import assessed
from coke.learning.kinds import why_numbers
from coke.learning.ready import agree
from coke.learning.terms import Terms
from coke.learning.train import train
from coke.learning.verdict import Ended
from coke.maths.algorithms import ALGORITHMS
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
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
    TreeNewton,
    Until,
    checked_seed,
    chosen,
    fields,
    group_of,
    plain,
)
from coke.settings.reading import checked_settings

ENGINES = ("simulation", "agents")


class Consensus(Streaming):
    """Decentralised kernel learning; the kind of targets is a subclass's."""

    _kind: ClassVar[str]  # of the losses' targets
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sites": True}  # they have no other use
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"sites": True, "tick": True}

    def __init__(
        self,
        n_agents: int = 10,
        graph: str | Graph = "random",
        edges: int | None = None,
        algorithm: str | Coke | TreeNewton | CokePaper | DKLA | Diffusion | Algorithm = "auto",
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
        verbose: bool = False,
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
        self.verbose = verbose

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
            **self._further(),
        }  # fmt: skip
        settings.pop("releases", None)
        return checked_settings(plain(settings))

    def _further(self) -> dict[str, Any]:
        """Settings that only a subclass has."""
        return {}

    def _fit(self, rows: Rows) -> Self:
        """Site by site, round by round; the model is the agents' mean."""
        self._feed = None
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise InputError(unknown("engine", self.engine, ENGINES))
        here = self.engine == "simulation"
        if rows.weights is not None and self.privacy is not None:
            raise InputError(
                "weights of rows with privacy: it bounds what a row may weigh; leave them out"
            )
        settings, columns = self._settings(rows.targets), rows.columns
        if rows.kinds and (why := why_numbers(settings)):
            raise DataError(f"text, dates or gaps {why}: expected numbers, and none missing")
        columns = tuple(map(str, getattr(self, "feature_names_in_", columns)))
        y, labels, rows = rows.y, rows.sites, rows._replace(columns=columns, sites=None)
        parts = deal(y, self.n_agents, seed=settings.seed) if labels is None else by_label(labels)
        self.sites_ = np.array(list(parts))
        return (self._fit_here if here else self._fit_agents)(settings, rows, parts)

    def __sklearn_tags__(self) -> Any:
        """Gaps are filled, and text is coded."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _public(self) -> Array:
        assert isinstance(self.algorithm, Coke | TreeNewton)  # no other has a sample
        try:
            return np.asarray(validated(self, self.algorithm.sample, reset=False))
        except DataError as error:
            raise DataError(f"sample: {error}") from error

    def _fit_here(self, settings: Settings, rows: Rows, parts: dict[Any, Index]) -> Self:
        """All sites in this process."""
        numbers = LOSSES[settings.loss].kind == NUMBERS
        kept = split(parts, test=0.0, seed=settings.seed).kept(rows, numbers=numbers)
        graph = graph_on(list(parts), self.graph, self.edges, settings.seed)
        sample = None if settings.sample is None else self._public()
        folder = None if self.privacy is None else self.privacy.releases
        terms = Terms(settings, rows.columns, sample, None if folder is None else Path(folder))
        with self._agreeing():
            ready = agree(kept, graph, terms)
        own = self.algorithm if isinstance(self.algorithm, Algorithm) else None
        with self._training(ready) as effects:
            trained = train(ready, own or settings.algorithm, effects)
        if trained.error is not None:
            raise ConvergenceError(trained.error)
        assert trained.theta is not None  # there was a round
        assert trained.model is not None
        self.history_ = trained.history
        self.thetas_, self.optimum_ = trained.theta, ready.optimum
        noised, self.choice_ = ready.noised, ready.agreement.choice
        self.agreement_bytes_ = int(ready.spent[:, 1].sum())
        self.alone_ = None if noised is None else noised.alone
        self.budget_ = None if noised is None else noised.budget
        self.model_, ended = trained.model, trained.ended
        self.transmissions_, self.bytes_, self.wire_bytes_ = ended.ledger
        self._judge = partial(assessed, replace(ready), trained.model, ended)  # without the basis
        self._ended(ended)
        return self

    def _fit_agents(self, settings: Settings, rows: Rows, parts: dict[Any, Index]) -> Self:
        """The real thing: an agent for every site, in processes over mutual TLS or in threads."""
        from coke.field.fitting import train_on_agents  # here: it needs the extra coke-learn[agent]

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
        self.transmissions_, self.bytes_, self.wire_bytes_ = found.ledger
        self._judge = self._verdict = None  # agents hold no rows out, and tell nobody of others
        usual = None if own else ALGORITHMS[settings.algorithm].tol
        tol = usual if settings.tol is None else settings.tol
        settled = found.converged if tol else None
        self._ended(Ended(found.rounds, settled, found.ledger, found.certificate))
        return self
