"""A site in the field: from its file to what its agent is for, and from θ to its model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import numpy as np

from coke.data.files import read_file
from coke.data.sites import Sites, split_rows
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.engines.limits import Limits
from coke.errors import ConfigError, unknown
from coke.field.carriers import CARRIERS
from coke.field.identity import site_name
from coke.field.moves import Setup
from coke.learning.loading import choices
from coke.learning.model import Model
from coke.learning.prepare import Ready, Wanted, joining, site_talk
from coke.learning.task import plain_theta
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.settings import Config, Settings, read_settings, typed
from coke.talk.conversation import Network, Talk

WAIT, AUTO = "wait", "auto"
PRIVATE = (  # settings that sites need not have in common
    "new_budget", "data.file", "data.site", "data.agents", "data.sizes", "data.size_range",
    "data.split", "data.on_disk",
)  # fmt: skip


class SiteTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [site] of a site's file."""

    name: str
    network: str
    neighbours: dict[str, str]  # name → where to connect to; "" where it connects to us
    carrier: str = "zenoh"
    listen: list[str] = []
    identity: str | None = None
    state: str = "state"
    releases: str = "releases"
    run: int = 1
    joins: bool = False
    patience: float | str = AUTO
    cap: float = inf
    plaintext_loopback: bool = False


