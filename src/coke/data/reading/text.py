"""Text ↦ Arrow: lines of values, however they are separated, quoted, encoded and compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from coke.data.reading import Named, Opened, Reading
from coke.data.reading.sniff import Detected, detect
from coke.data.reading.stream import HEAD, Plain, packing, unpacked
from coke.errors import DataError

BLOCK = 1 << 23  # bytes of text at a time
SHOWN = 8
GROUPS = {".": ",", ",": "."}  # between thousands, beside blanks and apostrophes
_NUMBER = r"^[+-]?([0-9]+(D[0-9]*)?|D[0-9]+)([eE][+-]?[0-9]+)?$"
_GROUPED = r"^[+-]?[0-9]{1,3}([G'’   ][0-9]{3})+(D[0-9]*)?$"


class Origin(NamedTuple):
    """Where the bytes of a text come from."""

    name: str
    open: Callable[[], BinaryIO]  # anew for every pass
    packed: str = ""


def table(path: Path, how: Reading) -> pa.Table:
    """All rows of a text file."""
    return whole(_origin(path), how)


def opened(path: Path, chunk: int, named: Named, how: Reading) -> Opened:
    """The same a block at a time; types are those of the first block."""
    return in_blocks(_origin(path), named, how)


def _origin(path: Path) -> Origin:
    return Origin(path.name, partial(unpacked, path), packing(path))


def whole(origin: Origin, how: Reading) -> pa.Table:
    """All rows of a text."""
    text = _Text.of(origin, how)
    found = text.read(pa.csv.read_csv)
    for line in _mixed(found, text.found.decimal):
        how.say(f"{origin.name}: {line}")
    return text.careful(found, _grouped(found, text.found.decimal))


def in_blocks(origin: Origin, named: Named, how: Reading) -> Opened:
    """A block at a time."""
    text = _Text.of(origin, how)
    with text.lines() as lines, text.reader(pa.csv.open_csv, lines) as reader:
        schema, first = reader.schema, pa.Table.from_batches(islice(reader, 1), reader.schema)
    # Types come from the first block: what looks whole or empty there may be a fraction later.
    whole = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_null(f.type)]
    kinds = {name: pa.float64() for name in whole if name not in named}
    grouped = _grouped(first, text.found.decimal)
    schema = text.careful(first, grouped).schema
    if (
        named.target is not None and named.target in schema.names
    ):  # what looks like a number may be text later
        field = text.read(pa.csv.read_csv, [named.target]).schema.field(0)
        schema = schema.set(schema.names.index(named.target), field)
        kinds[field.name] = field.type
    return Opened(schema, None, partial(_blocks, text, kinds, grouped))


def _blocks(
    text: _Text, kinds: dict[str, Any], grouped: Sequence[str], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with text.lines() as lines, text.reader(pa.csv.open_csv, lines, names, kinds) as reader:
        for batch in reader:
            some = text.careful(pa.Table.from_batches([batch]), grouped)
            yield from some.select(list(names)).to_batches()
    text.refuse()


class _Text(NamedTuple):
    """A text whose form is known."""

    origin: Origin
    found: Detected
    how: Reading
    bad: list[str]  # rows of another width

    @classmethod
    def of(cls, origin: Origin, how: Reading) -> _Text:
        with origin.open() as file:
            head = _beginning(file)
        try:
            found = detect(head[:HEAD], len(head) <= HEAD, how)._replace(packed=origin.packed)
        except DataError as error:
            raise DataError(f"{origin.name}: {error}") from None
        how.say(f"{origin.name}: {found.said}")
        return cls(origin, found, how, [])

    def lines(self) -> Plain:
        return Plain(self.origin.open(), self.found.lines)

    def read(self, reader: Any, names: Sequence[str] = ()) -> pa.Table:
        """All rows at once."""
        with self.lines() as lines:
            found = self.reader(reader, lines, names)
            if lines.repeated:
                again = f"lines that repeat the header left out: {lines.repeated}"
                self.how.say(f"{self.origin.name}: {again}")
        self.refuse()
        return found

    def reader(
        self, reader: Any, lines: Plain, names: Sequence[str] = (), kinds: Any = None
    ) -> Any:
        """What Arrow's `reader` makes of the lines."""
        columns = list(self.found.names)
        # One thread: as quick, and rows have numbers.
        read = pa.csv.ReadOptions(column_names=columns, block_size=BLOCK, use_threads=False)
        parse = pa.csv.ParseOptions(
            delimiter=self.found.lines.delimiter,
            newlines_in_values=True,
            invalid_row_handler=self._other_width,
        )
        convert = pa.csv.ConvertOptions(
            null_values=list(self.how.missing),
            strings_can_be_null=True,
            decimal_point=self.found.decimal,
            include_columns=list(names),
            column_types=kinds,
        )
        try:
            return reader(pa.PythonFile(lines, "r"), read, parse, convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                self.refuse()
                raise DataError(f"{self.origin.name}: no rows below the column names") from error
            raise

    def _other_width(self, row: Any) -> str:
        where = "" if row.number is None else f"line {row.number + self.found.lines.skip} "
        has = f"has {row.actual_columns} of {row.expected_columns} values"
        self.bad.append(f"{where}{has}: {row.text[:60]!r}")
        return "skip"

    def refuse(self) -> None:
        """Rows of another width, all at once."""
        if self.bad:
            more = f" and {len(self.bad) - SHOWN} more" if len(self.bad) > SHOWN else ""
            raise DataError(
                f"{self.origin.name}: {'; '.join(self.bad[:SHOWN])}{more}; mend these lines, or "
                f"name the separator (here {self.found.lines.separator!r})"
            )

    def careful(self, rows: pa.Table, grouped: Sequence[str]) -> pa.Table:
        """Without nameless columns; numbers with thousands as numbers."""
        for name in grouped:
            if name in rows.column_names:
                at = rows.column_names.index(name)
                rows = rows.set_column(at, name, _joined(rows[name], name, self.found.decimal))
        return rows.drop_columns([n for n in self.found.left_out if n in rows.column_names])


def _beginning(file: BinaryIO) -> bytes:
    """A byte more than is looked at, so that one sees whether it is all."""
    found = b""
    while len(found) <= HEAD and (some := file.read(HEAD + 1 - len(found))):
        found += some
    return found


def _pattern(form: str, decimal: str) -> str:
    return form.replace("D", f"[{decimal}]").replace("G", GROUPS[decimal])


def _texts(rows: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Columns of text that is there, where names differ."""
    for j, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            values = rows.column(j).drop_null()
            if len(values):
                yield field.name, values


def _matches(values: pa.ChunkedArray, form: str, decimal: str) -> pa.ChunkedArray:
    return pc.match_substring_regex(values, _pattern(form, decimal))


def _grouped(rows: pa.Table, decimal: str) -> list[str]:
    """Columns of numbers of which some have thousands apart."""
    found = []
    for name, values in _texts(rows):
        apart = _matches(values, _GROUPED, decimal)
        if (
            pc.any(apart).as_py()
            and pc.all(pc.or_(apart, _matches(values, _NUMBER, decimal))).as_py()
        ):
            found.append(name)
    return found


def _joined(values: pa.ChunkedArray, name: str, decimal: str) -> pa.ChunkedArray:
    """Numbers without what is between their thousands."""
    plain = pc.replace_substring_regex(values, f"[{GROUPS[decimal]}'’   ]", "")
    try:
        return pc.replace_substring(plain, decimal, ".").cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"column {name!r} has numbers with thousands apart, and others: {error}"
        ) from error


def _mixed(rows: pa.Table, decimal: str) -> Iterator[str]:
    """Columns of text most of which is numbers."""
    for name, values in _texts(rows):
        other = values.filter(
            pc.invert(pc.or_(*(_matches(values, form, decimal) for form in (_NUMBER, _GROUPED))))
        )
        if 0 < len(other) < len(values) / 2:
            yield (
                f"column {name!r} is text: {other[0].as_py()[:60]!r} is no number "
                f"({len(other)} of {len(values)} values)"
            )
