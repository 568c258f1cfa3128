"""The verdict: its figures are scikit-learn's on the same predictions, its warnings are true."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score

from coke import COKEClassifier, CokePaper, COKERegressor, Features, Until
from coke.data.site import Kept
from coke.data.split import by_label, split
from coke.data.tables import Rows
from coke.learning.assessing import assessed, assessed_here
from coke.learning.model import Model
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.learning.train import Trained, train
from coke.learning.verdict import FIFTHS, HELD, LEFT, Ended, Verdict
from coke.maths.graph import build_graph
from coke.maths.ledger import Ledger
from coke.settings.reading import checked_settings

rng = np.random.default_rng(7)
X = rng.normal(size=(420, 3))
BENT = 5.0 + 2.0 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=420)
STRAIGHT = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=420)
SITES = np.repeat(["Aachen", "Bonn", "Ulm"], [90, 130, 200])
KINDS = np.where(BENT > 6, "high", np.where(BENT < 4, "low", "middle"))


def near(found: Any, wanted: Any, rtol: float = 1e-7, atol: float = 0.0) -> None:
    assert_allclose(found, wanted, rtol=rtol, atol=atol)


def run(y: Any, test: float, **settings: Any) -> tuple[Ready, Trained]:
    targets = [f"y{k}" for k in range(y.shape[1])] if y.ndim == 2 else ["y"]
    data = {"test": test, "target": targets}
    plain = {"data": data, "model": "plain", "features": {"n_features": 20}, "rounds": 150}
    checked = checked_settings(plain | settings)
    rows = Rows(X, y, None, ("a", "b", "c"), tuple(targets))
    numbers = y.dtype.kind == "f"
    kept = split(by_label(SITES), test=test, seed=0).kept(rows, numbers=numbers)
    ready = agree(kept, build_graph("complete", 3, seed=0), Terms(checked, rows.columns))
    return ready, train(ready, "coke")


def held(ready: Ready) -> tuple[Any, Any]:
    """All sites' held-out rows."""
    kept = ready.sites
    assert isinstance(kept, Kept)
    return np.concatenate(kept.X_test), np.concatenate(kept.y_test)


def judged(ready: Ready, trained: Trained, look: bool = False) -> Verdict:
    assert trained.model is not None
    verdict = assessed(ready, trained.model, trained.ended, look=look)
    assert verdict is not None
    return verdict


def models(ready: Ready, trained: Trained) -> tuple[Model, Model, list[Model]]:
    """The common model, the optimum, and each site's own."""
    assert trained.model is not None
    own = [ready.model(theta) for theta in ready.problem.train.alone()]
    return trained.model, ready.model(ready.optimum, trained.model.closed), own


def test_figures_of_numbers_are_scikit_learns() -> None:
    ready, trained = run(BENT, 0.3)
    v, (X_test, y_test) = judged(ready, trained), held(ready)
    common, pooled, own = models(ready, trained)
    assert (v.rows, v.how) == (len(y_test), HELD)
    for model, figure in ((common, v.together), (pooled, v.pooled)):
        f = model.predict(X_test)
        assert figure is not None
        near(figure.score, r2_score(y_test, f), rtol=1e-5)
        near(figure.error, mean_squared_error(y_test, f) ** 0.5, rtol=1e-5)
    alone = [r2_score(y_test, one.predict(X_test)) for one in own]
    assert v.alone is not None
    assert v.worst is not None
    near(v.alone.score, np.mean(alone), rtol=1e-5)
    near(v.worst[1].score, min(alone), rtol=1e-5)
    assert v.worst[0] == ready.names[int(np.argmin(alone))]
    for i, (name, at) in enumerate(v.sites.items()):
        assert isinstance(ready.sites, Kept)
        X_i, y_i = ready.sites.X_test[i], ready.sites.y_test[i]
        home, there = (r2_score(y_i, one.predict(X_i)) for one in (own[i], common))
        assert name == ready.names[i]
        assert at.alone is not None
        found = [at.alone.score, at.home.score, at.together.score, at.gain_home, at.gain]
        gain = r2_score(y_test, common.predict(X_test)) - alone[i]
        wanted = [alone[i], home, there, there - home, gain]
        near(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["least-squares", "softmax", "logistic", "hinge"])
def test_figures_of_classes_are_scikit_learns(loss: str) -> None:
    ready, trained = run(KINDS, 0.3, loss=loss)
    v, (X_test, y_test) = judged(ready, trained, look=True), held(ready)
    common, _, own = models(ready, trained)
    near(v.together.score, accuracy_score(y_test, common.predict(X_test)))
    if loss == "hinge":
        assert v.together.error is None  # no probabilities
    else:
        p = common.predict_proba(X_test)
        near(v.together.error, log_loss(y_test, p, labels=common.classes), rtol=1e-4)
    alone = [accuracy_score(y_test, one.predict(X_test)) for one in own]
    assert v.alone is not None
    near(v.alone.score, np.mean(alone))
    assert v.shown is not None
    assert v.shown.confusion is not None
    taken, worst = v.shown.confusion, min(alone)
    near(np.trace(taken, axis1=1, axis2=2) / len(y_test), [v.together.score, worst])
    near(taken.sum(axis=2)[0], np.unique(y_test, return_counts=True)[1])


