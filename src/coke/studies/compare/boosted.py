"""Boosted trees, as many know them: of all rows in one place, or each site's own, averaged.

LightGBM with its defaults (the extra `boost`). It is the library that many would reach for, and a
model of its has a text to send; scikit-learn's boosted trees have none but a pickle.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coke.data.site import Kept
from coke.data.tables import Labels
from coke.data.units import numbers_of
from coke.errors import InputError
from coke.learning.ready import Ready
from coke.maths.arrays import Array, side_by_side
from coke.maths.graph import Tree
from coke.maths.ledger import Ledger
from coke.maths.losses.codes import which

NUMBER = 4  # bytes of a value in a row that is sent: float32, finer than the bins of such trees


def installed() -> bool:
    """Whether the extra is there."""
    return find_spec("lightgbm") is not None


class Boosted:
    """Trees for the targets of a run: one booster a target, or one for all classes."""

    def __init__(self, ready: Ready):
        if not installed():
            raise InputError("LightGBM is not installed: pip install 'coke-learn[boost]'")
        if not isinstance(ready.sites, Kept):
            raise InputError("boosted trees need rows in memory: leave --out-of-core out")
        self.sites, self._classes = ready.sites, ready.agreement.making.classes
        self._seed = ready.agreement.terms.settings.seed

    def pooled(self, tree: Tree) -> tuple[Forests, Ledger]:
        """Of all rows, which go up to the root; the model comes down."""
        X, y = np.concatenate(self.sites.X), np.concatenate(self.sites.y)
        width = NUMBER * (X.shape[1] + side_by_side(y).shape[1])
        sent = gathered(tree, Ledger(), [width * len(rows) for rows in self.sites.y])
        found = Forests([self._grown(X, y)], self._classes)
        return found, tree.told_down(sent, found.sizes[0])

    def average(self, tree: Tree) -> tuple[Forests, Ledger]:
        """The mean of what each site's own trees say; everybody hears all of them."""
        parts = zip(self.sites.X, self.sites.y, strict=True)
        found = Forests([self._grown(X, y) for X, y in parts], self._classes)
        return found, shared(tree, Ledger(), found.sizes)

    def _grown(self, X: Array, y: Labels) -> list[Any]:
        import lightgbm

        how = {"seed": self._seed, "deterministic": True, "num_threads": 1, "verbosity": -1}
        targets = list(side_by_side(numbers_of(y)).T) if self._numbers else [self._coded(y)]
        return [
            lightgbm.train(how | self._objective, lightgbm.Dataset(X, one, params=how))
            for one in targets
        ]

    @property
    def _numbers(self) -> bool:
        return not len(self._classes)

    @property
    def _objective(self) -> dict[str, Any]:
        if self._numbers:
            return {"objective": "regression"}
        many = len(self._classes)
        return (
            {"objective": "multiclass", "num_class": many} if many > 2 else {"objective": "binary"}
        )

    def _coded(self, y: Labels) -> NDArray[np.int64]:
        return np.asarray(which(y, self._classes))


class Forests:
    """Trees of one place or several, which predict by their mean."""

    def __init__(self, boosters: Sequence[Sequence[Any]], classes: Labels):
        self._boosters, self._classes = boosters, classes

    @property
    def sizes(self) -> list[int]:
        """Bytes of each place's model, its text compressed."""
        return [
            sum(len(zlib.compress(one.model_to_string().encode(), 9)) for one in place)
            for place in self._boosters
        ]

    def predict(self, X: Any) -> Labels:
        """Numbers (T,) or (T, K), or labels by the mean of probabilities."""
        said = [np.stack([one.predict(X) for one in place], axis=-1) for place in self._boosters]
        mean = np.mean(said, axis=0)[..., 0] if len(self._boosters[0]) == 1 else np.mean(said, 0)
        if not len(self._classes):
            return np.asarray(mean)
        at = mean.argmax(axis=1) if mean.ndim == 2 else (mean > 0.5).astype(np.int64)
        return np.asarray(self._classes[at])


def gathered(tree: Tree, ledger: Ledger, sizes: Sequence[int]) -> Ledger:
    """With all that the sites have at the root: each sends on what it heard, with its own."""
    carried = list(sizes)
    for i in reversed(tree.order[1:]):
        ledger = ledger.told(carried[i])
        carried[tree.parent[i]] += carried[i]
    return ledger


def shared(tree: Tree, ledger: Ledger, sizes: Sequence[int]) -> Ledger:
    """With all that the sites have at all of them: everybody passes on what is news to others."""
    near = _near(tree)
    for i, size in enumerate(sizes):
        ledger = ledger.told(size, messages=bool(near[i]), copies=near[i])
        for j in tree.order:
            if j != i and near[j] > 1:
                ledger = ledger.told(size, copies=near[j] - 1)
    return ledger


def _near(tree: Tree) -> Mapping[Any, int]:
    """The number of neighbours in the tree."""
    return {i: len(tree.children.get(i, [])) + (i != tree.root) for i in tree.order}
