"""A site in the field: from its file to what its agent is for, and from θ to its model."""

from __future__ import annotations

import hashlib
from math import inf
from pathlib import Path

import networkx as nx
import numpy as np
from msgspec.structs import asdict

from coke import __version__
from coke.data.files import read_file
from coke.data.reading import PLAINLY
from coke.data.site import Kept
from coke.data.split import split
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.errors import ConfigError
from coke.field.moves import Setup
from coke.learning.agreement import Terms
from coke.learning.case import Case, Wanted
from coke.learning.kinds import Say, reading_of, with_kind, with_target
from coke.learning.model import NOTHING_CLOSED, Closed, Model
from coke.learning.public import check_labels
from coke.learning.ready import Ready
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import adjacency
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES, NUMBERS
from coke.settings.declaration import WAIT, SiteSettings
from coke.settings.sites import compared
from coke.talk.conversation import Network


def _check_algorithm(config: SiteSettings, own: Algorithm | None) -> None:
    """Refuses what an algorithm cannot do on agents, before anything is sent."""
    # Made as for two sites: what it needs does not depend on the network.
    seen = Seen(kappa=1.0, graph=nx.path_graph(2), spread=1.0)
    algorithm = own or ALGORITHMS[config.algorithm].build(asdict(config), seen)
    if algorithm.elastic:
        return
    what, table = f"algorithm = {own or config.algorithm!r} on agents", config.site
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

    def __init__(
        self, config: SiteSettings, rows: Rows | None = None, own: Algorithm | None = None,
        say: Say = PLAINLY.say,
    ):  # fmt: skip
        """From the rows of the site's file, or from these; with an own algorithm or a named one."""
        _check_algorithm(config, own)
        self._algorithm = own or config.algorithm
        self.config, self.name, self.joins = config, config.site.name, config.site.joins
        data = config.data
        if rows is None:
            self.config = config = with_kind(with_target(config), say, alone=True)
            data = config.data
            how = reading_of(config, say)
            rows = read_rows(
                str(data.file), data.targets, drop=data.drop, missing=data.missing, how=how
            )
        rows = rows._replace(sites=None)
        places = split({self.name: np.arange(len(rows.y))}, test=data.test, seed=config.seed)
        self.rows: Kept = places.kept(rows, numbers=LOSSES[config.loss].kind == NUMBERS)
        if config.classes:
            check_labels(config, self.rows)
        self.columns = rows.columns
        # All that must be the same at all sites, in words.
        self.settings = {"coke": __version__, **compared(config)}
        self.settings["inputs"] = ", ".join(rows.columns)
        sample = None
        if config.sample is not None:
            sample = inputs_of(read_table(config.sample), rows.columns)
            digest = hashlib.blake2b(read_file(config.sample), digest_size=8)
            self.settings["sample"] = digest.hexdigest()
        self.terms = Terms(config, rows.columns, sample, Path(config.site.releases))
        entry = ALGORITHMS[config.algorithm]
        tol = entry.tol if config.tol is None and own is None else config.tol
        self.wanted = Wanted(entry.basis and own is None, bool(tol) or config.site.cap < inf)

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        """The site's risk in the basis agreed on, and the algorithm that follows."""
        config, net, case = self.config, ready.agreement.net, self.case(ready)
        return Setup(
            name=self.name,
            risk=case.problem.train,
            algorithm=case.algorithm,
            limits=Limits(config.rounds, case.tol, config.max_bytes, config.max_transmissions),
            diameter=net.diameter,
            sites=ready.agreement.N,
            spent=spent,
            cap=inf if config.site.cap == inf else config.site.cap * self.unit(ready),
            weights={} if case.algorithm.elastic else self._weights(net, case.algorithm),
        )

    def unit(self, ready: Ready) -> float:
        """The pull that counts as 1 in the setting `cap`."""
        return ready.problem.train.kappa * (ready.spread or 1.0)

    def _weights(self, net: Network, algorithm: Algorithm) -> dict[str, float]:
        """w_in by name, in the order in which a simulation adds."""
        row = algorithm.weights(adjacency(net.graph))[[net.names.index(self.name)]]
        found = {net.names[n]: float(w) for n, w in zip(row.indices, row.data, strict=True)}
        strangers = sorted(found.keys() - {self.name, *self.config.site.neighbours})
        if strangers:
            raise ConfigError(
                f"{algorithm} lets {self.name!r} hear {', '.join(strangers[:8])}, no neighbours of "
                "it: expected weights on the edges of the graph only"
            )
        return found

    def case(self, ready: Ready) -> Case:
        """How the algorithm runs on what was agreed."""
        return ready.case(self._algorithm)

    def theta(self, ready: Ready, theta: Array) -> Array:
        """θ (D,) in the plain features."""
        return self.case(ready).theta(theta)

    def model(self, ready: Ready, theta: Array, closed: Closed = NOTHING_CLOSED) -> Model:
        """The site's own model."""
        return ready.model(self.theta(ready, theta), closed)
