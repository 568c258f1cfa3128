"""The random features as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from coke.errors import DataError, InputError
from coke.maths.arrays import Array
from coke.maths.features.features import FeatureSettings, draw_features
from coke.settings.reading import checked_settings

FEATURES = ("n_features", "kernel", "sigma", "mapping", "sampling")


def validated(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
    """scikit-learn's own checks, raised from this package's exception tree."""
    try:
        return validate_data(estimator, *args, dtype=np.float64, **kwargs)
    except ValueError as error:
        raise DataError(str(error)) from error


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which is what configurations are made of."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


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
        checked_settings(plain(wanted))
        X = validated(self, X)
        own = FeatureSettings(**{key: getattr(self, key) for key in (*FEATURES, "seed")})
        self.features_ = draw_features(own, X.shape[1])
        self._n_features_out = self.features_.size
        return self

    def transform(self, X: Any) -> Array:
        """Φ, one row φ(x)ᵀ per row of X."""
        check_is_fitted(self)
        return self.features_(validated(self, X, reset=False))
