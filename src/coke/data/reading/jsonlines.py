"""JSON lines: an object a row, its keys the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.json

from coke.data.reading import Named, Opened, Reading
from coke.data.reading.stream import LONGEST, unpacked
from coke.errors import DataError

BLOCK = 1 << 23  # bytes at a time


def table(path: Path, how: Reading) -> pa.Table:
    """All rows; a key that a row lacks is missing there."""
    with unpacked(path) as file:
        return pa.json.read_json(file, pa.json.ReadOptions(use_threads=False, block_size=BLOCK))


def opened(path: Path, chunk: int, named: Named, how: Reading) -> Opened:
    """A block of lines at a time; types are those of the first block."""
    with unpacked(path) as file:
        found = _read(next(_blocks(file), b""), None).schema
    for j, field in enumerate(found):  # what looks whole or empty may be a fraction later
        if pa.types.is_integer(field.type) or pa.types.is_null(field.type):
            wide = field if field.name in named else field.with_type(pa.float64())
            found = found.set(j, wide)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with unpacked(path) as file:
            for block in _blocks(file):
                yield from _read(block, found).select(list(names)).to_batches()

    return Opened(found, None, batches)


def _read(block: bytes, schema: pa.Schema | None) -> pa.Table:
    parse = pa.json.ParseOptions(explicit_schema=schema)
    return pa.json.read_json(
        BytesIO(block), pa.json.ReadOptions(use_threads=False, block_size=LONGEST), parse
    )


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Blocks that end where lines do."""
    kept = b""
    while some := file.read(BLOCK):
        kept += some
        end = kept.rfind(b"\n") + 1
        if not end and len(kept) > LONGEST:
            raise DataError(f"a line of more than {LONGEST} bytes: expected a line for every row")
        if kept[:end].strip():
            yield kept[:end]
        kept = kept[end:]
    if kept.strip():
        yield kept
