"""Sites that agree while one of them lies in a conversation, and what that does to the answer.

A liar keeps to the conversation, or all would wait for it, and forges what it tells in one of its
sums: without a guard of all sites below it, with one of itself, as claims go by name and all
compare them. What follows is trained without a lie, so that harm is of that sum alone: the squared
error of the optimum on rows of honest sites that were held out, by that of an honest agreement.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.site import Kept, Site
from coke.errors import CokeError
from coke.learning.agreement import numbers
from coke.learning.basis import Basis, common_basis
from coke.learning.doubts import doubts, outdone
from coke.learning.ready import Ready, _made, agree
from coke.learning.terms import Terms
from coke.maths.algorithms.integers import pack_integers, unpack_integers
from coke.maths.arrays import Array
from coke.maths.choice.errors import NOISES
from coke.maths.choice.quantiles import Sketch
from coke.maths.graph import Graph
from coke.talk.conversation import Talk, together
from coke.talk.place import Place
from coke.talk.sums import Part, swept
from coke.talk.wave import waves

Forge = Callable[[bytes, int], bytes]
"""Of what would be told, and the number of columns."""


class Hearsay(NamedTuple):
    """A lie in a sum of the agreement."""

    where: str  # the function whose sum it is
    forge: Forge


def _whole(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def _rows(T: float) -> Forge:
    def forge(data: bytes, d: int) -> bytes:
        told = _whole(data)
        return data if told is None else msgspec.msgpack.encode([T, *told[1:]])

    return forge


def _means(far: int) -> Forge:
    """All columns that far away, in steps of a spread's 2⁻⁸."""

    def forge(data: bytes, d: int) -> bytes:
        T, moments, *rest = _whole(data)
        if moments is None:
            return data
        places = unpack_integers(moments[0], d + 1) + far
        return msgspec.msgpack.encode([T, [pack_integers(places), *moments[1:]], *rest])

    return forge


def _sketch(change: Callable[[Sketch], Sketch]) -> Forge:
    return lambda data, d: change(Sketch.decode(data, d)).encode()


def _told(change: Callable[[Array, int], Array]) -> Forge:
    """Whole numbers, all of them."""

    def forge(data: bytes, d: int) -> bytes:
        count = next(k for k in _lengths(d) if _fits(data, k))
        told = change(unpack_integers(data, count).astype(np.float64), d)
        return pack_integers(np.clip(np.rint(told), -(2.0**47), 2.0**47).astype(np.int64))

    return forge


def _lengths(d: int) -> Sequence[int]:
    """How many numbers a sum of the choice can have: of bandwidths, errors, or what follows."""
    return (3 + 2 * (d + 1) + 2 * (2 * d + 1), 4 * len(NOISES) + 1, *range(1, 4000))


def _fits(data: bytes, k: int) -> bool:
    try:
        unpack_integers(data, k)
    except CokeError:
        return False
    return True


def _leaning(p: float) -> Forge:
    """Every bandwidth as far off as can be, and surely."""

    def change(told: Array, d: int) -> Array:
        head = 3 + 2 * (d + 1)
        for at in (head, head + 2 * d + 1):
            told[at : at + d] = 1e6
            told[at + d : at + 2 * d] = 16e6 * p
        return told

    return _told(change)


def _errors(of: Callable[[Array], Array]) -> Forge:
    """Other curves (4, 13) of errors, with ten times the weight."""

    def change(told: Array, d: int) -> Array:
        weight = max(10.0 * told[-1], 1e6)
        curves = of(told[:-1].reshape(4, -1) / max(told[-1], 1.0))
        return np.append(weight * curves, weight)

    return _told(change)


def _best(which: int) -> Forge:
    """One model is perfect and all others are useless."""
    return _errors(lambda curves: np.where(np.arange(4)[:, None] == which, 0.0, 1e3 + 0 * curves))


