"""Sites agree on what their columns become, whatever bytes they are told."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.data.coding import TOLD, ColumnCoding, ToldColumn
from coke.data.raw import DATE, NUMBER, TEXT
from coke.errors import MessageError
from coke.maths.choice.quantiles import Quantiles
from coke.talk.columns import ToldRaw, _decoded, _listed, _Medians, _merged

GOOD = ToldRaw(
    30.0,
    (
        ToldColumn(NUMBER, 30.0, 1.5),
        ToldColumn(DATE, 20.0, 15.0, (10.0, 20.0, 0.25, 0.5)),
        ToldColumn(TEXT, 28.0, levels={"a": 20, "b": 5}, rest=3.0),
        ToldColumn(),
    ),
)


def test_what_is_told_is_heard() -> None:
    assert ToldRaw.decode(GOOD.encode(), 4) == GOOD
    assert ToldRaw.decode(GOOD.merged(GOOD).encode(), 4).T == 60.0


def test_all_hear_the_common_levels_only() -> None:
    """And conclude from them what the root would from all."""
    told = GOOD.columns[2]._replace(levels={"a": 20, "b": 5, "c": 3}, rest=0.0)
    heard = told.common(30.0)
    assert dict(heard.levels) == {"a": 20, "b": 5}
    assert heard.rest == 3.0
    one, other = (ColumnCoding.of("x", part, 30.0, hashed=False) for part in (told, heard))
    assert one == other


WRONG: list[tuple[int, dict[str, Any]]] = [
    (0, {"n": 31.0}),
    (0, {"n": -1.0}),
    (0, {"mean": float("nan")}),
    (0, {"mean": 1e200}),
    (0, {"what": "words"}),
    (0, {"what": ""}),
    (0, {"levels": {"a": 1}}),
    (0, {"rest": 1.0}),
    (1, {"ends": (20.0, 10.0, 0.0, 0.0)}),
    (1, {"ends": (10.0, 20.0, 0.0, 1.5)}),
    (1, {"ends": (10.0, float("inf"), 0.0, 0.0)}),
    (2, {"levels": {"a": 20, "b": 6}}),
    (2, {"levels": {"a": 30, "b": -5}}),
    (2, {"levels": {"a" * 65: 20, "b": 5}}),
    (2, {"levels": {str(i): 1 for i in range(TOLD + 1)}, "rest": -37.0}),
    (2, {"levels": {}, "rest": 27.0}),
    (3, {"what": NUMBER}),
]


@pytest.mark.parametrize(("j", "change"), WRONG)
def test_what_cannot_be_is_refused(j: int, change: dict[str, Any]) -> None:
    columns = list(GOOD.columns)
    columns[j] = columns[j]._replace(**change)
    with pytest.raises(MessageError):
        ToldRaw.decode(GOOD._replace(columns=tuple(columns)).encode(), 4)


def test_another_number_of_columns_is_refused() -> None:
    for d in (3, 5):
        with pytest.raises(MessageError, match="raw columns that cannot be"):
            ToldRaw.decode(GOOD.encode(), d)


@given(st.binary(max_size=200))
def test_any_bytes_are_heard_or_refused(data: bytes) -> None:
    heard(data)


@given(st.lists(st.tuples(st.integers(0, len(GOOD.encode()) - 1), st.integers(0, 255)), min_size=1))
def test_altered_bytes_are_heard_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD.encode())
    for at, byte in changes:
        data[at] = byte
    heard(bytes(data))


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**60), 2**60) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(anything)
def test_anything_else_is_refused(said: Any) -> None:
    heard(msgspec.msgpack.encode(said))


def heard(data: bytes) -> None:
    """Refused, or something that could be of four columns, and says the same again."""
    try:
        found = ToldRaw.decode(data, 4)
    except MessageError:
        return
    assert ToldRaw.decode(found.encode(), 4) == found
    assert all(0 <= column.n <= found.T for column in found.columns)


def test_quantiles_are_heard_as_they_were_told() -> None:
    one = Quantiles.of(np.linspace(-1.0, 3.0, 41), 100.0)
    nobody, heard = _decoded(msgspec.msgpack.encode([b"", one.encode()]), 2)
    assert nobody is None
    assert heard is not None
    assert heard.median == one.median == pytest.approx(1.0)
    assert_array_equal(heard.values, one.values)


quantiles = st.lists(st.floats(), min_size=18, max_size=18).map(lambda x: np.array(x).tobytes())


@given(st.binary(max_size=80) | st.lists(st.binary() | quantiles).map(msgspec.msgpack.encode))
def test_any_bytes_are_quantiles_of_two_columns_or_refused(data: bytes) -> None:
    try:
        found = _decoded(data, 2)
    except MessageError:
        return
    assert len(found) == 2
    assert all(one is None or abs(one.median) < 1e150 for one in found)


@given(st.binary(max_size=40) | st.lists(st.floats()).map(msgspec.msgpack.encode))
def test_any_bytes_are_medians_of_two_columns_or_refused(data: bytes) -> None:
    try:
        found = _listed(data, _Medians, 2)
    except MessageError:
        return
    assert len(found) == 2


@pytest.mark.parametrize("change", [{"T": 0.0}, {"T": np.nan}, {"values": np.arange(17.0)[::-1]},
                                    {"values": np.full(17, np.inf)}])  # fmt: skip
def test_quantiles_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    one = Quantiles.of(np.arange(30.0), 30.0)
    with pytest.raises(MessageError, match="cannot be"):
        Quantiles.decode(one._replace(**change).encode())


def test_one_site_names_levels_for_four_of_its_like_at_most() -> None:
    """By name: who claims 10⁹ rows of levels that nobody else has takes none from the others."""
    honest = ToldRaw(100.0, (ToldColumn(TEXT, 100.0, levels={"a": 60, "b": 40}),))
    made_up = {f"x{i}": 10**9 // 50 for i in range(50)}
    lie = ToldRaw(1e9, (ToldColumn(TEXT, 1e9, levels=made_up),))
    (found,) = ToldRaw.believed([honest] * 9 + [lie]).columns
    assert {"a": 540, "b": 360}.items() <= found.levels.items()
    assert sum(n for word, n in found.levels.items() if word in made_up) + found.rest <= 400
    (plain,) = ToldRaw.believed([honest] * 10).columns
    assert dict(plain.levels) == {"a": 600, "b": 400}


def test_one_site_moves_a_median_within_the_others_rows() -> None:
    rng = np.random.default_rng(0)
    honest = [[Quantiles.of(rng.normal(size=50), 50.0)] for _ in range(9)]
    lie = [Quantiles(1e15, np.full(17, 1e9))]
    for most, far in ((True, False), (False, True)):
        (told,) = _decoded(_merged([*honest, lie], most=most), 1)
        assert told is not None
        assert (abs(told.median) > 3) == far
