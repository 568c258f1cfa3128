"""The rows of a query: of a SQLite file, or of a PostgreSQL server (the extra `sql`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pyarrow as pa

from coke.data.reading import ADDRESS, Named, Opened, Reading
from coke.errors import DataError, FileError

MANY = 1 << 16  # rows at a time
_TYPE = b"ADBC:postgresql:typname"
POSTGRES = ("postgresql", "postgres")


def table(path: str | Path, how: Reading) -> pa.Table:
    """All rows of the query."""
    batches = [pa.Table.from_batches([batch]) for batch in _rows(path, how, MANY)]
    if not batches:
        raise DataError(f"{path}: no rows for {how.query!r}; expected one at least")
    return pa.concat_tables(batches, promote_options="permissive")


def opened(path: str | Path, chunk: int, named: Named, how: Reading) -> Opened:
    """The same a chunk at a time; every pass asks again."""
    first = next(_rows(path, how, MANY), None)
    if first is None:
        raise DataError(f"{path}: no rows for {how.query!r}; expected one at least")
    found = pa.schema([_wide(field, named) for field in first.schema])

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in _rows(path, how, chunk):
            yield batch.cast(found).select(list(names))

    return Opened(found, None, batches)


def _wide(field: pa.Field, named: Named) -> pa.Field:
    """What looks whole or empty in the first rows may be a fraction later."""
    narrow = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
    return field.with_type(pa.float64()) if narrow and field.name not in named else field


def _rows(path: str | Path, how: Reading, many: int) -> Iterator[pa.RecordBatch]:
    with closing(_connected(path)) as database, closing(database.cursor()) as cursor:
        try:
            cursor.execute(how.query or _no_query(path, cursor))
            names = [column[0] for column in cursor.description or ()]
            if not names:
                raise DataError(f"{how.query!r} gives no rows: expected a query, select …")
            if ADDRESS in str(path):
                yield from map(_numeric, cursor.fetch_record_batch())
                return
            while rows := cursor.fetchmany(many):
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [_column(n, c) for n, c in zip(names, columns, strict=True)], names
                )
        except _errors(database) as error:
            raise DataError(f"{path}: {error}; mend the query {how.query!r}") from error


def _numeric(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With numbers of any length as floats: the driver has them as text, so as to lose nothing."""
    columns = list(batch.columns)
    for j, field in enumerate(batch.schema):
        values = columns[j].storage if isinstance(field.type, pa.ExtensionType) else columns[j]
        said = (field.metadata or {}).get(_TYPE) or getattr(field.type, "type_name", "").encode()
        columns[j] = values.cast(pa.float64()) if said == b"numeric" else values
    return pa.record_batch(columns, batch.schema.names)


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"column {name!r} cannot be read: {error}; cast it to one type in the query"
        ) from error


def _connected(path: str | Path) -> Any:
    """A connection that can only read, as Python's DB-API has them."""
    if ADDRESS not in str(path):
        if not Path(path).is_file():
            raise FileError(f"{path}: there is no such database")
        name = quote(str(Path(path).resolve()))
        return sqlite3.connect(f"file:{name}?mode=ro", uri=True, check_same_thread=False)
    parts = urlsplit(str(path))
    if parts.scheme not in POSTGRES:
        raise DataError(
            f"{parts.scheme}://…: expected a SQLite file, or postgresql://USER@HOST/NAME"
        )
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise DataError(
            "a password in a database's address would be kept with the settings: "
            "leave it out, and put it into PGPASSWORD or ~/.pgpass"
        )
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise DataError(
            f"{parts.scheme}://… needs the PostgreSQL driver: install coke-learn[sql]"
        ) from error
    try:
        database = dbapi.connect(str(path))
        with closing(database.cursor()) as cursor:
            cursor.execute("set transaction read only")
    except dbapi.Error as error:
        raise FileError(f"{parts.scheme}://{parts.hostname}: {error}") from error
    return database


def _errors(database: Any) -> Any:
    """What the driver raises."""
    return sqlite3.Error if isinstance(database, sqlite3.Connection) else database.Error


def _no_query(path: str | Path, cursor: Any) -> str:
    """The only table's rows; or which tables there are to ask for."""
    listed = "select name from sqlite_master where type in ('table', 'view') order by name"
    if ADDRESS in str(path):
        listed = (
            "select table_schema || '.' || table_name from information_schema.tables "
            "where table_schema not in ('pg_catalog', 'information_schema') order by 1"
        )
    cursor.execute(listed)
    names = [row[0] for row in cursor.fetchall()]
    raise DataError(
        f"{path} without a query: name one, such as --query 'select * from {(names or ['…'])[0]}'; "
        f"its tables are {', '.join(names[:20])}"
    )
