"""Training: an algorithm's rounds on sites that are ready, and nothing lost on the way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from coke.engines.checkpoint import Saved, save_checkpoint
from coke.engines.history import History
from coke.engines.process import Record
from coke.engines.ranks.engine import Ranks
from coke.errors import ConvergenceError
from coke.learning.case import resolved
from coke.learning.closing import closed
from coke.learning.descending import Descending
from coke.learning.folder import Folder
from coke.learning.links import links_of
from coke.learning.model import Closed, Model
from coke.learning.ready import Ready
from coke.learning.verdict import Ended
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.stopping import Limits, at_first
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses.excess import Certificate
from coke.settings.declaration import AUTO, KNOBS

Watch = Callable[[str, Record], None]
"""(algorithm, what is known after a round)."""
_LIMITS = [one.key for one in KNOBS.values() if one.knob.resume and one.key != "rounds"]


class Interrupted(Exception):  # noqa: N818  not an error: the user's wish
    """Ctrl-C: what was done so far is in `done`."""

    def __init__(self, done: list[Trained]):
        super().__init__()
        self.done = done


class Effects(NamedTuple):
    """What a run does beside computing."""

    folder: Folder | None = None  # where to keep checkpoints and histories
    watch: Watch | None = None  # told of every round
    resume: bool = False  # go on from the folder's checkpoints
    every: float = 30.0  # seconds between checkpoints
    handled: bool = True  # Ctrl-C waits for a round's end; else it is the caller's


class Trained(NamedTuple):
    """What an algorithm came to."""

    name: str
    history: History
    theta: Array | None  # (N, D) the agents' last θ_i in the plain features; None before round 1
    last: Record | None  # of this process; None where nothing was left to do
    seconds: float  # CPU, of this process
    error: str | None  # why it ended early, other than by the user's wish
    model: Model | None = None  # of the agents' mean θ
    after: Ledger = Ledger()  # what was sent after the last round
    settled: bool | None = None  # within the tolerance; None: there was none
    certificate: Certificate | None = None  # what was proven of the model

    @property
    def ended(self) -> Ended:
        """How it ended, and all that it took."""
        last = self.history.last()
        spent = Ledger(*(last[key] + more for key, more in self.after._asdict().items()))
        return Ended(last["round"], self.settled, spent, self.certificate)


def train(
    ready: Ready, algorithm: str | Algorithm, effects: Effects | None = None, name: str = ""
) -> Trained:
    """All rounds of one algorithm, of the house or an own one; or as many as come before Ctrl-C."""
    if algorithm == AUTO:
        algorithm = resolved(ready.agreement.terms.settings)[0]
    said = algorithm if isinstance(algorithm, str) else name or type(algorithm).__name__
    return _Training(ready, said, algorithm, effects).run()


def train_all(ready: Ready, effects: Effects) -> list[Trained]:
    """Every algorithm of the settings, one after the other; the first is the run's own."""
    settings = ready.agreement.terms.settings
    if effects.folder is not None and ready.engine.first:
        effects.folder.begin(settings, resume=effects.resume)
    done: list[Trained] = []
    for name in dict.fromkeys([resolved(settings)[0], *settings.beside]):
        training = _Training(ready, name, name, effects)
        done.append(training.run())
        if done[0].error is not None:
            raise ConvergenceError(done[0].error)
        if training.interrupted:
            raise Interrupted([one for one in done if len(one.history)])
    return done


