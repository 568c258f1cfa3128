"""Model files: the model comes back, and whatever else a file holds is refused."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.files import LONGEST, MAGIC
from coke.data.units import Scaling
from coke.errors import DataError, FileError, InputError
from coke.learning.model import Closed, Model, load_model
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.losses import LOSSES
from kit.forging import DEEP, forged, forgeries, parts_of, split


def model(classes: Any = (), loss: str = "quadratic", targets: int = 1) -> Model:
    features = draw_features(FeatureSettings(4, seed=1), 3)
    outputs = LOSSES[loss].outputs(targets, len(classes))
    theta = np.random.default_rng(0).normal(size=(outputs, features.size))
    K = outputs if LOSSES[loss].codes else targets
    scaling = Scaling(np.ones(3), np.full(3, 2.0), np.arange(5.0, 5.0 + K), np.full(K, 3.0))
    found = Model(theta, features, scaling, loss, np.array(classes), ("a", "b", "c"))
    return found if targets == 1 else found._replace(targets=("heat", "yield")[:targets])


MODELS = {
    "regression": model(),
    "two targets": model(targets=2),
    "codes": model(["a", "b", "c"], "least-squares")._replace(closed=Closed(sharpness=7.5)),
    "two codes": model([0, 1], "least-squares"),
    "softmax": model([0, 1, 2, 3], "softmax"),
    "binary": model(["no", "yes"], "hinge"),
    "numbers": model([1, 2, 5], "logistic"),
}
X = np.random.default_rng(1).normal(size=(20, 3))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_gives_back_the_model(name: str, tmp_path: Path) -> None:
    MODELS[name].save(tmp_path / "m.coke")
    again = load_model(tmp_path / "m.coke")
    assert_array_equal(again.predict(X), MODELS[name].predict(X))
    assert again.to_bytes() == MODELS[name].to_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "m.coke"]  # no part files left


@given(st.data())
def test_a_changed_bit_or_a_missing_end_is_noticed(data: st.DataObject) -> None:
    whole = MODELS["regression"].to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    changed = bytearray(whole)
    changed[at] ^= 1 << bit
    for bad in (bytes(changed), whole[:at], whole + b"\0"):
        with pytest.raises(FileError):
            Model.from_bytes(bad)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_model_or_a_file_error(data: bytes) -> None:
    with pytest.raises(FileError):
        Model.from_bytes(data)


@settings(max_examples=400)
@given(st.sampled_from(list(MODELS)).flatmap(lambda name: forgeries(MODELS[name].to_bytes())))
def test_a_forged_model_file_with_a_right_digest_is_refused(data: bytes) -> None:
    """The digest is no signature: whatever a forger writes ends in a model that predicts or in a
    FileError, never in another exception.
    """
    try:
        m = Model.from_bytes(data)
    except FileError:
        return
    f = m.predict(np.ones((20, len(m.columns))))
    assert len(f) == 20
    if m.loss == "quadratic":
        assert np.isfinite(f).all()
    assert Model.from_bytes(m.to_bytes()).to_bytes() == m.to_bytes()


def with_meta(name: str, value: str) -> bytes:
    """A model file in which an entry of the header's meta reads as given."""
    header, body = parts_of(MODELS["regression"].to_bytes())
    header["meta"][name] = "HERE"
    return forged(json.dumps(header).replace('"HERE"', value).encode(), body)


def with_array(name: str, value: float) -> bytes:
    """A model file with another number in one of its arrays."""
    header, body = parts_of(MODELS["regression"].to_bytes())
    arrays = split(header, body)
    at = [entry["name"] for entry in header["arrays"]].index(name)
    arrays[at] = np.float64(value).tobytes() + arrays[at][8:]
    return forged(header, b"".join(arrays))


def with_shape(shape: list[int]) -> bytes:
    """A model file with one array, of that shape."""
    header, _ = parts_of(MODELS["regression"].to_bytes())
    header["arrays"] = [{"name": "theta", "dtype": "<f8", "shape": shape}]
    return forged(header, bytes(8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_shape([1] * 65),
        lambda: with_shape([0, 10**12, 10**12]),
        lambda: with_shape([0, *[2**40 - 1] * 3]),
        lambda: with_shape([2**40] * 200_000),
        lambda: with_shape([10**400]),
        lambda: forged(DEEP.encode()),
        lambda: with_meta("linear", DEEP),
        lambda: with_meta("linear", "1" + "0" * 400),
        lambda: with_meta("linear", "null"),
        lambda: with_meta("sharpness", "5e-324"),
        lambda: with_meta("sharpness", "-1"),
        lambda: with_meta("sharpness", "1e200"),
        lambda: with_array("y_scale", 5e-324),
        lambda: with_array("y_scale", 0.0),
        lambda: with_array("y_scale", 1e200),
        lambda: with_array("y_shift", np.nan),
        lambda: with_meta("classes", "[null]"),
        lambda: with_meta("columns", "[1, 2, 3]"),
        lambda: with_array("x_scale", 5e-324),
        lambda: with_array("x_scale", np.nan),
        lambda: with_array("theta", np.inf),
        lambda: with_array("omega", 1e308),
        lambda: forged(b'{"version": 1, "kind": "\xff"}'),
        lambda: forged(b" " * (LONGEST + 1)),
        lambda: MAGIC + b"\xff" * 4 + hashlib.blake2b(MAGIC + b"\xff" * 4, digest_size=32).digest(),
    ],
)
def test_known_forgeries_are_refused_at_once(make: Any) -> None:
    data, begun = make(), time.process_time()
    with pytest.raises(FileError):
        Model.from_bytes(data)
    assert time.process_time() - begun < 2.0


