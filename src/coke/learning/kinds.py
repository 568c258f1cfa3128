"""Which loss is meant: of numbers or of classes, as the target of a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from coke.errors import DataError, unknown
from coke.learning.reading import schema_of
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
        return True  # the synthetic problem's
    path = Path(data.file)
    if path.suffix == ".npy":
        return bool(np.load(data.targets[0], mmap_mode="r").dtype.kind in "fiu")
    schema = schema_of(data)
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
