"""What columns become: levels, days and cycles, and what takes the place of gaps."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.coding import (
    LONGEST,
    MOST,
    TOLD,
    Coding,
    ColumnCoding,
    ToldColumn,
    said,
    told_columns,
)
from coke.data.raw import DATE, NUMBER, TEXT, Kind
from coke.data.tables import read_rows
from coke.errors import DataError


def told(values: list[Any], *, hashed: bool = False) -> tuple[ToldColumn, Any, Kind]:
    """Of a column of such values; its raw numbers and kind."""
    kind = Kind()
    x = kind.read("c", pa.array(values))
    return ToldColumn.of(x, kind, hashed=hashed), x, kind


def coded(values: list[Any], **how: Any) -> tuple[ColumnCoding, Any]:
    """The coding of a column alone, and its inputs."""
    seen, x, kind = told(values, **how)
    code = ColumnCoding.of("c", seen, len(values), hashed=how.get("hashed", False))
    return code, Coding((code,)).matrix(x[:, None], [kind]) if code.names else None


def test_a_level_is_a_number_of_its_own_and_rare_ones_have_none() -> None:
    code, X = coded(["a"] * 20 + ["b"] * 10 + ["c"] * 6 + ["d"] * 4)
    assert code.names == ["c = a", "c = b", "c = c"]
    assert_array_equal(X.sum(axis=0), [20, 10, 6])
    assert_array_equal(X[-4:], 0)


def test_of_two_levels_that_are_all_there_is_one_number_tells_both() -> None:
    code, X = coded(["no", "yes"] * 8)
    assert code.names == ["c = yes"]
    assert_array_equal(X[:, 0], [0, 1] * 8)


@pytest.mark.parametrize("values", [[f"id {i}" for i in range(300)], ["one"] * 300, [None] * 300])
def test_what_says_nothing_becomes_nothing(values: list[Any]) -> None:
    """An id, a constant, an empty column; and the coding says why."""
    code, _ = coded(values)
    assert code.names == []
    assert code.reason


def test_a_million_levels_are_told_in_few_bytes() -> None:
    seen, _, _ = told([f"{i:07d}" for i in range(10**6)])
    assert len(seen.levels) == TOLD
    assert sum(seen.levels.values()) + seen.rest == seen.n == 10**6
    words = [f"{i % 200:03d}" for i in range(20_000)]
    assert len(coded(words)[0].levels) <= MOST


def test_gaps_are_filled_and_common_ones_are_marked() -> None:
    """By the mean, until sites have agreed on a median; or the most frequent level."""
    code, X = coded([1.0, 2.0, None, 6.0, np.nan, np.inf])
    assert code.names == ["c", "c missing"]
    assert_array_equal(X, np.array([[1, 2, 3, 6, 3, 3], [0, 0, 1, 0, 1, 1]]).T)
    code, X = coded(["a"] * 60 + ["b"] * 50 + ["c"] * 40 + [None])
    assert code.names == ["c = a", "c = b", "c = c"]
    assert_array_equal(X[-1], [1, 0, 0])


def test_truth_is_a_number() -> None:
    code, X = coded([True, False, None, True] + [False] * 40)
    assert (code.what, code.names) == (NUMBER, ["c"])
    assert_array_equal(X[:2, 0], [1, 0])


def test_dates_are_days_and_the_cycles_that_they_go_through() -> None:
    day = dt.datetime(2020, 1, 1)
    for step, n, names in (
        (dt.timedelta(hours=1), 30, ["day"]),
        (dt.timedelta(days=1), 30, ["week"]),
        (dt.timedelta(days=5, hours=7), 100, ["year", "week", "day"]),
    ):
        values: list[Any] = [day + k * step for k in range(n)]
        code, X = coded(values)
        assert code.periods == names
        assert X.shape[1] == 1 + 2 * len(names)
        assert_allclose(X[1:, 0] - X[:-1, 0], step.total_seconds() / 86400, atol=1e-9)
        assert_allclose(np.hypot(X[:, 1::2], X[:, 2::2]), 1.0)  # sines beside cosines
    assert coded([dt.date(1970, 1, 11)] * 9)[1][0, 0] == 10.0


def test_text_that_is_dates_is_dates_and_another_form_among_them_is_refused() -> None:
    assert coded(["2020-01-01", "2020-01-02 12:00:00"])[0].what == DATE
    for others in (["02.01.2020"], ["soon", "2020-01-03"], ["2020-02-30"]):
        with pytest.raises(DataError, match=r"begins with the date '2020-01-01'.*YYYY-MM-DD"):
            told(["2020-01-01", *others])
    assert coded(["a 2020-01-01", "b"])[0].what == TEXT


@pytest.mark.parametrize("form", ["%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y %H:%M", "%Y-%m-%d"])
def test_dates_are_read_in_every_usual_form(form: str) -> None:
    days = [dt.datetime(2024, 1, 1) + dt.timedelta(days=17 * i) for i in range(9)]
    _, x, kind = told([day.strftime(form) for day in days] + [None])
    assert kind.what == DATE
    assert_array_equal(x[:-1] - x[0], 17.0 * np.arange(9))
    assert np.isnan(x[-1])
    _, short, _ = told([day.strftime(form).replace("/0", "/").lstrip("0") for day in days])
    assert_array_equal(short, x[:-1])


def test_a_date_whose_day_nobody_can_tell_is_refused() -> None:
    with pytest.raises(DataError, match="no row says whether it is DD/MM/YYYY or MM/DD/YYYY"):
        told(["01/02/2020", "03/04/2020"])
    with pytest.raises(DataError, match="not all rows are DD/MM/YYYY or MM/DD/YYYY"):
        told(["01/13/2020", "13/01/2020"])


@pytest.mark.parametrize("hashed", [False, True])
def test_a_row_has_a_one_where_its_level_is_however_many_there_are(hashed: bool) -> None:
    """By the literal definition; 200 000 levels that come once are no input, and take no time."""
    words = ["a", "b" * 80, "c"]
    common = np.random.default_rng(0).choice(np.array([*words, None], object), 300).tolist()
    code, x, kind = told([*common, *(f"u{i}" for i in range(200_000))], hashed=hashed)
    coding = ColumnCoding.of("c", code, 300.0, hashed=hashed)
    said_of = {said(word, hashed): word for word in words}
    assert {said_of[level] for level in coding.levels} == set(words)
    found = np.column_stack(list(coding.inputs(x, kind)))
    top = said_of[str(coding.fill)]
    wanted = [[(word or top) == said_of[level] for level in coding.shown] for word in common]
    assert_array_equal(found[:300, : len(coding.shown)], wanted)
    assert not found[300:, : len(coding.shown)].any()
    assert coding.others(x, kind) == 200_000


def test_raw_values_come_back_as_they_were() -> None:
    now = dt.datetime(2024, 5, 6, 7, 8, 9, 123457)
    for values in ([1.5, None, -2.0], ["a", "b", None, "a"], [now, None, dt.datetime(1901, 1, 1)]):
        _, x, kind = told(values)
        assert kind.values(x).to_pylist() == values
        again = Kind()
        assert_array_equal(again.read("c", kind.values(x)), x)


def test_a_level_that_nobody_saw_is_none_of_the_others_and_is_counted() -> None:
    code, _ = coded(["a"] * 20 + ["b"] * 10 + ["c"] * 9)
    kind = Kind(TEXT, fixed=True)
    x = kind.read("c", pa.array(["b", "new", None, "newer"]))
    coding = Coding((code,))
    assert_array_equal(
        coding.matrix(x[:, None], [kind]), [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0] * 3]
    )
    assert coding.strange(x[:, None], [kind]) == {"c": (1, 2)}


def test_numbers_may_stand_for_text_in_rows_to_predict_only() -> None:
    kind = Kind(TEXT, fixed=True)
    assert_array_equal(kind.read("c", pa.array([7, 8, 7])), [0, 1, 0])
    assert list(kind.levels) == ["7", "8"]
    with pytest.raises(DataError, match="'c' holds numbers such as '7' where it held texts"):
        Kind(TEXT).read("c", pa.array([7]))


def test_digests_and_long_levels_are_told_apart_without_their_text() -> None:
    words = ["secret"] * 9 + ["public"] * 9 + ["other"] * 9
    code, X = coded(words, hashed=True)
    assert not {"secret", "public"} & set(code.levels)
    assert_array_equal(np.sort(X.sum(axis=0)), [9, 9, 9])
    assert max(map(len, coded(["x" * 5000, "y"] * 9)[0].levels)) <= LONGEST


texts = st.lists(st.sampled_from(["a", "b", "ü", "", "x" * 70]) | st.none(), max_size=30)


@given(texts, texts, texts)
def test_what_is_told_of_parts_is_what_is_told_of_all(a: Any, b: Any, c: Any) -> None:
    """In any order: counts add up."""
    parts = [
        ToldColumn.of(kind.read("c", pa.array(part, pa.string())), kind, hashed=False)
        for part, kind in ((a, Kind()), (b, Kind()), (c, Kind()))
    ]
    whole = told([*a, *b, *c])[0] if any(v is not None for v in (*a, *b, *c)) else ToldColumn()
    for order in ((0, 1, 2), (2, 0, 1)):
        first, second, third = (parts[i] for i in order)
        assert first.merged(second).merged(third) == whole


@given(st.lists(st.lists(st.floats(-1e6, 1e6) | st.none(), max_size=20), min_size=1, max_size=4))
def test_the_mean_of_all_is_merged_from_the_parts(parts: list[list[float | None]]) -> None:
    found = ToldColumn()
    for part in parts:
        x = np.array([np.nan if v is None else v for v in part])
        (one,) = told_columns(x[:, None], (Kind(NUMBER),), hashed=False)
        found = found.merged(one)
    there = [v for part in parts for v in part if v is not None]
    assert found.n == len(there)
    if there:
        assert_allclose(found.mean, np.mean(there), rtol=1e-9, atol=1e-6)


def test_a_table_of_numbers_without_gaps_has_no_kinds() -> None:
    table = pa.table({"a": [1.0, 2.0], "b": [True, False], "y": [0, 1]})
    assert read_rows(table, "y", missing="fill").kinds == ()
    with_gap = pa.table({"a": [1.0, None], "y": [0, 1]})
    rows = read_rows(with_gap, "y", missing="fill")
    assert [kind.what for kind in rows.kinds] == [NUMBER]
    assert_array_equal(rows.X, [[1.0], [np.nan]])


def test_rows_that_go_are_said_by_site() -> None:
    said: list[str] = []
    from coke.data.reading import Reading

    table = pa.table({"a": [1.0, None, None, 4.0], "y": [0.0, 1.0, 2.0, None], "s": list("uvvw")})
    how = Reading(say=said.append)
    assert len(read_rows(table, "y", site="s", missing="drop", how=how).y) == 1
    assert said == ["3 rows with a missing value left out: v 2, w 1"]
    said.clear()
    assert len(read_rows(table, "y", site="s", missing="fill", how=how).y) == 3
    assert said == ["1 rows with a missing value left out: w 1"]
