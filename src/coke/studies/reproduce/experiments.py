"""Running the paper's experiments: every setting, split and seed is one job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

import coke
from coke.data.files import read_file, write_file
from coke.data.split import by_label, deal, split
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, checked_rows, inputs_of
from coke.engines.process import Record, simulate
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.maths.graph import Graph, build_graph
from coke.maths.losses.risk import local_only
from coke.settings.reading import checked_settings
from coke.studies.reproduce.published import (
    ETA,
    LEVELS,
    METHODS,
    RANDOM,
    RHO,
    ROUNDS,
    SETTINGS,
    K,
    Setting,
)
from coke.studies.reproduce.recipes import paper_file, paper_rows, raw_table
from coke.studies.reproduce.workers import team
from coke.threads import OneThread

CURVE = 300  # points kept of a curve for the figures


class Job(msgspec.Struct, frozen=True):
    """One run of all three methods."""

    setting: str
    split: str  # "iid", as in the paper, or "sorted" by target
    seed: int
    rounds: int = ROUNDS
    rho: float = RHO  # of COKE and DKLA; the paper's, unless another is looked for
    graph: str = RANDOM  # with as many edges as the caption says, or a ring, star, …


class Curve(msgspec.Struct):
    """What is kept of one method's run."""

    k: list[int]
    train: list[float]
    test: list[float]
    global_train: list[float]
    global_test: list[float]
    sent: list[int]
    levels: dict[str, int | None]  # training MSE → transmissions when it was first reached
    agents: list[list[float]]  # prediction of every agent for one row, at k


class Result(msgspec.Struct):
    """What is kept of a job."""

    job: Job
    methods: dict[str, Curve]
    local_only: dict[str, float]  # scores without any communication
    optimum: dict[str, float]  # scores of θ*
    optimal_prediction: float  # θ*'s, for the row of `agents`


def data_file(setting: Setting) -> Path | None:
    """The file that the rows are read from; None for synthetic ones."""
    if setting.data == "synthetic":
        return None
    return paper_file("toms_hardware" if setting.data == "toms" else setting.data)


def check_data(settings: Iterable[str]) -> None:
    """All files are there and whole, or the error that a run would meet later."""
    for setting in {SETTINGS[name].data: SETTINGS[name] for name in settings}.values():
        if data_file(setting) is not None:
            _load(setting, seed=0)


def _load(setting: Setting, seed: int) -> Rows:
    """The rows, scaled as the paper's numbers say they were."""
    if setting.data == "synthetic":
        return _unit_rows(synthetic_rows(setting.agents, (4000, 6000), seed=seed))
    if setting.data == "toms":  # the nearest reading found: all rows, every column in [0, 1]
        table = raw_table("toms_hardware")
        names = tuple(f"x{j}" for j in range(96))
        return _unit_rows(checked_rows(inputs_of(table, names), table["y"].to_numpy(), None, names))
    return paper_rows(setting.data)


def _unit_rows(rows: Rows) -> Rows:
    """Every column and the target in [0, 1], by all rows."""

    def unit(x: NDArray[Any]) -> NDArray[Any]:
        width = np.ptp(x, axis=0)
        return np.asarray((x - x.min(axis=0)) / np.where(width > 0, width, 1.0))

    return rows._replace(X=unit(rows.X), y=unit(rows.y.astype(np.float64)))


def _graph_of(job: Job) -> Graph:
    """The job's network."""
    setting = SETTINGS[job.setting]
    edges = setting.edges if job.graph == RANDOM else None
    return build_graph(job.graph, setting.agents, edges=edges, seed=job.seed)


def _ready_of(job: Job) -> Ready:
    """The job's problem."""
    setting = SETTINGS[job.setting]
    rows = _load(setting, job.seed)
    if rows.sites is not None and job.split == "iid":
        parts = by_label(rows.sites)
    else:
        parts = deal(rows.y, setting.agents, split=job.split, seed=job.seed)
    sites = split(parts, test=0.3, seed=job.seed).kept(rows)
    features = {
        "n_features": setting.n_features,
        "sigma": setting.sigma,
        "mapping": setting.mapping,
    }
    settings = checked_settings(
        {
            "model": "plain", "lambda": setting.lam, "seed": job.seed, "data": {"scale": "none"},
            "features": features, "rho": job.rho, "v": setting.v, "mu": setting.mu, "eta": ETA,
        }
    )  # fmt: skip
    return agree(sites, _graph_of(job), Terms(settings, rows.columns))