class _Training:
    """One algorithm on one problem, with its checkpoint."""

    def __init__(
        self, ready: Ready, name: str, algorithm: str | Algorithm, effects: Effects | None
    ):
        self.ready, self.name, self.engine = ready, name, ready.engine
        self.effects = effects or Effects(handled=False)
        self.settings = ready.agreement.terms.settings
        self.history = History(name, ready.problem.train.metric, ready.names)
        self.case = case = ready.case(algorithm)
        self.links = links_of(ready, case)
        self.folder, self.fingerprint = self.effects.folder, ""
        if self.folder is not None:
            self.fingerprint = self.engine.fingerprint(case.problem, self.links, case.algorithm)
        self.interrupted, self.after = False, Ledger()
        self.certificate: Certificate | None = None

    def run(self) -> Trained:
        saved = self.engine.guarded(self._saved) if self.effects.resume else None
        self.history, theta = saved.history if saved else self.history, None
        started, clock, record, error = time.process_time(), time.monotonic(), None, None
        with self._between_rounds():
            try:
                for record in self._records(saved):
                    self.history.append(record)
                    if self.effects.watch is not None:
                        self.effects.watch(self.name, record)
                    if not self.effects.handled:
                        continue
                    due, stop = time.monotonic() - clock > self.effects.every, self.interrupted
                    if isinstance(self.engine, Ranks):  # whoever asks, all save and stop together
                        due, stop = self.engine.any(due, stop)  # a Ctrl-C meanwhile: the next round
                    if due:
                        self._save(record)
                        clock = time.monotonic()
                    if stop:
                        self.interrupted = True
                        break
            except ConvergenceError as failure:
                error = str(failure)
        if record is not None and error is None:  # else its state may be written over
            theta = self.engine.everyones(record.state.theta)
            if self.folder is not None:
                self._save(record)
        elif saved:
            theta = saved.checkpoint.state["theta"]
        if theta is not None and error is None and not self.interrupted:
            theta = self._proven(theta, record, saved)
        if self.folder and len(self.history) and self.engine.first:
            self.history.to_parquet(self.folder.history(self.name))
        model, after = None, self.after
        if theta is not None:
            theta, found = self.case.theta(theta), Closed()
            if error is None and self.case.closes:
                found, more = closed(self.ready, self.case, theta)
                after = Ledger(*map(sum, zip(after, more, strict=True)))
            model = self.ready.model(theta.mean(axis=0), found)
        return Trained(
            name=self.name, history=self.history, theta=theta, last=record,
            seconds=time.process_time() - started, error=error, model=model, after=after,
            settled=self._settled(record, saved), certificate=self.certificate,
        )  # fmt: skip

    def _proven(self, theta: Array, record: Record | None, saved: Saved | None) -> Array:
        """What all sites adopt (N, D), with the proof of it; θ as it is where there is no goal."""
        if self.case.descends or self.case.goal is None:
            return theta
        if record is not None:
            state = record.state
        else:
            assert saved is not None
            here = self.engine.agents(len(theta))
            rows = saved.checkpoint.rows(np.asarray(here, np.int64)).state
            state = SimpleNamespace(**rows)
        found = Descending(self.ready, self.case, state)
        for _ in found.sweeps():
            pass
        self.certificate = found.certificate
        self.after = Ledger.of(self.engine.everyones(found.spent))
        return np.tile(found.u, (len(theta), 1))

    def _settled(self, record: Record | None, saved: Saved | None) -> bool | None:
        at = record or saved  # each says so
        if at is not None and at.settled:
            return True
        return False if self.case.tol else None

    def _records(self, saved: Saved | None) -> Iterator[Record]:
        """Rounds, or sweeps over the tree."""
        if not self.case.descends:
            yield from self._rounds(saved)
            return
        found = Descending(self.ready, self.case)
        yield from found.records()
        self.certificate = found.certificate

    def _rounds(self, saved: Saved | None) -> Iterator[Record]:
        settings, at = self.settings, saved.checkpoint if saved else None
        if saved and at:
            before = [saved.config.get(name) for name in _LIMITS]
            if before != [getattr(settings, name) for name in _LIMITS]:
                at = at._replace(quiet=at_first(len(at.spent)))  # a countdown to other limits
            elif saved.settled:
                return iter(())
        case = self.case
        limits = Limits(
            rounds=settings.rounds,
            tol=case.tol,
            max_bytes=settings.max_bytes,
            max_transmissions=settings.max_transmissions,
            reach=self.ready.reach,
            near=case.near,
        )
        return self.engine.rounds(case.problem, self.links, case.algorithm, limits, case.spent, at)

    def _saved(self) -> Saved | None:
        if self.folder is None:
            return None  # there is no resuming without a folder
        found = self.folder.saved(self.name, self.fingerprint)
        return None if self.case.descends else found  # sweeps are few, and begin anew

    def _save(self, record: Record) -> None:
        if self.folder is None:
            return
        path, whole = self.folder.checkpoint(self.name), self.engine.record(record)

        def write() -> None:
            if whole is not None:
                save_checkpoint(path, whole, self.history, self.fingerprint, self.settings.plain())

        self.engine.guarded(write)

    @contextmanager
    def _between_rounds(self) -> Iterator[None]:
        """The first Ctrl-C waits for the round's end, so that state and history agree."""
        main = threading.current_thread() is threading.main_thread()
        if not (self.effects.handled and main):
            yield  # a library's caller handles its own signals, and only the main thread may
            return
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: Any) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
