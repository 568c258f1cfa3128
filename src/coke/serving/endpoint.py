"""Predictions of a model on request, by the server that pages have.

    POST /TOKEN/predict   rows as JSON or CSV ↦ predictions as the same, or as Accept says;
                          ?interval=0.9 for low and high, ?proba=true for class probabilities
    GET  /TOKEN/model     what the model needs and gives, and how much a request may hold
    GET  /TOKEN/metrics   requests, rows and seconds in Prometheus' text form
    GET  /health          without the token: whether it answers

The token may as well be in a header, Authorization: Bearer TOKEN.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
import pyarrow as pa

from coke import __version__
from coke.errors import CokeError, ConfigError, DataError
from coke.learning.labels import plain_labels
from coke.learning.model import Model
from coke.learning.predicting import Asked, predicted_columns, strange_values
from coke.maths.losses import LOSSES
from coke.page.access import LOOPBACK, Access
from coke.page.http import JSON, Door, Reply, Request, refused
from coke.page.live import settled
from coke.page.metrics import Family, exposed
from coke.page.server import Bounds, Server
from coke.serving.bodies import as_csv, as_json, rows_in_csv, rows_in_json
from coke.talk.names import readable
from coke.threads import OneThread

CSV = "text/csv"
PREDICT, HEALTH = "predict", "health"
BODY = 4 << 20  # bytes of a request's
FILE = "serve.json"
_BOUNDS = Bounds(connections=64, streams=0, patience=10.0, penalty=0.2)
_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")


class Serving(NamedTuple):
    """Where a model is served, and how much of it at once."""

    port: int = 0  # any free one
    folder: Path | None = None  # where port and token are kept for the next time
    rows: int = 10_000  # of a request
    rate: float = 500.0  # requests a second in the long run
    address: str = LOOPBACK
    names: tuple[str, ...] = ()  # by which it may be called beside this machine's

    def checked(self) -> Serving:
        """Itself, or what is wrong with it."""
        if not 0 < self.rate < float("inf"):
            raise ConfigError(f"rate={self.rate}: expected a positive number; try 500")
        bad = [name for name in self.names if not _NAME.fullmatch(name)]
        if bad:
            raise ConfigError(f"name={bad[0]!r}: expected a host such as api.example or x:8443")
        if self.folder is not None and not self.folder.is_dir():
            raise ConfigError(f"access={self.folder}: expected a folder that is there")
        return self


@contextmanager
def served(model: Model, how: Serving) -> Iterator[Access]:
    """Where the model is served until the block ends."""
    how = how.checked()
    names = frozenset(name.lower() for name in how.names)
    bounds = _BOUNDS._replace(rate=how.rate, burst=max(1, int(2 * how.rate)))
    endpoint = Answering(model, how.rows)

    def serve(token: str, at: tuple[str, int]) -> Server:
        door = Door(token, names, frozenset({PREDICT}), frozenset({HEALTH}), BODY)
        return Server(door, endpoint, bounds, at)

    file = None if how.folder is None else how.folder / FILE
    server, access = settled(file, (how.address, how.port), serve)
    with server:
        yield access


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    interval: float | None = None
    proba: bool = False


class Answering:
    """What a model answers; everything in the server's thread."""

    def __init__(self, model: Model, rows: int):
        self.model, self._rows, self._one = model, rows, OneThread()
        self.counts: Counter[str] = Counter()
        self._seconds = 0.0

    def __call__(self, request: Request) -> Reply | None:
        """To whoever was let in."""
        path, _, query = request.path.partition("?")
        if path == PREDICT:
            return self._timed(request, query)
        if path == "model":
            return Reply(msgspec.json.encode(self.about()), JSON)
        if path == "metrics":
            return Reply(
                exposed(self._families()).encode(), "text/plain; version=0.0.4; charset=utf-8"
            )
        return Reply(b"well\n") if path == HEALTH else None

    def about(self) -> dict[str, Any]:
        """What it needs and gives."""
        model = self.model
        kinds = ["number"] * len(model.columns)
        if model.coding is not None:
            kinds = [code.what for code in model.coding.codes]
        return {
            "columns": dict(zip(model.columns, kinds, strict=True)),
            "targets": list(model.targets),
            "loss": model.loss,
            "classes": plain_labels(model.classes),
            "interval": model.closed.misses is not None,
            "proba": LOSSES[model.loss].probabilities and len(model.classes) > 0,
            "most": {"rows": self._rows, "bytes": BODY},
            "version": __version__,
        }

    def _timed(self, request: Request, query: str) -> Reply:
        began = time.perf_counter()
        with self._one.limit():
            try:
                reply = self._predicted(request, query)
            except (CokeError, pa.ArrowException) as error:
                reply = refused(HTTPStatus.UNPROCESSABLE_ENTITY, readable(str(error)))
        self._seconds += time.perf_counter() - began
        self.counts["predicted" if reply.status == HTTPStatus.OK else "refused"] += 1
        return reply

    def _predicted(self, request: Request, query: str) -> Reply:
        kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if kind not in (JSON, CSV):
            said = f"a body of {kind[:40]!r}: expected {JSON} or {CSV}"
            return refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, said)
        asked, read = _asked(query), rows_in_json if kind == JSON else rows_in_csv
        table = read(request.body, self.model, self._rows)
        X = self.model.rows_of(table)
        found = predicted_columns(self.model, X, asked)
        self.counts["rows"] += table.num_rows
        if _wanted(request.headers.get("accept", ""), kind) == CSV:
            return Reply(as_csv(found), f"{CSV}; charset=utf-8")
        strange = strange_values(self.model, X)
        gaps, others = ({name: two[k] for name, two in strange.items() if two[k]} for k in (0, 1))
        return Reply(as_json(found, gaps, others), JSON)

    def _families(self) -> Iterator[Family]:
        requests = [({"answer": name}, self.counts[name]) for name in ("predicted", "refused")]
        yield "coke_serve_requests_total", "counter", "Requests for predictions.", requests
        for name, about, value in (
            ("rows", "Rows that were predicted.", self.counts["rows"]),
            ("seconds", "Time spent on requests for predictions.", self._seconds),
            ("cpu_seconds", "CPU time of the server's thread.", time.thread_time()),
        ):
            yield f"coke_serve_{name}_total", "counter", about, [({}, value)]


def _asked(query: str) -> Asked:
    """What the query says, every word once."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a word twice")
        said = msgspec.convert(dict(pairs), _Query, strict=False)
    except ValueError as error:
        raise DataError(
            f"?{query[:80]}: {error}; expected interval=0.9 or proba=true, joined by &"
        ) from error
    return Asked(said.proba, said.interval)


def _wanted(accept: str, given: str) -> str:
    """The form of the answer: as asked for, else as the rows came."""
    words = [word.partition(";")[0].strip().lower() for word in accept.split(",")]
    return next((word for word in words if word in (JSON, CSV)), given)
