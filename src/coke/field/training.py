"""A site in training: rounds of `coke.field.node`, durable before sent, repeated until answered."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, ClassVar

from coke.errors import ConvergenceError, MessageError
from coke.field.agreeing import Agree
from coke.field.carriers.base import Event
from coke.field.descending import Descend
from coke.field.edge import STRIKES, why_closed
from coke.field.frames import Audited, Frame, Proven, Standing, decode, is_word
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.node import Advance, Node
from coke.field.phases import ROUNDS, Desk
from coke.field.state import image, restored
from coke.field.store import Store
from coke.maths.algorithms.stopping import NEVER
from coke.talk.handover import NOT_HANDED


@dataclass
class Train:
    """Until the node is done, or has left."""

    name: ClassVar[str] = "train"
    desk: Desk
    mission: Mission
    store: Store
    agreed: Agree
    descend: Descend
    node: Node | None = None
    leaving: bool = False  # for good: every edge is closed
    missing: Sequence[str] = ()
    together: Sequence[str] = ()  # a round needs all words that are missing
    _echoed: set[str] | None = None  # who knows that this site has left; None: it has not
    _until: float = math.inf  # when a site that leaves waits for echoes no longer
    _times: float = 1.0  # by which its loss is its rows' mean
    _since: float = 0.0  # the last round
    _named: set[str] = field(default_factory=set)  # those it suspects
    _aware: set[str] = field(default_factory=set)  # neighbours that said that an edge is closed
    _forgot: set[str] = field(default_factory=set)  # who may have forgotten a site that joins
    _durations: deque[float] = field(default_factory=partial(deque, maxlen=20))

    def begin(self) -> None:
        """From the disk, or from zero; with the neighbours that the settings name now."""
        assert self.agreed.result is not None  # the phase before is over
        setup = self._handed(self.mission.setup(self.agreed.result, self.agreed.spent))
        self._times = float(self.agreed.result.times[0])
        self._since, neighbours = self.desk.clock(), sorted(self.desk.carrier.neighbours)
        if self.store.traces:
            self.node = self.store.image(partial(restored, setup=setup))
            if self.descend.done:
                self._descended()
            else:
                self._take_up(self.trained, neighbours)
            return
        node = Node(setup, setup.ends(neighbours), self._start(setup), done=self.descend.done)
        self.node = self.mission.begun(node)
        for name in neighbours if self.mission.joins else ():
            self._keep(self.trained.join(name))

    @property
    def loss(self) -> float:
        """The mean over the site's own rows."""
        return float(self.trained.state.loss[0]) * self._times

    def proven(self, sender: str, letter: Proven) -> None:
        """What a neighbour says that the root has said last: rounds are not needed, if they were.

        Whoever has ended by rounds is content with that.
        """
        before = self.node
        if before is not None and before.done:
            return
        if self.descend.hear(sender, letter) and before is not None:
            self._descended()

    def _descended(self) -> None:
        """Rounds were made in vain: what is left of them is what they cost."""
        before = self.trained
        setup = replace(before.setup, spent=self.agreed.spent, handed=NOT_HANDED)
        ends, state = setup.ends(sorted(before.ends)), self._start(setup)
        self.node = Node(setup, ends, state, ledger=before.ledger, done=True)

    def _handed(self, setup: Setup) -> Setup:
        """With what a descent has come to that others, too, go on from by rounds."""
        descent = self.descend.descent
        if descent is None or descent.done:
            return setup
        return replace(setup, handed=descent.handed(self.agreed.first, setup.moves.rho))

    def _start(self, setup: Setup) -> Any:
        """The algorithm's state before round 1; from where a descent has come to."""
        state, descent = setup.start(), self.descend.descent
        if descent is None or not (descent.done or setup.handed.at):
            return state
        u = descent.u[None]
        return state._replace(theta=u, loss=setup.risk.losses(u))

    def _take_up(self, node: Node, neighbours: Sequence[str]) -> None:
        """Goes on with a node from the disk; a site that joins opens all but edges struck out."""
        for path in self.store.spoilt:
            why = "cannot be read: going on from the state before, which neighbours may notice"
            self.desk.news.append(Event("spoilt", path.name, why))
        gone = [n for n in node.open if n not in neighbours]
        shut = [n for n, end in node.ends.items() if end.closed and end.strikes < STRIKES]
        back = set(shut) if self.mission.joins else set[str]()
        self._forgot = {*node.open} & {*neighbours} if self.mission.joins else set()
        if not node.done:
            if gone:
                self._keep(node.close(*gone))
            for name in neighbours:
                if name not in node.ends or name in back:
                    self._keep(self.trained.join(name))
        self.store.rounds(node.k)
        self.desk.post(self.trained.resend())

    @property
    def trained(self) -> Node:
        """The node, once there is one."""
        if self.node is None:
            raise ConvergenceError(f"{self.mission.name!r} has not begun to train: let it run")
        return self.node

    def over(self) -> bool:
        """Whether nothing is left to do here; a site that leaves waits for echoes, for a while."""
        if self._echoed is None:
            return self.trained.done
        return self._heeded(self._echoed)

    def _heeded(self, by: set[str]) -> bool:
        """Whether those whose edges are closed know it, or were told so for long enough."""
        self.missing = sorted(self.trained.lost().keys() - by)
        return not self.missing or self.desk.clock() >= self._until

    def work(self) -> bool:
        """A round, if no word is missing or patience is over; else what timers say again."""
        if self.leaving:
            self.together = ()
            self._leave()
            return False
        node, now = self._looked_over(), self.desk.clock()
        if not node.open:
            self._lonely()
            return False
        self.missing = self.together = node.missing()
        if not self.missing or now - self._since > self._patience():
            if not self.missing:  # else the usual would become what is waited for the missing
                self._durations.append(now - self._since)
            self._since = now
            self._keep(node.round(force=True))
            return True
        # To all, not only to those one waits for: around a circle of lost words each would
        # have the word of the one that waits for it, and nobody would say his own again.
        for name in self.desk.due(node.open):
            self.desk.post(node.resend(name))
        return False

    def _lonely(self) -> None:
        """Ends with an error, but not before its neighbours know: they would wait for it."""
        self.together, self._until = (), min(self._until, self.desk.clock() + self.desk.pace.linger)
        if self._heeded(self._aware):
            raise ConvergenceError(
                f"every edge of {self.mission.name!r} is closed: its neighbours have left, have "
                "forgotten it, or were refused; to come back, set joins = true in [site] and "
                "start it again"
            )
        self._say_closed()

    def _looked_over(self) -> Node:
        """Before a round: has the graph changed?

        Once sites have come or gone nobody knows the graph: no more are taken to have come than
        there were. Everybody knows in time: a site next to the change counts from zero, so no count
        elsewhere gets beyond its old reach before a word from there has brought the news.
        """
        if gone := [n for n in self.trained.open if n not in self.desk.carrier.neighbours]:
            self._keep(self.trained.close(*gone))
        node, widest = self.trained, 2 * self.trained.setup.sites - 1
        wide = node.wide or node.open.keys() != set(self.agreed.first) - node.setup.reserve
        if wide and node.setup.reach != widest:
            self.node = node._replace(setup=replace(node.setup, reach=widest), wide=True, laps=0)
        for name in filter(self.desk.carrier.neighbours.__contains__, node.reserve if wide else ()):
            self._keep(self.trained.join(name))  # what is left must hang together
        return self.trained

    def _patience(self) -> float:
        """Seconds to wait for the missing.

        A round in which nobody is heard says nothing new, so it is only made at the end: whoever
        knows of it needs nobody to finish, and those who waited for this site may have gone. Who
        has a live link has not.
        """
        node, pace = self.trained, self.desk.pace
        usual = median(self._durations) if self._durations else 0.0
        patience = max(ROUNDS * usual, pace.least) if pace.patience is None else pace.patience
        counting = node.countdown < NEVER and node.setup.algorithm.elastic
        finished = any(end.last is not None for end in node.open.values())
        if counting or finished or node.k >= node.setup.limits.rounds:
            there = self.desk.alive.intersection(self.missing)
            return patience if there else min(patience, pace.linger)
        return patience if len(self.missing) < len(node.open) else math.inf

    def _leave(self) -> None:
        """Closes every edge, and says so until every neighbour has echoed."""
        if self._echoed is None:
            self._echoed, self._until = set(), self.desk.clock() + self.desk.pace.linger
            self._keep(self.trained.leave())
        self._say_closed()

    def _say_closed(self) -> None:
        ends = self.trained.ends
        self.desk.post((name, ends[name].standing) for name in self.desk.due(self.missing))

    def _keep(self, after: Advance) -> None:
        """On disk first, then on its way."""
        before, node = self.trained, after.node
        self.node = node
        if not (after.durable or after.frames):
            return  # a word that will be used in the next round, most often
        shut = ((n, end) for n, end in node.ends.items() if end.closed and n in before.open)
        self.desk.news += [Event("closed", name, why_closed(end)) for name, end in shut]
        self._suspect(node)
        if after.durable and not self.descend.done:  # which it is whenever a word has changed
            self.store.keep_image(image(node))
            new = [n for n, end in before.ends.items() if end.out is not node.ends[n].out]
            self.desk.restart(new)
        self.desk.post(after.frames)
        self._audit(node)
        if node.k > before.k:
            spoke = node.ledger.transmissions > before.ledger.transmissions
            line = {"round": node.k, "spoke": spoke, "loss": self.loss}
            self.store.append({**line, "away": node.away, **node.spent._asdict()})

    def told(self, sender: str, letter: Proven | Audited) -> None:
        """The end of a descent; or of an audit a call or a statement, kept and passed on."""
        if isinstance(letter, Proven):
            return self.proven(sender, letter)
        watch = None if self.node is None else self.node.setup.watch
        if watch is None or watch.audit is None:
            raise MessageError(f"{sender} tells of an audit, which this site has no part in")
        watch.audit.hear(sender, letter.data, self.trained.k)
        return self._audit(self.trained)

    def _audit(self, node: Node) -> None:
        """Sends what an audit asks for."""
        if (watch := node.setup.watch) is not None and watch.audit is not None:
            self.desk.post((n, Audited(data)) for n, data in watch.audit.posts(node.open))

    def _suspect(self, node: Node) -> None:
        """Whom it has not named before."""
        found = {} if node.setup.watch is None else node.setup.watch.suspects
        new = {name: why for name, why in found.items() if name not in self._named}
        self._named |= new.keys()
        self.desk.news += [Event("suspect", name, why) for name, why in new.items()]

    def resend(self, name: str) -> Iterable[tuple[str, Frame | Proven]]:
        """What a neighbour may lack once this site has ended."""
        if self.descend.done and name in self.agreed.first:
            return [(name, self.descend.proven)]
        return self.trained.resend(name)

    def hear(self, sender: str, data: bytes) -> None:
        """A word of training, or where the sender's end of the edge stands.

        Who makes rounds where the others have descended is told the end of that.
        """
        if self.descend.done and sender in self.agreed.first:
            self.desk.post(self.resend(sender) if is_word(data) else ())
            return
        node, frame = self.trained, decode(data, self.trained.setup.moves.width)
        try:
            after = node.hear(sender, frame)
        except MessageError:
            self.desk.refused[sender] += 1
            after = node.offended(sender, frame)
        self._keep(after)
        self._stand(sender)
        if isinstance(frame, Standing) and frame.closed:
            self._aware.add(sender)
            if self._echoed is not None:
                self._echoed.add(sender)

    def _stand(self, sender: str) -> None:
        """Stays away from whom it has left; comes back to who had forgotten it meanwhile."""
        end = self.trained.ends[sender]
        if self._echoed is not None and not end.closed:
            self._keep(self.trained.close(sender))
        elif sender in self._forgot:
            self._forgot.discard(sender)
            if end.closed and end.strikes < STRIKES and not self.trained.done:
                self._keep(self.trained.join(sender))
