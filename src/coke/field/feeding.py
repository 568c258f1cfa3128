"""Where a site's rows come from: a text file that grows, a folder of drops, a pipe, a Zenoh key.

A feed gives what has come since an offset, as tables, and the offset after them; it keeps nothing.
Whoever asks writes rows and offset to disk in one piece, so no row is taken twice and none is lost,
but for what a pipe or a key had delivered and nobody had written down yet.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv

from coke.data.reading import READABLE
from coke.data.tables import read_table
from coke.errors import ConfigError, DataError, FileError
from coke.field.carriers.base import Event

Offset = dict[str, Any]
PIPE, ZENOH = "-", "zenoh://"
TEXT = (".csv", ".tsv", ".txt")
_CHUNK = 1 << 20  # bytes read at a time
_LINES = 10_000  # of a pipe or key, held before they are asked for


class Some(NamedTuple):
    """What has come."""

    table: pa.Table | None  # None: nothing
    offset: Offset  # after it
    news: tuple[Event, ...] = ()


class Inflow(Protocol):
    """A source of rows."""

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        ...

    def read(self, offset: Offset) -> Some:
        """What has come since; never waits."""
        ...


def open_inflow(file: str, separator: str = "auto", decimal: str = "auto") -> Inflow:
    """For the data.file of a stream."""
    point = "." if decimal == "auto" else decimal
    if Path(file).name == PIPE:
        return _Pipe(sys.stdin.buffer, separator, point)
    if ZENOH in file:
        return _Key(file[file.index(ZENOH) :])
    if Path(file).suffix.lower() in TEXT:
        return _Growing(Path(file), separator, point)
    if Path(file).suffix.lower() in READABLE:
        raise ConfigError(
            f"{file}: a file of this kind does not grow; put files into a folder and name that, or "
            f"follow a text file ({', '.join(TEXT)}), {PIPE} for standard input, or {ZENOH}…"
        )
    return _Drops(Path(file))


def _parsed(header: bytes, lines: bytes, separator: str, decimal: str) -> pa.Table:
    """Rows of text below a header."""
    first = header.decode("utf-8-sig", "replace")
    found = max(",;\t|", key=first.count) if separator == "auto" else separator
    found = {"tab": "\t"}.get(found, found)
    try:
        return pa.csv.read_csv(
            io.BytesIO(first.encode() + lines),
            parse_options=pa.csv.ParseOptions(delimiter=found),
            convert_options=pa.csv.ConvertOptions(decimal_point=decimal, strings_can_be_null=True),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"rows that cannot be read: {error}; mend or remove the line") from error


class _Growing:
    """A text file to which lines are added; replaced or cut off, it is read from its beginning."""

    ended = False

    def __init__(self, path: Path, separator: str, decimal: str):
        self._path, self._form = path, (separator, decimal)

    def read(self, offset: Offset) -> Some:
        try:
            with self._path.open("rb") as file:
                return self._read(file, offset)
        except FileNotFoundError:
            return Some(None, offset)  # not yet, or between two
        except OSError as error:
            raise FileError(f"{self._path}: cannot be read: {error}") from error

    def _read(self, file: Any, offset: Offset) -> Some:
        at, about, news = int(offset.get("at", 0)), os.fstat(file.fileno()), tuple[Event, ...]()
        header, same = file.readline(), offset.get("file", about.st_ino) == about.st_ino
        if not header.endswith(b"\n"):
            return Some(None, offset)
        if at and (not same or about.st_size < at):
            why = "was replaced" if not same else "is shorter than before"
            news, at = (Event("rotated", self._path.name, f"{why}: read from its beginning"),), 0
        file.seek(max(at, len(header)))
        lines = file.read(_CHUNK)
        lines = lines[: lines.rfind(b"\n") + 1]  # what has no end is still being written
        after = {"file": about.st_ino, "at": max(at, len(header)) + len(lines)}
        if not lines.strip():
            return Some(None, after, news)
        return Some(_parsed(header, lines, *self._form), after, news)


class _Drops:
    """A folder into which files are put, each whole: Parquet, text or any other table, by name."""

    ended = False

    def __init__(self, path: Path):
        self._path = path
        self._sizes: dict[str, tuple[int, int]] = {}

    def read(self, offset: Offset) -> Some:
        done = set(offset.get("done", ()))
        try:
            names = sorted(p.name for p in self._path.iterdir() if p.is_file())
        except FileNotFoundError:
            return Some(None, offset)
        new = [n for n in names if n not in done and _whole(n)]
        for name in new:
            about = (self._path / name).stat()
            size, self._sizes[name] = self._sizes.get(name), (about.st_size, about.st_mtime_ns)
            if size != self._sizes[name]:
                return Some(None, offset)  # still being written, perhaps: looked at again
            del self._sizes[name]
            kept = sorted((done & set(names)) | {name})  # what is gone cannot come again
            return Some(read_table(self._path / name), {"done": kept})
        return Some(None, offset)


def _whole(name: str) -> bool:
    """Whether a file is a table that nobody says is being written."""
    return not name.startswith((".", "_")) and Path(name).suffix.lower() in READABLE


class _Lines:
    """What a thread has taken in and nobody has asked for yet."""

    def __init__(self) -> None:
        self.held: deque[bytes] = deque()
        self._room = threading.Semaphore(_LINES)
        self.ended = False

    def put(self, line: bytes) -> None:
        self._room.acquire()
        self.held.append(line)

    def taken(self) -> list[bytes]:
        found = []
        while self.held:
            found.append(self.held.popleft())
            self._room.release()
        return found


class _Pipe:
    """Lines of text, the first of which names the columns."""

    def __init__(self, file: Any, separator: str, decimal: str):
        self._form, self._lines, self._header = (separator, decimal), _Lines(), b""
        threading.Thread(target=self._follow, args=(file,), daemon=True).start()

    def _follow(self, file: Any) -> None:
        for line in file:
            self._lines.put(line if line.endswith(b"\n") else line + b"\n")
        self._lines.ended = True

    @property
    def ended(self) -> bool:
        return self._lines.ended and not self._lines.held

    def read(self, offset: Offset) -> Some:
        lines = self._lines.taken()
        if not self._header and lines:
            self._header, *lines = lines
        if not lines:
            return Some(None, offset)
        return Some(_parsed(self._header, b"".join(lines), *self._form), offset)


class _Key:
    """Rows that somebody puts on a Zenoh key, each as a JSON object: zenoh://HOST:PORT/KEY."""

    ended = False

    def __init__(self, address: str):
        where, _, key = address.removeprefix(ZENOH).partition("/")
        if not (where and key):
            raise ConfigError(f"{address!r}: expected {ZENOH}HOST:PORT/KEY")
        self._key, self._lines, self._session = key, _Lines(), _opened(where)
        self._ear = self._session.declare_subscriber(key, self._heard)
        atexit.register(self.close)  # a thread inside zenoh when Python ends aborts the process

    def _heard(self, sample: Any) -> None:
        self._lines.put(bytes(sample.payload))

    def close(self) -> None:
        """Nothing more will come."""
        atexit.unregister(self.close)
        self._session.close()

    def read(self, offset: Offset) -> Some:
        rows, lines = [], self._lines.taken()
        for line in lines:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                rows.append(
                    msgspec.json.decode(line, type=dict[str, float | int | str | bool | None])
                )
        odd = len(lines) - len(rows)
        news = (Event("odd", self._key, f"{odd} messages were no JSON object: lost"),) * (odd > 0)
        if not rows:
            return Some(None, offset, news)
        try:
            return Some(pa.Table.from_pylist(rows), offset, news)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"rows that do not fit together: {error}; mend their sender") from error


def _opened(where: str) -> Any:
    import importlib

    try:
        zenoh: Any = importlib.import_module("zenoh")
    except ImportError as error:
        raise ConfigError(
            f"a Zenoh key needs zenoh: pip install 'coke-learn[agent]' ({error})"
        ) from error
    config = zenoh.Config()
    for path, value in (
        ("mode", '"client"'), ("connect/endpoints", msgspec.json.encode([f"tcp/{where}"]).decode()),
        ("scouting/multicast/enabled", "false"),
    ):  # fmt: skip
        config.insert_json5(path, value)
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise ConfigError(
            f"{ZENOH}{where}: no router there: {str(error).split(' at /')[0]}"
        ) from error
