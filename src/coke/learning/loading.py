"""From a configuration to rows at sites, a network and a task."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.data.ondisk import OnDisk
from coke.data.parts import Held, Streams, Watch, joined, numbered, open_streams, picked
from coke.data.passes import Passing
from coke.data.scaling import Scaling
from coke.data.sites import Index, Sites, by_label, deal, split_rows
from coke.data.sources import Source, open_arrays, open_table
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.engines.engine import ALONE, Engine, Ranks
from coke.errors import ConfigError
from coke.learning.noising import Private
from coke.learning.prepare import Choices, prepare
from coke.learning.task import Task
from coke.maths.arrays import Array, Room
from coke.maths.features.features import FeatureSettings
from coke.maths.graph import Graph, build_graph
from coke.privacy.noise import Budget
from coke.privacy.release import place, public_scaling
from coke.settings.declaration import AUTO, PUBLIC, Settings
from coke.settings.reading import check_source

if TYPE_CHECKING:
    from mpi4py import MPI

FILES = (".parquet", ".csv")


def load_rows(config: Settings) -> Rows:
    """The rows of the file, or the synthetic ones."""
    check_source(config)
    data = config.data
    if data.file is None or data.target is None:
        return synthetic_rows(data.agents, data.size_range or (4000, 6000), seed=config.seed)
    return read_rows(data.file, data.target, site=data.site, drop=data.drop, missing=data.missing)


def parts_of(config: Settings, rows: Rows) -> dict[Any, Index]:
    """Whose the rows are: by label, or dealt out where a split is asked for or needed."""
    data = config.data
    if rows.sites is not None and data.split is None:
        return by_label(rows.sites)
    size_range = data.size_range if data.file else None
    return deal(
        rows.y, data.agents, split=data.split or "iid",
        sizes=data.sizes, size_range=size_range, seed=config.seed,
    )  # fmt: skip


class Loaded(NamedTuple):
    """The sites that are here, and the network of all."""

    sites: Held
    columns: tuple[str, ...]
    graph: Graph
    engine: Engine


def load_sites(
    config: Settings, comm: MPI.Comm | None = None, watch: Watch | None = None
) -> Loaded:
    """The sites' rows, on ranks those of this rank; or, out of core, how to pass over them.

    With `data.on_disk` they are read in chunks, too, but kept, there.
    """
    check_source(config)
    if config.data.file is None or not _in_chunks(config, comm):
        rows = load_rows(config)
        return _divided(config, _split(config, rows), rows.columns, comm)
    source, how = open_rows(config), _passing(config, comm)
    if config.data.out_of_core:
        share, seed = config.data.test, config.seed
        streams = open_streams(source, how, test=share, seed=seed, watch=watch)
        return _divided(config, streams, source.columns, comm)
    rows = numbered(source, how, watch)
    sites = _split(config, rows)
    loaded = _divided(config, sites, source.columns, comm)
    ours = sites.of(loaded.engine.agents(len(sites.names)))
    own = rows.sites is not None and config.data.split is None
    own = own and len(ours.names) < len(sites.names)  # else all rows are wanted
    pick = partial(picked, source, how, ours, by_label=own, room=_room(config), watch=watch)
    return loaded._replace(sites=loaded.engine.guarded(pick))


def _split(config: Settings, rows: Rows) -> Sites:
    return split_rows(rows, parts_of(config, rows), test=config.data.test, seed=config.seed)


def _in_chunks(config: Settings, comm: MPI.Comm | None) -> bool:
    """Out of core, rows for the disk, ranks, and a folder of files."""
    data = config.data
    apart = comm is not None or Path(str(data.file)).is_dir()
    return data.out_of_core or data.on_disk is not None or apart


def _room(config: Settings) -> Room:
    """For rows with class labels and their features."""
    return np.empty if config.data.on_disk is None else OnDisk(Path(config.data.on_disk))


def open_rows(config: Settings) -> Source:
    """The rows a chunk at a time: of a file, of .npy arrays, or of a folder's files, one a site."""
    data = config.data
    assert data.file is not None
    assert data.target is not None
    path, classes = Path(data.file), config.loss != "quadratic"
    if path.suffix == ".npy":
        return open_arrays(path, data.target, data.site, classes=classes)
    open_ = partial(open_table, target=data.target, drop=data.drop, classes=classes)
    if not path.is_dir():
        return open_(path, site=data.site)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in FILES)
    twice = [name for name, n in Counter(file.stem for file in files).items() if n > 1]
    if twice:
        raise ConfigError(f"{path} has two files for site {twice[0]}: expected one a site")
    return joined({file.stem: open_(file) for file in files})


