"""How a run's file is read, as its settings say; and which of its columns they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from coke.data.formats import opener
from coke.data.reading import PLAINLY, Reading, files_in
from coke.data.tables import guarded
from coke.errors import FileError
from coke.settings.declaration import DataTable, Settings

S = TypeVar("S", bound=Settings)
LAST = "last"
Say = Callable[[str], None]


def reading_of(data: DataTable, say: Say = PLAINLY.say, numbers: str = "") -> Reading:
    """How the file is read; `say` is told in a line what was found out.

    `numbers` is why its inputs must be numbers, where they must.
    """
    form = (data.separator, data.decimal, data.encoding, data.header)
    return Reading(*form, tuple(data.missing_values), data.query, say, numbers)


def schema_of(data: DataTable) -> pa.Schema:
    """The columns of a file, or of the first in a folder."""
    path = Path(str(data.file))
    file = next(iter(files_in(path)), path) if path.is_dir() else str(data.file)
    return guarded(str(file), FileError, lambda: opener(file, 1, how=reading_of(data))().schema)


def with_target(settings: S) -> S:
    """With the name of the last column, beside the site's, where target = "last" and none is."""
    data = settings.data
    if data.file is None or LAST not in data.targets or data.file.endswith(".npy"):
        return settings
    names = [name for name in schema_of(data).names if name != data.site]
    if LAST in names or not names:
        return settings
    targets = [names[-1] if name == LAST else name for name in data.targets]
    data = msgspec.structs.replace(data, target=targets[0] if len(targets) == 1 else targets)
    return msgspec.structs.replace(settings, data=data)
