"""Classes."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from coke.data.tables import Labels
from coke.errors import DataError
from coke.estimators.consensus import Consensus, fitted_rows, rows_to_predict
from coke.maths.arrays import Array
from coke.maths.losses import CLASSES, LOSSES


class COKEClassifier(ClassifierMixin, Consensus):
    """Decentralised kernel classification, binary or one against the rest.

    `loss` is "logistic" (the default, with `predict_proba`) or "hinge" (a support vector machine).
    All other parameters and attributes are `COKERegressor`'s, and `classes_`.
    """

    _kind = CLASSES

    def fit(self, X: Any, y: Any, sites: Any = None) -> Self:
        """Trains on rows held by `sites` (one label per row), or dealt out to n_agents."""
        raw, y = fitted_rows(self, X, y)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise DataError(str(error)) from error
        self._fit(raw, y, sites)
        self.classes_ = self.model_.classes
        return self

    def predict(self, X: Any) -> Labels:
        """Class labels."""
        check_is_fitted(self)
        return self.model_.predict(rows_to_predict(self, X, self.model_.coding))

    def decision_function(self, X: Any) -> Array:
        """θᵀφ(x): (T,) for two classes (positive: the second), else (T, n)."""
        check_is_fitted(self)
        model = self.model_
        f = model.decision(model.inputs(rows_to_predict(self, X, model.coding)))
        return f[:, 0] if f.shape[1] == 1 else f

    def _has_probabilities(self) -> bool:
        return LOSSES[self._loss()].probabilities

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, for the logistic loss."""
        check_is_fitted(self)
        return self.model_.predict_proba(rows_to_predict(self, X, self.model_.coding))