def run_job(job: Job) -> Result:
    """CTA, DKLA and COKE on the job's problem, and the scores of those who do not talk."""
    ready = _ready_of(job)
    problem, graph = ready.problem, ready.graph
    phi = _probe(ready, job)
    keep = _kept_rounds(job.rounds)
    curves = {}
    for name in METHODS:
        wanted = "coke-paper" if name == "coke" else name
        algorithm = ready.case(wanted).algorithm
        records = simulate(problem, graph, algorithm, rounds=job.rounds, scored=keep)
        curves[name] = _follow(records, keep, _levels_of(job.setting), phi)
    with OneThread().limit():
        alone = problem.score(local_only(problem.train))._asdict()
        best = problem.score(problem.everywhere(problem.optimum))._asdict()
    return Result(job, curves, alone, best, float(phi @ problem.optimum))


def _probe(ready: Ready, job: Job) -> NDArray[np.float64]:
    """φ(x) of the data's first row, at which the agents' predictions are followed."""
    rows = _load(SETTINGS[job.setting], job.seed)
    return ready.agreement.features(ready.agreement.units.inputs(rows.X[:1]))[0]


def _kept_rounds(rounds: int) -> set[int]:
    """The paper's marks and evenly spread rounds on a log axis."""
    spread = np.unique(np.geomspace(1, rounds, CURVE).round().astype(int))
    return {*spread.tolist(), *(k for k in K if k <= rounds), rounds}


def _levels_of(setting: str) -> list[float]:
    """The MSE levels at which the paper counts transmissions."""
    tables = [table for pair in LEVELS.values() for table in pair if table.setting == setting]
    return [level * table.unit for table in tables for level in table.level]


def _follow(
    records: Iterator[Record], keep: set[int], levels: Sequence[float], phi: NDArray[np.float64]
) -> Curve:
    """One run, with the rounds in `keep` written down."""
    curve = Curve([], [], [], [], [], [], dict.fromkeys(map(str, levels)), [])
    open_levels = sorted(levels, reverse=True)
    for r in records:
        while open_levels and r.score.train <= open_levels[0]:
            curve.levels[str(open_levels.pop(0))] = r.ledger.transmissions
        if r.k in keep:
            curve.k.append(r.k)
            curve.train.append(r.score.train)
            curve.test.append(r.score.test)
            curve.global_train.append(r.score.global_train)
            curve.global_test.append(r.score.global_test)
            curve.sent.append(r.ledger.transmissions)
            curve.agents.append((r.state.theta @ phi).tolist())
    return curve


def run_all(
    jobs: Sequence[Job], folder: Path, workers: int, watch: Callable[[int, int], None]
) -> list[Result]:
    """All jobs, `workers` at a time; a finished one is kept in the folder and not run again."""
    cache = folder / "jobs"
    cache.mkdir(parents=True, exist_ok=True)
    data = {name: _data_digest(name) for name in {job.setting for job in jobs}}
    places = {job: _place(cache, job, data[job.setting]) for job in jobs}
    done = {job: result for job in jobs if (result := _kept(places[job])) is not None}
    watch(len(done), len(jobs))
    missing = [job for job in jobs if job not in done]
    # Longest first, so that no core idles at the end.
    missing.sort(key=lambda job: -job.rounds * SETTINGS[job.setting].n_features)
    with team(run_job, min(workers, len(missing))) as own:
        for job, result in own.results(missing):
            write_file(places[job], msgspec.json.encode(result))
            done[job] = result
            watch(len(done), len(jobs))
    return [done[job] for job in jobs]


def _data_digest(setting: str) -> str | None:
    path = data_file(SETTINGS[setting])
    return None if path is None else hashlib.blake2b(read_file(path), digest_size=16).hexdigest()


def _place(cache: Path, job: Job, data: str | None) -> Path:
    """Named by all that the result depends on, so that a changed setting is run again."""
    levels = _levels_of(job.setting)
    constants = (coke.__version__, METHODS, ETA, K, CURVE)
    what = msgspec.json.encode([constants, job, SETTINGS[job.setting], levels, data])
    digest = hashlib.blake2b(what, digest_size=8).hexdigest()
    return cache / f"{job.setting}-{job.split}-{job.seed}-{digest}.json"


def _kept(path: Path) -> Result | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_file(path), type=Result)
    except msgspec.DecodeError:
        return None  # damaged: run it again
