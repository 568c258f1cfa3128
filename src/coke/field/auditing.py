"""The node audit: what every site states of its edges, signed, flooded, and added up by all.

Whoever is alarmed calls for an audit in a round to come, a few bytes that go over every edge. In
that round every site states the duals of its edges, rounded alike at both ends, and its loss, and
statements go from neighbour to neighbour along a tree that all know. Whoever lacks that of the next
on the tree two rounds later says so to all, and from then on statements go over every edge: a liar
stops none that has another way. Whoever lacks some after that asks its neighbours for them, once a
round, so that what is lost on the way comes later. When all are there, or nothing new has come for
`MOST` rounds, each site adds them up (`coke.maths.audit`): of sites that carry more than their own
rows can ask for the one that carries most lies. Its neighbours close their edges to it.

Signatures are by keys that all sites claimed by name. A site that signs two statements of a round,
or one that its neighbour knows to be false of their edge, has lied as well: of the first there is
proof for all, the second is for the neighbour to act on, as is silence (`coke.field.silence`). A
call costs all sites some bytes, so none is heard within `APART` rounds of the last, or as long
after its own. Who was started again may have stated its edges before, and leaves it at that. Who
closes an edge tells all so, signed, and all begin anew (`coke.field.renewal`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from coke.errors import MessageError
from coke.field.edge import End
from coke.field.renewal import Renewal
from coke.field.signing import SIGNATURE, Signer, genuine
from coke.field.silence import MUTE, Silence
from coke.field.statements import (
    CLOSES,
    Body,
    asked,
    asks,
    bits_of,
    edge_of,
    read_asked,
    read_body,
    stated,
)  # fmt: skip
from coke.maths.audit import Flows, Stated, contradict
from coke.maths.guards import FADES, FIRST, WARNS
from coke.talk.claiming import digest_of

APART = 20  # rounds between audits, at least
STEP, MOST = 5, 10  # audits are in rounds that it divides, and that many to come at most; so many
# rounds without news end one, and so many times a neighbour is told what it lacks
CONVICTS = 0.6  # of the bound on a node …
LEADS = 1.5  # … or times the next, where most sites' models are worse than none
CARRIES = "carries more than its own rows can ask for"
TWICE = "has signed two statements of one round"
FALSE = "states of our edge what is not so"
_DOMAIN = b"coke audit "


class Conviction(NamedTuple):
    """Who lies, and why."""

    who: str
    why: str


class Post(NamedTuple):
    """What is to be sent."""

    data: bytes
    sender: str = ""  # who had it
    to: str = ""  # the only one to have it; else who is next on the tree …
    everywhere: bool = False  # … or all


@dataclass
class NodeAudit:
    """One site's part."""

    name: str
    flows: Flows
    signer: Signer
    size: int  # numbers of a dual
    outbox: list[Post] = field(default_factory=list)
    spent: int = 0  # bytes posted
    complete: bool = False  # whether all stated in the last audit, and bounds held
    judged: int = 0  # the round of the last audit that is over …
    _due: int = 0  # … and of the last that was called
    _heard: dict[str, tuple[bytes, Stated]] = field(default_factory=dict)  # of the one that is due
    _wide: bool = False  # whether its statements go over every edge
    _told: Counter[str] = field(default_factory=Counter)  # how often who was told what it lacked
    _news: tuple[int, int] = (0, 0)  # how many were heard when the last was, and in which round
    _began: int | None = None  # the round in which this site has begun to look
    shaken: int = 0  # the round until which what a liar has done, or its end, still moves models
    renewal: Renewal = field(default_factory=Renewal)  # when all begin anew for that
    _shut: set[tuple[str, str]] = field(default_factory=set)  # who has closed its edge to whom
    _silence: Silence = field(default_factory=Silence)
    _found: list[Conviction] = field(default_factory=list)  # that are still to be acted on

    def call(self, k: int) -> None:
        """All are to state their edges in a round to come."""
        at = STEP * -(-max(k + min(len(self.flows.told), MOST), FIRST) // STEP)
        if self._taken(at, k):
            self.outbox.append(Post(asked(at), everywhere=True))

    def _taken(self, at: int, k: int) -> bool:
        """Whether an audit in that round may be; of those called for at a time, the earliest is."""
        first = max(self.judged + APART + 1 if self.judged else 1, k - APART)
        last = k + 4 * len(self.flows.told) + 2 * STEP
        if self._due > self.judged:
            last = min(last, self._due - 1)
        if at % STEP or not first <= at <= last:
            return False
        self._due, self._heard, self._told, self._news = at, {}, Counter(), (0, 0)
        self._wide = False
        return True

    def look(self, k: int, ends: Mapping[str, End], rho: float, loss: float) -> Conviction | None:
        """States what is due in this round, and says who lies once that is clear."""
        self._began = k if self._began is None else self._began
        if self._found:
            return self._found.pop()
        if not self._due or k < self._due or self.judged >= self._due:
            return None
        if self.name not in self._heard and self._due >= self._began:
            self._state(ends, rho, loss)
        if wrong := self._contradicted():
            return self._out(Conviction(wrong, FALSE))
        missing = self.flows.near.keys() - self._heard.keys()
        if k >= self._due + 2 and not missing.isdisjoint(self.flows.tree.get(self.name, ())):
            self._everywhere()
        if missing and self._waits(k):
            return None
        self.judged, self.complete = self._due, not (missing or self.renewal.covers(self._due))
        mute = self._silence.ends(ends, self._heard)
        found = self._out(Conviction(mute, MUTE)) if mute else self._carries()
        if found is not None:
            self.shaken = k + FADES
        return found

    def _everywhere(self, sender: str = "") -> None:
        """From now on statements go over every edge, those that are there once more."""
        if not self._wide:
            self._wide = True
            self.outbox.append(Post(asked(-self._due), sender, everywhere=True))
            self.outbox += [Post(data) for data, _ in self._heard.values()]

    def _waits(self, k: int) -> bool:
        """Whether more may come: asks for it where a round has brought nothing."""
        heard, since = self._news
        if len(self._heard) > heard or not since:
            self._news = len(self._heard), k
            return True
        if k > since + 1:
            bits = np.array([name in self._heard for name in self._names])
            wants = asked(self._due, np.packbits(bits).tobytes())
            self.outbox.append(Post(wants, everywhere=True))
        return k < since + MOST

    def _carries(self) -> Conviction | None:
        """Who carries most, if it is too much; where most sites are dragged, if it stands out.

        Bounds are those of the optimum. Where most models are worse than none the network is far
        from it, by a liar or because it has only begun, and no bound holds. But sums add up to
        zero: who drags all others has the sum of theirs. So has, while that fades, who pulled
        hardest against a liar that was cut. Who states nothing has no such excuse. Of silent ones
        side by side each site closes its own edges to them.
        """
        told = {n: one for n, (_, one) in self._heard.items()}
        order = sorted(self.flows.loads(told), key=lambda load: -load.part)
        if len(order) < 3 or self.name in order[0].who or self.renewal.covers(self._due):
            return None  # of two, nobody can say who lies
        (who, most, room), next_ = order[0], order[1].part
        dragged, silent = self.flows.worse(told) > WARNS[1], who[0] not in told
        bounded = silent or not dragged
        leads = dragged and (silent or self._due > self.shaken) and most > LEADS * next_
        if not ((bounded and most > CONVICTS * room) or leads):
            return None
        found = [Conviction(n, f"{CARRIES}: {most:.2g} times") for n in who]
        near = [one for one in found if one.who in self.flows.near[self.name]]
        self._found += map(self._out, near if len(who) > 1 else found)
        return self._found.pop() if self._found else found[0]

    def _out(self, found: Conviction) -> Conviction:
        self.flows = self.flows.without(found.who)
        return found

    def _contradicted(self) -> str | None:
        """A neighbour that states another dual of its edge here, of the same moment."""
        own = self._heard[self.name][1].duals if self.name in self._heard else {}
        for name, dual in own.items():
            theirs = self._heard[name][1].duals.get(self.name) if name in self._heard else None
            if name not in self.flows.out and theirs is not None and contradict(theirs, dual):
                return name
        return None

    def _state(self, ends: Mapping[str, End], rho: float, loss: float) -> None:
        edges = [
            edge_of(self._names.index(name), end.epoch, end.s, rho * end.g)
            for name, end in ends.items()
            if name in self.flows.told
        ]
        body = (self._names.index(self.name), self._due, bits_of(loss), edges)
        data = self._signed(body)
        self._heard[self.name] = (data, stated(body, self._names, self.size))
        self._silence.begins({n: ends[n] for n in self.flows.near[self.name] if n in ends})
        self.outbox.append(Post(data))

    def closed(self, name: str, k: int) -> None:
        """Says to all that its edge to that site is closed, from round k on."""
        if self.flows.joined(*(edge := (self.name, name))):
            own, other = map(self._names.index, edge)
            self._noted(Post(self._signed((own, CLOSES - k, other, []))), edge, k, k)

    def _noted(self, post: Post, edge: tuple[str, str], at: int, k: int) -> None:
        """All begin anew: until that has faded, nobody is to blame for what models do.

        Every edge counts once for each end, so that a liar does not say so for ever.
        """
        if not self.flows.joined(*edge):
            raise MessageError(f"{edge[0]!r} says that it has closed an edge that it has not")
        if edge not in self._shut:
            self._shut.add(edge)
            anew = self.renewal.plan(at, self.flows.reach(*edge), k)
            self.shaken = max(k, anew) + FADES
            self.outbox.append(post._replace(everywhere=True))

    def hear(self, sender: str, data: bytes, k: int) -> None:
        """A call or a statement that came from a neighbour: kept and passed on where it is new.

        Or what the neighbour asks for, which is a call where this site has heard none.
        """
        if asks(data):
            return self._asked(sender, data, k)
        index, at, other, _ = body = self._read(data)
        who, told = self._names[index], stated(body, self._names, self.size)
        if at <= CLOSES:
            return self._noted(Post(data, sender), (who, self._names[other]), CLOSES - at, k)
        if at != self._due and not self._taken(at, k):
            return None
        before = self._heard.get(who)
        if before is None:
            self._heard[who] = (data, told)
        elif before[0] != data and who != self.name and who not in self.flows.out:
            self._found.append(self._out(Conviction(who, TWICE)))
        else:
            return None
        return self.outbox.append(Post(data, sender))

    def _asked(self, sender: str, data: bytes, k: int) -> None:
        """Tells a neighbour what it lacks, so many times; what only calls is passed on."""
        names = self._names
        at, mask = read_asked(data, len(names))
        new = abs(at) != self._due
        if new and not self._taken(abs(at), k):
            return
        if at < 0:
            self._everywhere(sender)
        elif new and not mask:
            self.outbox.append(Post(data, sender, everywhere=True))
        if new or not mask:
            return
        had = np.unpackbits(np.frombuffer(mask, np.uint8), count=len(names))
        lacks = [n for n, there in zip(names, had, strict=True) if n in self._heard and not there]
        if lacks and self._told[sender] < MOST:
            self._told[sender] += 1
            self.outbox += [Post(self._heard[n][0], to=sender) for n in lacks]

    def posts(self, neighbours: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
        """What to send to whom: not to those who had it, or have it from where it comes from."""
        out, self.outbox = self.outbox, []
        for data, sender, to, everywhere in out:
            ways = self.flows.near if everywhere or self._wide else self.flows.tree
            had = {sender, *ways.get(sender, ())}
            for name in [to] if to else ways.get(self.name, ()):
                if name in neighbours and (to or name not in had):
                    self.spent += len(data)
                    yield name, data

    @property
    def _names(self) -> list[str]:
        return sorted(self.flows.told)

    def _signed(self, body: Body) -> bytes:
        data = msgspec.msgpack.encode(body)
        return data + self.signer.sign(self._run + data)

    @property
    def _run(self) -> bytes:
        """What binds a signature to this run: everybody's keys."""
        return _DOMAIN + digest_of({n: told.key for n, told in self.flows.told.items()})

    def _read(self, data: bytes) -> Body:
        """What is signed by whom it is of."""
        said, signature = data[:-SIGNATURE], data[-SIGNATURE:]
        body, names = read_body(said, len(self.flows.told), self.size), self._names
        if not genuine(self.flows.told[names[body[0]]].key, self._run + said, signature):
            raise MessageError(f"a statement that {names[body[0]]!r} has not signed")
        return body
