"""A site in the field: from its file to an agent's mission, and from the outcome to a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coke.data.files import read_file
from coke.data.sites import Sites, split_rows
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.field.agent import Outcome
from coke.field.carriers.address import Place
from coke.field.carriers.base import Limits
from coke.field.edge import Setup
from coke.field.identity import load
from coke.field.pace import Pace
from coke.learning.loading import choices
from coke.learning.model import Model
from coke.learning.prepare import Ready, joining, site_talk
from coke.learning.task import algorithm_of, plain_theta
from coke.maths.algorithms.coke import COKE, automatic
from coke.maths.arrays import Array
from coke.settings.declaration import AUTO, WAIT, SiteSettings
from coke.settings.sites import compared
from coke.talk.conversation import Talk


def pace_of(config: SiteSettings) -> Pace:
    """How long to wait for whom."""
    waits: dict[str, float | None] = {AUTO: None, WAIT: inf}
    patience = config.site.patience
    wait = waits[patience] if isinstance(patience, str) else patience
    return Pace(patience=wait).checked()


def place_of(config: SiteSettings) -> Place:
    """Where the site is on the network; its certificates are checked now."""
    table = config.site
    identity = None
    if table.identity is not None:
        identity = load(Path(table.identity), table.name, datetime.now(UTC))
    return Place(
        table.name, table.network, tuple(table.listen),
        {name: address or None for name, address in table.neighbours.items()},
        identity, Limits(), allow_plaintext_loopback=table.plaintext_loopback,
    )  # fmt: skip


class FieldMission:
    """What one site's agent is for."""

    def __init__(self, config: SiteSettings, rows: Rows | None = None):
        """From the rows of the site's file, or from these."""
        self.config = config
        data, table = config.data, config.site
        if rows is None:
            assert data.file is not None
            assert data.target is not None
            rows = read_rows(data.file, data.target, drop=data.drop, missing=data.missing)
        rows = rows._replace(sites=None)
        parts = {table.name: np.arange(len(rows.y))}
        self.rows: Sites = split_rows(rows, parts, test=data.test, seed=config.seed)
        self.columns = rows.columns
        sample = None
        if config.sample is not None:
            sample = inputs_of(read_table(config.sample), rows.columns)
        self.choices = choices(config, rows.columns, sample, Path(table.releases))

    @property
    def name(self) -> str:
        """The site."""
        return self.config.site.name

    @property
    def rounds(self) -> int:
        """At most so many."""
        return self.config.rounds

    @property
    def joins(self) -> bool:
        """Whether the others began without it."""
        return self.config.site.joins

    @cached_property
    def settings(self) -> dict[str, str]:
        """All that must be common, in words."""
        config = self.config
        found = {"coke": version("coke"), **compared(config), "inputs": ", ".join(self.columns)}
        if config.sample is not None:
            found["sample"] = hashlib.blake2b(read_file(config.sample), digest_size=8).hexdigest()
        return found

    @cached_property
    def run(self) -> str:
        """Changes whenever the rows or the settings do."""
        digest = hashlib.blake2b(msgspec.json.encode(self.settings), digest_size=16)
        for part in (*self.rows.X, *self.rows.X_test):
            digest.update(np.ascontiguousarray(part).tobytes())
        for labels in (*self.rows.y, *self.rows.y_test):
            digest.update(repr(labels.tolist()).encode())
        return digest.hexdigest()

    def talk(self, neighbours: Sequence[str]) -> Talk[Ready]:
        """The conversation before training."""
        return site_talk(self.rows, self.columns, sorted(neighbours), self.choices)

    def join(self, totals: Any) -> Ready:
        """The same from what the others have agreed on."""
        return joining(self.rows, self.columns, totals, self.choices)

    def totals(self, ready: Ready) -> tuple[bytes, ...]:
        """For those who join later."""
        return ready.totals

    def setup(self, ready: Ready) -> Setup:
        """The site's risk in the basis agreed on, and the algorithm that follows."""
        config, task, (basis, spread) = self.config, ready.task, ready.agreed
        algorithm = algorithm_of(config, config.algorithm)
        risk = task.problem.train
        if algorithm is None:
            risk = risk.whitened(basis)
            algorithm = automatic(risk.kappa, task.net.graph, spread)
        assert isinstance(algorithm, COKE)  # CTA is refused above
        tol = config.tolerance(config.algorithm)
        limit = None if tol is None else tol * spread
        cap = config.site.cap * self.unit(ready)
        return Setup(self.name, risk, algorithm, task.net.diameter, limit, cap)

    def unit(self, ready: Ready) -> float:
        """The pull that counts as 1 in the setting `cap`."""
        return float(ready.task.problem.train.kappa * (ready.agreed.spread or 1.0))

    def widest(self, ready: Ready) -> int:
        """N − 1."""
        return len(ready.task.net.names) - 1

    def theta(self, ready: Ready, outcome: Outcome) -> Array:
        """In the plain features."""
        if self.config.algorithm != "coke":
            return outcome.theta
        return plain_theta(ready.agreed.basis, ready.task.outputs, outcome.theta)

    def model(self, ready: Ready, outcome: Outcome) -> Model:
        """The site's own model."""
        return ready.task.model(self.theta(ready, outcome))
