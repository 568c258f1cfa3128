"""How an agent's frames reach its neighbours: never surely, never blocking for long.

A carrier promises only this: what `receive` returns was sent by the neighbour it names, unchanged
and at most `Allowance.frame` bytes long. Frames may be lost, so the edge protocol above repeats
them until they are answered.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

from coke.errors import InputError, unknown

Clock = Callable[[], float]
EVENTS = 256  # kept for whoever asks; older ones are forgotten, the counts are not
OVERHEAD = 64  # bytes a waiting frame takes beside its own


class Allowance(NamedTuple):
    """How much one neighbour can make a site hold or do."""

    frame: int = 2**24  # bytes of the longest frame: a Gram matrix of 1400 features
    backlog: int = 2**25  # bytes waiting to be received, OVERHEAD for each frame included
    rate: float = 2000.0  # frames a second, in the long run
    burst: int = 4000  # frames at once

    def checked(self) -> Allowance:
        """Itself, or an error that names the limit at fault."""
        if not 1 <= self.frame <= self.backlog - OVERHEAD:
            raise InputError(f"{self}: expected 1 ≤ frame ≤ backlog − {OVERHEAD}; raise the last")
        if not (0 < self.rate < float("inf") and self.burst >= 1):
            raise InputError(f"{self}: expected rate > 0 and burst ≥ 1; raise the lower one")
        return self


class _Counts(NamedTuple):
    """What became of the frames to and from one neighbour."""

    sent: int = 0  # given to the network, which promises nothing
    unsent: int = 0  # dropped here: the neighbour is known to be away
    received: int = 0  # returned by `receive` or waiting for it
    oversized: int = 0  # dropped: longer than a frame may be
    hurried: int = 0  # dropped: more frames than the rate allows
    overflowed: int = 0  # dropped: too many bytes waiting


class Event(NamedTuple):
    """Something an operator may want to know."""

    kind: str  # "up", "down", "refused" (someone was turned away), "unreachable", "spoilt", …
    who: str  # a neighbour, the name in a stranger's certificate, or a file
    why: str


class Bucket:
    """At most burst + rate · t frames, or whatever else is taken, in any t seconds."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._then = float(burst), clock()

    def take(self) -> bool:
        """Whether one more is within the rate."""
        now = self._clock()
        earned = self._rate * max(0.0, now - self._then)
        self._tokens, self._then = min(self._burst, self._tokens + earned), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class _Inbox:
    """Frames waiting: in order from each neighbour, the neighbours in turn, all bounded."""

    def __init__(self, neighbours: Iterable[str], allowance: Allowance, clock: Clock) -> None:
        self._allowance = allowance
        self._frames: dict[str, deque[bytes]] = {name: deque() for name in neighbours}
        self._held = dict.fromkeys(self._frames, 0)
        rate, burst = allowance.rate, allowance.burst
        self._bucket = {name: Bucket(rate, burst, clock) for name in self._frames}
        self._turn: deque[str] = deque()  # neighbours with frames waiting, each once
        self._awaited: set[str] = set()  # without whose frames whoever waits is not woken
        self._lock = threading.RLock()  # alone it is cheaper to take
        self._change = threading.Condition(self._lock)
        self._closed = False

    def offer(self, sender: str, frame: bytes) -> str:
        """Keep a frame, or drop it; the field of `_Counts` that says which."""
        with self._lock:
            fate = self._judge(sender, len(frame))
            if fate == "received":
                self._frames[sender].append(frame)
                self._held[sender] += len(frame) + OVERHEAD
                if len(self._frames[sender]) == 1:
                    self._turn.append(sender)
                self._awaited.discard(sender)
                if not self._awaited:
                    self._change.notify()
        return fate

    def expects(self, together: Iterable[str]) -> bool:
        """Whether it has a frame, and of each of these one: `ready` says so from now on."""
        with self._lock:
            self._awaited = {name for name in together if not self._frames.get(name)}
            return self.ready()

    def ready(self) -> bool:
        """Whether there is what was last expected, or nothing will come any more."""
        return self._closed or (bool(self._turn) and not self._awaited)

    def take(self, timeout: float, together: Iterable[str] = ()) -> tuple[str, bytes] | None:
        """The next frame and its sender, or None after `timeout` seconds or when closed."""
        with self._lock:
            if timeout > 0 and not self.expects(together):
                self._change.wait_for(self.ready, timeout)
            if not self._turn or self._closed:
                return None
            sender = self._turn.popleft()
            frame = self._frames[sender].popleft()
            self._held[sender] -= len(frame) + OVERHEAD
            if self._frames[sender]:
                self._turn.append(sender)  # behind the others: a loud neighbour starves nobody
        return sender, frame

    def close(self) -> None:
        """Nothing more comes out; whoever waits is woken."""
        with self._lock:
            self._closed = True
            self._change.notify_all()

    def _judge(self, sender: str, size: int) -> str:
        # The rate first: a neighbour pays for what is dropped, too.
        if not self._bucket[sender].take():
            return "hurried"
        if size > self._allowance.frame:
            return "oversized"
        full = self._held[sender] + size + OVERHEAD > self._allowance.backlog
        return "overflowed" if full else "received"


