"""Predictions on request are those of `predict`, in every form; any bytes are answered."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from coke import COKEClassifier, COKERegressor, Features
from coke.learning.model import Model
from coke.page.http import Reply, Request
from coke.serving.endpoint import Answering
from kit.raw import raw_table

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2))
Y = np.where(X[:, 0] > 0, "=up", "down")
HOW: Any = {"features": Features(n_features=10), "n_agents": 3}
FRAME, TARGET = raw_table()
FRAME = FRAME.drop(columns="id").assign(kind=FRAME["kind"].astype(str))
MODELS: dict[str, Model] = {
    "raw": COKERegressor(**HOW).fit(FRAME, TARGET).model_,
    "numbers": COKERegressor(**HOW, model="plain").fit(X, X[:, 0]).model_,
    "several": COKERegressor(**HOW, model="plain").fit(X, X * 2.0).model_,
    "classes": COKEClassifier(**HOW, model="plain").fit(X, Y).model_,
    "margins": COKEClassifier(**HOW, model="plain", loss="hinge").fit(X, Y).model_,
}
MOST = 50


def answered(model: Model, body: bytes, query: str = "", **headers: str) -> Reply:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    found = Answering(model, MOST)(Request("POST", "predict" + query, given, body))
    assert isinstance(found, Reply)
    return found


def predictions(model: Model, body: Any, query: str = "", **headers: str) -> dict[str, Any]:
    reply = answered(model, json.dumps(body).encode(), query, **headers)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = json.loads(reply.body)
    return found


def as_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """With null for gaps, dates as text."""
    text: list[dict[str, Any]] = json.loads(
        frame.to_json(orient="records", date_format="iso", double_precision=15)
    )
    for row in text:
        row["when"] = row["when"] and row["when"][:19]
    return text


def test_rows_by_name_are_predicted_as_predict_does() -> None:
    frame, model = FRAME[:40], MODELS["raw"]
    found = predictions(model, {"rows": as_rows(frame)}, "?interval=0.8")
    for name, wanted in zip(("prediction", "low", "high"), model.interval(frame, 0.8), strict=True):
        np.testing.assert_allclose(found["predictions"][name], wanted, rtol=0, atol=1e-10)
    assert found["gaps"] == {name: int(n) for name, n in frame.isna().sum().items() if n}
    assert found["other_levels"] == {}


def test_a_level_that_nobody_knew_is_told() -> None:
    frame = FRAME[:3].assign(wind="nowhere")
    assert predictions(MODELS["raw"], {"rows": as_rows(frame)})["other_levels"] == {"wind": 3}


@pytest.mark.parametrize("name", ["numbers", "several", "classes", "margins"])
def test_rows_in_order_by_name_and_as_csv_are_the_same(name: str) -> None:
    model, rows = MODELS[name], X[:30]
    by_name = [dict(zip(model.columns, row, strict=True)) for row in rows.tolist()]
    found = predictions(model, {"rows": rows.tolist()})["predictions"]
    assert found == predictions(model, {"rows": by_name})["predictions"]
    wanted = model.predict(rows)
    targets = list(wanted.T) if model.outputs > 1 else [wanted]
    for column, values in zip(found.values(), targets, strict=True):
        assert column == pytest.approx(list(values)) if name != "margins" else list(values)
    csv = pd.DataFrame(rows, columns=model.columns).assign(more="ignored").to_csv(index=False)
    reply = answered(model, csv.encode(), content_type="text/csv; charset=utf-8")
    assert reply.kind.startswith("text/csv")
    again = pd.read_csv(io.BytesIO(reply.body))
    assert list(again.columns) == list(found)
    plain = again.replace("'=up", "=up")  # which a spreadsheet would run
    np.testing.assert_array_equal(plain.to_numpy().T, np.array([*found.values()]))


def test_the_answer_has_the_form_that_is_asked_for() -> None:
    body = json.dumps({"rows": X[:2].tolist()}).encode()
    csv = answered(MODELS["numbers"], body, accept="text/html, text/csv;q=0.9")
    assert csv.body.splitlines()[0] == b'"prediction"'
    text = pd.DataFrame(X[:2], columns=MODELS["numbers"].columns).to_csv(index=False).encode()
    back = answered(MODELS["numbers"], text, content_type="text/csv", accept="application/json")
    assert json.loads(back.body)["predictions"]["prediction"] == pytest.approx(
        list(MODELS["numbers"].predict(X[:2]))
    )


def test_probabilities_stand_beside_the_labels() -> None:
    found = predictions(MODELS["classes"], {"rows": X[:9].tolist()}, "?proba=true")["predictions"]
    P = MODELS["classes"].predict_proba(X[:9])
    np.testing.assert_allclose([found["p_=up"], found["p_down"]], P.T)


def test_text_in_csv_stays_text() -> None:
    """A ward 007 is none called 7."""
    frame = pd.DataFrame({"ward": ["007", "7", "12"] * 20, "a": rng.normal(size=60)})
    model = COKERegressor(**HOW).fit(frame, (frame["ward"] == "007") * 3.0).model_
    reply = answered(model, b"a,ward\n0,007\n0,7\n", content_type="text/csv")
    first, second = map(float, reply.body.splitlines()[1:])
    assert first - second > 1.5


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[[1, 2]]", "cannot be read"),
        (b'{"rows": 5}', "cannot be read"),
        (b'{"rows": [[NaN, 1]]}', "cannot be read"),
        (b'{"rows": [], "more": 1}', "cannot be read"),
        (b'{"rows": [[[1], 1]]}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"rows": []}', "0 rows: expected 1 to 50"),
        (b'{"rows": [%s[1, 2]]}' % (b"[1, 2]," * MOST), "51 rows: expected 1 to 50"),
        (b'{"rows": [[1, 2], [1]]}', "row 1 is no array of 2 values"),
        (b'{"rows": [[1, 2], {"x0": 1, "x1": 1}]}', "row 1 is no array of 2 values"),
        (b'{"rows": [{"x0": 1}]}', "row 0 has no 'x1'"),
        (b'{"rows": [{"x0": 1, "x1": 2}, [1, 2]]}', "row 1 has no 'x0'"),
        (b'{"rows": [[1, "a"], [1, 2]]}', "holds int and str"),
        (b'{"rows": [[1, "a"]]}', "must be numbers"),
        (b'{"rows": [[1, %s]]}' % (b"9" * 400), "cannot be read|beyond 1e308"),
    ],
)
def test_what_are_no_rows_is_refused_with_the_reason(body: bytes, why: str) -> None:
    model = MODELS["numbers"]
    assert model.columns == ("x0", "x1")
    reply = answered(model, body)
    assert reply.status == 422
    text = reply.body.decode()
    assert any(words in text for words in why.split("|")), text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "query", "why"),
    [
        ("numbers", "?interval=2", "between 0 and 1"),
        ("numbers", "?interval=nan", "between 0 and 1"),
        ("numbers", "?interval=0.9", "nobody added up"),
        ("numbers", "?proba=true", "probabilities need"),
        ("numbers", "?interval=much", "expected interval=0.9"),
        ("numbers", "?interval=0.9&interval=0.8", "a word twice"),
        ("numbers", "?nothing", "expected interval=0.9"),
        ("numbers", "?nothing=1", "expected interval=0.9"),
        ("classes", "?interval=0.9", "probabilities instead of intervals"),
        ("margins", "?proba=1", "this model has the hinge loss"),
    ],
)
def test_what_a_model_cannot_say_is_refused(name: str, query: str, why: str) -> None:
    reply = answered(MODELS[name], b'{"rows": [[1, 2]]}', query)
    assert reply.status == 422
    assert why in reply.body.decode()


def test_a_body_of_another_kind_is_refused() -> None:
    assert answered(MODELS["numbers"], b"<x/>", content_type="text/xml").status == 415


def test_no_control_character_comes_back() -> None:
    reply = answered(MODELS["numbers"], b'{"rows": [{"x0": 1}]}', "?\x1b[31m=1")
    assert b"\x1b" not in reply.body


def test_it_says_what_it_needs_and_what_it_did() -> None:
    endpoint = Answering(MODELS["raw"], MOST)
    about = endpoint.about()
    assert about["columns"] == {
        "size": "number", "wind": "text", "kind": "text", "open": "number", "when": "date",
    }  # fmt: skip
    assert (about["interval"], about["proba"], about["most"]["rows"]) == (True, False, MOST)
    body = json.dumps({"rows": as_rows(FRAME[:7])}).encode()
    for data in (body, b"{"):
        endpoint(Request("POST", "predict", {}, data))
    figures = endpoint(Request("GET", "metrics", {}))
    assert figures is not None
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(figures.body.decode())
        for sample in family.samples
    }
    assert found["coke_serve_rows_total",] == 7
    assert found["coke_serve_requests_total", "predicted"] == 1
    assert found["coke_serve_requests_total", "refused"] == 1


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=9),
    st.sampled_from(["S", "2020-01-01", "01/02/2020", "1e400", 10**400, -1e308]),
)  # fmt: skip
rows = st.one_of(
    st.lists(values, max_size=6),
    st.dictionaries(st.sampled_from([*FRAME.columns, "x0", "x1", "?"]), values, max_size=6),
    st.fixed_dictionaries(dict.fromkeys(FRAME.columns, values)),
)
as_json = st.fixed_dictionaries({"rows": st.lists(rows, max_size=4)}).map(
    lambda found: json.dumps(found).encode()
)
cells = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [*FRAME.columns, "1", "", "S", "2020-01-01", '"', "\n", ",", "\x00"]
)
as_csv = st.lists(st.lists(cells, max_size=6).map(",".join), max_size=5).map(
    lambda lines: "\n".join([",".join(FRAME.columns), *lines]).encode()
)
queries = st.sampled_from(["", "?interval=0.9", "?proba=true", "?"]) | st.text(max_size=9).map(
    "?{}".format
)


@given(
    st.sampled_from(list(MODELS)),
    st.one_of(as_json, as_csv, st.binary(max_size=60)),
    st.sampled_from(["application/json", "text/csv", ""]),
    queries,
)
def test_any_body_is_answered_or_refused(name: str, body: bytes, kind: str, query: str) -> None:
    """Nothing else is raised: the server would say 500."""
    reply = answered(MODELS[name], body, query, content_type=kind, accept=query)
    assert reply.status in (200, 415, 422)
