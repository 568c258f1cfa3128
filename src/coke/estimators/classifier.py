"""Classes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from coke.data.tables import Labels, Rows
from coke.errors import DataError, InputError
from coke.estimators.checks import fitted_rows, owned, rows_to_predict, streamed_rows, weighed
from coke.estimators.consensus import Consensus
from coke.estimators.streaming import learns_streams
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.graph import Graph
from coke.maths.losses import CLASSES, LOSSES
from coke.settings.declaration import Features
from coke.settings.groups import DKLA, DP, Agents, Coke, CokePaper, Diffusion, TreeNewton, Until


class COKEClassifier(ClassifierMixin, Consensus):
    """Decentralised kernel classification, binary or one against the rest.

    `loss` is "auto", "least-squares", "softmax" or "logistic", all with `predict_proba`, or "hinge"
    (a support vector machine). `class_weight` is "balanced", so that the rows of each class weigh
    as much together as those of any other, or a weight for each label.
    All other parameters and attributes are `COKERegressor`'s, and `classes_`.
    """

    _kind = CLASSES

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
        class_weight: str | dict[Any, float] | None = None,
    ):
        super().__init__(
            n_agents, graph, edges, algorithm, loss, model, features, lam, scale, ranges, limits,
            privacy, engine, random_state, verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents.

        A row of weight w stands for w rows.
        """
        raw, y = fitted_rows(self, X, y)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise DataError(str(error)) from error
        self._fit(self._classed(weighed(owned(raw, y, sites), sample_weight)))
        self.classes_ = self.model_.classes
        return self

    def _classed(self, rows: Rows) -> Rows:
        """With the weights of their classes, where these are given one by one."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return rows
        strange = sorted(map(str, set(self.class_weight) - set(rows.y.tolist())))
        if strange:
            raise InputError(
                f"class_weight of {strange[:8]}, which no row has: expected labels of y"
            )
        own = np.array([self.class_weight.get(label, 1.0) for label in rows.y.tolist()])
        return weighed(rows, own if rows.weights is None else own * rows.weights)

    def _further(self) -> dict[str, Any]:
        """The weights of classes that the sites find out together."""
        given = self.class_weight
        return {"class_weight": given} if isinstance(given, str) else {}

    @available_if(learns_streams)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sites: Any = None, tick: Any = None
    ) -> Self:
        """Predicts rows that come now, then learns from them, by least squares.

        The first call's rows must have all classes; `classes` says which these are. All else is
        as `COKERegressor.partial_fit` has it.
        """
        first = not self._begun()
        rows = streamed_rows(self, X, y, sites, first=first)
        known = set(np.unique(rows.y).tolist())
        if first and classes is not None and set(np.asarray(classes).tolist()) != known:
            raise InputError(
                f"classes={list(classes)[:8]}, and the first rows have {sorted(known)[:8]}: "
                "expected rows of each class in the first call, for sites to agree on codes"
            )
        self._partial(rows, tick)
        self.classes_ = self.model_.classes
        return self

    def predict(self, X: Any, site: Any = None) -> Labels:
        """Class labels; of a stream a `site` may be named, for its fast layer."""
        check_is_fitted(self)
        model = self._model(site)
        return model.predict(rows_to_predict(self, X, model))

    def decision_function(self, X: Any) -> Array:
        """θᵀφ(x): (T,) for two classes (positive: the second), else (T, n)."""
        check_is_fitted(self)
        model = self.model_
        f = model.decision(model.inputs(rows_to_predict(self, X, model)))
        return f[:, 0] if f.shape[1] == 1 else f

    def _has_probabilities(self) -> bool:
        return LOSSES[self._loss()].probabilities

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, for the logistic loss."""
        check_is_fitted(self)
        return self.model_.predict_proba(rows_to_predict(self, X, self.model_))
