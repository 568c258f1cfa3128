"""One file for named arrays and a JSON header: written whole or not at all, read with suspicion.

    magic (8) | header length (4, little endian) | header, JSON | arrays, raw | digest (32)

The digest, BLAKE2b over all before it, finds truncation and damage. It is no signature, so
nothing in the header is believed before it is checked; and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coke.errors import FileError

MAGIC = b"COKE\x00\x01\r\n"  # the \r\n shows a transfer that rewrote line ends
VERSION = 1
DIGEST = 32
DTYPES = ("<f8", "<i8", "|b1")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array: its place in the file follows from those before it."""

    name: str
    dtype: str
    shape: list[int]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file is, and what it holds."""

    version: int
    kind: str  # "model", "checkpoint"
    meta: dict[str, Any]
    arrays: list[Entry]


Arrays = dict[str, NDArray[Any]]


def pack(kind: str, meta: dict[str, Any], arrays: Arrays) -> bytes:
    """The bytes of a file: the same for the same content."""
    whole = {name: np.ascontiguousarray(a, dtype=_plain(a)) for name, a in arrays.items()}
    entries = [Entry(name, a.dtype.str, list(a.shape)) for name, a in whole.items()]
    header = msgspec.json.encode(Header(VERSION, kind, meta, entries))
    body = b"".join(
        [MAGIC, len(header).to_bytes(4, "little"), header, *(a.tobytes() for a in whole.values())]
    )
    return body + _digest(body)


def unpack(data: bytes, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of such bytes, or `FileError`."""
    if not data.startswith(MAGIC):
        raise FileError(f"not a coke {kind} file: it does not begin as one")
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if len(data) < len(MAGIC) + 4 + DIGEST or _digest(body) != digest:
        raise FileError(
            f"the {kind} file is truncated or altered: its digest does not match its content; "
            "copy it again from where it was written"
        )
    start = len(MAGIC) + 4
    end = start + int.from_bytes(body[len(MAGIC) : start], "little")
    try:
        header = msgspec.json.decode(body[start:end], type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"the {kind} file's header cannot be read: {error}") from error
    if header.version != VERSION or header.kind != kind:
        raise FileError(
            f"a {header.kind!r} file of version {header.version}: expected {kind!r} of version "
            f"{VERSION}; use the coke release that wrote it"
        )
    return header.meta, _arrays(header.arrays, body, end, kind)


def _arrays(entries: list[Entry], body: bytes, at: int, kind: str) -> Arrays:
    found: Arrays = {}
    for entry in entries:
        size = 8 * prod(entry.shape) if entry.dtype != "|b1" else prod(entry.shape)
        good = entry.dtype in DTYPES and all(0 <= n < 2**40 for n in entry.shape)
        if not good or entry.name in found or at + size > len(body):
            raise FileError(f"the {kind} file's array {entry.name!r} does not fit its content")
        flat = np.frombuffer(body, dtype=entry.dtype, count=prod(entry.shape), offset=at)
        found[entry.name] = flat.reshape(entry.shape).copy()
        at += size
    if at != len(body):
        raise FileError(f"the {kind} file has {len(body) - at} bytes that belong to no array")
    return found


def _plain(a: NDArray[Any]) -> str:
    return {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}[np.asarray(a).dtype.kind]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def write_file(path: str | Path, data: bytes) -> None:
    """Writes beside the place and renames: a crash leaves the old file or the new, never a part."""
    atomically(path, lambda part: Path(part).write_bytes(data))


def atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """`write(part)`, flushed to disk, then renamed to `path`."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {error}; choose a folder you may write to"
        ) from error
    part = Path(name)
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {error}; free space or another folder"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def read_file(path: str | Path) -> bytes:
    """All bytes of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
