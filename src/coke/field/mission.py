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
from coke.data.site import Kept, split
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.errors import ConfigError
from coke.field.agent import Outcome
from coke.field.carriers.address import Place
from coke.field.carriers.base import Limits
from coke.field.edge import Setup
from coke.field.identity import load, site_name
from coke.field.pace import Pace
from coke.learning.agreement import Terms
from coke.learning.model import Model
from coke.learning.ready import Ready, Wanted, joining, site_talk
from coke.maths.algorithms import ALGORITHMS
from coke.maths.algorithms.coke import COKE
from coke.maths.arrays import Array
from coke.maths.losses import LOSSES
from coke.settings import Config, Settings, read_settings, typed
from coke.talk.conversation import Talk

WAIT, AUTO = "wait", "auto"
SIMULATED = ("max_bytes", "max_transmissions", "beside")  # settings of simulations only
PRIVATE = (  # settings that sites need not have in common
    "new_budget", "data.file", "data.site", "data.agents", "data.sizes", "data.size_range",
    "data.split", "data.on_disk",
)  # fmt: skip


class SiteTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [site] of a site's file."""

    name: str
    network: str
    neighbours: dict[str, str]  # name → where to connect to; "" where it connects to us
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
    if config.algorithm == "cta":
        raise ConfigError('algorithm = "cta" is for simulations: expected coke, coke-paper or dkla')
    for key in SIMULATED:
        if getattr(config, key):
            raise ConfigError(f"{key} is for simulations: leave it out of a site's file")
    if isinstance(table.patience, str) and table.patience not in (AUTO, WAIT):
        raise ConfigError(f'patience={table.patience!r}: expected seconds, "{AUTO}" or "{WAIT}"')
    if not table.cap > 0:
        raise ConfigError(f"cap={table.cap}: expected a positive number of the target's spreads")
    return config


def pace_of(config: SiteConfig) -> Pace:
    """How long to wait for whom."""
    waits: dict[str, float | None] = {AUTO: None, WAIT: inf}
    patience = config.site.patience
    wait = waits[patience] if isinstance(patience, str) else patience
    return Pace(patience=wait).checked()


def place_of(config: SiteConfig) -> Place:
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

    def __init__(self, config: SiteConfig, rows: Rows | None = None):
        """From the rows of the site's file, or from these."""
        self.config = config
        data, table = config.data, config.site
        if rows is None:
            assert data.file is not None
            assert data.target is not None
            rows = read_rows(data.file, data.target, drop=data.drop, missing=data.missing)
        rows = rows._replace(sites=None)
        parts = {table.name: np.arange(len(rows.y))}
        places = split(parts, test=data.test, seed=config.seed)
        self.rows: Kept = places.kept(rows, numbers=LOSSES[config.loss].kind == "numbers")
        self.columns = rows.columns
        sample = None
        if config.sample is not None:
            sample = inputs_of(read_table(config.sample), rows.columns)
        self.terms = Terms(config, rows.columns, sample, Path(table.releases))

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
        return site_talk(self.rows, sorted(neighbours), self.terms, self.want)

    def join(self, totals: Any) -> Ready:
        """The same from what the others have agreed on."""
        return joining(self.rows, self.terms, totals, self.want)

    def totals(self, ready: Ready) -> tuple[bytes, ...]:
        """For those who join later."""
        assert ready.alone is not None
        return ready.alone.totals

    @property
    def want(self) -> Wanted:
        """What the algorithm needs of the agreement."""
        entry, tol = ALGORITHMS[self.config.algorithm], self.config.tolerance(self.config.algorithm)
        return Wanted(entry.basis, tol is not None or self.config.site.cap < inf)

    def setup(self, ready: Ready) -> Setup:
        """The site's risk in the basis agreed on, and the algorithm that follows."""
        config, case = self.config, ready.case(self.config.algorithm)
        assert isinstance(case.algorithm, COKE)  # CTA is refused above
        limit, cap = case.tolerance(config.tolerance(config.algorithm)), config.site.cap
        diameter, unit = ready.agreement.net.diameter, self.unit(ready)
        return Setup(self.name, case.problem.train, case.algorithm, diameter, limit, cap * unit)

    def unit(self, ready: Ready) -> float:
        """The pull that counts as 1 in the setting `cap`."""
        return float(ready.problem.train.kappa * (ready.spread or 1.0))

    def widest(self, ready: Ready) -> int:
        """N − 1."""
        return ready.agreement.N - 1

    def theta(self, ready: Ready, outcome: Outcome) -> Array:
        """In the plain features."""
        return ready.case(self.config.algorithm).theta(outcome.theta)

    def model(self, ready: Ready, outcome: Outcome) -> Model:
        """The site's own model."""
        return ready.agreement.model(self.theta(ready, outcome))


def _flat(settings: Settings, above: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, f"{above}{key}.")
        elif value not in (None, []):
            found.append((above + key, value))
    return found
