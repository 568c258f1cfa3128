"""Getting a data set: checked, in one piece, with a word on how far the download is."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

from coke.data.files import atomically, make_folder, read_file
from coke.errors import FileError, InputError
from coke.studies.reproduce.uci import format_of, parse_raw

BLOCK = 1 << 16
LIMIT = 1 << 30  # bytes; no data set here is near it
TIMEOUT = 30.0  # seconds without a byte

Watch = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says


class _Fetched(NamedTuple):
    """What was downloaded, or read."""

    path: Path
    rows: int
    bytes: int
    sha256: str  # of UCI's file


def fetch(
    name: str,
    folder: Path,
    *,
    url: str | None = None,
    file: Path | None = None,
    sha256: str | None = None,
    watch: Watch = lambda done, total: None,
) -> _Fetched:
    """Downloads UCI's file, or reads `file`; checks it and writes `folder`/NAME.parquet, whole."""
    known = format_of(name)
    if url is not None and file is not None:
        raise InputError(f"url={url!r} and file={str(file)!r}: expected one; leave out the other")
    make_folder(folder)
    source = str(file or url or known.url)
    data = download(source, watch) if file is None else read_file(file)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256.lower():
        raise FileError(f"{source}: SHA-256 is {digest}, expected {sha256}; the file has changed")
    table = parse_raw(name, data)
    path = folder / f"{name}.parquet"
    atomically(path, lambda part: pyarrow.parquet.write_table(table, part))
    return _Fetched(path, table.num_rows, len(data), digest)


def download(url: str, watch: Watch) -> bytes:
    """All bytes at a URL, or `FileError` with what to do instead."""
    if not url.startswith(("https://", "http://")):
        raise FileError(f"{url}: expected an address that begins with https:// or http://")
    blocks, done = [], 0
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
            while done <= LIMIT and (block := answer.read(BLOCK)):
                blocks.append(block)
                done += len(block)
                watch(done, total)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise FileError(
            f"{url}: cannot be downloaded ({reason}); check the connection, or download it "
            "elsewhere and name the file with --file"
        ) from error
    if done > LIMIT:
        raise FileError(f"{url}: more than {LIMIT} bytes; this is not the data set")
    if total is not None and done != total:
        raise FileError(f"{url}: {done} of {total} bytes came; try again")
    return b"".join(blocks)
