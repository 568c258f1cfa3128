"""From a configuration to rows at sites, a network and a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coke.config import AUTO, PUBLIC, Config, feature_settings
from coke.data.private import public_scaling
from coke.data.scaling import Scaling
from coke.data.sites import Index, Sites, by_label, deal, split_rows
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.errors import ConfigError
from coke.maths.arrays import Array
from coke.maths.graph import Graph, build_graph
from coke.maths.privacy import Budget
from coke.prepare import Choices, Private, prepare
from coke.task import Task


def check_source(config: Config) -> None:
    """The file and its columns belong together."""
    data = config.data
    if data.file is not None and data.target is None:
        raise ConfigError(f"data.file = {data.file!r} without data.target: name the target column")
    if data.file is None and (data.target or data.site):
        raise ConfigError("data.target or data.site without data.file: name the file of the rows")
    if data.file is None and config.loss != "quadratic":
        raise ConfigError(f'loss = "{config.loss}" needs class labels: name a data.file with them')


def load_rows(config: Config) -> Rows:
    """The rows of the file, or the synthetic ones."""
    check_source(config)
    data = config.data
    if data.file is None or data.target is None:
        return synthetic_rows(data.agents, data.size_range or (4000, 6000), seed=config.seed)
    return read_rows(data.file, data.target, site=data.site, drop=data.drop, missing=data.missing)


def load_parts(config: Config) -> tuple[Rows, dict[Any, Index]]:
    """The rows, and whose they are: by label, or dealt out where a split is asked for or needed."""
    rows, data = load_rows(config), config.data
    if rows.sites is not None and data.split is None:
        return rows, by_label(rows.sites)
    size_range = data.size_range if data.file else None
    parts = deal(
        rows.y, data.agents, split=data.split or "iid",
        sizes=data.sizes, size_range=size_range, seed=config.seed,
    )  # fmt: skip
    return rows, parts


def load_task(config: Config, releases: Path | None = None) -> tuple[Task, Graph, Sites]:
    """Everything a run needs; most of its time goes into the one pass over the rows."""
    rows, parts = load_parts(config)
    sites = split_rows(rows, parts, test=config.data.test, seed=config.seed)
    graph = build_graph(config.graph.kind, len(sites.X), edges=config.graph.edges, seed=config.seed)
    sample = None
    if config.sample is not None:
        sample = inputs_of(read_table(config.sample), rows.columns)
    with ExitStack() as stack:
        if releases is None:  # a simulation that keeps nothing draws its noise anew each time
            releases = Path(stack.enter_context(TemporaryDirectory(prefix="coke-")))
        how = choices(config, rows.columns, sample, releases)
        return prepare(sites, rows.columns, graph, how), graph, sites


def choices(
    config: Config, columns: Sequence[str] = (), sample: Array | None = None,
    releases: Path | None = None,
) -> Choices:  # fmt: skip
    """How to learn: `sample` are public inputs, `releases` is where noised statistics are kept."""
    public = public_units(config, columns) if config.data.scale == PUBLIC else None
    private = None
    if config.privacy == "dp":
        assert config.epsilon is not None  # checked
        assert releases is not None
        private = Private(Budget(config.epsilon, config.delta), releases)
    return Choices(
        feature_settings(config), config.loss, config.lam, config.data.scale,
        config.features.sigma == AUTO, config.whitening, sample, public, private,
    )  # fmt: skip


def public_units(config: Config, columns: Sequence[str]) -> Scaling:
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