class Carrier(AbstractContextManager["Carrier"]):
    """One site's way to its neighbours, and to nobody else."""

    def __init__(
        self,
        site: str,
        neighbours: Iterable[str],
        allowance: Allowance,
        clock: Clock = time.monotonic,
    ) -> None:
        self.site, self.neighbours = site, frozenset(neighbours)
        self.allowance = allowance.checked()
        if site in self.neighbours:
            raise InputError(f"site {site!r} is its own neighbour: expected others; remove it")
        self._inbox = _Inbox(self.neighbours, allowance, clock)
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in self.neighbours}
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._refusals = 0
        self._seen: frozenset[str] = frozenset()
        self.closed = False

    def send(self, neighbour: str, frame: bytes) -> None:
        """Try to send: no promise that it arrives; an error only where it never could."""
        if neighbour not in self.neighbours:
            raise InputError(unknown("neighbour", neighbour, self.neighbours))
        if len(frame) > self.allowance.frame:
            most = f"expected at most {self.allowance.frame}, as more is not heard"
            raise InputError(f"{len(frame)} bytes to {neighbour!r}: {most}; use fewer features")
        sent = not self.closed and self._transmit(neighbour, frame)
        self._count(neighbour, "sent" if sent else "unsent")

    def forget(self, *names: str) -> None:
        """They are strangers from now on: nothing is heard of them or sent to them."""
        self.neighbours -= {*names}

    def receive(self, timeout: float, together: Collection[str] = ()) -> tuple[str, bytes] | None:
        """The next frame as (neighbour, frame), or None after `timeout` seconds.

        Where frames of some neighbours are of use only together, it waits until each of them has
        sent one; after `timeout` it returns any. Waking up costs more than reading a frame.
        """
        return self._inbox.take(timeout, together)

    def alive(self) -> frozenset[str]:
        """The neighbours with a live authenticated link, this moment."""
        with self._looking:
            before, now = self._seen, frozenset() if self.closed else self._linked()
            self._say(*(Event("up", n, "has a live link") for n in sorted(now - before)))
            self._say(*(Event("down", n, "has no live link") for n in sorted(before - now)))
            self._seen = now
        return now

    def events(self) -> list[Event]:
        """What happened since the last call, at most `EVENTS`."""
        self._look()
        with self._lock:
            new = list(self._events)
            self._events.clear()
        return new

    def refusals(self) -> int:
        """How often someone was turned away, or turned us away, as far as this site can know."""
        self._look()
        return self._refusals

    def counts(self) -> dict[str, _Counts]:
        """What became of the frames, by neighbour."""
        with self._lock:
            return {n: _Counts(**self._counts[n]) for n in sorted(self.neighbours)}

    def close(self) -> None:
        """Hang up; a closed carrier receives nothing and sends nothing. Twice is once."""
        with self._lock:
            first, self.closed = not self.closed, True
        if first:
            self._inbox.close()
            self._hang_up()

    def __exit__(self, *failure: object) -> None:
        self.close()

    @abstractmethod
    def _transmit(self, neighbour: str, frame: bytes) -> bool:
        """Give a frame to the network; False where there is no link."""

    @abstractmethod
    def _linked(self) -> frozenset[str]:
        """The neighbours with a live link."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Free what the network holds."""

    def arrived(self, sender: str, frame: bytes) -> None:
        """Take a frame in, or drop what no neighbour sent or is too much."""
        if sender in self.neighbours:
            self._count(sender, self._inbox.offer(sender, frame))

    def _count(self, neighbour: str, what: str) -> None:
        with self._lock:
            self._counts[neighbour][what] += 1

    def _say(self, *events: Event) -> None:
        with self._lock:
            self._events.extend(events)
            self._refusals += sum(event.kind == "refused" for event in events)

    def _look(self) -> None:
        """Take note of what happened."""
        self.alive()
