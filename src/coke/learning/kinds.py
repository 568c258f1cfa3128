"""What settings leave to the file: its form, its last column, the loss that its target asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from coke.data.formats import CHUNK, guarded, opener
from coke.data.kinds import distinct
from coke.data.reading import PLAINLY, Named, Reading, files_in
from coke.data.tables import plain
from coke.errors import ConfigError, DataError, FileError, unknown
from coke.learning.terms import Terms
from coke.maths.losses import NUMBERS, OF_CLASSES, losses_of
from coke.settings.declaration import AUTO, PUBLIC, DataTable, Settings
from coke.settings.reading import checked_again

S = TypeVar("S", bound=Settings)
LAST = "last"
_NAMES = 20  # classes that may all differ
USUAL = losses_of(NUMBERS)[0]
Say = Callable[[str], None]


def reading_of(settings: Settings, say: Say = PLAINLY.say) -> Reading:
    """How the file is read; `say` is told in a line what was found out."""
    data = settings.data
    form = (data.separator, data.decimal, data.encoding, data.header)
    missing, numbers = tuple(data.missing_values), why_numbers(settings)
    return Reading(*form, missing, data.query, say, numbers)


def why_numbers(settings: Settings) -> str:
    """Why inputs must be numbers without gaps; nothing where sites can agree on a coding."""
    reasons = {
        'privacy = "dp" (each level or mean of a column would be one more release)':
            settings.privacy == "dp",
        'scale = "public" (units are known before any row)': settings.data.scale == PUBLIC,
        'whitening = "sample" (a sample of numbers)': settings.whitening == "sample",
        f'scale = "{settings.data.scale}" with a given sigma (nothing is agreed on)':
            not Terms(settings, ()).tells,
    }  # fmt: skip
    return next((f"with {reason}" for reason, true in reasons.items() if true), "")


def schema_of(settings: Settings) -> pa.Schema:
    """The columns of a file, or of the first in a folder."""
    file, how = _files(settings.data)[0], reading_of(settings)
    return guarded(str(file), FileError, lambda: opener(file, 1, how=how)().schema)


def _files(data: DataTable) -> list[Path | str]:
    """The file, or those of a folder."""
    path = Path(str(data.file))
    if not path.is_dir():
        return [str(data.file)]
    files = files_in(path)
    if not files:
        raise DataError(f"{path}: 0 files of rows; expected one for every site")
    return [*files]


def with_target(settings: S) -> S:
    """With the name of the last column, beside the site's, where target = "last" and none is."""
    data = settings.data
    if data.file is None or LAST not in data.targets or data.file.endswith(".npy"):
        return settings
    names = [name for name in schema_of(settings).names if name not in (data.site, data.weight)]
    if LAST in names or not names:
        return settings
    targets = [names[-1] if name == LAST else name for name in data.targets]
    data = msgspec.structs.replace(data, target=targets[0] if len(targets) == 1 else targets)
    return msgspec.structs.replace(settings, data=data)


def with_kind(settings: S, say: Say = PLAINLY.say, *, alone: bool = False) -> S:
    """With a loss of numbers or of classes where loss = "auto", by what the target holds.

    Text and booleans are classes, and so are numbers of two whole values, which is said. A site
    that is `alone` cannot know the values elsewhere.
    """
    if settings.loss != AUTO:
        return settings
    numbers = _numbers(settings, say, alone)
    return checked_again(msgspec.structs.replace(settings, loss=USUAL if numbers else OF_CLASSES))


def _numbers(settings: Settings, say: Say, alone: bool) -> bool:
    data = settings.data
    if data.file is None:
        return data.example == "synthetic"
    if len(data.targets) > 1:
        return True
    if str(data.file).endswith(".npy"):
        return bool(np.load(data.targets[0], mmap_mode="r").dtype.kind in "fiu")
    name = data.targets[0]
    if not _is_numeric(_type(schema_of(settings), name)):
        _check_classes(settings, name)
        return False
    if settings.privacy == "dp":  # values are for nobody to look at
        return not settings.classes
    values = _few_values(settings, name)
    if len(values) == 1 and not alone:
        say(f"warning: the target {name!r} is {values.pop():g} in all rows: nothing to learn")
        return True
    few = 0 < len(values) <= 2 and all(value.is_integer() for value in values)
    said = " and ".join(f"{value:g}" for value in sorted(values))
    if few and alone:
        raise ConfigError(
            f"the target {name!r} is {said} here, and may be more at other sites: say at all sites "
            f'alike whether they are classes, loss = "{OF_CLASSES}", or numbers, loss = "{USUAL}"'
        )
    if few:
        say(f"the target {name!r} is {said}: taken as classes; for numbers --loss {USUAL}")
    elif not alone:
        say(f"the target {name!r} is taken as numbers; for classes --loss {OF_CLASSES}")
    return not few


def _check_classes(settings: Settings, name: str) -> None:
    """Refuses text that names hardly two rows alike: it is an id, or numbers with a word in it."""
    counts = Counter[Any]()
    for values in _values(settings, name):
        counts.update(plain(values).drop_null().to_pylist())
    rows, odd = counts.total(), [text for text in counts if not _is_number(text)]
    if len(counts) > max(_NAMES, rows / 2):
        numbers = len(odd) < len(counts) / 2
        such = f"{len(odd)} are no numbers, such as {odd[0]!r}: --missing-values leaves them out"
        raise DataError(
            f"the target {name!r} is text of {len(counts)} different values in {rows} rows: "
            f"expected classes or numbers; {such if numbers else 'name another column'}"
        )


def _is_number(text: Any) -> bool:
    try:
        return isfinite(float(text))
    except (TypeError, ValueError):
        return False


def _values(settings: Settings, name: str) -> Iterator[pa.Array]:
    """A column, some rows at a time."""
    how = reading_of(settings)
    for file in _files(settings.data):
        opened = guarded(str(file), FileError, opener(file, CHUNK, Named(target=name), how))
        for batch in opened.batches([name]):
            yield batch.column(name)


def _few_values(settings: Settings, name: str) -> set[float]:
    """The values of a column, up to the third."""
    found = set[float]()
    for part in _values(settings, name):
        there = np.from_dlpack(plain(part).cast(pa.float64(), safe=False).drop_null())
        found.update(value for value in np.unique(there)[:3].tolist() if isfinite(value))
        if len(found) > 2:
            return found
    return found


def _type(schema: pa.Schema, name: str) -> Any:
    """Of a column; of dictionaries, what they hold."""
    if name not in schema.names:
        alone = " The file has one column: --separator names what is between its values."
        raise DataError(unknown("column", name, schema.names) + alone * (len(schema.names) == 1))
    distinct(schema.names)
    kind = schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_numeric(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))
