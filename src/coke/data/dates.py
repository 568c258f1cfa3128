"""Text that is dates, in the forms that people write them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from coke.data.missing import computing
from coke.errors import DataError

_YEAR, _MONTH, _DAY = "(?P<y>[0-9]{4})", "(?P<m>[0-9]{1,2})", "(?P<d>[0-9]{1,2})"
_FORMS = {
    "YYYY-MM-DD": f"{_YEAR}-{_MONTH}-{_DAY}",
    "YYYY/MM/DD": f"{_YEAR}/{_MONTH}/{_DAY}",
    "DD.MM.YYYY": rf"{_DAY}\.{_MONTH}\.{_YEAR}",
    "DD/MM/YYYY": f"{_DAY}/{_MONTH}/{_YEAR}",
    "MM/DD/YYYY": f"{_MONTH}/{_DAY}/{_YEAR}",
}
_TIME = "(?P<t>[ T].*)?"
_ADVICE = "write all as YYYY-MM-DD, with HH:MM:SS after it, or leave the column out"


def moments(name: str, values: Any) -> Any:
    """Text that begins as a date does, as moments, all written alike; None of other text.

    Which of two numbers between slashes is the day, one above 12 says.
    """
    first = str(values.drop_null()[0])[:40]
    fit = {form: p + _TIME for form, p in _FORMS.items() if re.fullmatch(p + _TIME, first)}
    if not fit:
        return None
    read = {form: _parts(values, pattern) for form, pattern in fit.items()}
    begins = f"column {name!r} begins with the date {first!r}"
    other = values.filter(_strange(values, next(iter(read.values()))))
    if len(other):
        many = f"{len(other)} are written in another way, such as {str(other[0])[:40]!r}"
        raise DataError(f"{begins}, but {many}: {_ADVICE}")
    able = [form for form, parts in read.items() if _months(parts)]
    if len(read) > 1 and len(able) != 1:
        why = "no row says whether it is" if able else "not all rows are"
        raise DataError(f"{begins}, and {why} {' or '.join(read)}: {_ADVICE}")
    try:
        return _iso(read[(able or [*read])[0]]).cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise DataError(f"{begins}, but {error}: {_ADVICE}") from error


def _parts(values: Any, pattern: str) -> dict[str, Any]:
    """Year, month, day and time of each value; null where it is not written so."""
    pc = computing()
    found = pc.extract_regex(values, f"^{pattern}$")
    return {part: pc.struct_field(found, part) for part in "ymdt"}


def _strange(values: Any, parts: dict[str, Any]) -> Any:
    pc = computing()
    return pc.and_(pc.is_valid(values), pc.is_null(parts["y"]))


def _months(parts: dict[str, Any]) -> bool:
    """Whether all months can be some."""
    return bool(computing().max(parts["m"].cast(pa.int32())).as_py() <= 12)


def _iso(parts: dict[str, Any]) -> Any:
    """As YYYY-MM-DD HH:MM:SS."""
    pc = computing()
    month, day = (pc.utf8_lpad(parts[part], 2, "0") for part in "md")
    time = pc.replace_substring_regex(parts["t"], "^([ T])([0-9]:)", r"\10\2")  # 9:30
    line, nothing = (pa.scalar(text, time.type) for text in ("-", ""))  # long text has its own type
    date = pc.binary_join_element_wise(parts["y"], month, day, line)
    return pc.binary_join_element_wise(date, time, nothing)