class SiteConfig(Config, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A site's file: the keys of `coke run`, and a table [site]."""

    site: SiteTable


def read_site(path: Path) -> SiteConfig:
    """The file, checked; paths in it are relative to its folder."""
    config = site_config(read_settings(path))
    base = path.resolve().parent
    table = config.site

    def beside(name: str | None) -> str | None:
        return None if name is None else str(base / name)

    data = msgspec.structs.replace(config.data, file=beside(config.data.file))
    own = msgspec.structs.replace(
        table,
        identity=beside(table.identity),
        state=str(base / table.state),
        releases=str(base / table.releases),
    )
    return msgspec.structs.replace(config, data=data, site=own, sample=beside(config.sample))


def site_config(settings: Settings) -> SiteConfig:
    """The typed settings, or `ConfigError` naming what is wrong."""
    config = typed(settings, SiteConfig)
    table = config.site
    for name in (table.name, table.network, *table.neighbours):
        site_name(name)
    if not table.neighbours:
        raise ConfigError(f"site {table.name!r} has no neighbours: name at least one")
    if config.data.file is None or config.data.target is None:
        raise ConfigError(f"site {table.name!r}: name its rows, data.file, and data.target")
    if config.beside:
        raise ConfigError("beside is for simulations: leave it out of a site's file")
    if table.carrier not in CARRIERS:
        raise ConfigError(unknown("carrier", table.carrier, CARRIERS))
    if isinstance(table.patience, str) and table.patience not in (AUTO, WAIT):
        raise ConfigError(f'patience={table.patience!r}: expected seconds, "{AUTO}" or "{WAIT}"')
    if not table.cap > 0:
        raise ConfigError(f"cap={table.cap}: expected a positive number of the target's spreads")
    _check_algorithm(config)
    return config


def _check_algorithm(config: SiteConfig) -> None:
    """Refuses what an algorithm cannot do on agents, before anything is sent."""
    # Made as for two sites: what it needs does not depend on the network.
    seen = Seen(kappa=1.0, graph=nx.path_graph(2), spread=1.0)
    algorithm = ALGORITHMS[config.algorithm].build(config.settings(), seen)
    if algorithm.elastic:
        return
    what, table = f'algorithm = "{config.algorithm}" on agents', config.site
    if algorithm.codec is None:
        raise ConfigError(
            f"{what}: its messages are raw float64 numbers, whose sums are not the same to the "
            "last bit at both ends of an edge: give it a codec, or run it in one process"
        )
    asked = {f"patience = {table.patience!r}": table.patience != WAIT, "joins = true": table.joins}
    for setting, wrong in asked.items():
        if wrong:
            raise ConfigError(
                f"{what} with {setting}: it runs in lockstep, with every word of every neighbour; "
                f'expected patience = "{WAIT}" and no site that joins later'
            )
    if table.cap < inf:
        raise ConfigError(f"{what} with a cap: it keeps no dual on an edge; leave the cap out")


class Mission:
    """What one site's agent is for: its rows and settings, and how they become a risk."""

    def __init__(self, config: SiteConfig, rows: Rows | None = None):
        """From the rows of the site's file, or from these."""
        self.config, self.name, self.joins = config, config.site.name, config.site.joins
        data = config.data
        if rows is None:
            rows = read_rows(str(data.file), str(data.target), drop=data.drop, missing=data.missing)
        rows = rows._replace(sites=None)
        parts = {self.name: np.arange(len(rows.y))}
        self.rows: Sites = split_rows(rows, parts, test=data.test, seed=config.seed)
        self.columns = rows.columns
        sample = None
        if config.sample is not None:
            sample = inputs_of(read_table(config.sample), rows.columns)
        self.choices = choices(config, rows.columns, sample, Path(config.site.releases))
        self.entry, self.tol = ALGORITHMS[config.algorithm], config.tolerance(config.algorithm)
        self.wanted = Wanted(self.entry.basis, bool(self.tol) or config.site.cap < inf)
        self.settings = self._common()  # all that must be the same at all sites, in words
        self.run = (
            self._digest()
        )  # what a state folder belongs to: it changes with rows and settings

    def _common(self) -> dict[str, str]:
        config, found = self.config, {"coke": version("coke")}
        plain = config.settings()
        del plain["site"]
        for key, value in _flat(plain):
            if key not in PRIVATE and not key.startswith("data.test"):
                found[key] = str(value)
        found["inputs"] = ", ".join(self.columns)
        found["network"], found["run"] = config.site.network, str(config.site.run)
        found["cap"] = str(config.site.cap)  # both ends of an edge must clip alike
        if config.sample is not None:
            found["sample"] = hashlib.blake2b(read_file(config.sample), digest_size=8).hexdigest()
        return found

    def _digest(self) -> str:
        digest = hashlib.blake2b(msgspec.json.encode(self.settings), digest_size=16)
        for part in (*self.rows.X, *self.rows.X_test):
            digest.update(np.ascontiguousarray(part).tobytes())
        for labels in (*self.rows.y, *self.rows.y_test):
            digest.update(repr(labels.tolist()).encode())
        return digest.hexdigest()

    def talk(self, neighbours: Sequence[str]) -> Talk[Ready]:
        """The conversation before training."""
        here = (self.rows, self.columns, sorted(neighbours))
        return site_talk(*here, self.choices, self.wanted)

    def join(self, totals: Sequence[bytes]) -> Ready:
        """The same from what the others have agreed on."""
        return joining(self.rows, self.columns, totals, self.choices, self.wanted)

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        """The site's risk in the basis agreed on, and the algorithm that follows."""
        config, net, risk = self.config, ready.task.net, ready.task.problem.train
        if ready.basis is not None:
            risk = risk.whitened(ready.basis)
        unit = ready.spread or 1.0
        algorithm = self.entry.build(config.settings(), Seen(risk.kappa, net.graph, unit))
        tol = None if self.tol is None else self.tol * unit
        return Setup(
            name=self.name,
            risk=risk,
            algorithm=algorithm,
            limits=Limits(config.rounds, tol, config.max_bytes, config.max_transmissions),
            diameter=net.diameter,
            sites=len(net.names),
            spent=spent,
            cap=inf if config.site.cap == inf else config.site.cap * (self.unit(ready) or 1.0),
            weights={} if algorithm.elastic else self._weights(net, algorithm),
        )

    def unit(self, ready: Ready) -> float | None:
        """The pull that counts as 1 in the setting `cap`; None where no spread was asked for."""
        known = ready.spread is not None
        return float(ready.task.problem.train.kappa * (ready.spread or 1.0)) if known else None

    def _weights(self, net: Network, algorithm: Algorithm) -> dict[str, float]:
        """w_in by name, in the order in which a simulation adds."""
        row = algorithm.weights(net.graph)[[net.names.index(self.name)]]
        found = {net.names[n]: float(w) for n, w in zip(row.indices, row.data, strict=True)}
        strangers = sorted(found.keys() - {self.name, *self.config.site.neighbours})
        if strangers:
            raise ConfigError(
                f"{algorithm} lets {self.name!r} hear {', '.join(strangers[:8])}, no neighbours of "
                "it: expected weights on the edges of the graph only"
            )
        return found

    def theta(self, ready: Ready, theta: Array) -> Array:
        """θ (D,) in the plain features."""
        return theta if ready.basis is None else plain_theta(ready.basis, ready.task.outputs, theta)

    def model(self, ready: Ready, theta: Array) -> Model:
        """The site's own model."""
        return ready.task.model(self.theta(ready, theta))


def _flat(settings: Settings, above: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, f"{above}{key}.")
        elif value not in (None, []):
            found.append((above + key, value))
    return found
