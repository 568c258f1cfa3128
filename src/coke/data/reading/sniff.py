"""What a text file looks like, from its first megabyte: how it is written, and what is in a row."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from itertools import islice
from typing import NamedTuple

from coke.data.reading import AUTO, MISSING, READABLE, Reading
from coke.data.reading.stream import Lines
from coke.errors import DataError

SEPARATORS = ("\t", ";", "|", ",", " ")  # of equals the first: few texts have a tab in every line
WORDS = {"tab": "\t", "\\t": "\t", "blanks": " "}
SAMPLE = 2000  # records
BEFORE = 50  # lines at most above a table
_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_FRACTION = re.compile(r"[+-]?[0-9.,]*([.,])([0-9]+)([eE][+-]?[0-9]+)?")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_LINES = "write an object a line, into a file that ends in .jsonl"
_OTHERS = {  # how files begin that are no tables of text
    rb"\xd0\xcf\x11\xe0": "it is an old Excel workbook: save it as .xlsx or .csv",
    rb"\s*<[!?a-zA-Z]": "it is a web page or XML: save its table as .xlsx or .csv",
    rb'\s*(\[\s*)?\{\s*"': f"it is JSON: {_LINES}",
}

Records = list[list[str]]


class Detected(NamedTuple):
    """How a text file is written."""

    lines: Lines
    decimal: str  # "." or ","
    names: tuple[str, ...]  # of all columns
    headed: bool  # whether a line says them
    before: int  # lines above the table
    left_out: tuple[str, ...]  # columns without a name that hold nothing, or count the rows
    missing: tuple[str, ...]  # what stood for no value
    packed: str = ""  # by what it was compressed

    @property
    def said(self) -> str:
        """In a line."""
        ends = dict.fromkeys((self.names[0], self.names[-1]))
        separator = {"\t": "tabs", " ": "blanks"}.get(
            self.lines.separator, repr(self.lines.separator)
        )
        parts = {
            self.packed: self.packed,
            self.lines.encoding: True,
            f"separated by {separator}": len(self.names) > 1,
            "decimal comma": self.decimal == ",",
            "with a header": self.headed,
            f"no header: columns {' … '.join(ends)}": not self.headed,
            f"lines above the table left out: {self.before}": self.before,
            "the full stop at the end of every row left out": self.lines.dots,
            f"column {', '.join(self.left_out)} without a name left out": self.left_out,
            f"missing: {' '.join(map(repr, self.missing))}": self.missing,
        }
        return ", ".join(words for words, true in parts.items() if true)


def detect(head: bytes, whole: bool, how: Reading) -> Detected:
    """From a file's beginning, and from what is told; `whole` if that is all of it."""
    for begin, what in _OTHERS.items():
        if re.match(begin, head):
            raise DataError(what)
    encoding = _encoding(head, whole) if how.encoding == AUTO else _known(how.encoding)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head).removeprefix("\ufeff")
    if "\x00" in text:
        raise DataError(
            f"it holds bytes that no text has: expected text, or a name that ends in what it is, "
            f"one of {', '.join(READABLE)}"
        )
    returns = "\n" not in text and "\r" in text
    text = text.replace("\r", "\n") if returns else text.replace("\r\n", "\n").replace("\r", " ")
    if not whole and "\n" in text:
        text = text[: text.rindex("\n")]
    separator = _separator(text, how) if how.separator == AUTO else _told(text, how)
    lines = Lines(encoding=encoding, separator=separator, returns=returns)
    return _described(text, lines, how)


def _described(text: str, lines: Lines, how: Reading) -> Detected:
    """What the records say."""
    records, places = _parsed(text, lines.separator)
    if not records:
        raise DataError("no rows: expected at least one below the column names")
    width = _width(records)[0]
    first = _first(records, width)
    rows = [record for record in records[first + 1 :] if len(record) == width]
    blank = frozenset(how.missing)
    headed = how.header == "yes" or (how.header == AUTO and _headed(records[first], rows, blank))
    names = [f"c{j + 1}" for j in range(width)]
    left_out: tuple[str, ...] = ()
    header, (before, end), skip = b"", places[first], places[first][0]
    if headed:
        given = [*records[first], *[""] * width][:width]
        left_out = tuple(_unnamed(given, rows, blank))
        names = [name or spare for name, spare in zip(given, names, strict=True)]
        if end == before + 1 and width > 1:  # one line
            header = text.split("\n")[before].encode("utf-8", "replace")
        skip = end
    rows = [r for r in rows if r != records[first]] if headed else [records[first], *rows]
    values = Counter(value for row in rows for value in row)
    dots = len(rows) > 1 and all(r[-1][-1:] == "." and not _number(r[-1]) for r in rows)
    return Detected(
        lines=lines._replace(header=header, skip=skip, dots=dots),
        decimal=_decimal(values, lines.separator) if how.decimal == AUTO else how.decimal,
        names=tuple(names),
        headed=headed,
        before=before,
        left_out=left_out,
        missing=tuple(mark for mark in how.missing if mark and mark in values),
    )