def _noise(at: int) -> Forge:
    return _errors(lambda curves: np.where(np.arange(13)[None] == at, 0.0, 1e3 + 0 * curves))


def _taken(data: bytes, d: int) -> bytes:
    """Instead of the useful frequencies the last ones."""

    def change(told: Array, d: int) -> Array:
        told[:] = 0.0
        pool = len(told) // 2
        told[pool - pool // 6 : pool] = 1e6
        return told

    return _told(change)(data, d)


def _spot(data: bytes, d: int) -> bytes:
    """All inputs on one spot, and so many of them that nobody else's count; after the target."""
    head, n = data[:12], data[13]
    weights = np.full(n, 1e20, "<f4").tobytes()
    body = data[14 + 4 * n :]
    size = next(k for k in (n * d * (r + 2) for r in range(0, 40)) if _fits(body, k))
    return head + data[12:14] + weights + pack_integers(np.zeros(size, np.int64))


def _spread(sd: float) -> Forge:
    def forge(data: bytes, d: int) -> bytes:
        T, mean, _ = np.frombuffer(data[:12], "<f4")
        return np.array([T, mean, sd], "<f4").tobytes() + data[12:]

    return forge


def _apart(told: Array, d: int) -> Array:
    """Squares of means that no rows have: sites differ."""
    told[4 + d : 3 + 2 * (d + 1)] += 1e9
    return told


def _noisy(told: Array, d: int) -> Array:
    return told + 1e3 * np.random.default_rng(0).normal(size=len(told))


def _of_many(**change: Callable[[Any], Any]) -> Hearsay:
    """A sketch of 1e15 rows."""

    def forged(one: Sketch) -> Sketch:
        more: Any = {name: made(getattr(one, name)) for name, made in change.items()}
        return one._replace(T=1e15, **more)

    return Hearsay("_quantiles", _sketch(forged))


HEARSAY: dict[str, Hearsay] = {
    "units: T = 1e15": Hearsay("tell", _rows(1e15)),
    "units: means far off": Hearsay("tell", _means(2**20)),
    "quantiles: of 1e15 rows": _of_many(),
    "quantiles: far off": _of_many(centre=lambda centre: centre + 1e3),
    "quantiles: on one spot": _of_many(codes=lambda codes: 0 * codes),
    "bandwidths: tiny": Hearsay("_bandwidths", _leaning(15.0)),
    "bandwidths: huge": Hearsay("_bandwidths", _leaning(-15.0)),
    "bandwidths: sites differ": Hearsay("_bandwidths", _told(_apart)),
    "errors: linear is perfect": Hearsay("_errors", _best(0)),
    "errors: plain is perfect": Hearsay("_errors", _best(1)),
    "errors: no noise": Hearsay("_errors", _noise(0)),
    "errors: nothing but noise": Hearsay("_errors", _noise(12)),
    "frequencies: useless ones": Hearsay("_frequencies", _taken),
    "judge: sums turned": Hearsay("_fits", _told(lambda told, d: -10.0 * told)),
    "judge: noise": Hearsay("_fits", _told(_noisy)),
    "judge: errors upside down": Hearsay("_compared", _told(lambda t, d: 1e9 / (1 + np.abs(t)))),
    "basis: inputs on one spot": Hearsay("common_basis", _spot),
    "basis: no spread": Hearsay("common_basis", _spread(1e-6)),
    "basis: a spread of 1e4": Hearsay("common_basis", _spread(1e4)),
}


class _Sweep:
    """A liar's way to totals: one of its sums is forged."""

    def __init__(self, place: Place, lie: Hearsay, d: int):
        self.place, self.lie, self.d, self.told = place, lie, d, 0

    def __call__(self, own: Part, concluded: Callable[[bytes], bytes] = bytes) -> Talk[bytes]:
        where = {frame.function for frame in inspect.stack()}
        if self.lie.where not in where:
            return swept(self.place, [], own, concluded)
        self.told += 1
        return self._forged(own, concluded)

    def _forged(self, own: Part, concluded: Callable[[bytes], bytes]) -> Talk[bytes]:
        """As claims go by name it can only change its own; what it hears of that is as it was."""
        mine, name = list[bytes](), self.place.name

        def told(children: Sequence[bytes]) -> bytes:
            data = own(children)
            claims = _claims(data)
            if name not in claims:
                return self.lie.forge(data, self.d)
            mine.append(claims[name])
            forged = self.lie.forge(claims[name], self.d)
            return msgspec.msgpack.encode({**claims, name: forged})

        total = yield from swept(self.place, [], told, concluded)
        claims = _claims(total)
        if mine and name in claims:
            return msgspec.msgpack.encode({**claims, name: mine[0]})
        return total


def _claims(data: bytes) -> dict[str, bytes]:
    try:
        return msgspec.msgpack.decode(data, type=dict[str, bytes])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


class Heard(NamedTuple):
    """What became of an agreement."""

    harm: float
    warned: int  # honest sites that doubt it
    refused: str = ""  # why there is none
    told: int = 1  # sums that were forged


def overheard(
    kept: Kept, graph: Graph, terms: Terms, liar: int, lie: Hearsay | None
) -> tuple[Ready, int]:
    """All sites have agreed, one of which lies; and how often it did."""
    names = kept.names
    places = together(waves(names, graph, names))[0]
    d = len(terms.columns)
    forging = _Sweep(places[names[liar]], lie, d) if lie is not None else None
    sweeps: dict[str, Any] = {name: partial(swept, places[name], []) for name in names}
    if forging is not None:
        sweeps[names[liar]] = forging
    talks = {
        name: numbers(sweeps[name], places[name].shape, Site(kept, i, name), terms)
        for i, name in enumerate(names)
    }
    agreed = together(talks)[0]
    honest = names[0 if liar else 1]
    spent = np.zeros((len(names), 3), np.int64)
    here = tuple(places[name] for name in names)
    ready = replace(_made(kept, here, agreed[honest], spent), names=names, graph=graph)
    bases: dict[str, Talk[Basis]] = {
        name: common_basis(sweeps[name], ready.agreement, ready.own(i))
        for i, name in enumerate(names)
    }
    basis = together(bases)[0][honest]
    ready.__dict__["whitened"] = ready.problem.whitened(basis.whitening), basis, spent
    return ready, 0 if forging is None else forging.told


def missed(ready: Ready, theta: Array, liar: int) -> float:
    """The squared error on rows of honest sites that were held out."""
    model, kept = ready.model(theta), ready.sites
    assert isinstance(kept, Kept)
    each = zip(kept.X_test, kept.y_test, strict=True)
    errors = [(model.predict(X).ravel() - y) ** 2 for i, (X, y) in enumerate(each) if i != liar]
    return float(np.mean(np.concatenate(errors)))


def heard(kept: Kept, graph: Graph, terms: Terms, liar: int, lie: Hearsay, floor: float) -> Heard:
    """The harm of one lie, by the error of an honest agreement."""
    try:
        with np.errstate(all="ignore"):
            ready, told = overheard(kept, graph, terms, liar, lie)
            theta = ready.optimum
            harm = missed(ready, theta, liar) / floor
    except CokeError as error:
        return Heard(1.0, len(kept.names), str(error))
    doubted = [bool(doubts(ready, i) or outdone(ready, theta, i)) for i in range(len(kept.names))]
    return Heard(harm, sum(doubted[i] for i in range(len(doubted)) if i != liar), told=told)


def honest_floor(kept: Kept, graph: Graph, terms: Terms, liar: int) -> tuple[float, int]:
    """The error of an honest agreement, and how many sites doubt it."""
    ready = agree(kept, graph, terms)
    theta = ready.optimum
    return missed(ready, theta, liar), sum(
        bool(doubts(ready, i) or outdone(ready, theta, i)) for i in range(len(kept.names))
    )
