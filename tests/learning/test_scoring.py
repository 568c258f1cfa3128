"""Scores of predictions are scikit-learn's, however the rows come in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from coke.learning.scoring import ClassScore, NumberScore

CUTS = st.lists(st.integers(0, 50), max_size=4).map(sorted)


def document(score: NumberScore | ClassScore) -> Any:
    return score.document()


@given(st.integers(0, 99), CUTS, st.sampled_from([0.0, 1e6]), st.booleans())
def test_numbers(seed: int, cuts: list[int], far: float, text: bool) -> None:
    """R² and RMSE; gaps and what is no number are left out; text is read."""
    rng = np.random.default_rng(seed)
    y, f = far + rng.normal(size=50), far + rng.normal(size=50)
    given_as: list[Any] = [repr(float(v)) if text else float(v) for v in y]
    given_as[::7] = [None, "", "n/a", float("nan"), None, "", "-", None]
    score, known = NumberScore(), np.arange(50) % 7 > 0
    for rows in np.split(np.arange(50), cuts):
        score.add([given_as[i] for i in rows], f[rows])
    found = document(score)
    assert found["scored"] == known.sum()
    assert_allclose(found["r2"], r2_score(y[known], f[known]), rtol=1e-9)
    assert_allclose(found["rmse"], root_mean_squared_error(y[known], f[known]))


LABELS: list[list[Any]] = [["a", "b", "c"], [0, 1, 2], [0.5, 1.0], [False, True]]


@given(st.integers(0, 99), CUTS, st.sampled_from(LABELS), st.booleans())
def test_classes(seed: int, cuts: list[int], labels: list[Any], text: bool) -> None:
    """Accuracy and log loss, also of labels that a CSV file has as text."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(len(labels)), size=50)
    true, said = rng.integers(len(labels), size=50), P.argmax(axis=1)
    score = ClassScore(labels)
    for rows in np.split(np.arange(50), cuts):
        given_as = [str(labels[k]) if text else labels[k] for k in true[rows]]
        score.add([*given_as, None], [labels[k] for k in [*said[rows], 0]], P[[*rows, 0]])
    found = document(score)
    assert found["scored"] == 50
    assert_allclose(found["accuracy"], accuracy_score(true, said))
    assert_allclose(found["log_loss"], log_loss(true, P, labels=range(len(labels))))


def test_what_cannot_be_scored_is_none() -> None:
    empty, constant, strange = NumberScore(), NumberScore(), ClassScore(["a", "b"])
    constant.add([1.0, 1.0], np.array([1.0, 2.0]))
    assert document(empty) == {"scored": 0, "r2": None, "rmse": None}
    assert document(constant)["r2"] is None
    strange.add(["a", "z"], ["a", "b"], np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert document(strange) == {"scored": 2, "accuracy": 0.5, "log_loss": None}
