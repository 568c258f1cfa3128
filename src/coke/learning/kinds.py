"""What settings leave to the file: its form, its last column, the loss that its target asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from coke.data.formats import guarded, opener
from coke.data.reading import PLAINLY, Reading, files_in
from coke.errors import DataError, FileError, unknown
from coke.learning.public import why_numbers
from coke.maths.losses import NUMBERS, losses_of
from coke.settings.declaration import AUTO, DataTable, Settings

S = TypeVar("S", bound=Settings)
LAST = "last"
Say = Callable[[str], None]


def reading_of(settings: Settings, say: Say = PLAINLY.say) -> Reading:
    """How the file is read; `say` is told in a line what was found out."""
    data = settings.data
    form = (data.separator, data.decimal, data.encoding, data.header)
    missing, numbers = tuple(data.missing_values), why_numbers(settings)
    return Reading(*form, missing, data.query, say, numbers)


def schema_of(settings: Settings) -> pa.Schema:
    """The columns of a file, or of the first in a folder."""
    file, how = _files(settings.data)[0], reading_of(settings)
    return guarded(str(file), FileError, lambda: opener(file, 1, how=how)().schema)


def _files(data: DataTable) -> list[Path | str]:
    """The file, or those of a folder."""
    path = Path(str(data.file))
    return [*files_in(path)] or [path] if path.is_dir() else [str(data.file)]


def with_target(settings: S) -> S:
    """With the name of the last column, beside the site's, where target = "last" and none is."""
    data = settings.data
    if data.file is None or LAST not in data.targets or data.file.endswith(".npy"):
        return settings
    names = [name for name in schema_of(settings).names if name != data.site]
    if LAST in names or not names:
        return settings
    targets = [names[-1] if name == LAST else name for name in data.targets]
    data = msgspec.structs.replace(data, target=targets[0] if len(targets) == 1 else targets)
    return msgspec.structs.replace(settings, data=data)


def with_kind(settings: S) -> S:
    """With the usual loss of numbers, where loss = "auto" and the target is numbers.

    Text and booleans are classes: which loss of theirs it is, the sites find out together.
    """
    if settings.loss != AUTO or not _numbers(settings):
        return settings
    return msgspec.structs.replace(settings, loss=losses_of(NUMBERS)[0])


def _numbers(settings: Settings) -> bool:
    data = settings.data
    if data.file is None:
        return True  # the synthetic problem's
    path = Path(data.file)
    if path.suffix == ".npy":
        return bool(np.load(data.targets[0], mmap_mode="r").dtype.kind in "fiu")
    schema = schema_of(settings)
    return all(_is_numeric(_type(schema, name)) for name in data.targets)


def _type(schema: pa.Schema, name: str) -> Any:
    """Of a column; of dictionaries, what they hold."""
    if name not in schema.names:
        raise DataError(unknown("column", name, schema.names))
    kind = schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_numeric(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))
