"""`partial_fit` and `finish`: estimators that learn from rows as they come."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from msgspec import structs
from sklearn.utils.validation import check_is_fitted

from coke.data.arrivals import Counts, finite_rows, positions
from coke.data.split import Index, by_label, split
from coke.data.tables import Rows
from coke.errors import InputError
from coke.estimators.showing import Showing
from coke.learning.finishing import finished
from coke.learning.model import Model
from coke.learning.prequential import Feed, Prequential
from coke.learning.ready import agree
from coke.learning.several import stream_of
from coke.learning.terms import Terms
from coke.maths.graph import graph_on
from coke.maths.losses import LOSSES, NUMBERS, OF_CLASSES
from coke.settings.declaration import AUTO, Settings
from coke.settings.rules import STREAMED, of_stream

_LEARNS = (AUTO, "coke")


class _NoStreamError(InputError, AttributeError):
    """What only a stream has; as scikit-learn's NotFittedError, no attribute for who lists them."""


class Streaming(Showing):
    """With a stream, once `partial_fit` was called."""

    engine: Any
    graph: Any
    edges: int | None
    n_agents: int
    model_: Model
    _feed: Feed | None

    @property
    def prequential_(self) -> Prequential:
        """What every tick's rows were predicted as, before they were learnt from."""
        return Prequential(self._fed().predicted)

    @property
    def alarms_(self) -> list[int]:
        """Ticks at which all sites restarted, for a third of them saw drift."""
        return self._fed().alarms

    @property
    def arrivals_(self) -> Counts:
        """Rows taken, and those that came late, twice, too early or with gaps."""
        return self._fed().arrivals.counts

    def finish(self) -> Self:
        """Ends the stream, at the optimum of all rows as they count now, which is proven."""
        feed = self._fed()
        ended = finished(feed.stream.ending(), feed.stream.ready.agreement.terms.settings.rounds)
        self._learnt(feed)
        self._ended(ended)
        return self

    def _settings(self, targets: tuple[str, ...]) -> Settings:
        raise NotImplementedError

    def _fed(self) -> Feed:
        check_is_fitted(self)
        if self._feed is None:
            raise _NoStreamError("no stream: rows come by partial_fit; fit has learnt from a table")
        return self._feed

    def _begun(self) -> bool:
        return getattr(self, "_feed", None) is not None

    def _partial(self, rows: Rows, tick: Any) -> Self:
        """Rows, each of its site, predicted and then learnt from; the first ones begin a stream."""
        feed = getattr(self, "_feed", None)
        labels = rows.sites
        if feed is None:
            labels = self._dealt(0, len(rows.y)) if labels is None else labels
            feed = self._feed = self._begin(rows, labels)
        elif labels is None:
            labels = self._dealt(sum(feed.arrivals.counts) - feed.arrivals.counts.late, len(rows.y))
        feed.take(rows.X, rows.y, positions(labels, self.sites_.tolist()), tick)
        return self._learnt(feed)

    def _dealt(self, first: int, T: int) -> Index:
        """In turn."""
        return (first + np.arange(T)) % self.n_agents

    def _begin(self, rows: Rows, labels: Any) -> Feed:
        """The sites agree on units and a model, from the first rows."""
        settings = self._settings(rows.targets)
        if settings.loss == OF_CLASSES:
            settings = structs.replace(settings, loss=STREAMED[1])
        _streamable(settings, self.engine)
        whole = np.flatnonzero(finite_rows(rows.X, rows.y))
        parts = by_label(labels[whole])
        self.sites_ = np.array(list(parts))
        columns = tuple(map(str, getattr(self, "feature_names_in_", rows.columns)))
        rows = rows._replace(X=rows.X[whole], y=rows.y[whole], columns=columns, sites=None)
        kept = split(parts, test=0.0, seed=settings.seed).kept(
            rows, numbers=LOSSES[settings.loss].kind == NUMBERS
        )
        graph = graph_on(list(parts), self.graph, self.edges, settings.seed)
        with self._agreeing():
            ready = agree(kept, graph, Terms(settings, columns, streams=True))
        return Feed(stream_of(ready, settings.memory))

    def _learnt(self, feed: Feed) -> Self:
        """What the sites know now."""
        stream = feed.stream
        self.model_, self.thetas_ = feed.model(), stream.theta.reshape(len(stream.theta), -1)
        self.choice_ = stream.ready.agreement.choice
        self.transmissions_, self.bytes_, self.wire_bytes_ = map(int, stream.spent.sum(axis=0))
        self.n_iter_, self.converged_ = stream.rounds, False
        self._judge = self._verdict = self.certificate_ = None
        return self

    def _model(self, site: Any = None) -> Model:
        """What predicts: the common model, or a site's with its fast layer."""
        if site is None:
            return self.model_
        (n,) = positions([site], self.sites_.tolist())
        return self._fed().model(int(n))


def learns_streams(estimator: Any) -> bool:
    """Whether there is a `partial_fit`: of losses whose rows sums stand for, by COKE."""
    algorithm = getattr(estimator.algorithm, "algorithm", estimator.algorithm)
    if algorithm not in _LEARNS:
        raise AttributeError(f"a stream is learnt by {' or '.join(_LEARNS)}, not by {algorithm}")
    if estimator.loss not in (AUTO, *STREAMED):
        raise AttributeError(
            f"a stream has the loss {' or '.join(STREAMED)}, whose rows sums stand for: "
            f"loss={estimator.loss!r} needs every row again"
        )
    return True


def _streamable(settings: Settings, engine: Any) -> None:
    """What a stream cannot be learnt with, and why."""
    for reason in of_stream(settings):
        raise InputError(f"partial_fit: {reason}")
    if engine != "simulation":
        raise InputError(
            f"partial_fit with engine = {engine!r}: a stream is learnt in this process; agents "
            "follow streams of their own (docs/streams.md)"
        )
