"""What sites compute alike from the same totals is computed once in a process that holds many.

The answer is shared, so it must not be written to. A `frozen` array is known by being the same one,
any other by its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
_KEPT = 8  # answers of one function


def alike(work: Callable[P, R], last: int = _KEPT) -> Callable[P, R]:
    """The same, but the last answers are kept; it must depend on its arguments alone."""
    kept = dict[Any, R]()

    @wraps(work)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        question: Any = tuple(map(_bits, args))
        if kwargs:
            question = question, _bits(sorted(kwargs.items()))
        known = kept.get(question)
        if known is not None:
            return known
        found = kept[question] = work(*args, **kwargs)
        if len(kept) > last:
            for old in list(kept)[:-last]:
                kept.pop(old, None)  # another thread may have been here
        return found

    return answer


def frozen(x: NDArray[Any]) -> NDArray[Any]:
    """A copy that nobody can write to; itself if it is one."""
    if not _is_frozen(x):
        x = x.copy()
        x.setflags(write=False)
    return x


def _is_frozen(x: NDArray[Any]) -> bool:
    return bool(x.flags.owndata and not x.flags.writeable)


class _Same(NamedTuple):
    """An array that is kept, so that no other has its number."""

    number: int
    array: NDArray[Any]

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.array is self.array


def _bits(x: Any) -> Any:
    if isinstance(x, bytes | int | float):
        return x
    if isinstance(x, np.ndarray):
        return _Same(id(x), x) if _is_frozen(x) else (x.shape, x.dtype.str, x.tobytes())
    if isinstance(x, tuple | list):
        return tuple(map(_bits, x))
    if is_dataclass(x):
        return tuple(_bits(getattr(x, field.name)) for field in fields(x))
    return x
