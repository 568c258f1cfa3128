"""One command's worth of work: train every algorithm asked for, lose nothing on the way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.files import make_folder, write_file
from coke.data.sites import Sites
from coke.engines.checkpoint import Saved, check_same, load_checkpoint, save_checkpoint
from coke.engines.history import GAPS, LOSSES, History
from coke.engines.limits import Limits
from coke.engines.process import Record
from coke.errors import ConvergenceError
from coke.learning.model import Model
from coke.learning.task import Task, algorithm_of
from coke.maths.algorithms.coke import FLOAT
from coke.maths.algorithms.stopping import at_first
from coke.maths.graph import Graph
from coke.maths.losses.problem import local_only
from coke.settings.declaration import KNOBS, Settings
from coke.settings.reading import SAVED

LIMITS = [one.key for one in KNOBS.values() if one.knob.resume and one.key != "rounds"]
Watch = Callable[[str, Record], None]


class Interrupted(Exception):  # noqa: N818  not an error: the user's wish
    """Ctrl-C: what was done so far is kept in `outcomes`."""

    def __init__(self, outcomes: list[Outcome]):
        super().__init__()
        self.outcomes = outcomes


class Outcome(NamedTuple):
    """What one algorithm did."""

    name: str
    history: History
    theta: Any  # (N, D) the agents' last θ_i; None before the first round
    seconds: float  # CPU, of this process
    error: str | None  # why it ended early, other than by the user's wish


class Folder:
    """Where a run leaves its files; usable before any work starts, or refused."""

    def __init__(self, path: Path):
        self.path = path
        make_folder(path)

    def checkpoint(self, name: str) -> Path:
        """The state after the last round of an algorithm."""
        return self.path / f"checkpoint-{name}.coke"

    def history(self, name: str) -> Path:
        """All rounds of an algorithm."""
        return self.path / f"history-{name}.parquet"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model.coke"

    def clear(self) -> None:
        """Forgets the checkpoints of an earlier run, so that none is taken for this one's."""
        for path in self.path.glob("checkpoint-*.coke"):
            path.unlink()

    @property
    def settings(self) -> Path:
        """The settings of the run, written when it starts and when it is resumed."""
        return self.path / SAVED

    def keep_settings(self, config: Settings) -> None:
        """For a later resume."""
        write_file(self.settings, msgspec.json.format(msgspec.json.encode(config.plain())))


class Effects(NamedTuple):
    """What a run does beside computing."""

    folder: Folder | None  # where to keep checkpoints and histories
    watch: Watch | None  # told of every round
    resume: bool  # go on from the folder's checkpoints
    every: float  # seconds between checkpoints


def train_all(config: Settings, task: Task, graph: Graph, effects: Effects) -> list[Outcome]:
    """Every algorithm of the configuration, one after the other; the first is the run's own."""
    if effects.folder is not None and task.engine.first:
        if not effects.resume:
            effects.folder.clear()
        effects.folder.keep_settings(config)
    outcomes: list[Outcome] = []
    for name in config.algorithms():
        run = Run(config, task, graph, name, effects)
        outcomes.append(run.train())
        if outcomes[0].error is not None:
            raise ConvergenceError(outcomes[0].error)
        if run.interrupted:
            raise Interrupted([outcome for outcome in outcomes if len(outcome.history)])
    return outcomes


