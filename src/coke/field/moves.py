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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from coke.errors import ConvergenceError, InputError
from coke.field.edge import FIRST, RESERVE, Edge, End, zero
from coke.field.frames import Standing
from coke.field.guarding import Look, Watch
from coke.field.remembering import RememberingCodec
from coke.field.renewal import Renewal
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.codecs import LIMIT, Codec, Float64
from coke.maths.algorithms.coke import COKE, Local, pull
from coke.maths.algorithms.stopping import NEVER, Limits
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger
from coke.maths.losses.risk import Risk
from coke.talk.handover import NOT_HANDED, Handed
from coke.threads import OneThread

NOTHING = Ledger()


class _Telling(NamedTuple):
    """What an edge is told in a step."""

    payload: bytes
    h: float = 0.0  # what the step leaves of the edge's threshold


Tellings = dict[str, _Telling]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What stays fixed at one site."""

    name: str
    risk: Risk  # of one row: this site's
    algorithm: Algorithm
    limits: Limits  # with the tolerance in the norm of θ, and budgets of all sites together
    reach: int  # steps to the farthest site at most; N − 1 is always enough
    sites: int  # N, that agreed and share a budget
    spent: Ledger = NOTHING  # by this site, on the agreement
    weights: Mapping[str, float] = field(default_factory=dict)  # w_in in lockstep, itself included
    watch: Watch | None = None  # looks at what the edges do to the site
    handed: Handed = NOT_HANDED  # what edges begin with
    reserve: frozenset[str] = frozenset()  # neighbours whose edge is closed until sites come or go
    # Not for `replace` to take over: they follow from the fields above.
    _edges: dict[str, Edge] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.risk.T) != 1:
            raise InputError(f"{len(self.risk.T)} risks: expected the one of {self.name}")
        if not (0 <= self.reach < NEVER - 1 and self.sites > 0):
            raise InputError(
                f"reach={self.reach}, sites={self.sites}: expected a reach from 0 to {NEVER - 2}, "
                "and at least one site"
            )

    @cached_property
    def codec(self) -> Codec:
        """Of the messages, float64 where the algorithm has none; it remembers what it read."""
        codec = self.algorithm.codec or Float64()
        return RememberingCodec(codec)

    @cached_property
    def share(self) -> tuple[float, ...]:
        """What this site may have sent: the three numbers of a ledger at most."""
        return tuple(self.limits.share(self.sites).tolist())

    @cached_property
    def moves(self) -> _Elastic | _Lockstep:
        """How θ moves and what is told: elastic or in lockstep, as the algorithm declares."""
        return _Elastic(self) if self.algorithm.elastic else _Lockstep(self)

    def edge(self, neighbour: str) -> Edge:
        """What stays fixed at this end of the edge to a neighbour."""
        if neighbour not in self._edges:
            moves, lower = self.moves, self.name < neighbour
            self._edges[neighbour] = Edge(
                codec=self.codec, size=moves.width, lower=lower, start=moves.start,
                integrates=self.algorithm.elastic, bases=self.handed.bases.get(neighbour, {}),
            )  # fmt: skip
        return self._edges[neighbour]

    def ends(self, neighbours: Iterable[str]) -> dict[str, End]:
        """The edges before round 1: open, and nothing said."""
        at, known = Standing(self.handed.at, False), self.handed.bases
        first = dict.fromkeys(known, at) | dict.fromkeys(self.reserve, RESERVE)
        return {n: zero(self.edge(n), first.get(n, FIRST)) for n in sorted(neighbours)}

    def step(self, s: Any, ends: Mapping[str, End], k: int | None = None) -> tuple[Any, Tellings]:
        """The state after round k, and what to tell on these edges where they have no word.

        Without a round nothing moves: only edges that have just started are told.
        """
        with self._one_thread.limit(), np.errstate(over="ignore", invalid="ignore"):
            return self.moves.step(s, ends, k)

    def away(self, theta: Array, ends: Mapping[str, End], wide: bool) -> float:
        """How far from having nothing left to do, in parts of what may be: at most 1 for that.

        As completed words tell it; a proof is of all sites that agreed (not `wide`).
        """
        if not ends:
            return math.inf if self.limits.tol is None else 0.0
        own, cp, g = map(np.array, zip(*((e.own, e.cp, e.g) for e in ends.values()), strict=True))
        own, cp = self.moves.told(own), self.moves.told(cp)
        moved, apart = (np.vecdot(x, x).max(keepdims=True) for x in (theta - own, own - cp))
        with self._one_thread.limit():
            pulls = g.sum(axis=0, keepdims=True)
            return float(self.limits.away(moved, apart, own[:1], pulls, not wide)[0])

    def suspicious(self, s: Any, ends: Mapping[str, End], k: int, wide: bool) -> str | None:
        """Whose edge is closed before θ moves by it."""
        if self.watch is None:
            return None
        return self.watch.cut(Look(k, wide, float(s.loss[0]), self.moves.rho, ends))

    @property
    def renewal(self) -> Renewal:
        """When all begin anew, as somebody has closed an edge: never where nobody audits."""
        audit = None if self.watch is None else self.watch.audit
        return Renewal() if audit is None else audit.renewal

    def lacking(self, need: Ledger) -> str:
        """Why nothing could be said even in round 1, all it would have spent being this."""
        limits, N, spent = self.limits, self.sites, self.spent
        budget = {"max_transmissions": limits.max_transmissions, "max_bytes": limits.max_bytes}
        least = {"max_transmissions": N * need.transmissions, "max_bytes": N * need.bytes}
        enough = " and ".join(f"{key}={least[key]}" for key in least if budget[key] is not None)
        return (
            f"a budget of {budget} is too small: {self.name!r}, whose share is one part in {N}, "
            f"had sent {spent.bytes} bytes in {spent.transmissions} transmissions to agree, and "
            f"its first message would have made it {need.bytes} in {need.transmissions}; for this "
            f"site {enough} would do"
        )

    def diverged(self, k: int) -> ConvergenceError:
        """For a round whose θ no message can carry."""
        return ConvergenceError(
            f"round {k}: θ of {self.name!r} is not finite or beyond {LIMIT:g}: {self.algorithm} "
            "diverges here; use a smaller step size, or scale the inputs and targets"
        )

    def start(self) -> Any:
        """The algorithm's state before round 1."""
        with self._one_thread.limit():
            return self.algorithm.start(self.risk)

    @cached_property
    def _one_thread(self) -> OneThread:
        return OneThread()