def _encoding(head: bytes, whole: bool) -> str:
    """UTF-8 if it can be, else what Windows wrote in the West, else Latin-1, which is anything."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    halves = {"utf-16-le": head[1:SAMPLE:2], "utf-16-be": head[:SAMPLE:2]}
    for name, half in halves.items():
        if 0 < len(half) < 2 * half.count(0) and not marked:  # most letters have an empty half
            marked = name
    for name in (marked or "utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(name)().decode(head, whole)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _known(encoding: str) -> str:
    try:
        "".encode(encoding)  # refuses what is no encoding of text
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError, UnicodeError) as error:
        raise DataError(
            f"encoding {encoding!r}: {error}; expected a name such as utf-8, cp1252 or latin-1"
        ) from error
    return name


def _parsed(text: str, separator: str) -> tuple[Records, list[tuple[int, int]]]:
    """The first records, and how many lines are before each of them and at its end."""
    lines = (line.strip(" \t" if separator != "\t" else " ") + "\n" for line in text.split("\n"))
    if separator == " ":
        lines = (line.replace("\t", " ") for line in lines)
    reading = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    records, places, last = list[list[str]](), list[tuple[int, int]](), 0
    try:
        for record in islice(reading, SAMPLE):
            values = [value.strip() for value in record]
            if values and values != [""]:
                records.append(values)
                places.append((last, reading.line_num))
            last = reading.line_num
    except csv.Error:
        pass  # a value of 128 kB, or a quote that nobody closes: what is read so far will do
    return records, places


def _width(records: Records) -> tuple[int, float]:
    """The usual number of values, and the share of records that have it."""
    (width, n), *_ = Counter(map(len, records)).most_common(1) or [(1, 0)]
    return width, n / max(len(records), 1)


def _separator(text: str, how: Reading) -> str:
    """What cuts most records into the same number of values, two at least; of equals, into numbers.

    For "1,5 2,5" is cut alike by commas, and "1, 2" by blanks. A decimal comma, told, cuts nothing.
    """
    best, found = (0.0, 0.0), ","
    for separator in (mark for mark in SEPARATORS if mark != how.decimal):
        records = _parsed(text, separator)[0]
        width, share = _width(records)
        if width > 1 and (share, _numeric(records)) > best:
            best, found = (share, _numeric(records)), separator
    return found


def _numeric(records: Records) -> float:
    """The share of numbers, and of what stands for none."""
    values = [value for record in records for value in record]
    return sum(_number(value) or value in MISSING for value in values) / len(values)


def _told(text: str, how: Reading) -> str:
    word, separator = how.separator, WORDS.get(how.separator, how.separator)
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n\x00':
        raise DataError(f"separator {word!r}: expected one character, or {', '.join(WORDS)}")
    other = _separator(text, how)
    if _width(_parsed(text, separator)[0])[0] == 1 < _width(_parsed(text, other)[0])[0]:
        raise DataError(
            f"separator {word!r} leaves one column, {other!r} would give "
            f"{_width(_parsed(text, other)[0])[0]}: name that, or none"
        )
    return separator


def _first(records: Records, width: int) -> int:
    """Where the table begins: what stands above it has another width."""
    if width == 1:
        return 0
    wide = (i for i, record in enumerate(records[: BEFORE + 1]) if len(record) == width)
    return next(wide, 0)


def _headed(first: list[str], rows: Records, blank: frozenset[str]) -> bool:
    """Whether the first record is names: words above numbers, or words that do not come again."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in first]
    for name, values in zip(first, columns, strict=True):
        there = [value for value in values if value not in blank and value != name]
        if there and not _number(name) and name not in blank and all(map(_number, there)):
            return True
    if first in ([str(j) for j in range(len(first))], [str(j + 1) for j in range(len(first))]):
        return len(first) > 1  # numbered
    if any(map(_number, first)) or not all(first) or len(set(first)) < len(first):
        return False
    return all(name not in values for name, values in zip(first, columns, strict=True))


def _unnamed(given: list[str], rows: Records, blank: frozenset[str]) -> list[str]:
    """Columns without a name that hold nothing, and a first one that counts the rows."""
    found = []
    for j, name in enumerate(given):
        values = [row[j] for row in rows]
        counts = [[str(i + start) for i in range(len(values))] for start in (0, 1)]
        empty = all(value in blank for value in values)
        if not name and (empty or (j == 0 and len(values) > 1 and values in counts)):
            found.append(f"c{j + 1}")
    return found


def _number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _decimal(values: Counter[str], separator: str) -> str:
    """A comma where fractions have one; three digits after it may be thousands instead."""
    seen: Counter[tuple[str, bool]] = Counter()
    for value, n in values.items():
        fraction = _FRACTION.fullmatch(value)
        if fraction:
            seen[fraction[1], len(fraction[2]) == 3] += n
    if seen[",", False] or seen[".", False]:
        return "," if seen[",", False] > seen[".", False] else "."
    return "," if separator != "," and seen[",", True] and not seen[".", True] else "."
