"""Files: written whole, read with suspicion, the same bytes for the same run."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from coke.data.files import DIGEST, LONGEST, MAGIC, atomically, pack, unpack, write_file
from coke.data.scaling import Scaling
from coke.errors import CokeError, DataError, FileError, InputError
from coke.maths.coke import COKE
from coke.maths.features import FeatureSettings, draw_features
from coke.maths.thresholds import Geometric
from coke.model import Model, load_model, model_from_bytes
from coke.run.checkpoint import check_same, fingerprint, load_checkpoint, save_checkpoint
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


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
EXTREMES = st.sampled_from([10**400, 2**63, -1, 0, 1e308, 5e-324, [[]], {"": 0}])
VALUES = EXTREMES | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SIZES = st.sampled_from([0, 1, 3, 8, 10**12, 2**40 - 1, 2**62, 10**400, -1]) | st.integers(0, 5)
FIENDISH = st.sampled_from([[1] * 65, [0, 10**12, 10**12], [0, *[2**40 - 1] * 3], [2**62, 4]])
SHAPES = FIENDISH | st.lists(SIZES, max_size=5) | VALUES
FLOATS = st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e300, 1e308, np.inf, np.nan]) | st.floats()


def forged(header: Any, body: bytes = b"") -> bytes:
    """Any header and body with a right digest; a header of bytes is taken as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = MAGIC + len(text).to_bytes(4, "little") + text + body
    return whole + hashlib.blake2b(whole, digest_size=DIGEST).digest()


def parts_of(data: bytes) -> tuple[Any, bytes]:
    """Header and body of a file, as a forger sees them."""
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    return json.loads(data[start:end]), data[end:-DIGEST]


PLAUSIBLE = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.text(max_size=3), min_size=3, max_size=3)
    | st.lists(st.integers() | st.floats(-9, 9) | st.booleans(), min_size=3, max_size=3)
    | st.sampled_from(["hinge", "logistic", "quadratic"])
)


@st.composite
def forgeries(draw: Any, whole: bytes) -> bytes:
    """A good file in which one thing is replaced by anything."""
    header, body = parts_of(whole)
    what = draw(st.sampled_from(["all", "part", "meta", "entry", "entry", "values"]))
    if what == "all":
        return forged(draw(VALUES | st.binary(max_size=50)), body)
    if what == "part":
        header[draw(st.sampled_from([*header, "more"]))] = draw(VALUES)
    if what == "meta":
        name = draw(st.sampled_from([*header["meta"], "more"]))
        header["meta"][name] = draw(PLAUSIBLE | VALUES)
    if what == "entry":
        name = draw(st.sampled_from(["name", "dtype", "shape", "shape", "shape", "more"]))
        other = {"dtype": VALUES | st.sampled_from(["<i8", "|b1"]), "shape": SHAPES}
        draw(st.sampled_from(header["arrays"]))[name] = draw(other.get(name, VALUES))
    if what == "values":
        arrays, at = split(header, body), draw(st.integers(0, len(header["arrays"]) - 1))
        shape = st.just(header["arrays"][at]["shape"]) | hnp.array_shapes(min_dims=0, max_side=5)
        one = draw(hnp.arrays(np.float64, draw(shape), elements=FLOATS))
        header["arrays"][at] |= {"dtype": "<f8", "shape": list(one.shape)}
        arrays[at] = one.tobytes()
        body = b"".join(arrays)
    return forged(header, draw(st.sampled_from([body, body, body, b"", body[:-8], body * 2])))


def split(header: Any, body: bytes) -> list[bytes]:
    """The bytes of every array."""
    found, at = [], 0
    for entry in header["arrays"]:
        size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        found.append(body[at : at + size])
        at += size
    return found


@settings(max_examples=400)
@given(st.sampled_from(list(MODELS)).flatmap(lambda name: forgeries(MODELS[name].to_bytes())))
def test_a_forged_model_file_with_a_right_digest_is_refused(data: bytes) -> None:
    """The digest is no signature: whatever a forger writes ends in a model that predicts or in a
    FileError, never in another exception.
    """
    try:
        m = model_from_bytes(data)
    except FileError:
        return
    f = m.predict(np.ones((20, len(m.columns))))
    assert len(f) == 20
    if m.loss == "quadratic":
        assert np.isfinite(f).all()
    assert model_from_bytes(m.to_bytes()).to_bytes() == m.to_bytes()


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


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_shape([1] * 65),
        lambda: with_shape([0, 10**12, 10**12]),
        lambda: with_shape([0, *[2**40 - 1] * 3]),
        lambda: with_shape([2**40] * 200_000),
        lambda: with_shape([10**400]),
        lambda: forged(DEEP.encode()),
        lambda: with_meta("y_shift", DEEP),
        lambda: with_meta("y_shift", "1" + "0" * 400),
        lambda: with_meta("y_shift", "null"),
        lambda: with_meta("y_scale", "5e-324"),
        lambda: with_meta("y_scale", "0"),
        lambda: with_meta("y_scale", "1e200"),
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
        model_from_bytes(data)
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
        before, again = given_as.tolist(), model_from_bytes(m.to_bytes()).classes.tolist()
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
        m._replace(scaling=m.scaling._replace(y_scale=0.0)),
        m._replace(loss="squared"),
    ):
        with pytest.raises(InputError, match="no file can keep"):
            bad.to_bytes()