def test_several_targets_are_averaged_as_scikit_learn_does() -> None:
    ready, trained = run(np.column_stack([BENT, STRAIGHT]), 0.3)
    v, (X_test, y_test) = judged(ready, trained, look=True), held(ready)
    common, *_ = models(ready, trained)
    near(v.together.score, r2_score(y_test, common.predict(X_test)), rtol=1e-5)
    assert v.together.error is None  # of two units there is no mean


def test_rows_as_if_left_out_are_predicted_by_a_fit_without_them() -> None:
    """y − (y − f)/(1 − h) is the prediction of the optimum of all other rows, weights as before."""
    ready, _ = run(BENT, 0.0)
    best = ready.model(ready.optimum)
    v = assessed(ready, best, Ended(1, True, Ledger()))
    assert v is not None
    assert v.how == LEFT
    risk, kept, total = ready.problem.train.sums, ready.rows, 0.0
    assert risk is not None
    assert kept is not None
    N, D = len(risk.T), risk.A.shape[-1]
    P, b, z = risk.A.sum(axis=0) + N * float(risk.G) * np.eye(D), risk.b.sum(axis=0), []
    for X_i, y_i, T in zip(kept.X, kept.y, risk.T, strict=True):
        for phi, y in zip(ready.agreement.features(X_i), y_i, strict=True):
            theta = np.linalg.solve(P - np.outer(phi, phi) / T, b - phi * y / T)
            total += (y - phi @ theta) ** 2
            z.append(y)
    near(v.together.score, 1 - total / np.sum((z - np.mean(z)) ** 2), rtol=1e-4)
    assert v.together == v.pooled


def test_a_line_wins_where_it_does_and_only_there() -> None:
    straight, bent = run(STRAIGHT, 0.3), run(BENT, 0.3)
    v = judged(*straight)
    assert v.linear_wins
    assert "a plain linear model does better" in v.warnings[0]
    assert not judged(*bent).linear_wins
    auto = run(STRAIGHT, 0.3, model="auto", features={})
    assert not judged(*auto).linear_wins  # it has the line among its choices
    kept, (X_test, y_test) = straight[0].sites, held(straight[0])
    assert isinstance(kept, Kept)
    line = Ridge().fit(np.concatenate(kept.X), np.concatenate(kept.y))
    assert v.linear is not None
    near(v.linear.score, r2_score(y_test, line.predict(X_test)), atol=1e-3)


def test_the_sentence_says_it_all_and_an_agent_says_what_it_cannot_know() -> None:
    ready, trained = run(BENT, 0.3)
    v = judged(ready, trained)
    assert str(v).startswith(f"R² {v.together} together, {v.alone} alone (worst site ")
    assert f"settled after {v.ended.rounds} rounds, certified within" in str(v)
    assert v.document()["text"] == str(v)
    here = assessed_here(ready, models(ready, trained)[0], trained.ended)
    assert here is not None
    assert "no site can know" in here.notes[0]
    assert "pooled" not in str(here)
    assert (here.home, here.together) == (v.home, v.together)


def test_a_run_that_has_not_settled_warns() -> None:
    few = COKERegressor(limits=Until(rounds=3))
    with pytest.warns(ConvergenceWarning, match="not settled after 5 rounds"):
        few.fit(X, BENT, SITES)
    assert not few.converged_
    assert "not settled" in repr(few)
    paper = COKERegressor(model="plain", algorithm=CokePaper(), limits=Until(rounds=3))
    assert "; after 3 rounds" in repr(paper.fit(X, BENT, SITES))  # it has no tolerance to reach


def test_a_fitted_estimator_shows_its_verdict() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = COKERegressor(n_agents=4, features=Features(n_features=30))
    assert "together" not in repr(model)
    model.fit(X, y)
    assert str(model.verdict_) in repr(model)
    assert "together" in model._repr_mimebundle_()["text/html"]
    assert "together" in model._repr_html_()
    kind = COKEClassifier(n_agents=4).fit(X, y > 140)
    assert repr(kind).splitlines()[-1].startswith("accuracy ")
    hinge = COKEClassifier(n_agents=4, loss="hinge", model="plain").fit(X, y > 140)
    assert "accuracy" in repr(hinge)
    assert f"442 {FIFTHS}" in hinge._repr_html_()


def test_a_private_run_looks_at_no_training_row_again(tmp_path: Path) -> None:
    ranges = {"a": [-4.0, 4.0], "b": [-4.0, 4.0], "c": [-4.0, 4.0], "y": [0.0, 10.0]}
    private = {
        "privacy": "dp", "epsilon": 100.0, "whitening": "range", "features": {"sigma": 1.0},
        "data": {"test": 0.3, "scale": "public", "ranges": ranges},
    }  # fmt: skip
    v = judged(*run(BENT, 0.3, **private))
    assert v.linear is None
    private["data"] = {"test": 0.0, "scale": "public", "ranges": ranges}
    ready, trained = run(BENT, 0.0, **private)
    assert trained.model is not None
    assert assessed(ready, trained.model, trained.ended) is None


def test_it_is_the_same_whenever_it_is_looked_at_and_no_row_is_pickled() -> None:
    model = COKERegressor(model="plain").fit(X, BENT, SITES)
    assert any(X[i].tobytes() in pickle.dumps(model._judge) for i in range(3))  # until then
    kept = pickle.dumps(model)
    assert not any(X[i].tobytes() in kept for i in range(len(X)))
    assert pickle.loads(kept).verdict_ == model.verdict_
    assert model.verdict_ is model.verdict_
    assert str(COKERegressor(model="plain").fit(X, BENT, SITES).verdict_) == str(model.verdict_)
