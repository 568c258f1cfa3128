"""ONNX: another program predicts what `predict` does, of every kernel, mapping and loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from coke import COKEClassifier, COKERegressor, Features, export_onnx
from coke.data.coding import Coding, ColumnCoding
from coke.data.units import Scaling
from coke.errors import InputError
from coke.export.onnx import onnx_bytes
from coke.learning.model import Closed, Model
from coke.maths.choice.misses import Misses
from coke.maths.features.features import (
    KERNELS,
    MAPPINGS,
    DrawnFeatures,
    FeatureSettings,
    draw_features,
)
from coke.maths.losses import LOSSES, NUMBERS
from kit.commands import coke
from kit.raw import raw_table

D, CLOSE = 3, 1e-5
LOSS_CASES = [
    ("quadratic", 1, ()), ("quadratic", 2, ()), ("huber", 1, ()),
    *((loss, 1, labels) for loss in LOSSES if LOSSES[loss].kind != NUMBERS and loss != "classes"
      for labels in (("no", "yes"), (3, 5, 9), (0.0, 1.0, 2.0, 3.0), (False, True))),
]  # fmt: skip


def model(
    loss: str = "quadratic", targets: int = 1, classes: Any = (), *, kernel: str = "gaussian",
    mapping: str = "cos-sin", linear: float = 0.0, knots: bool = False, seed: int = 0,
) -> Model:  # fmt: skip
    """With numbers at random wherever training puts some."""
    rng = np.random.default_rng(seed)
    drawn = draw_features(FeatureSettings(20, kernel, mapping=mapping, seed=seed), D)
    features = DrawnFeatures(drawn.omega, drawn.phase, linear)
    outputs = LOSSES[loss].outputs(targets, len(classes))
    theta = rng.normal(size=(outputs, features.size))
    K = outputs if LOSSES[loss].codes else targets
    scaling = Scaling(rng.normal(size=D), rng.uniform(0.5, 2.0, D), rng.normal(size=K), np.ones(K))
    if knots:
        scaling = scaling._replace(knots=some_knots(rng))
    labels = np.array(classes, object if classes and isinstance(classes[0], str) else None)
    found = Model(theta, features, scaling, loss, labels, ("a", "b", "c"))
    found = found._replace(closed=Closed(sharpness=7.5 if LOSSES[loss].codes else None))
    return found if targets == 1 else found._replace(targets=("heat", "yield"))


def some_knots(rng: np.random.Generator) -> Any:
    """Two of them of one value, as those of a column with ties are."""
    x, y = np.sort(rng.normal(size=(2, D, 17)), axis=-1)
    x[:, 5], y[:, 5] = x[:, 4], y[:, 4]
    return np.stack([x, y])


def ran(content: bytes, feed: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def agrees(found: dict[str, Any], model: Model, X: Any) -> None:
    wanted = model.predict(X)
    if LOSSES[model.loss].kind == NUMBERS:
        assert found["prediction"].shape == np.shape(wanted)
        np.testing.assert_allclose(found["prediction"], wanted, rtol=CLOSE, atol=CLOSE)
        return
    f = model.decision(model.inputs(X))
    np.testing.assert_allclose(found["decision"], f, rtol=CLOSE, atol=CLOSE)
    assert found["prediction"].tolist() == list(wanted)
    assert LOSSES[model.loss].probabilities == ("probabilities" in found)
    if LOSSES[model.loss].probabilities:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=CLOSE)


def rows(T: int) -> Any:
    return np.random.default_rng(7).normal(size=(T, D))


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["waves", "linear", "knots", "both"])
def test_predictions_agree_on_every_kernel_and_mapping(
    kernel: str, mapping: str, form: str
) -> None:
    linear = 0.7 if form in ("linear", "both") else 0.0
    for loss, classes in (("quadratic", ()), ("softmax", ("a", "b", "c"))):
        one = model(loss, classes=classes, kernel=kernel, mapping=mapping, linear=linear,
                    knots=form in ("knots", "both"))  # fmt: skip
        for X in (rows(40), 3.0 * rows(3000)):  # of many rows `predict` reckons in float32
            agrees(ran(onnx_bytes(one), {"X": X}), one, X)


@pytest.mark.parametrize(("loss", "targets", "classes"), LOSS_CASES)
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_predictions_agree_on_every_loss(
    loss: str, targets: int, classes: Any, mapping: str
) -> None:
    one = model(loss, targets, classes, mapping=mapping, linear=0.4, knots=True)
    agrees(ran(onnx_bytes(one), {"X": rows(200)}), one, rows(200))


def test_a_linear_model_without_waves_agrees() -> None:
    lines = DrawnFeatures(np.empty((0, D)), np.empty(0), 2.0)
    one = model()._replace(features=lines, theta=np.array([[1.0, -2.0, 3.0, 4.0]]))
    agrees(ran(onnx_bytes(one), {"X": rows(9)}), one, rows(9))


def test_gaps_in_numbers_are_means_and_no_rows_no_predictions() -> None:
    one, X = model("logistic", classes=("no", "yes", "maybe")), rows(30)
    X[3, 1], X[4, 0], X[5, 2] = np.nan, np.inf, -np.inf
    agrees(ran(onnx_bytes(one), {"X": X}), one, X)
    assert ran(onnx_bytes(one), {"X": rows(0)})["prediction"].shape == (0,)


def test_of_a_model_that_knows_no_means_a_gap_stays_one() -> None:
    found = ran(onnx_bytes(model()._replace(centred=False)), {"X": np.array([[np.nan, 1, 2]])})
    assert np.isnan(found["prediction"]).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(LOSS_CASES), st.booleans())
def test_any_model_agrees(seed: int, case: Any, knots: bool) -> None:
    kernel = [*KERNELS][seed % len(KERNELS)]
    one = model(*case, kernel=kernel, linear=float(seed % 2), knots=knots, seed=seed)
    agrees(ran(onnx_bytes(one), {"X": rows(20)}), one, rows(20))


@pytest.fixture(scope="module")
def trained() -> Model:
    """With text, truth, dates and gaps, its form chosen."""
    frame, y = raw_table()
    how: Any = {"features": Features(n_features=20), "n_agents": 3}
    found: Model = COKERegressor(**how).fit(frame.drop(columns="id"), y).model_
    return found


def fed(frame: pd.DataFrame) -> dict[str, Any]:
    """As docs/models.md says."""
    feed: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            column = (column - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        text = column.dtype.kind not in "bifu"
        values = column.astype(object).where(column.notna(), "") if text else column
        feed[name] = values.to_numpy(object if text else np.float64)[:, None]
    return feed


def test_text_dates_and_gaps_agree(trained: Model) -> None:
    assert trained.coding is not None
    frame = raw_table(seed=1)[0].drop(columns="id")
    frame["kind"] = frame["kind"].astype(str)
    frame.loc[2, "wind"] = "from nowhere"  # no level that it was trained on
    frame.loc[3, "when"] = pd.NaT
    assert trained.scaling.knots.size or trained.features.linear
    agrees(ran(onnx_bytes(trained), fed(frame)), trained, frame)


def test_onnxs_own_reference_agrees(trained: Model) -> None:
    """A second program, which takes no short cuts of its own."""
    frame = raw_table(60, seed=1)[0].drop(columns="id")
    frame["kind"] = frame["kind"].astype(str)
    program = ReferenceEvaluator(onnx.load_from_string(onnx_bytes(trained)))
    (found,) = list(program.run(["prediction"], fed(frame)))
    wanted = trained.predict(frame)
    np.testing.assert_allclose(np.asarray(found, float), wanted, rtol=CLOSE, atol=CLOSE)


def test_intervals_agree(trained: Model) -> None:
    frame = raw_table(seed=1)[0].drop(columns="id")
    frame["kind"] = frame["kind"].astype(str)
    found = ran(onnx_bytes(trained, 0.8), fed(frame))
    for name, wanted in zip(
        ("prediction", "low", "high"), trained.interval(frame, 0.8), strict=True
    ):
        np.testing.assert_allclose(found[name], wanted, rtol=CLOSE, atol=CLOSE)


def test_intervals_of_several_targets_agree() -> None:
    counts = np.random.default_rng(0).integers(1, 9, (2, 64)).astype(float)
    misses = Misses(counts, counts[0].sum(), np.array([1.0, 3.0]))
    one = model(targets=2)._replace(closed=Closed(misses))
    found = ran(onnx_bytes(one, 0.7), {"X": rows(5)})
    _, low, high = one.interval(rows(5), 0.7)
    np.testing.assert_allclose(found["low"], low, atol=CLOSE)
    np.testing.assert_allclose(found["high"], high, atol=CLOSE)


def test_a_trained_classifier_with_calibrated_probabilities_agrees() -> None:
    X = rows(300)
    y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    one = COKEClassifier(features=Features(n_features=20), n_agents=3).fit(X, y).model_
    assert one.loss == "least-squares"
    assert one.closed.sharpness is not None
    agrees(ran(onnx_bytes(one), {"X": X}), one, X)


def coded(**how: Any) -> Model:
    code = ColumnCoding("word", "text", "x", levels=["x", "y", "z"], **how)
    drawn = draw_features(FeatureSettings(5), len(code.names))
    names = Coding((code,))
    theta, d = np.ones((1, drawn.size)), len(code.names)
    return Model(theta, drawn, Scaling.none(d), "quadratic", np.empty(0), ("word",), coding=names)


def test_a_gap_in_text_is_the_level_that_fills_it() -> None:
    one = coded(gaps=True)
    frame = pd.DataFrame({"word": ["x", "y", None, "else", "z"]})
    agrees(ran(onnx_bytes(one), fed(frame)), one, frame)


def replaced(one: Model, **how: Any) -> Model:
    import msgspec

    assert one.coding is not None
    return one._replace(coding=Coding((msgspec.structs.replace(one.coding.codes[0], **how),)))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda: coded(hashed=True), "digests"),
        (lambda: replaced(coded(), levels=["#0123456789abcdef", "y", "z"]), "digests"),
        (lambda: replaced(coded(), levels=["", "y", "z"]), "stands for a gap"),
        (
            lambda: replaced(coded(), column="low")._replace(columns=("low",)),
            "an output has that name",
        ),
        (lambda: model("hinge", classes=("a", "b"))._replace(
            classes=np.array(["a", 2], object)), "of one type"),
        (lambda: model("hinge", classes=("a", "b"))._replace(
            classes=np.array([1, 2**70], object)), "below 2⁶³"),
    ],
)  # fmt: skip
def test_what_onnx_cannot_say_is_refused_with_the_reason(bad: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        onnx_bytes(bad())


def test_columns_may_have_the_names_of_results_within() -> None:
    one = replaced(coded(), column="gather_0")._replace(columns=("gather_0",))
    frame = pd.DataFrame({"gather_0": ["x", "z"]})
    agrees(ran(onnx_bytes(one), fed(frame)), one, frame)


def test_the_command_writes_what_the_function_does(tmp_path: Path, trained: Model) -> None:
    trained.save(tmp_path / "m.coke")
    said = coke("export", "m.coke", "m.onnx", "--interval", 0.8, cwd=tmp_path).stdout
    content = (tmp_path / "m.onnx").read_bytes()
    assert said == f"m.onnx: {len(content)} bytes\n"
    assert content == onnx_bytes(trained, 0.8)
    assert {one.key: one.value for one in onnx.load(tmp_path / "m.onnx").metadata_props} == {
        "loss": "quadratic",
        "targets": "y",
    }
    refused = coke("export", "m.coke", "m.onnx", "--interval", 1.5, cwd=tmp_path, code=2)
    assert "between 0 and 1" in refused.stderr


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ending in \.onnx"):
        export_onnx(model(), tmp_path / "m.pb")


def test_without_the_extra_the_refusal_says_how_to_have_it(tmp_path: Path) -> None:
    model().save(tmp_path / "m.coke")
    code = (
        "import sys; sys.modules['onnx'] = None; from coke.cli.main import main;"
        "sys.argv = ['coke', 'export', 'm.coke', 'm.onnx']; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2
    assert "pip install 'coke-learn[onnx]'" in run.stderr