LABELS: dict[str, list[Any]] = {
    "text": ["a", "b\0", "ü"],
    "whole": [-3, 0, 2],
    "large": [0, 1, 2**63 + 1],
    "floats": [0.5, 1.0],
    "booleans": [False, True],
    "mixed": [False, 0.5, 7],
}


@pytest.mark.parametrize("name", LABELS)
def test_class_labels_come_back_with_their_type(name: str) -> None:
    for given_as in (np.array(LABELS[name], dtype=object), np.array(LABELS[name])):
        if name == "mixed" and given_as.dtype != object:
            continue  # NumPy has made floats of them before we are asked
        m = model([0] * len(LABELS[name]), "hinge")._replace(classes=given_as)
        before, again = given_as.tolist(), Model.from_bytes(m.to_bytes()).classes.tolist()
        assert [(type(c), c) for c in again] == [(type(c), c) for c in before]


@pytest.mark.parametrize(
    "odd",
    [
        np.array([b"a", b"b"]),
        np.array([b"a", b"b"], dtype=object),
        np.array(["2020-01-01", "2020-01-02"], dtype="M8[ns]"),
        np.array([1, 2], dtype="m8[ns]"),
        np.array([0.0, np.nan]),
        np.array([0.0, np.inf]),
        np.array([1j, 2j]),
        np.array([None, "a"], dtype=object),
    ],
)
def test_labels_that_a_file_would_change_are_not_saved(odd: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"class label .*astype\(str\)"):
        model([0, 1], "hinge")._replace(classes=odd).save(tmp_path / "m.coke")
    assert not list(tmp_path.iterdir())


def test_a_model_that_could_not_be_read_back_is_not_saved() -> None:
    m = MODELS["regression"]
    for bad in (
        m._replace(theta=m.theta * np.nan),
        m._replace(theta=m.theta[:, :-1]),
        m._replace(scaling=m.scaling._replace(y_scale=np.zeros(1))),
        m._replace(loss="squared"),
    ):
        with pytest.raises(InputError, match="no file can keep"):
            bad.to_bytes()


def test_predictions_are_refused_for_other_columns(tmp_path: Path) -> None:
    m = MODELS["regression"]
    with pytest.raises(DataError, match=r"needs \(T, 3\)"):
        m.predict(np.zeros((2, 4)))
    with pytest.raises(DataError, match="NaN"):
        m._replace(centred=False).predict(np.full((1, 3), np.nan))
    for odd in ([["a", "b", "c"]], [["1", "2", "3"]], [[1, 2, "c"]], [[1, 2], [3]], [[1j, 0, 0]]):
        with pytest.raises(DataError, match=r"number|array"):
            m.predict(odd)
    with pytest.raises(DataError, match="numbers"):
        m.predict(np.array([[object(), 1, 2]], dtype=object))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="'c'"):
        m.predict(tmp_path / "x.csv")
    with pytest.raises(InputError, match="logistic"):
        m.predict_proba(X)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """The order of a file's columns does not matter, nor do others beside them."""
    (tmp_path / "x.csv").write_text("c,extra,a,b\n3.5,9,1.5,2\n")
    m = MODELS["regression"]
    assert_array_equal(m.predict(tmp_path / "x.csv"), m.predict(np.array([[1.5, 2, 3.5]])))


def test_probabilities_sum_to_one_and_agree_with_labels() -> None:
    m = MODELS["numbers"]
    P = m.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert_array_equal(m.classes[P.argmax(axis=1)], m.predict(X))


# Files of earlier forms.

OLD = Path(__file__).parent / "old" / "model-2026-11-16.coke"


def test_a_model_file_from_before_several_targets_predicts_what_it_did() -> None:
    """It was written by the code of that day; these are that code's predictions."""
    X = np.array([[0.1257302210933933, -0.1321048632913019],
                  [0.6404226504432821, 0.10490011715303971],
                  [-0.535669373161111, 0.36159505490948474]])  # fmt: skip
    said = [0.12276493070288584, 0.5898416542401472, -0.5040440071520225]
    model = load_model(OLD)
    assert_allclose(model.predict(X), said, rtol=1e-12)
    assert Model.from_bytes(model.to_bytes()).theta.tobytes() == model.theta.tobytes()


@pytest.mark.parametrize("version", [0, 2])
def test_a_file_of_another_form_says_what_to_do(version: int) -> None:
    header, body = parts_of(OLD.read_bytes())
    with pytest.raises(FileError, match="use the coke release that wrote it"):
        Model.from_bytes(forged({**header, "version": version}, body))


def test_units_that_are_told_twice_are_no_model() -> None:
    now = Model.from_bytes(OLD.read_bytes()).to_bytes()
    header, body = parts_of(now)
    header["meta"] |= {"y_shift": 0.0, "y_scale": 1.0}
    with pytest.raises(FileError, match="twice"):
        Model.from_bytes(forged(header, body))
