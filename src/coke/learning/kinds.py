"""Which loss is meant: of numbers or of classes, as the target of a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from coke.data.formats import opener
from coke.errors import DataError
from coke.maths.losses import NUMBERS, losses_of
from coke.settings.declaration import AUTO, Settings

S = TypeVar("S", bound=Settings)


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
        return data.example == "synthetic"
    path = Path(data.file)
    if path.suffix == ".npy":
        return bool(np.load(data.targets[0], mmap_mode="r").dtype.kind in "fiu")
    if path.is_dir():
        path = next((file for file in sorted(path.iterdir()) if file.is_file()), path)
    return all(_is_numeric(_type(path, name)) for name in data.targets)


def _type(path: Path, name: str) -> Any:
    """Of a column; of dictionaries, what they hold."""
    schema = opener(path, 1)().schema
    if name not in schema.names:
        raise DataError(f"{path} has no column {name!r}: expected one of {schema.names[:20]}")
    kind = schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_numeric(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))