def _passing(config: Settings, comm: MPI.Comm | None) -> Passing:
    workers = os.cpu_count() if comm is None else 1  # a rank has a core of its own
    data = config.data
    return Passing(data.precision, workers or 1, data.missing, fast=config.fast)


def _divided(
    config: Settings, sites: Held, columns: tuple[str, ...], comm: MPI.Comm | None
) -> Loaded:
    """The sites on their network, and of them those of this rank."""
    N = len(sites.names)
    graph = build_graph(config.graph.kind, N, edges=config.graph.edges, seed=config.seed)
    engine = ALONE if comm is None else Ranks(comm, graph, sites.names)
    return Loaded(sites.of(engine.agents(N)), columns, graph, engine)


def load_task(
    config: Settings,
    releases: Path | None = None,
    comm: MPI.Comm | None = None,
    watch: Watch | None = None,
) -> tuple[Task, Graph, Sites]:
    """Everything a run needs; most of its time goes into the passes over the rows."""
    sites, columns, graph, engine = load_sites(config, comm, watch)
    sample = None
    if config.sample is not None:
        sample = inputs_of(read_table(config.sample), columns)
    with place(releases) as folder:
        how = choices(config, columns, sample, folder)._replace(watch=watch)
        task = prepare(sites, columns, graph, how, engine)
    return task, graph, sites.empty() if isinstance(sites, Streams) else sites


def choices(
    config: Settings, columns: Sequence[str] = (), sample: Array | None = None,
    releases: Path | None = None,
) -> Choices:  # fmt: skip
    """How to learn: `sample` are public inputs, `releases` is where noised statistics are kept."""
    public = public_units(config, columns) if config.data.scale == PUBLIC else None
    private = None
    if config.privacy == "dp":
        assert config.epsilon is not None  # checked
        assert releases is not None
        colluding = config.colluding if config.secure_sum else None
        budget = Budget(config.epsilon, config.delta)
        private = Private(budget, releases, config.new_budget, colluding)
    return Choices(
        feature_settings(config), config.loss, config.lam, config.data.scale,
        config.features.sigma == AUTO, config.whitening, sample, public, private, config.fast,
        _room(config),
    )  # fmt: skip


def feature_settings(config: Settings) -> FeatureSettings:
    """The features that all sites draw; σ = 1 where the inputs' spread will say."""
    f = config.features
    sigma = 1.0 if isinstance(f.sigma, str) else f.sigma
    return FeatureSettings(f.n_features, f.kernel, sigma, f.mapping, f.sampling, config.seed)


def public_units(config: Settings, columns: Sequence[str]) -> Scaling:
    """Inputs and target to [−1, 1], from the ranges in the configuration."""
    target = config.data.target or "y"
    wanted = [*columns, *([target] if config.loss == "quadratic" else [])]
    lacking = [name for name in wanted if name not in config.data.ranges]
    if lacking:
        raise ConfigError(
            f'scale = "public" without ranges of {", ".join(lacking[:8])}: give [low, high] for '
            "each in data.ranges, known before any row was looked at"
        )
    low, high = zip(*(config.data.ranges[name] for name in columns), strict=True)
    ends = config.data.ranges[target] if config.loss == "quadratic" else (-1.0, 1.0)
    return public_scaling(np.array(low), np.array(high), ends)