class _Elastic:
    """COKE, whose edges may be at different steps; each keeps its part of the state."""

    kept = ("theta", "loss")  # of the state, beside what the edges keep
    told = staticmethod(np.asarray)  # θ as words tell it: they are θ̂

    def __init__(self, setup: Setup):
        # What `elastic` promises: `move` and `tell`, and pulls and duals that add up edge by edge.
        # Sites that begin from a common model have nothing to say of their own.
        given = cast(COKE, setup.algorithm)
        warm = given.warm and not setup.handed.at
        self._coke = replace(given, codec=setup.codec, warm=warm)
        self._setup, self._risk, self._local = setup, setup.risk, dict[int, Local]()
        self.width, self.rho = setup.risk.size, self._coke.rho
        self.start = self._coke.threshold.start

    def step(self, s: Any, ends: Mapping[str, End], k: int | None) -> tuple[Any, Tellings]:
        """θ of round k from these edges, and what it is news for; None: the θ there is.

        Step s of an edge is told as round s + 1 of a simulation; edges in step are told the same.
        """
        alike = _alike(ends)
        if k is not None:
            d, pulls = len(ends), np.zeros_like(s.theta)
            if d not in self._local:  # prepared anew when d changes
                self._local = {d: self._coke.local(self._risk, np.array([[float(d)]]))}
            if ends:
                words = [(end.own, end.cp, end.g) for end in ends.values()]
                own, cp, g = map(np.array, zip(*words, strict=True))
                pulls = pull(1.0, own, cp, g).sum(axis=0, keepdims=True)
            theta, loss = self._coke.move(self._local[d], s, pulls, k)
            if not (np.abs(theta) <= LIMIT).all():
                raise self._setup.diverged(k)
            s = s._replace(theta=theta, loss=loss)
        told: Tellings = {}
        for names in alike:
            end = ends[names[0]]
            h, own = np.array([[end.h]]), end.own[None]
            _, after, spoken = self._coke.tell(s.theta, own, h, end.s + 1)
            told |= dict.fromkeys(names, _Telling(spoken.payloads.get(0, b""), float(after[0, 0])))
        return s, told

    def silenced(self, s: Any, ends: Mapping[str, End]) -> Any:
        """The state of a site whose message must not be sent: what was said is with the edges."""
        return s

    def bear(self, *neighbours: str) -> None:
        """Edges to these neighbours may start again or close."""


