"""A table written in any usual form comes back equal; any bytes give a table or a refusal."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.json
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coke.data.formats import guarded, opener
from coke.data.reading import MISSING, PLAINLY, Reading, text
from coke.data.reading.stream import Lines, Plain
from coke.data.tables import read_table
from coke.errors import CokeError, DataError, FileError
from kit.sheets import workbook

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
NUMBER = st.one_of(st.none(), st.floats(-1e9, 1e9), st.integers(-(10**6), 10**6).map(float))
LETTERS = "abcxyz ,;|'\"\n\täöß€"
WORD = st.text(LETTERS, max_size=8).map(lambda text: ("w" + text).strip())
TEXT = st.one_of(st.none(), WORD)
ROWS = st.lists(st.tuples(NUMBER, TEXT, st.floats(0.1, 9)), min_size=3, max_size=12)


def written(rows: list[tuple[Any, ...]], separator: str, decimal: str, ends: str) -> str:
    """As other programs write them."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator=ends)
    for row in rows:
        cells = ("?" if value is None else value for value in row)
        writer.writerow(repr(v).replace(".", decimal) if isinstance(v, float) else v for v in cells)
    return out.getvalue()


def values(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def batched(path: Path, how: Reading = PLAINLY) -> pa.Table:
    """The same a batch at a time, as `open_table` does it."""

    def read() -> pa.Table:
        schema, _, batches, _ = opener(path, 7, how=how)()
        return pa.Table.from_batches(list(batches(schema.names)))

    return guarded(str(path), FileError, read)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ROWS,
    st.sampled_from([",", ";", "\t", "|", " "]),
    st.sampled_from([".", ","]),
    st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]),
    st.sampled_from(sorted(PACK)),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_a_table_comes_back_from_every_dialect(
    rows: list[tuple[Any, ...]], separator: str, decimal: str, encoding: str, packed: str,
    ends: str, headed: bool,
) -> None:  # fmt: skip
    if separator == "," and decimal == ",":
        decimal = "."  # nobody can tell "1,234" from a thousand
    if separator == " ":  # this writer puts no quotes round tabs
        rows = [(a, b and b.replace("\t", " "), c) for a, b, c in rows]
    names = [("size", "name", "y")] * headed
    text = written([*names, *rows], separator, decimal, ends)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.csv{packed}"
        path.write_bytes(PACK[packed](text.encode(encoding)))
        # What a mark in front, or a few bytes beyond ASCII, cannot tell is told.
        how = Reading(encoding="cp1252" if encoding == "cp1252" else "auto")
        if separator == " " and decimal == ",":  # "0,5 w 1,5": two values or three?
            how = how._replace(decimal=decimal)
        table, chunked = read_table(path, how), batched(path, how)
    assert table.column_names == (["size", "name", "y"] if headed else ["c1", "c2", "c3"])
    lines = [(a, None if b is None else b.replace("\r\n", "\n"), c) for a, b, c in rows]
    assert values(table) == lines
    assert values(chunked) == lines


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".feather", ".arrow", ".xlsx", ".db"])
@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_a_table_comes_back_from_every_kind_of_file(
    ending: str, rows: list[tuple[Any, ...]]
) -> None:
    rows = [(1.5, "a", 0.5), *rows]
    names, columns = ("size", "name", "y"), map(list, zip(*rows, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{ending}"
        how = Reading(query="select size, name, y from t" if ending == ".db" else None)
        KINDS[ending](pa.table(dict(zip(names, columns, strict=True))), path)
        found, chunked = read_table(path, how), batched(path, how)
    assert values(found) == values(chunked) == rows


def _json(table: pa.Table, path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _database(table: pa.Table, path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("create table t (size real, name text, y real)")
        database.executemany("insert into t values (?, ?, ?)", values(table))
    database.close()


KINDS: dict[str, Callable[[pa.Table, Path], object]] = {
    ".jsonl": _json,
    ".jsonl.gz": _json,
    ".feather": lambda table, path: pa.feather.write_feather(table, path),
    ".arrow": lambda table, path: pa.feather.write_feather(table, path, compression="zstd"),
    ".xlsx": lambda table, path: path.write_bytes(
        workbook([table.column_names, *values(table)])
    ) and None,
    ".db": _database,
}  # fmt: skip
LIKELY = "ab1.,;|\t \"'?\n\r-"
VALID = {
    "rows.csv": b'a;b;y\n1,5;"x; y";1\n2,5;?;2\n' * 3,
    "rows.csv.gz": gzip.compress(b"a,b\n1,2\n3,4\n"),
    "rows.csv.xz": lzma.compress(b"a,b\n1,2\n3,4\n"),
    "rows.csv.bz2": bz2.compress(b"a,b\n1,2\n3,4\n"),
    "rows.csv.zst": pa.compress(b"a,b\n1,2\n3,4\n", "zstd", asbytes=True),
    "rows.jsonl": b'{"a": 1, "y": "x"}\n{"a": 2.5, "y": null}\n',
    "rows.xlsx": workbook([("a", "when", "y"), (1.5, date(2020, 1, 31), "x"), (2, None, True)]),
    "rows.data": b"1 2  3\n4 5 6\n",
}


def tried(path: Path) -> None:
    """Either way it gives a table or a refusal of ours."""
    for read in (read_table, batched):
        with suppress(CokeError):
            assert isinstance(read(path), pa.Table)


@pytest.mark.parametrize("name", [*VALID, "rows.tsv", "rows.db", "rows.feather", "rows"])
@settings(max_examples=120, deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.text("ab1.,;|\t \"'?\n\r-", max_size=80).map(str.encode))
)
def test_any_bytes_give_a_table_or_a_refusal(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        tried(path)


@pytest.mark.parametrize("name", VALID)
@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
def test_damaged_files_give_a_table_or_a_refusal(name: str, at: int, byte: int, end: int) -> None:
    data = bytearray(VALID[name])
    data[at % len(data)] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data[: end % (2 * len(data)) + 1])
        tried(path)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.text('a1 ,"\n', max_size=6), min_size=2, max_size=2), max_size=20),
    st.integers(1, 40),
)
def test_where_the_bytes_are_cut_does_not_matter(cells: list[list[str]], size: int) -> None:
    """Plain lines are those of the whole text, however few bytes come at a time."""

    def data(ends: str) -> bytes:
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=ends).writerows(cells)
        return out.getvalue().encode()

    class Drops(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            return super().read(size)

    blanks = data(" \n")
    whole, drops = (Plain(file, Lines()).read() for file in (io.BytesIO(blanks), Drops(blanks)))
    assert whole == drops == data("\n")


def test_dates_truths_and_gaps_of_a_sheet(tmp_path: Path) -> None:
    moment = datetime(2020, 2, 29, 12, 30)
    rows = [
        ("Report of 2020",),
        ("when", "day", "good", "x", "note"),
        (moment, date(2020, 2, 29), True, 1, "a"),
        (moment, date(1999, 12, 31), False, None, 'say "b", c'),
        (moment, None, True, 2.5, "NA"),
    ]
    said: list[str] = []
    (tmp_path / "rows.xlsx").write_bytes(workbook(rows))
    found = read_table(tmp_path / "rows.xlsx", Reading(say=said.append))
    assert found.column_names == ["when", "day", "good", "x", "note"]
    assert found["when"].to_pylist() == [moment] * 3
    assert found["day"].to_pylist() == [date(2020, 2, 29), date(1999, 12, 31), None]
    assert found["good"].to_pylist() == [True, False, True]
    assert found["x"].to_pylist() == [1.0, None, 2.5]
    assert found["note"].to_pylist() == ["a", 'say "b", c', None]
    assert "sheet 'Rows', not 'Notes'" in said[0]
    assert "lines above the table left out: 1" in said[1]


SHEET = "xl/worksheets/sheet1.xml"


@pytest.mark.parametrize(
    ("parts", "refusal"),
    [
        ({SHEET: "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"}, "document type"),
        ({SHEET: '<a><row><c r="A1" t="s"><v>7</v></c></row></a>'}, "entry '7' of"),
        ({SHEET: '<a><row><c r="B1"/><c r="A1"/></row></a>'}, "out of order"),
        ({SHEET: '<a><row><c r="ZZZ1"><v>1</v></c></row></a>'}, "out of order"),
        ({SHEET: "<a/>"}, "is empty"),
        ({"xl/workbook.xml": "<a"}, "cannot be read"),
        ({"xl/workbook.xml": "<a/>"}, "cannot be read"),
    ],
)  # fmt: skip
def test_a_workbook_that_nobody_wrote_is_refused(
    parts: dict[str, str], refusal: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.xlsx").write_bytes(workbook([("a", "b"), (1, 2)], **parts))
    with pytest.raises((DataError, FileError), match=refusal):
        read_table(tmp_path / "rows.xlsx")


@pytest.mark.parametrize(
    ("file", "query", "refusal"),
    [
        ("rows.db", None, r"select \* from t.*tables are t"),
        ("rows.db", "select * from nowhere", "no such table: nowhere; mend the query"),
        ("rows.db", "select * from t where size > 5", "no rows"),
        ("rows.db", "delete from t", "readonly"),
        ("absent.db", "select 1", "no such database"),
        ("mysql://host/name", "select 1", "expected a SQLite file, or postgresql://"),
        ("postgresql://me:secret@host/name", "select 1", "PGPASSWORD"),
        ("postgresql://me@host/name?password=secret", "select 1", "PGPASSWORD"),
    ],
)
def test_what_a_database_cannot_give_is_refused(
    file: str, query: str | None, refusal: str, tmp_path: Path
) -> None:
    _database(pa.table({"size": [1.0], "name": ["a"], "y": [2.0]}), tmp_path / "rows.db")
    path = file if "://" in file else tmp_path / file
    with pytest.raises(CokeError, match=refusal) as refused:
        read_table(path, Reading(query=query))
    assert "secret" not in str(refused.value)


def test_a_server_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(DataError, match=r"install coke-learn\[sql\]"):
        read_table("postgresql://me@host/name", Reading(query="select 1"))


def test_a_server_is_asked_and_nothing_is_changed_there() -> None:
    """Needs one: its address in COKE_POSTGRES, and the extra sql."""
    address = os.environ.get("COKE_POSTGRES")
    if address is None:
        pytest.skip("no server: COKE_POSTGRES names none")
    pytest.importorskip("adbc_driver_postgresql")
    query = (
        "select g::int as i, g / 4.0 as n, 'l' || g as t, date '2020-01-01' + g as d, g > 2 as b, "
        "case when g > 1 then g * 1.5 end as f from generate_series(1, 3) as g"
    )
    found = read_table(address, Reading(query=query))
    assert found["n"].type == found["f"].type == pa.float64()
    assert found.drop_columns("d").to_pydict() == {
        "i": [1, 2, 3], "n": [0.25, 0.5, 0.75], "t": ["l1", "l2", "l3"],
        "b": [False, False, True], "f": [None, 3.0, 4.5],
    }  # fmt: skip
    assert found["d"].to_pylist() == [date(2020, 1, day) for day in (2, 3, 4)]
    opened = opener(address, 2, how=Reading(query=query))()
    assert sum(batch.num_rows for batch in opened.batches(["n", "t"])) == 3
    for wrong, said in (
        ("create table never (x int)", "read-only transaction"),
        ("select nothing", 'column "nothing" does not exist'),
        ("select 1 where false", "no rows for"),
    ):
        with pytest.raises(DataError, match=said):
            read_table(address, Reading(query=wrong))
    with pytest.raises(FileError, match="nobody-here"):
        read_table(address.replace("://", "://nobody-here", 1), Reading(query="select 1"))


def test_a_decimal_comma_told_separates_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.dat").write_text("0,5 w 1,5\n" * 3)
    told = read_table(tmp_path / "rows.dat", Reading(decimal=","))
    assert values(told) == [(0.5, "w", 1.5)] * 3


def test_a_value_may_have_line_ends_where_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK", 64)
    lines = [(float(i), "w\n" * (i % 9) + "w", 0.5) for i in range(100)]
    (tmp_path / "rows.csv").write_text(written(lines, ",", ".", "\n"))
    assert values(read_table(tmp_path / "rows.csv")) == lines
    assert values(batched(tmp_path / "rows.csv")) == lines


def test_marks_of_missing_values_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n-9,3\nNA,4\n")
    told = read_table(tmp_path / "rows.csv", Reading(missing=("-9", "NA")))
    assert told["x"].to_pylist() == [1, None, None]
    assert "NA" in MISSING


@pytest.mark.parametrize("rows", [60, 400_000])
def test_types_are_those_of_eight_megabytes_to_the_last_line(tmp_path: Path, rows: int) -> None:
    """A line without an end is one of them, and so is what lies beyond the first megabyte."""
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,2.5\n" * rows + "1,word")
    opened = opener(tmp_path / "rows.csv", 1)()
    assert opened.schema.field("y").type == pa.string()
    assert sum(batch.num_rows for batch in opened.batches(["y"])) == rows + 1
