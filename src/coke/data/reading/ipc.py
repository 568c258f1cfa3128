"""Arrow's own files, of one batch after another: .arrow and .feather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from coke.data.reading import NOBODY, Named, Opened, Reading


def table(path: Path, how: Reading) -> pa.Table:
    """All rows."""
    schema, _, batches, _ = opened(path, 0, NOBODY, how)
    return pa.Table.from_batches(batches(schema.names), schema)


def opened(path: Path, chunk: int, named: Named, how: Reading) -> Opened:
    """A batch at a time, as they were written."""

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as rows:
            for i in range(rows.num_record_batches):
                batch = rows.get_batch(i)
                batch.validate(full=True)  # Arrow believes the offsets in this format otherwise
                yield batch.select(list(names))

    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as head:
        return Opened(head.schema, None, batches)
