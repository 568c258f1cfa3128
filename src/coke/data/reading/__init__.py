"""Files into Arrow tables: text in any usual form, Excel, JSON lines, Arrow files, databases.

Parquet, the plain way, needs nothing of this but the types (`coke.data.tables`, `.formats`). A
form is a module with `table`, all rows at once, and `opened`, a batch at a time; it is imported
once a file needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

AUTO = "auto"
ADDRESS = "://"  # in what is a database's address, not a path
MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "-")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
FORMS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".data", ".dat", ".test"), "text"),
    **dict.fromkeys((".arrow", ".feather"), "ipc"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonlines"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "sql"),
    ".xlsx": "excel",
}
READABLE = (".parquet", *FORMS)


def _nobody(line: str) -> None:
    """Hears it."""


class Reading(NamedTuple):
    """How a file is read; "auto" is found out from its beginning."""

    separator: str = AUTO  # one character, or "blanks" for runs of them
    decimal: str = AUTO  # "." or ","
    encoding: str = AUTO
    header: str = AUTO  # "yes" or "no"
    missing: tuple[str, ...] = MISSING  # what stands for no value
    query: str | None = None  # of a database
    say: Callable[[str], None] = _nobody  # is told in a line what was found out
    numbers: str = ""  # why inputs must be numbers without gaps, where they must


PLAINLY = Reading()
Batches = Callable[[Sequence[str]], Iterator["pa.RecordBatch"]]
"""Names of columns ↦ their rows, in order."""


class Opened(NamedTuple):
    """What is known of a table before its rows are read."""

    schema: pa.Schema
    rows: int | None
    batches: Batches
    only: Callable[[Collection[str]], tuple[int, Batches]] | None = None
    """Names of sites ↦ how many rows are left, and they, without most of the other sites'."""


class Named(NamedTuple):
    """Columns whose values are names, whatever they look like."""

    site: str | None = None
    target: str | None = None  # where it holds classes
    beside: tuple[str, ...] = ()  # carried along as they stand


NOBODY = Named()


def is_database(file: str | Path) -> bool:
    """Whether rows are asked for by a query."""
    return _form(file) == "sql"


def form_of(path: str | Path) -> Any:
    """The module that reads such a file; what has another ending is taken for text."""
    return import_module(f"coke.data.reading.{_form(path)}")


def _form(path: str | Path) -> str:
    ending = _unpacked(Path(path)).suffix.lower()
    return "sql" if ADDRESS in str(path) else FORMS.get(ending, "text")


def label_of(path: Path) -> str:
    """A site's name: its file's without the endings."""
    return _unpacked(path).stem


def files_in(folder: Path) -> list[Path]:
    """The files that hold rows, by name."""
    files = (file for file in folder.iterdir() if not file.name.startswith("."))
    return sorted(file for file in files if _unpacked(file).suffix.lower() in READABLE)


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in PACKED else path
