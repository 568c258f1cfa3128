"""A verdict where no rows are held out and sums do not say all: rows left out of all fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error
from sklearn.svm import LinearSVC

from coke import COKEClassifier
from coke.data.site import Kept
from coke.data.split import by_label, split
from coke.data.tables import Rows
from coke.learning.assessing import assessed
from coke.learning.fifths import fifths
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.learning.verdict import FIFTHS, Ended
from coke.maths.graph import build_graph
from coke.maths.ledger import Ledger
from coke.settings.reading import checked_settings

rng = np.random.default_rng(7)
X = rng.normal(size=(211, 3))
BENT = 5.0 + 2.0 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=211)
KINDS = np.where(BENT > 6, "high", np.where(BENT < 4, "low", "middle"))
SIDES = np.where(BENT > 5, "high", "low")
SITES = np.repeat(["Aachen", "Bonn", "Ulm"], [46, 65, 100])


def agreed(y: Any, loss: str) -> Ready:
    plain = {"data": {"test": 0.0, "target": "y"}, "model": "plain", "features": {"n_features": 20}}
    checked = checked_settings(plain | {"loss": loss, "lambda": 1e-2})
    rows = Rows(X, y, None, ("a", "b", "c"), ("y",))
    kept = split(by_label(SITES), test=0.0, seed=0).kept(rows, numbers=y.dtype.kind == "f")
    return agree(kept, build_graph("complete", 3, seed=0), Terms(checked, rows.columns))


def features_of(ready: Ready, X: Any) -> Any:
    return ready.agreement.features(ready.agreement.making.units.inputs(X))


def fitted(loss: str, G: float, Phi: Any, y: Any, c: Any) -> Callable[[Any], Any]:
    """argmin_θ Σ_t c_t ℓ(φ_tᵀθ, y_t) + G‖θ‖² by another's solver, as what it predicts."""
    if loss == "huber":

        def value(theta: Any) -> Any:
            r = y - Phi @ theta
            q = np.minimum(np.abs(r), 1.0)
            slope = Phi.T @ (c * -2.0 * np.clip(r, -1.0, 1.0))
            return c @ (q * (2 * np.abs(r) - q)) + G * theta @ theta, slope + 2 * G * theta

        found = minimize(value, np.zeros(Phi.shape[1]), jac=True, options={"gtol": 1e-9})
        return lambda Phi: Phi @ found.x
    C = 0.5 / G
    if loss == "hinge":
        line = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=10**6)
        return cast("Callable[[Any], Any]", line.fit(Phi, y, sample_weight=c).predict)
    soft = LogisticRegression(C=C, fit_intercept=False, tol=1e-9, max_iter=10**4)
    return cast("Callable[[Any], Any]", soft.fit(Phi, y, sample_weight=c).predict_proba)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "hinge", "huber"])
def test_rows_of_a_fifth_are_predicted_by_fits_without_it(loss: str) -> None:
    """The optimum's and own models' are another solver's; a common model at θ* is at θ*₋."""
    y = {"softmax": KINDS, "huber": BENT}.get(loss, SIDES)
    ready = agreed(y, loss)
    best, kept = ready.model(ready.optimum), ready.sites
    v = assessed(ready, best, Ended(1, True, Ledger()), look=True)
    assert v is not None
    assert isinstance(kept, Kept)
    assert v.pooled is not None
    assert (v.how, v.rows) == (FIFTHS, len(y))
    assert v.together.score == pytest.approx(v.pooled.score)
    G, seen = ready.agreement.making.G, list[Any]()
    told: dict[str, list[Any]] = {"pooled": [], "home": []}
    for seat in fifths(ready, best):
        out = seat.ready.sites
        assert isinstance(out, Kept)
        rest = [
            ~np.isin(X_i[:, 0], held[:, 0]) for X_i, held in zip(kept.X, out.X_test, strict=True)
        ]
        Phi = [features_of(ready, X_i[r]) for X_i, r in zip(kept.X, rest, strict=True)]
        z = [ready.agreement.making.targets(y_i[r]) for y_i, r in zip(kept.y, rest, strict=True)]
        c = [np.full(len(z_i), 1.0 / len(z_i)) for z_i in z]
        all_ = fitted(loss, 3 * G, *map(np.concatenate, (Phi, z, c)))
        own = [fitted(loss, G, *each) for each in zip(Phi, z, c, strict=True)]
        new = [features_of(ready, held) for held in out.X_test]
        assert max(map(len, new)) <= 40  # a fifth of each
        seen += list(out.y_test)
        told["pooled"] += [all_(phi) for phi in new]
        told["home"] += [one(phi) for one, phi in zip(own, new, strict=True)]
    right = np.concatenate(seen)
    assert_array_equal(np.sort(right), np.sort(y))
    for name, predicted in told.items():
        f, figure = np.concatenate(predicted), getattr(v, name)
        if loss == "huber":
            f = best.scaling.predictions(f[:, None])[:, 0]
            assert_allclose(figure.error, mean_squared_error(right, f) ** 0.5, rtol=1e-4)
        elif loss == "hinge":
            assert_allclose(figure.score, accuracy_score(right, f))
        else:
            assert_allclose(figure.score, accuracy_score(right, best.classes[f.argmax(axis=1)]))
            assert_allclose(figure.error, log_loss(right, f, labels=best.classes), rtol=1e-4)
    assert v.shown is not None
    if v.shown.confusion is not None:
        assert np.trace(v.shown.confusion[0]) / len(y) == pytest.approx(v.together.score)


def test_a_row_that_is_a_sites_only_one_is_never_left_out() -> None:
    """Without it a site would have no model; where all have one row, nothing is said."""
    sites = ["one", *SITES[1:]]
    few = COKEClassifier(loss="softmax", model="plain").fit(X, SIDES, sites)
    assert few.verdict_ is not None
    assert few.verdict_.rows == len(X) - 1
    assert few.verdict_.sites["one"].home.score is None
    each = COKEClassifier(n_agents=8, loss="softmax", model="plain").fit(X[:8], SIDES[:8])
    assert each.verdict_ is None
    assert "together" not in repr(each)
