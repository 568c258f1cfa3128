"""What happens to raw files: every row of the table in docs/tables.md is a case here."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from coke.data.formats import open_table
from coke.data.kinds import input_names
from coke.data.reading import PLAINLY, Reading, files_in, label_of
from coke.data.sources import complete
from coke.data.tables import read_rows, read_table
from coke.errors import CokeError, DataError

DOC = Path(__file__).parents[2] / "docs" / "tables.md"


class Raw(NamedTuple):
    """A file, and what is found or said."""

    name: str
    data: bytes | str
    columns: dict[str, list[Any]] | None = None  # what is read
    said: str = ""  # in a line, or in the refusal
    how: Reading = PLAINLY


def archive(*files: tuple[str, bytes]) -> bytes:
    """A zip archive."""
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files:
            made.writestr(name, data)
    return room.getvalue()


TWO: dict[str, list[Any]] = {"x": [1.5, 2.5], "y": [1, 2]}
CASES = {
    "semicolons, decimal comma": Raw(
        "a.csv", "x;y\n1,5;1\n2,5;2\n", TWO, "separated by ';', decimal comma"),
    "tabs": Raw("a.tsv", "x\ty\n1.5\t1\n2.5\t2\n", TWO, "separated by tabs"),
    "bars": Raw("a.txt", "x|y\n1.5|1\n2.5|2\n", TWO, r"separated by '\|'"),
    "runs of blanks": Raw("a.dat", "  x   y\n1.5  1 \n2.5 \t2\n", TWO, "separated by blanks"),
    "blanks, decimal comma": Raw(
        "a.dat", "x y\n1,5 1,25\n2,5 2,25\n", {"x": [1.5, 2.5], "y": [1.25, 2.25]},
        "separated by blanks, decimal comma"),
    "blanks round values": Raw(
        "a.csv", 'x, y, t \n1.5, 1, "a, b" \n 2.5 ,2 , ?\n', TWO | {"t": ["a, b", None]}),
    "quotes": Raw(
        "a.csv", 'x,"y","a ""b"""\n1.5,1,"1\n2"\n2.5,2,"c,d"\n',
        TWO | {'a "b"': ["1\n2", "c,d"]}),
    "UTF-8 with a mark in front": Raw("a.csv", b"\xef\xbb\xbfx,y\n1.5,1\n2.5,2\n", TWO, "utf-8"),
    "UTF-16": Raw("a.csv", "x,y\n1.5,1\n2.5,2\n".encode("utf-16"), TWO, "utf-16"),
    "UTF-16 without its mark": Raw(
        "a.csv", "x,y\n1.5,1\n2.5,2\n".encode("utf-16-le"), TWO, "utf-16-le"),
    "Windows' or Latin letters": Raw(
        "a.csv", "größe,y\n1.5,1\n2.5,2\n".encode("cp1252"),
        {"größe": [1.5, 2.5], "y": [1, 2]}, "cp1252"),
    "compressed": Raw("a.csv.gz", gzip.compress(b"x,y\n1.5,1\n2.5,2\n"), TWO, "gzip, utf-8"),
    "old Macintosh lines": Raw("a.csv", "x,y\r1.5,1\r2.5,2\r", TWO),
    "missing values": Raw(
        "a.csv", "x,y\n1.5,1\n?,2\nNA,3\n,4\nNaN,5\nnull,6\n-,7\n",
        {"x": [1.5, *[None] * 6], "y": [*range(1, 8)]}, "missing: '\\?' 'NA' 'NaN' 'null' '-'"),
    "other marks, as told": Raw(
        "a.csv", "x,y\n1.5,1\n-9,2\n", {"x": [1.5, None], "y": [1, 2]},
        how=Reading(missing=("-9",))),
    "no header": Raw(
        "a.data", "1.5,1\n2.5,2\n", {"c1": [1.5, 2.5], "c2": [1, 2]},
        "no header: columns c1 … c2"),
    "no header, all text": Raw(
        "a.data", "p,q\np,r\n", {"c1": ["p", "p"], "c2": ["q", "r"]}, "no header"),
    "a header of numbers, as told": Raw(
        "a.csv", "7,9\n1.5,1\n", {"7": [1.5], "9": [1]}, how=Reading(header="yes")),
    "lines above the table": Raw(
        "a.csv", "Monday's\n\nx,y\n1.5,1\n2.5,2\n", TWO, "lines above the table left out: 2"),
    "a full stop after every row": Raw(
        "a.test", "1.5,a.\n2.5,b.\n", {"c1": [1.5, 2.5], "c2": ["a", "b"]}, "the full stop"),
    "a header again in the middle": Raw(
        "a.csv", "x,y\n1.5,1\nx,y\n2.5,2\n", TWO, "lines that repeat the header left out: 1"),
    "row numbers without a name": Raw(
        "a.csv", ",x,y\n0,1.5,1\n1,2.5,2\n", TWO, "column c1 without a name left out"),
    "an empty column without a name": Raw(
        "a.csv", "x,y,\n1.5,1,\n2.5,2,\n", TWO, "column c3 without a name left out"),
    "an empty column with a name": Raw(
        "a.csv", "x,y,z\n1.5,1,\n2.5,2,\n", TWO | {"z": [None, None]}),
    "thousands apart": Raw(
        "a.csv", 'x,y\n"1,234.5",1\n2.5,2\n', {"x": [1234.5, 2.5], "y": [1, 2]}),
    "thousands apart, decimal comma": Raw(
        "a.csv", "x;y\n1.234,5;1\n2,25;2\n", {"x": [1234.5, 2.25], "y": [1, 2]}),
    "a word among numbers": Raw(
        "a.csv", "x,y\n1.5,1\n2.5,2\nlow,3\n", {"x": ["1.5", "2.5", "low"], "y": [1, 2, 3]},
        "column 'x' is text: 'low' is no number \\(1 of 3 values"),
    "a wrong separator, told": Raw(
        "a.csv", "x,y\n1.5,1\n2.5,2\n", None, "separator ';' leaves one column, ',' would give 2",
        Reading(separator=";")),
    "rows of other widths": Raw(
        "a.csv", "x,y\n1,2\n3\n4,5\n6,7,8\n9,1\n", None,
        r"line 3 has 1 of 2 values: '3'; line 5 has 3 of 2 values: '6,7,8'; mend"),
    "two columns of one name": Raw(
        "a.csv", "x,z,x,z,y\n1,2,3,4,5\n", None, r"columns \['x', 'z'\] are there more than once"),
    "an encoding that it has not": Raw(
        "a.csv", b"x,y\n1,\xff\n", None, "cannot be read", Reading(encoding="ascii")),
    "an encoding that there is not": Raw(
        "a.csv", b"x,y\n1,2\n", None, "encoding 'klingon'", Reading(encoding="klingon")),
    "no text": Raw("a.csv", b"x,y\n1,\x00\x00\n", None, "bytes that no text has.*xlsx"),
    "an archive of one file": Raw(
        "a.zip", archive(("rows.csv", b"x,y\n1.5,1\n2.5,2\n")), TWO, "zip, utf-8"),
    "an archive of several": Raw(
        "a.zip", archive(("a.csv", b"x\n"), ("b.csv", b"x\n")), None,
        r"a.zip holds 2 files: a.csv, b.csv; expected one table: unpack it"),
    "an old Excel workbook": Raw(
        "a.xls", b"\xd0\xcf\x11\xe0\x00\x00", None, "old Excel workbook: save it as .xlsx or .csv"),
    "a web page": Raw("a.xls", "<html><table></table>", None, "a web page or XML"),
    "a JSON array": Raw("a.json", '[\n {"x": 1, "y": 2}]', None, "an object a line.*jsonl"),
    "nothing": Raw("a.csv", "", None, "no rows"),
    "a header alone": Raw("a.csv", "x,y\n", None, "no rows"),
    "JSON lines": Raw("a.jsonl", '{"x": 1.5, "y": 1}\n{"y": 2, "x": 2.5}\n', TWO),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_raw_file_is_read_or_refused(case: str, tmp_path: Path) -> None:
    name, data, columns, said, how = CASES[case]
    path, lines = tmp_path / name, list[str]()
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    how = how._replace(say=lines.append)
    if columns is None:
        with pytest.raises(CokeError, match=said):
            read_table(path, how)
        return
    assert read_table(path, how).to_pydict() == columns
    assert re.search(said, "\n".join(lines)), lines


