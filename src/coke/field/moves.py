"""What a site computes in a round, by the functions that a simulation calls: θ, and what to tell.

An *elastic* algorithm bears neighbours that miss rounds, come or go: θ moves with the last
completed words of every open edge, and each edge that has no word is told news at its own step,

    θ ← argmin_θ R(θ) + ρ d ‖θ‖² − ρ θᵀ Σ_edges (own + cp − g),    d = number of open edges.

All sums are of numbers on the grid, so they are exact, and sites that wait for each other hold the
bits of the simulation. Any other algorithm runs in *lockstep*: `speak` and `listen` on its own row,
once the words of all neighbours are there; an edge that starts again or closes stops the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from coke.errors import ConvergenceError, InputError
from coke.field.edge import Edge, End
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.codecs import GRID, LIMIT, Codec, Float64
from coke.maths.algorithms.coke import COKE, Local, pull
from coke.maths.algorithms.stopping import NEVER, Limits
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses.risk import Risk
from coke.threads import OneThread

NOTHING = Ledger()


class Telling(NamedTuple):
    """What an edge is told in a step."""

    payload: bytes
    h: float = 0.0  # what the step leaves of the edge's threshold


Tellings = dict[str, Telling]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What stays fixed at one site."""

    name: str
    risk: Risk  # of one row: this site's
    algorithm: Algorithm
    limits: Limits  # with the tolerance in the norm of θ, and budgets of all sites together
    diameter: int  # of the graph; N − 1 is always enough
    sites: int  # N, that agreed and share a budget
    spent: Ledger = NOTHING  # by this site, on the agreement
    cap: float = math.inf  # on each entry of an edge's dual |γ_ij|
    weights: Mapping[str, float] = field(default_factory=dict)  # w_in in lockstep, itself included
    # Not for `replace` to take over: they follow from the fields above.
    _edges: dict[str, Edge] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.risk.T) != 1:
            raise InputError(f"{len(self.risk.T)} risks: expected the one of {self.name}")
        if not (0 <= self.diameter < NEVER - 1 and self.sites > 0 and self.cap > 0):
            raise InputError(
                f"diameter={self.diameter}, sites={self.sites}, cap={self.cap}: expected a "
                f"diameter from 0 to {NEVER - 2}, at least one site and cap > 0"
            )

    @cached_property
    def codec(self) -> Codec:
        """Of the messages, float64 where the algorithm has none; it remembers the last ones."""
        return _Remembering(self.algorithm.codec or Float64())

    @cached_property
    def width(self) -> int:
        """W, the numbers in a message."""
        return self.algorithm.width(self.risk)

    @cached_property
    def budget(self) -> bool:
        """Whether messages or bytes are limited."""
        return (self.limits.max_bytes, self.limits.max_transmissions) != (None, None)

    @cached_property
    def moves(self) -> _Elastic | _Lockstep:
        """How the site moves."""
        return _Elastic(self) if self.algorithm.elastic else _Lockstep(self)

    def edge(self, neighbour: str) -> Edge:
        """What stays fixed at this end of the edge to a neighbour."""
        if neighbour not in self._edges:
            start, cap = self.moves.threshold, self.moves.cap
            self._edges[neighbour] = Edge(
                self.codec, self.width, self.name < neighbour, start=start, cap=cap
            )
        return self._edges[neighbour]

    def step(self, s: Any, ends: Mapping[str, End], k: int) -> tuple[Any, Tellings]:
        """The state after round k, and what to tell on the open edges that have no word."""
        with self._one_thread.limit(), np.errstate(over="ignore", invalid="ignore"):
            s, told = self.moves.step(s, ends, k)
        if not (np.abs(s.theta) <= LIMIT).all():
            raise ConvergenceError(
                f"round {k}: θ of {self.name!r} is not finite or beyond {LIMIT:g}: "
                f"{self.algorithm} diverges here; use a smaller step size, or scale the inputs "
                "and targets"
            )
        return s, told

    def start(self) -> Any:
        """The algorithm's state before round 1."""
        with self._one_thread.limit():
            return self.algorithm.start(self.risk)

    @cached_property
    def _one_thread(self) -> OneThread:
        return OneThread()


class _Remembering:
    """Sites in step say the same on all edges: one encoding and one decoding serve them all."""

    def __init__(self, codec: Codec):
        self._codec = codec
        self._encoded = lru_cache(maxsize=64)(lambda x: codec.encode(np.frombuffer(x)))
        self._decoded = lru_cache(maxsize=256)(self._read)

    def encode(self, x: Array) -> bytes:
        """The message for x (W,)."""
        return self._encoded(x.tobytes())

    def decode(self, data: bytes, size: int) -> Array:
        """What it says (W,), read-only."""
        return self._decoded(data, size)

    def _read(self, data: bytes, size: int) -> Array:
        values = self._codec.decode(data, size)
        values.flags.writeable = False
        return values


