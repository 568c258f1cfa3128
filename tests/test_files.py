"""Files: written whole, read with suspicion, the same bytes for the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from coke.data.files import atomically, pack, unpack, write_file
from coke.data.scaling import Scaling
from coke.errors import CokeError, DataError, FileError, InputError
from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.thresholds import Geometric
from coke.model import Model, load_model, model_from_bytes
from coke.run.checkpoint import check_same, load_checkpoint, save_checkpoint
from coke.run.history import History
from coke.run.simulate import simulate
from problems import GRAPHS, case


def model(classes: Any = (), loss: str = "quadratic") -> Model:
    features = draw_features(FeatureSettings(4, seed=1), 3)
    outputs = len(classes) if len(classes) > 2 else 1
    theta = np.random.default_rng(0).normal(size=(outputs, features.size))
    scaling = Scaling(np.ones(3), np.full(3, 2.0), 5.0, 3.0)
    return Model(theta, features, scaling, loss, np.array(classes), ("a", "b", "c"))


MODELS = {
    "regression": model(),
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
            model_from_bytes(bad)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_model_or_a_file_error(data: bytes) -> None:
    with pytest.raises(FileError):
        model_from_bytes(data)


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=5)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


@given(st.data())
def test_a_forged_header_with_a_right_digest_is_refused(data: st.DataObject) -> None:
    """The digest is no signature: any meta and arrays a forger packs end in a model that predicts
    or in a FileError, never in another exception.
    """
    good, arrays = unpack(MODELS["numbers"].to_bytes(), "model")
    key = data.draw(st.sampled_from([*good, "extra"]))
    meta = {**good, key: data.draw(VALUES)}
    name = data.draw(st.sampled_from([*arrays, "none"]))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=5))
    if name in arrays:
        arrays = {**arrays, name: np.zeros(shape)}
    try:
        forged = model_from_bytes(pack("model", meta, arrays))
    except FileError:
        return
    except (OverflowError, ValueError, TypeError) as error:
        # JSON itself cannot carry every value a forger may draw here (NaN, huge integers).
        assert "JSON" in str(error) or "encode" in str(error) or "range" in str(error)  # noqa: PT017
        return
    assert len(forged.predict(X[:, : len(forged.columns)])) == len(X)


def test_pack_is_exact_for_its_kinds() -> None:
    arrays = {
        "f": np.array([[1.5, -0.0], [np.inf, 1e-310]]),
        "i": np.arange(5),
        "b": np.array([True, False]),
        "none": np.empty((0, 3)),
    }
    meta, again = unpack(pack("model", {"k": [1, "ü", None]}, arrays), "model")
    assert meta == {"k": [1, "ü", None]}
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
    with pytest.raises(FileError, match="expected 'checkpoint'"):
        unpack(pack("model", {}, {}), "checkpoint")


def test_predictions_are_refused_for_other_columns(tmp_path: Path) -> None:
    m = MODELS["regression"]
    with pytest.raises(DataError, match=r"needs \(T, 3\)"):
        m.predict(np.zeros((2, 4)))
    with pytest.raises(DataError, match="NaN"):
        m.predict(np.full((1, 3), np.nan))
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


ALGORITHM = COKE(0.2, Geometric(1.0, 0.9))


def history(rounds: int = 30) -> tuple[History, Any]:
    c = case()
    h, r = History("coke", "mse", map(str, range(6))), None
    for r in simulate(c.problem, GRAPHS["ring"], ALGORITHM, rounds=rounds):
        h.append(r)
    return h, r


def test_history_to_parquet_and_back(tmp_path: Path) -> None:
    h, _ = history()
    h.to_parquet(tmp_path / "h.parquet")
    again = History.from_parquet(tmp_path / "h.parquet")
    assert again.labels == h.labels
    for name in h.names:
        assert_array_equal(again[name], h[name])
        assert again[name].dtype == h[name].dtype
    assert_array_equal(again.spoke, h.spoke)
    assert h.spoke.sum() == h["transmissions"][-1]
    assert np.isnan(h["test_mse"]).all()  # no test rows in this case
    assert h.last()["test_mse"] is None
    h.to_parquet(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "h.parquet").read_bytes()


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    with pytest.raises(FileError, match="cannot be read"):
        History.from_parquet(tmp_path / "absent.parquet")
    pa.parquet.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "other.parquet")
    h, _ = history()
    pa.parquet.write_table(h.table().drop_columns(["bytes"]), tmp_path / "part.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "part.parquet")
    with pytest.raises(InputError, match="Did you mean 'train_mse'"):
        h["trian_mse"]


def test_a_resumed_run_is_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after 12 of 30 rounds, saved, loaded, gone on: all numbers as without the stop."""
    c, path = case(), tmp_path / "c.coke"
    whole, last = history(30)
    begun, at = history(12)
    save_checkpoint(path, at, begun, c.problem, {"rounds": 30})
    saved, fingerprint = load_checkpoint(path)
    check_same(path, fingerprint, c.problem)
    assert saved.config == {"rounds": 30}
    r = None
    for r in simulate(c.problem, GRAPHS["ring"], ALGORITHM, rounds=30, resume=saved.checkpoint):
        saved.history.append(r)
    assert r is not None
    assert_array_equal(r.state.theta, last.state.theta)
    assert_array_equal(r.state.gamma, last.state.gamma)
    for name, column in (("whole", whole), ("parts", saved.history)):
        column.to_parquet(tmp_path / name)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_a_checkpoint_of_other_data_or_agents_is_refused(tmp_path: Path) -> None:
    c, (h, at) = case(), history(3)
    save_checkpoint(tmp_path / "c.coke", at, h, c.problem, {})
    saved, fingerprint = load_checkpoint(tmp_path / "c.coke")
    with pytest.raises(FileError, match="have changed"):
        check_same("c.coke", fingerprint, case(seed=5).problem)
    with pytest.raises(InputError, match="resume with the same"):
        simulate(case(N=4).problem, GRAPHS["ring"].subgraph(range(4)), ALGORITHM, rounds=5,
                 resume=saved.checkpoint)  # fmt: skip


@given(st.data())
def test_a_damaged_checkpoint_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("c") / "c.coke"
    h, at = history(3)
    save_checkpoint(path, at, h, case().problem, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(FileError):
        load_checkpoint(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_file(path, b"old")

    def fail(part: Path) -> None:
        part.write_bytes(b"ne")
        raise OSError("disk full")

    with pytest.raises(FileError, match="disk full"):
        atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CokeError, match="cannot be written"):
        write_file(tmp_path / "no" / "such" / "folder", b"")