def test_pack_is_exact_for_its_kinds() -> None:
    arrays = {
        "f": np.array([[1.5, -0.0], [np.inf, 1e-310]]),
        "i": np.arange(5),
        "b": np.array([True, False]),
        "none": np.empty((0, 3)),
    }
    meta, again = unpack(pack("model", {"k": [1, "ü", None]}, arrays), "model", dict)
    assert meta == {"k": [1, "ü", None]}
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
    with pytest.raises(FileError, match="expected 'checkpoint'"):
        unpack(pack("model", {}, {}), "checkpoint", dict)
    with pytest.raises(InputError, match="shorter names"):
        pack("model", {"k": "a" * LONGEST}, {})
    with pytest.raises(InputError, match="rename"):
        pack("model", {"k": "\ud800"}, {})


def test_predictions_are_refused_for_other_columns(tmp_path: Path) -> None:
    m = MODELS["regression"]
    with pytest.raises(DataError, match=r"needs \(T, 3\)"):
        m.predict(np.zeros((2, 4)))
    with pytest.raises(DataError, match="NaN"):
        m.predict(np.full((1, 3), np.nan))
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


ALGORITHM = COKE(0.2, Geometric(1.0, 0.9))
PRINT = fingerprint(case().problem, GRAPHS["ring"], ALGORITHM)


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


N3 = pa.list_(pa.bool_(), 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("spoke", pa.array([[(1, True)]] * 3, type=pa.map_(pa.int64(), pa.bool_()))),
        ("spoke", pa.array([[True] * 3] * 3, type=N3)),
        ("spoke", pa.array([[True] * 6, None, [True] * 6], type=pa.list_(pa.bool_(), 6))),
        ("spoke", pa.array([[None] * 6] * 3, type=pa.list_(pa.bool_(), 6))),
        ("spoke", pa.array([[True] * 6] * 3)),
        ("bytes", pa.array(["1", "2", "3"])),
        ("bytes", pa.array([1.0, 2.0, 3.0])),
        ("bytes", pa.array([1, None, 3])),
        ("train_mse", pa.nulls(3)),
        ("train_mse", pa.array(["1", "2", "3"])),
        ("train_mse", pa.array([1.0, None, 3.0])),
    ],
)
def test_a_history_of_other_types_is_refused(name: str, values: Any, tmp_path: Path) -> None:
    table = history(3)[0].table()
    other = table.set_column(table.column_names.index(name), name, values)
    pa.parquet.write_table(other, tmp_path / "h.parquet")
    with pytest.raises(FileError, match="not a history"):
        History.from_parquet(tmp_path / "h.parquet")


@given(VALUES | st.just(DEEP))
def test_a_history_of_other_labels_is_refused(value: Any) -> None:
    labels = value if isinstance(value, str) else json.dumps(value)
    table = history(1)[0].table().replace_schema_metadata({b"coke": labels.encode()})
    with pytest.raises(FileError, match="not a history"):
        History.from_table(table)


def test_a_resumed_run_is_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after 12 of 30 rounds, saved, loaded, gone on: all numbers as without the stop."""
    c, path = case(), tmp_path / "c.coke"
    whole, last = history(30)
    begun, at = history(12)
    save_checkpoint(path, at, begun, PRINT, {"rounds": 30})
    saved, found = load_checkpoint(path)
    check_same(path, found, PRINT)
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
    h, at = history(3)
    save_checkpoint(tmp_path / "c.coke", at, h, PRINT, {})
    saved, found = load_checkpoint(tmp_path / "c.coke")
    with pytest.raises(FileError, match="have changed"):
        check_same("c.coke", found, fingerprint(case(seed=5).problem, GRAPHS["ring"], ALGORITHM))
    with pytest.raises(InputError, match="resume with the same"):
        simulate(case(N=4).problem, GRAPHS["ring"].subgraph(range(4)), ALGORITHM, rounds=5,
                 resume=saved.checkpoint)  # fmt: skip


@cache
def checkpoint_bytes() -> bytes:
    h, at = history(3)
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder) / "c.coke", at, h, PRINT, {})
        return (Path(folder) / "c.coke").read_bytes()


@settings(max_examples=200)
@given(st.data())
def test_a_forged_checkpoint_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Whatever a forger writes is a FileError, or a checkpoint whose history can be used."""
    whole = checkpoint_bytes()
    path = tmp_path_factory.mktemp("c") / "c.coke"
    path.write_bytes(data.draw(forgeries(whole)))
    try:
        saved, _ = load_checkpoint(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert saved.history.table().num_rows == saved.checkpoint.k
    assert "theta" in saved.checkpoint.state


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e300, -1.0, 0.5])
def test_a_checkpoint_with_impossible_counts_is_refused(bad: float, tmp_path: Path) -> None:
    header, body = parts_of(checkpoint_bytes())
    path = tmp_path / "c.coke"
    assert header["arrays"][0]["name"] == "rows"
    path.write_bytes(forged(header, np.float64(bad).tobytes() + body[8:]))
    with pytest.raises(FileError, match="counts"):
        load_checkpoint(path)


@given(st.data())
def test_a_damaged_checkpoint_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    path, whole = tmp_path_factory.mktemp("c") / "c.coke", checkpoint_bytes()
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


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has a umask")
@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_a_file_is_as_private_as_the_umask_says(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_file(tmp_path / "f", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux what a handle is of")
def test_the_folder_is_flushed_too_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rename, and without complaint where the platform cannot."""
    flushed = []

    def fsync(handle: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{handle}").readlink())
        if flushed[-1].is_dir():
            assert (tmp_path / "f").read_bytes() == b"new"
            raise OSError("not here")

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(tmp_path / "f", b"new")
    assert [path.is_dir() for path in flushed] == [False, True]
    assert flushed[1] == tmp_path.resolve()