def test_the_table_in_the_docs_has_these_rows() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", DOC.read_text("utf-8"), re.M)
    assert set(CASES) <= set(rows)


REAL: dict[str, tuple[int, int, str]] = {
    "raw/adult.data.gz": (32561, 15, "gzip, utf-8, separated by ',', no header: columns c1 … c15"),
    "raw/adult.test.gz": (16281, 15, "lines above the table left out: 1, the full stop"),
    "raw/bank-full.csv.gz": (45211, 17, "gzip, utf-8, separated by ';', with a header"),
    "raw/penguins.csv": (344, 8, "with a header, missing: 'NA'"),
    "raw/heart_disease/processed.cleveland.data": (303, 14, "no header: columns c1 … c14"),
    "raw/heart_disease/processed.va.data": (200, 14, "missing: '?'"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_as_they_came(name: str, data_file: Callable[[str], Path]) -> None:
    said: list[str] = []
    rows, columns, line = REAL[name]
    table = read_table(data_file(name), Reading(say=said.append))
    assert table.shape == (rows, columns)
    assert line in said[0]
    assert len(said) == 1


def test_adults_tests_have_the_classes_of_its_training_rows(
    data_file: Callable[[str], Path],
) -> None:
    train, test = (read_table(data_file(f"raw/adult.{part}.gz")) for part in ("data", "test"))
    assert train.schema == test.schema
    assert set(train["c15"].unique().to_pylist()) == set(test["c15"].unique().to_pylist())
    assert train["c2"].null_count == 1836  # "?"


def test_a_folder_of_hospitals_is_a_site_a_file(data_file: Callable[[str], Path]) -> None:
    files = files_in(data_file("raw/heart_disease"))
    assert [label_of(file) for file in files] == [
        "processed.cleveland", "processed.hungarian", "processed.switzerland", "processed.va",
    ]  # fmt: skip


def test_a_pass_over_a_text_has_the_rows_of_reading_it_at_once(tmp_path: Path) -> None:
    lines = ["a; b;y", *(f'{i},5 ;"1.{i % 900 + 100},5";{i % 3}' for i in range(3000)), "a; b;y"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    rows = read_rows(tmp_path / "rows.csv", "y")
    chunks = list(complete(open_table(tmp_path / "rows.csv", "y", chunk=700)))
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), rows.X)
    np.testing.assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), rows.y)
    assert rows.X[1].tolist() == [1.5, 1101.5]


def test_all_columns_of_a_wrong_kind_are_named_at_once() -> None:
    table = pa.table({"a": [b"u"], "b": [[1]], "x": [1.0], "y": [b"v"]})
    said = (
        r"column 'a' holds binary such as .*u.*, column 'b' holds list<.*> such as '\[1\]': .*"
        r"--drop a --drop b .*; column 'y' holds binary such as .*: a target must be"
    )
    with pytest.raises(DataError, match=said):
        read_rows(table, "y")


def test_patterns_drop_what_they_fit_but_for_target_and_site() -> None:
    names = ["id", "id_2", "x", "[z]", "idy", "ids"]
    assert input_names(names, ["idy"], ["ids"], ["id*", "[z]"]) == ["x"]
    with pytest.raises(DataError, match=r"unknown column 'q\*'.*; unknown column 'p'"):
        input_names(names, ["idy"], [], ["q*", "p"])
