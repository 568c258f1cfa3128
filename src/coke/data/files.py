"""One file for named arrays and a JSON header: written whole or not at all, read with suspicion.

    magic (8) | header length (4, little endian) | header, JSON | arrays, raw | digest (32)

The digest, BLAKE2b over all before it, finds truncation and damage. It is no signature, so
nothing in the header is believed before it is checked; and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coke.data.learnt import learnt
from coke.data.lock import lock
from coke.errors import FileError, InputError

MAGIC = b"COKE\x00\x01\r\n"  # the \r\n shows a transfer that rewrote line ends
VERSION = 1
START = len(MAGIC) + 4  # of the header
DIGEST = 32
WIDTHS = {"<f8": 8, "<i8": 8, "|b1": 1}  # bytes an entry of the array takes, by its type
LONGEST = 1 << 24  # bytes of a header: far above any real one, and read in no time
AXES = 4
AGAIN = "the file was not written by coke, or by another release: write it again"

M = TypeVar("M")


class _ArrayHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array: its place in the file follows from those before it."""

    name: str
    dtype: str
    shape: list[int]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file is, and what it holds."""

    version: int
    kind: str  # "model", "checkpoint"
    meta: msgspec.Raw  # read by the one who knows its type
    arrays: list[_ArrayHeader]


Arrays = dict[str, NDArray[Any]]


def pack(kind: str, meta: Any, arrays: Arrays) -> bytes:
    """The bytes of a file: the same for the same content. `meta` is anything JSON can say."""
    whole = {name: np.ascontiguousarray(a, dtype=_plain(a)) for name, a in arrays.items()}
    entries = [_ArrayHeader(name, a.dtype.str, list(a.shape)) for name, a in whole.items()]
    header = _header(kind, meta, entries)
    body = b"".join(
        [MAGIC, len(header).to_bytes(4, "little"), header, *(a.tobytes() for a in whole.values())]
    )
    return body + _digest(body)


def _header(kind: str, meta: Any, entries: list[_ArrayHeader]) -> bytes:
    try:
        raw = msgspec.Raw(msgspec.json.encode(meta))
        header = msgspec.json.encode(_Header(VERSION, kind, raw, entries))
    except UnicodeEncodeError as error:
        raise InputError(f"a name in the {kind} cannot be written: {error}; rename it") from error
    if len(header) > LONGEST:
        raise InputError(
            f"the names in the {kind} take {len(header)} bytes: expected at most {LONGEST}; "
            "use shorter names of columns, classes and sites"
        )
    return header


def unpack(data: bytes, kind: str, meta: type[M]) -> tuple[M, Arrays]:
    """What the header says, as a `meta`, and the arrays of such bytes, or `FileError`."""
    _check_begin(data, kind)
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if len(data) < START + DIGEST or _digest(body) != digest:
        raise _altered(kind, "its digest does not match its content")
    end = _header_end(body, len(body), kind)
    header = _headed(body[START:end], kind)
    return _decoded(header.meta, meta, kind), _arrays(header.arrays, body, end, kind)


def read_packed(path: str | Path, kind: str, most: int) -> bytes:
    """All bytes of such a file of at most so many.

    One whose first bytes, size or header say that it is none is refused before memory is asked for.
    """
    try:
        with Path(path).open("rb") as file:
            size, begin = os.fstat(file.fileno()).st_size, file.read(START)
            _check_begin(begin, kind)
            if size > most:
                raise FileError(f"a {kind} file of {size} bytes: expected at most {most}; {AGAIN}")
            at = _header_end(begin, size - DIGEST, kind)
            begin += file.read(at - START)
            for entry in _headed(begin[START:], kind).arrays:
                at += _size(entry, size - DIGEST - at, kind)
            if at != size - DIGEST:
                raise _altered(kind, f"it has {size} bytes, and its header speaks of {at + DIGEST}")
            return begin + file.read(size - len(begin))
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot be read: {error}") from error


def _check_begin(data: bytes, kind: str) -> None:
    if not data.startswith(MAGIC):
        raise FileError(
            f"not a coke {kind} file: it does not begin as one; expected a file that coke wrote"
        )


def _altered(kind: str, how: str) -> FileError:
    advice = "copy it again from where it was written"
    return FileError(f"the {kind} file is truncated or altered: {how}; {advice}")


def _header_end(data: bytes, size: int, kind: str) -> int:
    """Where the header ends, in a file of so many bytes before the digest."""
    end = START + int.from_bytes(data[len(MAGIC) : START], "little")
    if end > min(size, START + LONGEST):
        raise FileError(
            f"the {kind} file's header claims {end - START} bytes of {size - START}: "
            f"expected at most {LONGEST}; {AGAIN}"
        )
    return end


def _headed(text: bytes, kind: str) -> _Header:
    header = _decoded(text, _Header, kind)
    if header.version != VERSION or header.kind != kind:
        raise FileError(
            f"a {header.kind!r} file of version {header.version}: expected {kind!r} of version "
            f"{VERSION}; use the coke release that wrote it"
        )
    return header


def _decoded(text: bytes | msgspec.Raw, wanted: type[M], kind: str) -> M:
    try:
        return msgspec.json.decode(text, type=learnt(wanted))
    # RecursionError: a thousand brackets, one inside the other.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"the {kind} file's header cannot be read: {error}; {AGAIN}") from error


def _arrays(entries: list[_ArrayHeader], body: bytes, at: int, kind: str) -> Arrays:
    found: Arrays = {}
    for entry in entries:
        size = _size(entry, len(body) - at, kind)
        if entry.name in found:
            raise FileError(f"the {kind} file has two arrays {entry.name!r}; {AGAIN}")
        flat = np.frombuffer(body, dtype=entry.dtype, count=prod(entry.shape), offset=at)
        found[entry.name] = flat.reshape(entry.shape).copy()
        at += size
    if at != len(body):
        raise FileError(
            f"the {kind} file has {len(body) - at} bytes that belong to no array; {AGAIN}"
        )
    return found


def _size(entry: _ArrayHeader, left: int, kind: str) -> int:
    """The bytes of an array, if so many can hold it."""
    if not _possible(entry, left):
        raise FileError(f"the {kind} file's array {entry.name!r} does not fit its content; {AGAIN}")
    return WIDTHS[entry.dtype] * prod(entry.shape)


def _possible(entry: _ArrayHeader, left: int) -> bool:
    """Whether so many bytes can hold the array; numbers are small before any are multiplied."""
    if entry.dtype not in WIDTHS or len(entry.shape) > AXES:
        return False
    if not all(0 <= n < 2**40 for n in entry.shape):
        return False
    # NumPy refuses (0, 10**12, 10**12), though it is empty: an axis of none counts as one here.
    axes = prod(max(n, 1) for n in entry.shape)
    return axes < 2**40 and WIDTHS[entry.dtype] * prod(entry.shape) <= left


def _plain(a: NDArray[Any]) -> str:
    return {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}[np.asarray(a).dtype.kind]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def write_file(path: str | Path, data: bytes, *, secret: bool = False) -> None:
    """Writes beside the place and renames: a crash leaves the old file or the new, never a part.

    What is secret only its owner can read, at every moment, whatever the umask.
    """
    atomically(path, lambda part: Path(part).write_bytes(data), mode=0o600 if secret else 0o666)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Of all who would write that file, one at a time; the system lets go when a process dies."""
    place = Path(path).with_name(f".{Path(path).name}.lock")
    try:
        file = place.open("ab")
    except OSError as error:
        raise FileError(f"{place}: cannot be written: {error}; see whose it is") from error
    with file:
        try:
            lock(file, wait=True)
        except OSError as error:
            raise FileError(
                f"{place}: cannot be locked: {error}; choose a disk that can"
            ) from error
        yield


def atomically(path: str | Path, write: Callable[[Path], object], *, mode: int = 0o666) -> None:
    """`write(part)`, flushed to disk, then renamed to `path`."""
    path = Path(path)
    part = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        # Not tempfile: its files are private (0600), and only the kernel applies the umask safely.
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path}: cannot be written: {error}; choose a folder you may write to"
        ) from error
    try:
        write(part)
        with part.open("r+b") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {error}; free space or another folder"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """The new name on disk too, so that it outlives a power cut; not every platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """A folder that can be written to, made where it is missing; or `FileError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # another rank may try at the same time
    except OSError as error:
        raise FileError(
            f"{folder}: not a folder to write to ({error.strerror}); choose another"
        ) from error


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written anew; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_file(path: str | Path) -> bytes:
    """All bytes of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
