"""From the sites' rows to a learning problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coke.data.sites import Sites
from coke.data.tables import Labels
from coke.errors import DataError, InputError, unknown
from coke.maths.arrays import Array, Room, mapped
from coke.maths.losses.margin import LOSSES, Margin, OneVsRest
from coke.maths.losses.problem import Problem
from coke.maths.losses.quadratic import Quadratic
from coke.maths.losses.risk import Risk

Phi = Callable[[Array], Array]


def learning_problem(
    sites: Sites, phi: Phi, *, loss: str, G: float, classes: Labels, room: Room = np.empty
) -> Problem:
    """The sites' risks with G = λ/N each; `classes` are the sorted labels, none for regression.

    Features of rows with class labels are kept in `room`.
    """
    if loss != "quadratic" and loss not in LOSSES:
        raise InputError(unknown("loss", loss, ("quadratic", *LOSSES)))
    train = _risk(sites.X, sites.y, phi, G, loss, classes, room)
    if not any(map(len, sites.y_test)):
        return Problem(train)
    return Problem(train, _risk(sites.X_test, sites.y_test, phi, G, loss, classes, room))


def _risk(
    X: tuple[Array, ...], y: tuple[Any, ...], phi: Phi, G: float, loss: str, classes: Labels,
    room: Room,
) -> Risk:  # fmt: skip
    if loss == "quadratic":
        return Quadratic.from_rows(phi, X, y, G)
    features = mapped(phi, X, phi(np.zeros((1, X[0].shape[1]))).shape[1], room)
    wanted = classes[1:] if len(classes) == 2 else classes
    signs = (tuple(_signs(yi, c) for yi in y) for c in wanted)
    parts = tuple(Margin(features, sign, G, loss, room) for sign in signs)
    return parts[0] if len(parts) == 1 else OneVsRest(parts)


def _signs(y: Labels, c: Any) -> Array:
    return np.where(y == c, 1.0, -1.0)


def checked_classes(labels: Sequence[Any]) -> Labels:
    """The sorted labels of all sites; one class at one site is fine, one class in all is not."""
    classes = np.array(labels)
    if classes.dtype.kind == "f" and not np.equal(classes, np.round(classes)).all():
        raise DataError(
            f"the target has {len(classes)} values such as {classes[0]}: a class label is text or "
            'a whole number; for numbers use loss = "quadratic"'
        )
    if len(classes) < 2:
        raise DataError(
            f"all rows have the one class {classes[0]!r}: expected at least two; a classifier "
            "with one class has nothing to learn"
        )
    return classes


def numbers_of(y: Labels) -> Array:
    """The target as finite numbers."""
    if y.dtype.kind not in "fiub":
        raise DataError(
            f"the target holds {y.dtype}: the quadratic loss needs numbers; "
            'for class labels use loss = "logistic" or "hinge"'
        )
    return y.astype(np.float64)