class Run:
    """One algorithm on one problem, with its checkpoint."""

    def __init__(self, config: Settings, task: Task, graph: Graph, name: str, effects: Effects):
        self.config, self.task, self.graph, self.name = config, task, graph, name
        self.folder, self.effects, self.engine = effects.folder, effects, task.engine
        self.way = task.way(algorithm_of(config, name))
        self.fingerprint = self.engine.fingerprint(self.way.problem, graph, self.way.algorithm)
        self.interrupted = False

    def train(self) -> Outcome:
        """All rounds, or as many as there are before Ctrl-C."""
        saved = self.engine.guarded(self._saved) if self.effects.resume else None
        metric = self.task.problem.train.metric
        history = saved.history if saved else History(self.name, metric, self.task.sites)
        theta = saved.checkpoint.state["theta"] if saved else None
        started, clock, record, error = time.process_time(), time.monotonic(), None, None
        with self._between_rounds():
            try:
                for record in self._records(saved):
                    history.append(record)
                    if self.effects.watch is not None:
                        self.effects.watch(self.name, record)
                    due = time.monotonic() - clock > self.effects.every
                    due, stop = self.engine.any(due, self.interrupted)
                    if due:
                        self._save(record, history)
                        clock = time.monotonic()
                    if stop:
                        self.interrupted = True  # at every rank
                        break
            except ConvergenceError as failure:
                error = str(failure)
        if record is not None and error is None:  # else its state may be written over
            theta = self.engine.everyones(record.state.theta)
            self._save(record, history)
        if self.folder and len(history) and self.engine.first:
            history.to_parquet(self.folder.history(self.name))
        theta = None if theta is None else self.way.theta(theta)
        return Outcome(self.name, history, theta, time.process_time() - started, error)

    def _records(self, saved: Saved | None) -> Iterator[Record]:
        config, at = self.config, saved.checkpoint if saved else None
        if saved and at:
            before = [saved.config.get(name) for name in LIMITS]
            if before != [getattr(config, name) for name in LIMITS]:
                at = at._replace(quiet=at_first(len(at.spent)))  # a countdown to other limits
            elif saved.settled:
                return iter(())
        tol = self.way.tolerance(config.tolerance(self.name))
        limits = Limits(config.rounds, tol, config.max_bytes, config.max_transmissions)
        way = self.way
        return self.engine.simulate(way.problem, self.graph, way.algorithm, limits, way.spent, at)

    def _saved(self) -> Saved | None:
        assert self.folder is not None  # there is no resuming without a folder
        path = self.folder.checkpoint(self.name)
        if not path.exists():
            return None
        saved, problem = load_checkpoint(path)
        check_same(path, problem, self.fingerprint)
        return saved

    def _save(self, record: Record, history: History) -> None:
        if self.folder is None:
            return
        path, whole = self.folder.checkpoint(self.name), self.engine.record(record)

        def write() -> None:
            if whole is not None:
                save_checkpoint(path, whole, history, self.fingerprint, self.config.plain())

        self.engine.guarded(write)

    @contextmanager
    def _between_rounds(self) -> Iterator[None]:
        """The first Ctrl-C waits for the round's end, so that state and history agree."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True


def consensus_model(task: Task, outcome: Outcome) -> Model:
    """The model of the agents' mean θ."""
    return task.model(outcome.theta.mean(axis=0))


def summary(task: Task, graph: Graph, outcome: Outcome) -> dict[str, Any]:
    """The last round in the documented keys; losses carry the metric's name, such as mse."""
    metric = task.problem.train.metric
    best = task.problem.score(task.problem.everywhere(task.problem.optimum))
    last = outcome.history.last()
    return {
        "algorithm": outcome.name,
        "agents": len(task.sites),
        "edges": graph.number_of_edges(),
        "rounds": last["round"],
        **{key: last[key] for key in outcome.history.names if key not in ("round", *GAPS)},
        f"optimum_train_{metric}": best.train,
        f"optimum_test_{metric}": None if np.isnan(best.test) else best.test,
        "consensus_gap": last["consensus_gap"],
        "optimality_gap": last["optimality_gap"],
        "seconds": round(outcome.seconds, 3),
    }


def yardsticks(task: Task) -> list[dict[str, Any]]:
    """What sites reach without COKE: each alone, averaged once, and the centralised optimum."""
    problem, N = task.problem, len(task.sites)
    size = problem.train.size * FLOAT
    alone = local_only(problem.train) if task.alone is None else task.alone
    everyone = {
        "local-only": (alone, 0),
        "one-shot-average": (problem.everywhere(alone.mean(axis=0)), 2 * (N - 1)),
        "optimum": (problem.everywhere(problem.optimum), 0),
    }
    rows = []
    for name, (theta, messages) in everyone.items():
        losses = dict(zip(LOSSES, problem.score(theta), strict=True))
        rows.append(
            {
                "algorithm": name,
                "transmissions": messages,
                "bytes": messages * size,
                **{
                    f"{key}_{problem.train.metric}": None if np.isnan(value) else value
                    for key, value in losses.items()
                },
            }
        )
    return rows


def accuracy(task: Task, model: Model, sites: Sites) -> dict[str, float | None]:
    """Share of right labels among all sites' training and test rows; `sites` are those here."""

    def counts(X: Any, y: Any) -> Any:
        right = [np.count_nonzero(model.predict(a) == b) for a, b in zip(X, y, strict=True)]
        return np.column_stack([right, list(map(len, y))])

    def share(X: Any, y: Any) -> float | None:
        right, T = task.engine.everyones(counts(X, y)).sum(axis=0).tolist()
        return right / T if T else None

    return {
        "train_accuracy": share(sites.X, sites.y),
        "test_accuracy": share(sites.X_test, sites.y_test),
    }
