"""Sources of streams: what has come, once, whatever becomes of the file meanwhile."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.data.pending import Pending
from coke.data.timed import Timed
from coke.errors import ConfigError, DataError, MessageError
from coke.field import feeding
from coke.field.feeding import Inflow, Offset, open_inflow
from coke.field.frames import decode_pulse, encode
from coke.field.pulses import Ends, Hand, Join, Rests, TickHere, TickSaid, TickWaits
from coke.field.streams import First
from coke.learning.common import Common
from coke.settings.sites import checked_site


def came(inflow: Inflow, offset: Offset) -> tuple[list[Any], Offset, list[str]]:
    """All that there is now, by its column t."""
    found, news = list[Any](), list[str]()
    for _ in range(50):
        table, offset, events = inflow.read(offset)
        news += [event.kind for event in events]
        found += [] if table is None else table["t"].to_pylist()
    return found, offset, news


def test_a_file_that_grows_gives_every_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    inflow = open_inflow(str(path))
    assert came(inflow, {})[0] == []
    path.write_text("t;y\n1;0,5\n2;")
    inflow = open_inflow(str(path), decimal=",")
    found, offset, _ = came(inflow, {})
    assert found == [1]
    with path.open("a") as file:
        file.write("0,25\n3;1\n")
    found, offset, _ = came(open_inflow(str(path), decimal=","), offset)  # after a crash, too
    assert found == [2, 3]
    assert came(inflow, offset)[0] == []


@pytest.mark.parametrize("how", ["rotated", "truncated"])
def test_a_file_that_is_replaced_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("t,y\n1,0\n2,0\n3,0\n")
    inflow = open_inflow(str(path))
    _, offset, _ = came(inflow, {})
    if how == "rotated":
        path.rename(tmp_path / "rows.csv.1")
        path.write_text("t,y\n4,0\n5,0\n6,0\n7,0\n")
    else:
        path.write_text("t,y\n4,0\n")
    found, _, news = came(inflow, offset)
    assert found[0] == 4
    assert news == ["rotated"]


def test_a_folder_gives_every_file_once_and_none_that_is_being_written(tmp_path: Path) -> None:
    inflow = open_inflow(str(tmp_path))
    for n in (2, 1):
        pa.parquet.write_table(pa.table({"t": [n], "y": [0.0]}), tmp_path / f"{n}.parquet")
    (tmp_path / "3.csv").write_text("t,y\n3,0\n")
    (tmp_path / ".4.csv").write_text("t,y\n4,0\n")
    found, offset, _ = came(inflow, {})
    assert found == [1, 2, 3]
    (tmp_path / "1.parquet").unlink()
    (tmp_path / "0.csv").write_text("t,y\n0,0\n")
    found, offset, _ = came(open_inflow(str(tmp_path)), offset)
    assert found == [0]
    assert "1.parquet" not in offset["done"]


def test_a_pipe_gives_lines_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    inflow = feeding._Pipe(io.BytesIO(b"t,y\n1,0\n2,0"), "auto", ".")
    until, found = time.monotonic() + 60, list[Any]()
    while not inflow.ended and time.monotonic() < until:
        found += came(inflow, {})[0]
    assert [*found, *came(inflow, {})[0]] == [1, 2]


def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not grow"):
        open_inflow(str(tmp_path / "rows.parquet"))
    (tmp_path / "rows.csv").write_text("t,y\n1,0,5\n")
    with pytest.raises(DataError, match="cannot be read"):
        open_inflow(str(tmp_path / "rows.csv")).read({})
    with pytest.raises(ConfigError, match="HOST:PORT"):
        open_inflow("zenoh://nowhere")


def test_a_guard_of_a_stream_is_refused_with_the_reason() -> None:
    site = {"name": "a", "network": "n", "neighbours": {"b": ""}}
    plain = {"data": {"file": "rows.csv", "target": "y"}, "site": site, "guard": True}
    assert checked_site(plain).guard
    with pytest.raises(ConfigError, match="guard: audits are of the rounds of a batch"):
        checked_site({**plain, "stream": {"time": "t"}})


@pytest.mark.parametrize("y", [np.array([0.5, np.nan, -1.0]), np.array(["a", "b", "a"])])
def test_first_rows_are_read_as_they_were_kept(tmp_path: Path, y: Any) -> None:
    """A gap among them, too: else a site that was started again would agree on other things."""
    kept = First("quadratic", rows(1, 2, 3)._replace(y=y), {"at": 5}, ("x",), dates=False)
    kept.keep(tmp_path / "first.coke")
    again = First.read(tmp_path / "first.coke")
    np.testing.assert_array_equal(again.rows.y, y)
    assert again.rows.y.dtype == y.dtype
    assert (again.offset, again.columns, again.loss) == (kept.offset, kept.columns, kept.loss)


def rows(*ticks: int, y: float = 0.0) -> Timed:
    X = np.array([[float(tick)] for tick in ticks])
    return Timed(X, np.full(len(ticks), y), None, np.array(ticks))


def test_rows_that_wait_are_taken_once_and_odd_ones_counted() -> None:
    pending = Pending(late=100)
    pending.add(rows(3, 1, 2, 2))
    pending.add(rows(5000))  # a wrong clock, as the next row shows
    pending.add(rows(4))
    gap = rows(5)
    gap.X[0] = np.nan
    pending.add(gap)
    pending.now = 0
    X, _, age = pending.take(2)
    np.testing.assert_array_equal(X[:, 0], [2, 1])
    np.testing.assert_array_equal(age, [0, 1])
    pending.add(rows(1, y=7.0))
    assert [len(pending.take(tick)[1]) for tick in (3, 4)] == [2, 1]
    assert pending.counts == (5, 2, 0, 1, 1, 1)
    pending.add(rows(9000, 9001))  # after a long silence: time has moved on
    assert pending.last == 9001
    pending.take(9000)
    pending.add(rows(10))
    assert pending.counts.too_late == 1


def test_what_waits_is_remembered() -> None:
    pending, again = Pending(late=10), Pending(late=10)
    pending.add(rows(1, 2, 900))
    again.remember(pending.memory(), pending.kept)
    for one in (pending, again):
        one.add(rows(2, 3))
        one.now = 0
        one.take(3)
    assert pending.counts == again.counts == (3, 2, 0, 1, 1, 0)


COMMON = st.builds(
    Common, alarms=st.lists(st.integers(0, 99), max_size=3).map(tuple), agreed=st.integers(0, 99),
    owed=st.integers(0, 99), since=st.integers(0, 9), age=st.integers(0, 99),
    w=st.floats(0, 99), totals=st.lists(st.binary(max_size=9), max_size=2).map(tuple),
)  # fmt: skip
HANDS = st.builds(Hand, st.just(bytes(16)), st.just(bytes(8)), COMMON, st.binary(max_size=12))
NUMBERS = st.integers(0, 99)
ANY = st.one_of(
    st.builds(TickSaid, st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=40)),
    st.builds(TickWaits, st.integers(0, 2**32 - 1), st.integers(0, 255)),
    st.builds(Rests, st.integers(0, 2**32 - 1)),
    st.builds(Ends, st.dictionaries(st.integers(0, 2**32 - 1), st.integers(-9, 2**40)), NUMBERS),
    st.builds(TickHere, st.integers(0, 2**32 - 1)),
    st.builds(Join, st.integers(0, 99), st.integers(-1, 99), st.none() | HANDS),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(ANY)
def test_letters_of_streams_come_back(pulse: Any) -> None:
    assert decode_pulse(encode(pulse)) == pulse


@settings(max_examples=300, deadline=None)
@given(st.integers(75, 90), st.binary(max_size=60))
def test_any_bytes_are_a_letter_or_are_refused(kind: int, data: bytes) -> None:
    with suppress(MessageError):
        decode_pulse(bytes([kind]) + data)


@given(COMMON, COMMON, COMMON)
def test_two_that_differ_come_to_the_same_whoever_asks(a: Common, b: Common, c: Common) -> None:
    """merge is commutative and idempotent, and never goes back: so a network comes to one."""
    one = a.merged(b)
    assert one.alarms == b.merged(a).alarms
    assert one._replace(totals=()) == b.merged(a)._replace(totals=())
    assert one.merged(a).merged(b) == one.merged(b) == one.merged(one) == one
    assert one.merged(c).agreed >= one.agreed
    assert one.merged(c).alarms[-1:] >= one.alarms[-1:]
