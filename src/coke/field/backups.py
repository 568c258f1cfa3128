"""A folder of sites as one file, and back: whole or not at all, read with suspicion.

    a tar file: backup.json first, with the name, length and digest of every file; then the files

Files of sites: theirs, keys and rows that are in the folder included, so it is as secret as these
are. What belongs to a process is left out: locks, logs, the address of a page.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from coke import __version__
from coke.data.files import atomically
from coke.errors import FileError
from coke.field.lock import NAME, alone
from coke.settings.sites import read_site

LIST = "backup.json"
FORM = 1
LEFT_OUT = (NAME, "page.json", "log.jsonl", "log.jsonl.1", "errors.txt")
MOST_FILES = 100_000
LONGEST = 1 << 26  # bytes of the list
_CHUNK = 1 << 20


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file."""

    name: str  # below the folder, with slashes
    size: int
    digest: str
    mode: int


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, and who wrote them."""

    form: int
    coke: str
    files: list[_Entry]


def backup(folder: Path, sites: Sequence[Path], archive: Path) -> int:
    """All files of a folder of sites in one file; how many. No agent may be at work meanwhile."""
    if archive.exists():
        raise FileError(f"{archive}: is there already: choose another name")
    if archive.resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{archive}: inside what it is to hold; choose a place outside {folder}")
    with ExitStack() as held:
        for path in sites:
            state = Path(read_site(path).site.state)
            if state.exists():
                held.enter_context(alone(state))
        entries = [_entry(path, folder) for path in _files(folder)]
        listed = _List(FORM, __version__, entries)
        atomically(archive, lambda part: _write(part, folder, listed), mode=0o600)
    return len(entries)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in LEFT_OUT and not path.name.startswith("."):
            yield path


def _entry(path: Path, folder: Path) -> _Entry:
    try:
        with path.open("rb") as file:
            digest = _digest(file)
            status = os.fstat(file.fileno())
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    name = path.relative_to(folder).as_posix()
    return _Entry(name, status.st_size, digest, status.st_mode & 0o777)


def _digest(file: IO[bytes]) -> str:
    found = hashlib.blake2b(digest_size=32)
    while data := file.read(_CHUNK):
        found.update(data)
    return found.hexdigest()


def _write(part: Path, folder: Path, listed: _List) -> None:
    with (
        part.open("wb") as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        text = msgspec.json.encode(listed)
        head = tarfile.TarInfo(LIST)
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        for entry in listed.files:
            one = tarfile.TarInfo(entry.name)
            one.size, one.mode = entry.size, entry.mode
            with (folder / entry.name).open("rb") as source:
                tar.addfile(one, source)


def restore(archive: Path, folder: Path) -> int:
    """All files of such a backup in a new folder, or nothing; how many."""
    if folder.exists() and any(folder.iterdir()):
        raise FileError(f"{folder}: expected a new or empty folder, so that nothing is lost")
    part = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    try:
        part.mkdir(parents=True, mode=0o700)
        with tarfile.open(archive, "r:") as tar:
            listed = _listed(tar)
            for entry in listed.files:
                _take(tar, entry, part)
            if tar.next() is not None:
                raise FileError(f"{archive}: more files than it lists; {_AGAIN}")
        part.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        part.replace(folder)
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        raise FileError(f"{archive}: cannot be restored: {error}; {_AGAIN}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return len(listed.files)


_AGAIN = "take another copy of the backup"


def _listed(tar: tarfile.TarFile) -> _List:
    """What the backup says that it holds, if it can be believed."""
    head = tar.next()
    if head is None or head.name != LIST or not head.isreg() or head.size > LONGEST:
        raise FileError(f"{tar.name!s}: no backup of coke: it does not begin with {LIST}")
    source = tar.extractfile(head)
    assert source is not None  # it is a regular file
    try:
        found = msgspec.json.decode(source.read(), type=_List)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"{tar.name!s}: its list cannot be read: {error}; {_AGAIN}") from error
    if found.form != FORM:
        raise FileError(
            f"{tar.name!s}: a backup of form {found.form}, by coke {found.coke}: expected form "
            f"{FORM}; restore it with that release"
        )
    names = [entry.name for entry in found.files]
    if len(names) > MOST_FILES or len(set(names)) < len(names) or not all(map(_proper, names)):
        raise FileError(f"{tar.name!s}: its list names files that no backup has; {_AGAIN}")
    return found


def _proper(name: str) -> bool:
    """Whether a file of that name is below the folder, and called what it is called."""
    path = PurePosixPath(name)
    plain = name == path.as_posix() and not path.is_absolute() and "\0" not in name
    return plain and "\\" not in name and ".." not in path.parts and path.parts != ()


def _take(tar: tarfile.TarFile, entry: _Entry, folder: Path) -> None:
    """The next file, if it is the one that was listed."""
    found = tar.next()
    if found is None or not found.isreg() or (found.name, found.size) != (entry.name, entry.size):
        raise FileError(f"{tar.name!s}: {entry.name} is not where it should be; {_AGAIN}")
    source, path = tar.extractfile(found), folder / entry.name
    assert source is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, entry.mode & 0o777)
    digest = hashlib.blake2b(digest_size=32)
    with os.fdopen(number, "wb") as file:
        while data := source.read(_CHUNK):
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != entry.digest:
        raise FileError(f"{tar.name!s}: {entry.name} was altered; {_AGAIN}")
