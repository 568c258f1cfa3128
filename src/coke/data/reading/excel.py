"""Excel's .xlsx, a zip of XML: its first sheet as comma-separated text, which is then read as such.

A workbook has no document type and no entities; what declares any is refused before it expands.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from xml.parsers import expat

import pyarrow as pa

from coke.data.reading import Named, Opened, Reading
from coke.data.reading.text import Origin, in_blocks, whole
from coke.errors import DataError, FileError

LARGEST = 1 << 30  # bytes of a part, unzipped
COLUMNS, ROWS = 16384, 1048576  # Excel's own limits
DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))  # formats
_STEP = 1 << 16
_CELL = re.compile(r"([A-Z]{1,3})[0-9]{1,7}")
_REFUSED = (
    zipfile.BadZipFile, expat.ExpatError, KeyError, RuntimeError, NotImplementedError, EOFError,
)  # fmt: skip

Element = tuple[str, dict[str, str] | None, str]
"""Its name, attributes where it begins, and its text where it ends."""


def table(path: Path, how: Reading) -> pa.Table:
    """All rows of the first sheet."""
    return whole(*_text(path, how))


def opened(path: Path, chunk: int, named: Named, how: Reading) -> Opened:
    """The same a block at a time."""
    origin, how = _text(path, how)
    return in_blocks(origin, named, how)


def _text(path: Path, how: Reading) -> tuple[Origin, Reading]:
    try:
        book = _Book.of(path)
        width = max((len(row) for row in book.rows()), default=0)
    except _REFUSED as error:
        raise FileError(f"{path}: cannot be read: {error}; save it as .xlsx or .csv") from error
    if not width:
        raise DataError(f"{path}: sheet {book.sheet!r} is empty; expected rows in the first one")
    if book.others:
        how.say(f"{path.name}: of sheet {book.sheet!r}, not {', '.join(map(repr, book.others))}")
    told = how._replace(separator=",", decimal=".", encoding="utf-8")
    return Origin(path.name, partial(_lines, book, width)), told


def _lines(book: _Book, width: int) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Joined(_written(book, width))))


def _written(book: _Book, width: int) -> Iterator[bytes]:
    """Rows as text, of one width from the first that has it; what stands above is narrower."""
    begun = False
    for row in book.rows():
        begun = begun or len(row) == width
        values = row + [""] * (width - len(row)) * begun
        yield (",".join(values) + "\n").encode("utf-8", "replace")


class _Joined(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]):
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        self._left = self._left or next(self._pieces, b"")
        n = min(len(room), len(self._left))
        room[:n], self._left = self._left[:n], self._left[n:]
        return n


class _Book(NamedTuple):
    """What cells refer to."""

    path: Path
    part: str  # the first sheet's
    sheet: str
    others: list[str]
    strings: list[str]
    dates: list[bool]  # whether a style shows dates
    epoch: datetime

    @classmethod
    def of(cls, path: Path) -> _Book:
        with zipfile.ZipFile(path) as book:
            parts = {name.lower().lstrip("/"): name for name in book.namelist()}
            main = list(_elements(book, parts["xl/workbook.xml"]))
            sheets = [given for tag, given, _ in main if tag == "sheet" and given is not None]
            late = any((given or {}).get("date1904") in ("1", "true") for _, given, _ in main)
            targets = {
                given["Id"]: given["Target"]
                for _, given, _ in _elements(book, parts["xl/_rels/workbook.xml.rels"])
                if given and "Id" in given and "Target" in given
            }
            target = targets[sheets[0]["id"]] if sheets else ""
            part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
            names = [sheet.get("name", "") for sheet in sheets]
            return cls(
                path, parts[part.lower()], names[0], names[1:],
                list(_strings(book, parts.get("xl/sharedstrings.xml"))),
                _date_styles(book, parts.get("xl/styles.xml")),
                datetime(1904, 1, 1) if late else datetime(1899, 12, 30),
            )  # fmt: skip

    def rows(self) -> Iterator[list[str]]:
        """The values of every row that has some, as text of a comma-separated file."""
        row, cell, value, seen = list[str](), dict[str, str](), "", 0
        with zipfile.ZipFile(self.path) as book:
            for tag, given, text in _elements(book, self.part):
                if tag == "row" and given is None:
                    seen += 1
                    while row and not row[-1]:
                        row.pop()
                    if row:
                        yield row
                    row = []
                elif tag == "c" and given is not None:
                    cell, value = given, ""
                elif given is None and tag in ("v", "t"):
                    value += text
                elif tag == "c":
                    at = _place(cell.get("r", ""), len(row))
                    row += [""] * (at - len(row))
                    row.append(self._value(cell, value))
                if seen > ROWS:
                    raise DataError(f"{self.path}: more than {ROWS} rows, which no sheet has")

    def _value(self, cell: dict[str, str], text: str) -> str:
        kind = cell.get("t", "n")
        if kind == "b":
            return "true" if text == "1" else "false"
        if kind == "e" or not text:
            return ""
        if kind == "s":
            return _quoted(self.strings[_index(text, len(self.strings))])
        style = cell.get("s", "0")
        if kind == "n" and self.dates and self.dates[_index(style, len(self.dates))]:
            return self._date(text)
        return _quoted(text)

    def _date(self, text: str) -> str:
        try:
            days = float(text)
            moment = self.epoch + timedelta(seconds=round(days * 86400))
        except (ValueError, OverflowError):
            return _quoted(text)
        if 0 <= days < 1:
            return f"{moment:%H:%M:%S}"
        return str(moment) if moment.time() != datetime.min.time() else str(moment.date())


def _place(name: str, after: int) -> int:
    """The column of a cell such as "AB12", counted from 0; the next one where it has no name."""
    found = _CELL.fullmatch(name)
    at = after
    if found:
        at = 0
        for letter in found[1]:
            at = 26 * at + ord(letter) - 64
        at -= 1
    if not after <= at < COLUMNS:
        raise DataError(f"a cell {name!r} out of order: expected columns from left to right")
    return at


def _index(text: str, size: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) < size):
        raise DataError(f"a cell refers to entry {text[:20]!r} of {size}: is the file whole?")
    return int(text[:9])


def _quoted(text: str) -> str:
    """As a comma-separated file has it."""
    plain = text.replace("\x00", "").strip()
    special = any(mark in plain for mark in ',"\n\r')
    return '"' + plain.replace('"', '""').replace("\r", " ") + '"' if special else plain


def _strings(book: zipfile.ZipFile, part: str | None) -> Iterator[str]:
    """The texts that cells share; how they are pronounced is left out."""
    text, spoken = "", False
    for tag, given, said in _elements(book, part):
        if tag == "rPh":
            spoken = given is not None
        elif tag == "t" and given is None and not spoken:
            text += said
        elif tag == "si" and given is None:
            yield text
            text = ""


def _date_styles(book: zipfile.ZipFile, part: str | None) -> list[bool]:
    formats, found, inside = dict[str, str](), list[bool](), False
    for tag, given, _ in _elements(book, part):
        if tag == "numFmt" and given is not None:
            formats[given.get("numFmtId", "")] = given.get("formatCode", "")
        elif tag == "cellXfs":
            inside = given is not None
        elif tag == "xf" and inside and given is not None:
            number = given.get("numFmtId", "0")
            code = re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", formats.get(number, ""))
            usual = number.isdigit() and number not in formats and int(number[:9]) in DATES
            found.append(usual or bool(re.search("[dmyhs]", code, re.I) and code != "General"))
    return found


def _elements(book: zipfile.ZipFile, part: str | None) -> Iterator[Element]:
    """Where elements begin and end, in order; a part that is not there has none."""
    if part is None:
        return
    if book.getinfo(part).file_size > LARGEST:
        raise DataError(f"{part} holds more than {LARGEST} bytes: save the sheet as .csv")
    parser, events, text = expat.ParserCreate(), list[Element](), list[str]()

    def begins(tag: str, given: dict[str, str]) -> None:
        text.clear()
        plain = {name.rpartition(":")[2]: value for name, value in given.items()}
        events.append((tag.rpartition(":")[2], plain, ""))

    def ends(tag: str) -> None:
        events.append((tag.rpartition(":")[2], None, "".join(text)))
        text.clear()

    parser.StartElementHandler, parser.EndElementHandler = begins, ends
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text.append, _no_doctype
    with book.open(part) as file:
        while some := file.read(_STEP):
            parser.Parse(some)
            yield from events
            events.clear()
    parser.Parse(b"", True)
    yield from events


def _no_doctype(*_: Any) -> None:
    raise DataError("a workbook with a document type: Excel writes none; save it again")