def _alike(ends: Mapping[str, End]) -> list[list[str]]:
    """Those that have no word, by name, where one serves all: same step, threshold and words."""
    found = dict[tuple[int, float, bytes], list[str]]()
    for n, end in ends.items():
        if end.out is None:
            found.setdefault((end.s, end.h, end.own.tobytes()), []).append(n)
    return list(found.values())


class _Lockstep:
    """Any algorithm with a codec, on its own row: every edge is at the same step."""

    start = rho = 0.0  # it keeps its own duals and thresholds, if it has any

    def __init__(self, setup: Setup):
        self._setup, self._algorithm = setup, setup.algorithm
        self.width, self.told = setup.algorithm.width(setup.risk), setup.algorithm.told
        self._weights = sparse.csr_array(np.array([list(setup.weights.values())]))
        self._local: Any = None

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """Names of the state's arrays: all of them are kept on disk."""
        fields: tuple[str, ...] = self._setup.start()._fields
        return fields

    def step(self, s: Any, ends: Mapping[str, End], k: int | None) -> tuple[Any, Tellings]:
        """What was heard, and then what is said of it; an edge that starts again is not borne."""
        if k is None:
            self.bear(*ends)
            return s, {}
        if self._local is None:
            d = np.array([[float(len(ends))]])
            self._local = self._algorithm.local(self._setup.risk, d)
        if k > 1:
            said = {n: end.cp for n, end in ends.items()} | {self._setup.name: s.hat[0]}
            hats = np.stack([said[n] for n in self._setup.weights])
            s = self._algorithm.listen(self._local, s, self._weights @ hats)
        before = s.hat
        s, spoken = self._algorithm.speak(self._local, s, k)
        if not (np.abs(s.theta) <= LIMIT).all():
            raise self._setup.diverged(k)
        payload = spoken.payloads.get(0, b"")
        size = int(spoken.size[0, 0])
        told = before + self._setup.codec.decode(payload, self.width) if payload else before
        if size != len(payload) or not np.array_equal(told, s.hat):
            raise InputError(
                f"round {k}: {self._algorithm} says {len(payload)} bytes, counts {size} and goes "
                "on with another θ̂ than they tell: expected the sum of its decoded messages; "
                "make them by `coke.maths.algorithms.coke.say`"
            )
        return s, dict.fromkeys(ends, _Telling(payload))

    def silenced(self, s: Any, ends: Mapping[str, End]) -> Any:
        """The state of a site whose message must not be sent: θ̂ is what was said before."""
        return s._replace(hat=next(iter(ends.values())).own[None])

    def bear(self, *neighbours: str) -> None:
        """Refuses to go on where an edge has started again or is closed."""
        if neighbours:
            raise ConvergenceError(
                f"the edge of {self._setup.name!r} to {', '.join(neighbours)} has started again or "
                f"is closed: {self._algorithm} needs every word of every neighbour from the first "
                "on; begin a new run, or use an algorithm that bears it, such as coke"
            )
