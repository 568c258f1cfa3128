"""A stream as named arrays and a few numbers, and back: all that must outlive a crash."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np

from coke.data.files import Arrays
from coke.errors import FileError
from coke.learning.basis import Basis
from coke.learning.resting import SiteStream
from coke.learning.streaming import KEPT
from coke.maths.algorithms.alarms import Errors
from coke.maths.algorithms.coke import State
from coke.maths.algorithms.hedge import Fast, Hedge
from coke.maths.algorithms.online import Clock, Linked
from coke.maths.features.whitening import Whitening
from coke.maths.losses.streamed import Batch, Streamed


class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a stream that is no array."""

    ticks: int
    age: int
    agreed: int
    rounds: int
    since: int
    w: float
    spread: float | None  # None: there is no basis yet
    linked: bool
    owed: int
    alarms: list[int]
    totals: list[bytes]


_TUPLES = {"statistics": Streamed, "_errors": Errors}
_MOVED = ("theta", "_level", "spent", "live")


def freeze(stream: SiteStream) -> tuple[Frozen, Arrays]:
    """All that a stream of one site has learnt."""
    s, linked, basis = stream, stream.linked, stream.basis
    arrays: Arrays = {name: getattr(s, name) for name in _MOVED}
    for name in _TUPLES:
        arrays |= _named(name, getattr(s, name))
    arrays |= _named("fast.hedge", s.fast.hedge) | {"fast.delta": s.fast.delta}
    for k, notices in enumerate(s.notices):
        arrays |= {f"notices{k}.heard": notices.heard, f"notices{k}.fresh": notices.fresh}
    if s.waiting[0]:
        parts = (np.concatenate(part) for part in zip(*s.waiting[0], strict=True))
        arrays |= _named("waiting", Batch(*parts))
    arrays["rows"] = np.array(list(s.rows[0])).reshape(-1, s.inputs)
    if basis is not None:
        arrays["C"] = basis.whitening.C
    if linked is not None:
        arrays |= _named("coke", linked.coke) | {"duals": linked.duals, "said": linked.said}
    meta = Frozen(
        ticks=s.ticks, age=s.age, agreed=s.agreed, rounds=s.rounds, since=s.clock.since,
        w=s.clock.w, spread=None if basis is None else basis.spread, linked=linked is not None,
        owed=s.owed, alarms=list(s.alarms), totals=list(s.totals),
    )  # fmt: skip
    return meta, arrays


def thaw(stream: SiteStream, meta: Frozen, arrays: Arrays) -> None:
    """Into a stream that has just begun; FileError where the two do not fit."""
    s, fresh = stream, freeze(stream)[1]
    odd = [
        name for name, a in fresh.items()
        if name not in arrays or (a.shape != arrays[name].shape and name != "rows")
    ]  # fmt: skip
    if odd:
        raise FileError(f"a stream's state without fitting {odd[:8]}: restore it from a backup")
    for name in _MOVED:
        setattr(s, name, arrays[name])
    for name, kind in _TUPLES.items():
        setattr(s, name, _tuple(name, kind, arrays))
    s.fast = Fast(arrays["fast.delta"], _tuple("fast.hedge", Hedge, arrays))
    for k, notices in enumerate(s.notices):
        heard, new = arrays[f"notices{k}.heard"], arrays[f"notices{k}.fresh"]
        s.notices[k] = notices._replace(heard=heard, fresh=new)
    s.waiting = [[_tuple("waiting", Batch, arrays)] if "waiting.y" in arrays else []]
    s.rows = [deque(arrays["rows"], maxlen=KEPT)]
    s.ticks, s.age, s.agreed, s.rounds = meta.ticks, meta.age, meta.agreed, meta.rounds
    s.clock, s.alarms, s.owed = Clock(meta.w, meta.since), list(meta.alarms), meta.owed
    s.totals = tuple(meta.totals)
    if meta.spread is not None:
        s.adopt(Basis(Whitening(arrays["C"]), meta.spread))
    if meta.linked:
        s.linked = Linked(_tuple("coke", State, arrays), arrays["duals"], arrays["said"])


def _named(name: str, parts: Any) -> Arrays:
    return {f"{name}.{field}": value for field, value in parts._asdict().items()}


def _tuple(name: str, kind: Any, arrays: Arrays) -> Any:
    return kind(**{field: arrays[f"{name}.{field}"] for field in kind._fields})
