"""The random features as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from coke.errors import InputError
from coke.estimators.consensus import validated
from coke.maths.arrays import Array
from coke.maths.features.features import FeatureSettings, draw_features
from coke.settings.groups import checked_seed, plain
from coke.settings.reading import checked_settings


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """φ(x) with φ(x)ᵀφ(y) ≈ κ(x, y): the same for the same random_state, on every machine.

    >>> import numpy as np
    >>> from coke import RandomFeatures
    >>> phi = RandomFeatures(n_features=50).fit_transform(np.zeros((3, 2)))
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
        random_state: int = 0,
    ):
        self.n_features = n_features
        self.kernel = kernel
        self.sigma = sigma
        self.mapping = mapping
        self.sampling = sampling
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draws the features for inputs as wide as X; nothing else of X is used."""
        for name in ("n_features", "sigma"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"{name}={getattr(self, name)!r}: expected a positive number")
        own = self.get_params() | {"random_state": checked_seed(self.random_state)}
        seed = own.pop("random_state")
        checked_settings({"seed": seed, "features": plain(own)})
        X = validated(self, X)
        self.features_ = draw_features(FeatureSettings(**own, seed=seed), X.shape[1])
        self._n_features_out = self.features_.size
        return self

    def transform(self, X: Any) -> Array:
        """Φ, one row φ(x)ᵀ per row of X."""
        check_is_fitted(self)
        return self.features_(validated(self, X, reset=False))
