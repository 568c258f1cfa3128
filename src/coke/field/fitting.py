"""A network of agents for one fit: written, run, read and forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow.parquet

from coke.data.split import Index
from coke.data.tables import Rows
from coke.engines.history import History, Labels
from coke.errors import ConfigError
from coke.field.local import NetworkPlan, run_network, write_network
from coke.learning.case import resolved
from coke.learning.model import Model, load_model
from coke.learning.verdict import weakest
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES
from coke.maths.losses.excess import Certificate
from coke.settings.declaration import Settings
from coke.settings.sites import shared


class _Found(NamedTuple):
    """What a network of agents came to."""

    models: list[Model]  # one a site
    history: History  # of all sites
    rounds: int
    converged: bool
    ledger: Ledger
    certificate: Certificate | None


def _rows(rows: Rows, part: Index) -> float:
    """How many rows these stand for."""
    return float(len(part) if rows.weights is None else rows.weights[part].sum())


def train_on_agents(
    config: Settings,
    rows: Rows,
    parts: Mapping[Any, Index],
    graph: Graph,
    carrier: str = "tls",
    own: Algorithm | None = None,
) -> _Found:
    """Writes a network to a temporary folder, runs it, and reads what its sites came to."""
    settings = shared(config) | {"sample": None}
    if config.sample is not None:
        raise ConfigError(
            'whitening = "sample" with agents: write a network, and name a file there'
        )
    with TemporaryDirectory(prefix="coke-") as folder:
        name = Path(folder).name.replace("_", "-")  # no other network of this process has it
        plan = NetworkPlan(
            network=f"local-{name}x", graph=graph, rows=rows, parts=parts, settings=settings,
            patience="wait", carrier=carrier,
        )  # fmt: skip
        paths = write_network(Path(folder), plan)
        results = run_network(paths, timeout=60.0 + config.rounds, own=own)
        models = [load_model(result["model"]) for result in results]
        told = [
            pyarrow.parquet.read_table(path.parent / "state" / "history.parquet").to_pylist()
            for path in paths
        ]
    total = Ledger(*(sum(result[name] for result in results) for name in Ledger._fields))
    said = resolved(config)[0] if own is None else type(own).__name__
    labels = Labels(said, LOSSES[models[0].loss].metric, [str(label) for label in parts])
    history = History.of_sites(labels, told, [_rows(rows, part) for part in parts.values()])
    converged = all(result["converged"] for result in results)
    proven = weakest([result["certificate"] for result in results])
    return _Found(
        models=models, history=history, rounds=max(r["rounds"] for r in results),
        converged=converged, ledger=total, certificate=proven,
    )  # fmt: skip
