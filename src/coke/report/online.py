"""What a stream came to: numbers for machines, a table for people, a page that is left behind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coke.data.split import Index
from coke.learning.online import Replay
from coke.learning.prequential import Prequential
from coke.learning.verdict import Ended
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.report.chart import Panel, Size, drawn
from coke.report.shell import figure, figures, folded, note, page, section
from coke.report.tables import html_grid

_DAY = 86400.0  # seconds
_POINTS = 300  # of a curve
_CAPTION = (
    "Errors of rows that were predicted before they were learnt from, {what}, averaged over a "
    "fiftieth of the stream; dots are alarms, at which all sites started again. Below: bytes sent."
)


class Spans(NamedTuple):
    """Mean errors over parts of a stream."""

    ours: float
    last: float  # of each site's last value

    @classmethod
    def of(cls, told: Prequential) -> Spans:
        """Of these ticks."""
        return cls(told.mean(), told.mean("last"))


def online_document(online: Replay, ended: Ended | None) -> dict[str, Any]:
    """For machines; at every process alike."""
    feed, stream = online.feed, online.feed.stream
    told = Prequential(feed.predicted)
    half = Prequential(told[len(told) // 2 :])
    spent = Ledger.of(stream.ready.engine.everyones(stream.spent))
    counts, rows = feed.arrivals.counts, max(feed.arrivals.counts.taken, 1)
    return {
        "agents": stream.near.N,
        "edges": stream.ready.graph.number_of_edges(),
        "rows": counts.taken,
        "ticks": len(told),
        "error": "mse" if not len(stream.ready.agreement.classes) else "wrong",
        "prequential": Spans.of(told)._asdict() | {"second_half": Spans.of(half)._asdict()},
        "alarms": [online.clock.when(tick) for tick in feed.alarms],
        "arrivals": counts._asdict(),
        "kernels": dict(feed.model().kernels) or None,
        "rounds": stream.rounds,
        **spent._asdict(),
        "bytes_per_1000_rows": 1000.0 * spent.bytes / rows,
        "bytes_per_day": _a_day(online, told, spent.bytes),
        "finished": None if ended is None else ended.proven(),
    }


def _a_day(online: Replay, told: Prequential, size: int) -> float | None:
    """Of the stream's own time; None where times are no dates."""
    if not (online.clock.dates and told):
        return None
    days = (told[-1].tick - told[0].tick + 1) * online.clock.length / _DAY
    return size / max(days, 1.0)


def online_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What people want to see, line by line."""
    said, odd, day = document["prequential"], dict(document["arrivals"]), document["bytes_per_day"]
    taken, name = odd.pop("taken"), "squared error" if document["error"] == "mse" else "wrong"
    half, alarms = said["second_half"], document["alarms"]
    lines = [
        (f"{name} of a row", f"{said['ours']:.4g}"),
        ("… in the second half", f"{half['ours']:.4g}"),
        ("of the last value", f"{said['last']:.4g}"),
        ("… in the second half", f"{half['last']:.4g}"),
        ("alarms", ", ".join(map(str, alarms[:8])) + " …" * (len(alarms) > 8) or "none"),
        ("rows", f"{taken} learnt from" + "".join(f", {n} {k}" for k, n in odd.items() if n)),
        ("rounds", str(document["rounds"])),
        ("bytes", f"{document['bytes']}, {document['bytes_per_1000_rows']:.0f} per 1000 rows"),
        ("wire bytes", str(document["wire_bytes"])),
    ]
    weights = document["kernels"] or {}
    said = [f"{kernel} {v:.3g}" for kernel, v in sorted(weights.items(), key=lambda one: -one[1])]
    lines += [("weights of kernels", ", ".join(said))] if said else []
    lines += [] if day is None else [("bytes a day", f"{day:.0f}")]
    ended = document["finished"]
    return lines + ([] if ended is None else [("proven", str(ended["text"]))])


def online_page(document: dict[str, Any], online: Replay, settings: str) -> str:
    """A page that needs no other file."""
    rows = [[*row] for row in online_rows(document)]
    what = "squared" if document["error"] == "mse" else "share of wrong classes"
    picture = drawn(_panels(online), _CAPTION.format(what=what), Size())
    return page(
        f"A stream on {document['agents']} sites",
        figures([figure(picture, _CAPTION.format(what=what))]),
        section(
            "What came out, and what it cost",
            html_grid(["", ""], rows),
        ),
        note(
            "late: after its tick had gone by, counted by its own; too_late, ahead: a wrong clock, "
            "left out; twice: the same site, tick and numbers, left out; gaps: NaN, left out."
        ),
        section("Settings", folded("all keys, as JSON", settings)),
    )


def _panels(online: Replay) -> list[Panel]:
    told, when = Prequential(online.feed.predicted), online.clock.when
    columns = told.columns()
    ticks, rows = columns["tick"], columns["rows"].astype(np.float64)
    wide = max(1, len(ticks) // 50)
    some = np.unique(np.linspace(0, len(ticks) - 1, _POINTS).astype(np.int64))
    curves = {
        name: _points(ticks, _running(columns[key], rows, wide), some)
        for name, key in (("ours", "loss"), ("last value", "last"))
    }
    marked = {float(ticks[some[np.abs(ticks[some] - at).argmin()]]) for at in online.feed.alarms}

    def along(tick: float) -> str:
        return str(when(int(tick)))

    sent = {"": _points(ticks, columns["bytes"].astype(np.float64), some)}
    return [
        Panel("error of a row", curves, frozenset(marked), log=True, along=along),
        Panel("bytes", sent, along=along),
    ]


def _running(values: Array, rows: Array, wide: int) -> Array:
    """Means of a row over so many ticks."""
    paid, seen = (np.cumsum(np.r_[np.zeros(1), x]) for x in (values, rows))
    first = np.maximum(np.arange(1, len(paid)) - wide, 0)
    return np.asarray((paid[1:] - paid[first]) / np.maximum(seen[1:] - seen[first], 1.0))


def _points(ticks: Array, values: Array, some: Index) -> list[tuple[float, float]]:
    return [(float(ticks[i]), float(values[i])) for i in some.tolist()]
