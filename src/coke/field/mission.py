"""A site in the field: from its file to what its agent is for, and from θ to its model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from coke import __version__
from coke.data.files import read_file
from coke.data.reading import PLAINLY
from coke.data.site import Kept
from coke.data.split import split
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.errors import ConfigError
from coke.field.auditing import NodeAudit
from coke.field.guarding import Watch
from coke.field.moves import Setup
from coke.field.node import Node
from coke.field.signing import Signer
from coke.learning.case import Case, Wanted
from coke.learning.kinds import Say, reading_of, with_kind, with_target
from coke.learning.model import NOTHING_CLOSED, Closed, Model
from coke.learning.ready import Ready
from coke.learning.terms import Terms, check_labels
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.audit import Flows
from coke.maths.graph import Graph, Shape, adjacency, networks
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES, NUMBERS
from coke.privacy.share import Signing
from coke.settings.declaration import WAIT, SiteSettings
from coke.settings.sites import compared, digest_of
from coke.talk.place import Place
from coke.talk.thinning import thinned

if TYPE_CHECKING:
    from coke.field.agreeing import Agree
    from coke.field.phases import Desk
    from coke.field.store import Store
    from coke.field.streaming import Follow


def _elastic(config: SiteSettings, own: Algorithm | None) -> bool:
    """Whether the algorithm is; refuses what one cannot do on agents, before anything is sent."""
    # Made as for two sites: what it needs does not depend on the network.
    seen = Seen(kappa=1.0, shape=Shape(2, 1, 1, 1), spread=1.0)
    algorithm = own or ALGORITHMS[config.algorithm].build(asdict(config), seen)
    if algorithm.elastic:
        return True
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
    return False


def _check_approved(config: SiteSettings, common: dict[str, str]) -> None:
    """Refuses settings that the owner has not confirmed, before anything is sent."""
    digest, approved = digest_of(common), config.site.approve
    if approved in (None, digest):
        return
    to = ", ".join(sorted(config.site.neighbours))
    each = ", ".join(f"{key} = {value}" for key, value in common.items())
    raise ConfigError(
        f"approve = {approved!r}, but the settings that all sites share have digest {digest!r}: "
        f"{each}. {to} and nobody else will be told these, then this site's part in the agreement, "
        "then its words or sums in training (docs/privacy.md); if you agree, write "
        f'approve = "{digest}" into [site]'
    )


def _signing(config: SiteSettings) -> Signing | None:
    """How its key in a secure sum is signed."""
    from coke.field.vouching import vouching  # here: others need no certificates

    return vouching(config.site)


def _weights(place: Place, algorithm: Algorithm) -> dict[str, float]:
    """w_in by name, in the order in which a simulation adds.

    A site knows its neighbours and how many each of them has, not who these are. So the algorithm
    is asked twice, with two guesses at the rest of the graph that have nothing else in common.
    """
    near = {place.name: len(place.degrees), **place.degrees}
    names, rows = sorted(near), []
    for graph in (_guessed(place.name, near, joint) for joint in (False, True)):
        row = algorithm.weights(adjacency(graph))[[names.index(place.name)]]
        rows.append(dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)))
    if rows[0] != rows[1] or max(rows[0]) >= len(names):
        raise ConfigError(
            f"{algorithm} on agents: its weights need more of the graph than a site knows, its "
            "neighbours and how many neighbours each has; expected weights on its edges that "
            "follow from these, such as Metropolis weights"
        )
    return {names[n]: w for n, w in rows[0].items()}


def _guessed(me: str, near: Mapping[str, int], joint: bool) -> Graph:
    """A graph in which the sites near have so many neighbours: each its own, or some they share.

    Those they share have more neighbours than anybody.
    """
    names = sorted(near)
    graph = networks().empty_graph(len(names))
    graph.add_edges_from((names.index(me), n) for n, name in enumerate(names) if name != me)
    for n, name in enumerate(names):
        beyond = range(near[name] - graph.degree[n])
        graph.add_edges_from((n, (0 if joint else n, "beyond", k)) for k in beyond)
    if joint:
        shared = list(graph)[len(names) :]
        graph.add_edges_from((n, (n, k)) for n in shared for k in range(sum(near.values())))
    return graph


def _release() -> str:
    """The part of the version that sites must share: the last number changes no bit and no byte."""
    return ".".join(__version__.split(".")[:2])


class Mission:
    """What one site's agent is for: its rows and settings, and how they become a risk."""

    def __init__(
        self, config: SiteSettings, rows: Rows | None = None, own: Algorithm | None = None,
        say: Say = PLAINLY.say,
    ):  # fmt: skip
        """From the rows of the site's file, or from these; with an own algorithm or a named one."""
        _elastic(config, own)
        self._algorithm = own or config.algorithm
        self.config, self.name, self.joins = config, config.site.name, config.site.joins
        data = config.data
        if rows is None:
            self.config = config = with_kind(with_target(config), say, alone=True)
            data = config.data
            how = reading_of(config, say)
            rows = read_rows(
                str(data.file), data.targets, weight=data.weight, drop=data.drop,
                missing=data.missing, how=how,
            )  # fmt: skip
        rows = rows._replace(sites=None)
        places = split({self.name: np.arange(len(rows.y))}, test=data.test, seed=config.seed)
        self.rows: Kept = places.kept(rows, numbers=LOSSES[config.loss].kind == NUMBERS)
        if config.classes:
            check_labels(config, self.rows)
        self.columns = rows.columns
        # All that must be the same at all sites, in words.
        self.settings = {"coke": _release(), **compared(config)}
        self.settings["inputs"] = ", ".join(rows.columns)
        sample = None
        if config.sample is not None:
            sample = inputs_of(read_table(config.sample), rows.columns)
            digest = hashlib.blake2b(read_file(config.sample), digest_size=8)
            self.settings["sample"] = digest.hexdigest()
        _check_approved(config, self.settings)
        signing = _signing(config) if config.secure_sum else None
        releases = Path(config.site.releases)
        self.terms = Terms(config, rows.columns, sample, releases, signing=signing)
        entry = ALGORITHMS[config.algorithm]
        tol = entry.tol if config.tol is None and own is None else config.tol
        most = config.site.max_sites
        self.wanted = Wanted(entry.basis and own is None, bool(tol), most)
        self.signer: Signer | None = None

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        """The site's risk in the basis agreed on, and the algorithm that follows."""
        config, (place,), case = self.config, ready.places, self.case(ready)
        return Setup(
            name=self.name,
            risk=case.problem.train,
            algorithm=case.algorithm,
            limits=Limits(
                config.rounds, case.tol, config.max_bytes, config.max_transmissions, near=case.near
            ),
            reach=place.reach,
            sites=ready.agreement.N,
            spent=spent,
            weights={} if case.algorithm.elastic else _weights(place, case.algorithm),
            watch=self._watch(ready, case),
            reserve=place.reserve if case.thin else frozenset(),
        )

    def _watch(self, ready: Ready, case: Case) -> Watch | None:
        """What looks at the edges; not where noise hides what they do, or they keep no duals."""
        if ready.noised is not None or not case.algorithm.elastic:
            return None
        risk, v, N = case.problem.train, case.spread**2, ready.agreement.N
        (place,), shape = ready.places, ready.agreement.shape
        usual = (N - 1) / max((thinned(shape) if case.thin else shape).edges, 1)
        v, usual = v if risk.sums is not None else 0.0, min(usual, 1.0) or 1.0
        watch = Watch(risk, N, v, usual, place.parted)
        told = {} if ready.second is None else ready.second.told
        if self.name in told and self.signer is not None:  # not of a site that came later
            flows = Flows(told, case.spread**2)
            watch.audit = NodeAudit(self.name, flows, self.signer, risk.size)
        return watch

    def wants(self, folder: Path) -> Wanted:
        """What it wants of the agreement: under a guard, that all know its key of this run."""
        if self.config.guard and self.signer is None:
            self.signer = Signer.kept(folder)
            self.wanted = self.wanted._replace(key=self.signer.public)
        return self.wanted

    def follow(self, desk: Desk, store: Store, agreed: Agree, finishing: bool) -> Follow | None:
        """How it follows its source; None where its rows are all there."""
        return None

    def begun(self, node: Node) -> Node:
        """The site before its first round: as it is."""
        return node

    def case(self, ready: Ready) -> Case:
        """How the algorithm runs on what was agreed."""
        return ready.case(self._algorithm)

    def theta(self, ready: Ready, theta: Array) -> Array:
        """θ (D,) in the plain features."""
        return self.case(ready).theta(theta)

    def model(self, ready: Ready, theta: Array, closed: Closed = NOTHING_CLOSED) -> Model:
        """The site's own model."""
        return ready.model(self.theta(ready, theta), closed)