class _Elastic:
    """COKE, whose edges may be at different steps; each keeps its part of the state."""

    kept = ("theta", "loss")  # of the state, beside what the edges keep

    def __init__(self, setup: Setup):
        # What `elastic` promises: `move` and `tell`, and pulls and duals that add up edge by edge.
        self._coke = replace(cast(COKE, setup.algorithm), codec=setup.codec)
        self._risk, self._local = setup.risk, dict[int, Local]()
        self.threshold = self._coke.threshold.start
        cap = math.floor(min(setup.cap / self._coke.rho, 2 * LIMIT) / GRID) * GRID
        self.cap = cap if math.isfinite(setup.cap) else math.inf
        self.rho = self._coke.rho

    def step(self, s: Any, ends: Mapping[str, End], k: int) -> tuple[Any, Tellings]:
        """θ from all open edges, and what it is news for."""
        d = len(ends)
        if d not in self._local:  # prepared anew when d changes
            self._local = {d: self._coke.local(self._risk, np.array([[float(d)]]))}
        pulls = np.zeros_like(s.theta)
        if ends:
            own, cp, g = (_stacked(ends, x) for x in ("own", "cp", "g"))
            pulls = pull(1.0, own, cp, g).sum(axis=0, keepdims=True)
        theta, loss = self._coke.move(self._local[d], s, pulls, k)
        s = s._replace(theta=theta, loss=loss)
        return s, self.tell(s, {n: end for n, end in ends.items() if end.out is None})

    def tell(self, s: Any, ends: Mapping[str, End]) -> Tellings:
        """News of θ for these edges; step s of an edge is told as round s + 1 of a simulation."""
        told: Tellings = {}
        for step in sorted({end.s for end in ends.values()}):
            here = {n: end for n, end in ends.items() if end.s == step}
            theta = np.repeat(s.theta, len(here), axis=0)
            h = np.array([[end.h] for end in here.values()])
            _, h, spoken = self._coke.tell(theta, _stacked(here, "own"), h, step + 1)
            for i, n in enumerate(here):
                told[n] = Telling(spoken.payloads.get(i, b""), float(h[i, 0]))
        return told

    def silenced(self, s: Any, ends: Mapping[str, End]) -> Any:
        """The state of a site whose message must not be sent: what was said is with the edges."""
        return s

    def bear(self, *neighbours: str) -> None:
        """Edges to these neighbours may start again or close."""


class _Lockstep:
    """Any algorithm with a codec, on its own row: every edge is at the same step."""

    cap = 0.0  # the algorithm keeps its own duals, if it has any
    threshold = 0.0
    rho = 0.0

    def __init__(self, setup: Setup):
        self._setup, self._algorithm = setup, setup.algorithm
        self._weights = sparse.csr_array(np.array([list(setup.weights.values())]))
        d = len(setup.weights.keys() - {setup.name})
        self._local = self._algorithm.local(setup.risk, np.array([[float(d)]]))

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """All of the state."""
        fields: tuple[str, ...] = self._setup.start()._fields
        return fields

    def step(self, s: Any, ends: Mapping[str, End], k: int) -> tuple[Any, Tellings]:
        """What was heard, and then what is said of it."""
        if k > 1:
            said = {n: end.cp for n, end in ends.items()} | {self._setup.name: s.hat[0]}
            hats = np.stack([said[n] for n in self._setup.weights])
            s = self._algorithm.listen(self._local, s, self._weights @ hats)
        before = s.hat
        s, spoken = self._algorithm.speak(self._local, s, k)
        payload = spoken.payloads.get(0, b"")
        size, width = int(spoken.size[0, 0]), self._setup.width
        told = before + self._setup.codec.decode(payload, width) if payload else before
        if size != len(payload) or not np.array_equal(told, s.hat):
            raise InputError(
                f"round {k}: {self._algorithm} says {len(payload)} bytes, counts {size} and goes "
                "on with another θ̂ than they tell: expected the sum of its decoded messages; "
                "make them by `coke.maths.algorithms.coke.say`"
            )
        return s, dict.fromkeys(ends, Telling(payload))

    def tell(self, s: Any, ends: Mapping[str, End]) -> Tellings:
        """Nothing: there is no word for an edge that starts again."""
        self.bear(*ends)
        return {}

    def silenced(self, s: Any, ends: Mapping[str, End]) -> Any:
        """The state of a site whose message must not be sent: θ̂ is what was said before."""
        return s._replace(hat=_stacked(ends, "own")[:1])

    def bear(self, *neighbours: str) -> None:
        """Refuses to go on where an edge has started again or is closed."""
        if neighbours:
            raise ConvergenceError(
                f"the edge of {self._setup.name!r} to {', '.join(neighbours)} has started again or "
                f"is closed: {self._algorithm} needs every word of every neighbour from the first "
                "on; begin a new run, or use an algorithm that bears it, such as coke"
            )


def _stacked(ends: Mapping[str, End], what: str) -> Array:
    return np.stack([getattr(end, what) for end in ends.values()])
