"""The node audit: what every site states of its edges, signed, flooded, and added up by all.

Whoever is alarmed calls for an audit in a round to come. In that round every site states the duals
of its edges, rounded alike at both ends, and its loss; statements go from neighbour to neighbour
over every edge, so that a liar stops none that has another way. When they are there, or after as
many rounds again, each site adds them up (`coke.maths.audit`): of sites that carry more than their
own rows can ask for the one that carries most lies. Its neighbours close their edges to it.

Signatures are by keys that all sites claimed by name. A site that signs two statements of a round,
or one that its neighbour knows to be false of their edge, has lied as well: of the first there is
proof for all, the second is for the neighbour to act on. A call costs all sites some bytes, so none
is heard within `APART` rounds of the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.field.edge import End
from coke.field.signing import SIGNATURE, Signer, genuine
from coke.maths.algorithms.integers import pack_integers, unpack_integers
from coke.maths.arrays import Array
from coke.maths.audit import Dual, Flows, Stated, contradict
from coke.maths.guards import FIRST, WARNS
from coke.talk.claiming import digest_of

APART = 20  # rounds between audits, at least
STEP, MOST = 5, 10  # audits are in rounds that it divides, and that many to come at most
FINE = 2  # powers of two that a dual is stated more finely than its root mean square
CONVICTS = 0.6  # of the bound on a node …
LEADS = 1.5  # … or times the next, where most sites' models are worse than none
CARRIES = "carries more than its own rows can ask for"
TWICE = "has signed two statements of one round"
FALSE = "states of our edge what is not so"
_DOMAIN = b"coke audit "
_Edge = tuple[int, int, int, int, bytes]  # neighbour, epoch, step, exponent, whole numbers
_Body = tuple[int, int, float, list[_Edge] | None]  # who, round, loss, edges; None: a call


class Conviction(NamedTuple):
    """Who lies, and why."""

    who: str
    why: str


def rounded(gamma: Array) -> tuple[int, Array]:
    """(e, n) with n 2ᵉ near γ (D,): the same at both ends but for the sign."""
    size = float(np.sqrt(np.mean(gamma**2))) if len(gamma) else 0.0
    e = math.floor(math.log2(size)) - FINE if 0 < size < math.inf else 0
    return e, np.rint(np.ldexp(gamma, -e))


@dataclass
class NodeAudit:
    """One site's part."""

    name: str
    flows: Flows
    signer: Signer
    size: int  # numbers of a dual
    outbox: list[tuple[bytes, str]] = field(default_factory=list)  # statements, and who had them
    spent: int = 0  # bytes posted
    judged: int = 0  # the round of the last audit that is over …
    _due: int = 0  # … and of the last that was called
    _heard: dict[str, tuple[bytes, Stated]] = field(default_factory=dict)  # of the one that is due
    _proof: Conviction | None = None

    def call(self, k: int) -> None:
        """All are to state their edges in a round to come."""
        at = STEP * -(-max(k + min(len(self.flows.told), MOST), FIRST) // STEP)
        if self._taken(at, k):
            self._post(self._signed((self._index(self.name), at, 0.0, None)), "")

    def _taken(self, at: int, k: int) -> bool:
        """Whether an audit in that round is new, and may be."""
        late = max(self._due, self.judged)
        if not (late + (APART if late else 0) < at <= k + 4 * len(self.flows.told) + 2 * STEP):
            return False
        self._due, self._heard = at, {}
        return True

    def look(self, k: int, ends: Mapping[str, End], rho: float, loss: float) -> Conviction | None:
        """States what is due in this round, and says who lies once that is clear."""
        if self._proof is not None:
            found, self._proof = self._proof, None
            return self._out(found)
        if not self._due or k < self._due or self.judged >= self._due:
            return None
        if self.name not in self._heard:
            self._state(ends, rho, loss)
        if wrong := self._contradicted():
            return self._out(Conviction(wrong, FALSE))
        all_ = self.flows.near.keys() <= self._heard.keys()
        if not all_ and k < self._due + min(len(self.flows.told), MOST):
            return None
        self.judged = self._due
        return self._carries()

    def _carries(self) -> Conviction | None:
        """Who carries most, if it is too much; where most sites are dragged, if it stands out."""
        stated = {n: one for n, (_, one) in self._heard.items()}
        parts = self.flows.parts(stated)
        order = sorted(parts, key=parts.__getitem__, reverse=True)
        if len(order) < 3 or order[0] == self.name:  # of two, nobody can say who lies
            return None
        most, next_ = parts[order[0]], max([parts[n] for n in order[1:]], default=0.0)
        dragged = self.flows.worse(stated) > WARNS[1] and most > LEADS * next_
        if not (most > CONVICTS or dragged):
            return None
        return self._out(Conviction(order[0], f"{CARRIES}: {most:.2g} times"))

    def _out(self, found: Conviction) -> Conviction:
        self.flows = self.flows.without(found.who)
        return found

    def _contradicted(self) -> str | None:
        """A neighbour that states another dual of its edge here, of the same moment."""
        own = self._heard[self.name][1].duals
        for name, dual in own.items():
            theirs = self._heard[name][1].duals.get(self.name) if name in self._heard else None
            if name not in self.flows.out and theirs is not None and contradict(theirs, dual):
                return name
        return None

    def _state(self, ends: Mapping[str, End], rho: float, loss: float) -> None:
        edges: list[_Edge] = []
        for name, end in ends.items():
            if name in self.flows.told:
                e, n = rounded(rho * end.g)
                packed = pack_integers(n.astype(np.int64))
                edges.append((self._index(name), end.epoch, end.s, e, packed))
        data = self._signed((self._index(self.name), self._due, float(np.float32(loss)), edges))
        self._heard[self.name] = (data, self._read(data)[2])
        self._post(data, "")

    def hear(self, sender: str, data: bytes, k: int) -> None:
        """A call or a statement that came from a neighbour: kept and passed on where it is new."""
        who, at, stated, call = self._read(data)
        if call:
            if self._taken(at, k):
                self._post(data, sender)
            return
        if at != self._due and not self._taken(at, k):
            return
        before = self._heard.get(who)
        if before is None:
            self._heard[who] = (data, stated)
        elif before[0] != data and who != self.name and who not in self.flows.out:
            self._proof = Conviction(who, TWICE)
        else:
            return
        self._post(data, sender)

    def posts(self, neighbours: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
        """What to send to whom: not to those who had it, or have it from where it comes from."""
        out, self.outbox = self.outbox, []
        for data, sender in out:
            had = {sender, *self.flows.near.get(sender, ())}
            for name in neighbours:
                if name not in had:
                    self.spent += len(data)
                    yield name, data

    def _post(self, data: bytes, sender: str) -> None:
        self.outbox.append((data, sender))

    def _index(self, name: str) -> int:
        return sorted(self.flows.told).index(name)

    def _signed(self, body: _Body) -> bytes:
        data = msgspec.msgpack.encode(body)
        return data + self.signer.sign(self._run + data)

    @property
    def _run(self) -> bytes:
        """What binds a signature to this run: everybody's keys."""
        return _DOMAIN + digest_of({n: told.key for n, told in self.flows.told.items()})

    def _read(self, data: bytes) -> tuple[str, int, Stated, bool]:
        """Whose it is, of which round, what it states, and whether it only calls."""
        body, signature = data[:-SIGNATURE], data[-SIGNATURE:]
        names = sorted(self.flows.told)
        if len(data) > SIGNATURE + 64 + len(names) * (64 + 10 * self.size):
            raise MessageError(f"a statement of {len(data)} bytes, of {len(names)} sites")
        try:
            index, at, loss, edges = msgspec.msgpack.decode(body, type=_Body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MessageError(f"{len(data)} bytes are no statement: {error}") from error
        if not (0 <= index < len(names) and 0 < at < 2**31 and 0 <= loss < math.inf):
            raise MessageError("a statement of a site, a round or a loss that cannot be")
        if not genuine(self.flows.told[names[index]].key, self._run + body, signature):
            raise MessageError(f"a statement that {names[index]!r} has not signed")
        duals = {names[edge[0]]: self._dual(edge) for edge in edges or () if edge[0] < len(names)}
        return names[index], at, Stated(loss, duals), edges is None

    def _dual(self, edge: _Edge) -> Dual:
        _, epoch, step, e, packed = edge
        if not (abs(e) < 900 and edge[0] >= 0):
            raise MessageError("a dual of a size that cannot be")
        n = unpack_integers(packed, self.size).astype(np.float64)
        return Dual(epoch, step, np.ldexp(n, e))
