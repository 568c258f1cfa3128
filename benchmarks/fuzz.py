"""`make bench-fuzz`: bytes that a neighbour made up, a million of them, at a site in every phase.

Genuine frames of every kind, words, letters, those of streams and audits included, and messages of
the agreement, with a guard and without, are cut, lengthened, flipped, joined and given other kinds;
some are bytes drawn at random. Each is heard by a site in training, one that has ended, one that
has just begun, or in a conversation at any of its turns; one in ten comes in parts over a link; and
one in a hundred is a statement in an audit, every other of them signed anew by a liar.
What is refused leaves the site's state as it was, to the last bit; what is not leaves one that can
be written and read again; nothing else is ever raised, and memory does not grow.

`--frames 10000` for fewer, `--seed 1` for others. Fails on a missed promise.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads; others share the machine

import argparse
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coke.errors import CokeError, MessageError
from coke.field.auditing import NodeAudit
from coke.field.carriers.stream import FRAME, REVOKED, Reader, packed
from coke.field.frames import (
    CLOSING,
    LETTER,
    TAG,
    Ask,
    Audited,
    Check,
    Done,
    Frame,
    Hello,
    Letter,
    Parted,
    Proven,
    Said,
    Standing,
    Totals,
    Want,
    Word,
    decode,
    decode_letter,
    encode,
)  # fmt: skip
from coke.field.node import Node
from coke.field.pulses import Ends, Hand, Join, Rests, TickHere, TickSaid, TickWaits
from coke.field.signing import SIGNATURE, Signer
from coke.field.state import image, restored
from coke.learning.case import Wanted
from coke.learning.common import Common
from coke.learning.ready import Ready, site_talk
from coke.maths.audit import Flows, Vouched
from coke.talk.conversation import Conversation

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.agents import Net
from kit.events import SMALL, Faults, World, name

FRAMES, TALKS = 10**6, 400  # of them so many in one are in conversations
GROWTH = 50.0  # MB at most
KEPT = 1000  # one in so many states is written and read again


def nodes() -> Iterator[Node]:
    """A site that has just begun, in the middle, near its end, and done."""
    world = World(SMALL, Faults(), tol=0.3)
    for ticks in (1, 10, 40, 400):
        for _ in range(ticks):
            world.tick()
        yield world.nodes[name(2)]


def genuine(node: Node) -> list[bytes]:
    """A frame of every kind, as a neighbour might send it now."""
    end = next(iter(node.ends.values()))
    words = [w for w in (end.out, end.prev) if w is not None]
    words += [
        Word(end.epoch, end.s + i, end.tag[:TAG], q, p)
        for i in range(3)
        for q in (0, 7, -1)
        for p in (b"", w_payload(words))
    ]
    frames: list[Frame] = [
        *words,
        Standing(end.epoch, False),
        Standing(end.epoch + 1, True),
        Done(end.epoch, end.s),
    ]
    letters: list[Letter] = [
        Hello({"lambda": "1", "coke": "0"}, back=True), Said(0, b"abc"), Said(CLOSING, bytes(40)),
        Ask(3), Want(), Totals((b"x", bytes(9))), Check(end.epoch, end.s, end.g, had=False),
        Parted(), Proven(b"mark", bytes(12)), Audited(bytes(90)), TickSaid(7, 1, b"abc"),
        TickWaits(7, 0), Rests(9), TickHere(4), Join(5, 0), Ends({1: 2, 3: 4}, 1),
        Join(5, 8, Hand(bytes(16), bytes(16), Common((5, 6), 4, 0, 2, 3, 1.0, (b"t",)), b"xyz")),
    ]  # fmt: skip
    every: list[Frame | Letter] = [*frames, *letters]
    return [encode(one) for one in every]


def w_payload(words: list[Word]) -> bytes:
    """Of a word with news, if there was one."""
    return next((word.payload for word in words if word.payload), b"\x01\x00")


def mangled(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """Something like it."""
    made = bytearray(data)
    for _ in range(draw.randrange(4)):
        match draw.randrange(6):
            case 0:
                del made[draw.randrange(len(made) + 1) :]
            case 1:
                made += draw.randbytes(draw.randrange(1, 40))
            case 2 if made:
                made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
            case 3 if made:
                made[0] = draw.randrange(256)
            case 4 if made:
                at = draw.randrange(len(made))
                made[at : at + 8] = draw.randbytes(draw.randrange(9))
            case _:
                made = bytearray(draw.choice(others)[: draw.randrange(60)] + made)
    return bytes(made) if draw.random() > 0.05 else draw.randbytes(draw.randrange(200))


def heard(node: Node, who: str, data: bytes) -> tuple[Node, str]:
    """The site afterwards, and what became of the frame; as an agent hears it."""
    try:
        if data and data[0] >= LETTER:
            decode_letter(data)
            return node, "letter"
        frame = decode(data, node.setup.moves.width)
    except MessageError:
        return node, "refused"
    try:
        return node.hear(who, frame).node, "heard"
    except MessageError:
        return node.offended(who, frame).node, "offended"


def training(count: int, draw: random.Random) -> Counter[str]:
    """What became of so many frames at sites in training; an error where a promise was missed."""
    found, sites = Counter[str](), list(nodes())
    frames, images = [genuine(node) for node in sites], [image(node) for node in sites]
    for i in range(count):
        which = i % len(sites)
        node, before = sites[which], images[which]
        who = draw.choice(sorted(node.ends))
        after, fate = heard(node, who, mangled(draw.choice(frames[which]), frames[which], draw))
        found[fate] += 1
        assert fate not in ("refused", "letter") or after is node
        if i % KEPT == 0:
            assert image(node) == before, "a frame has changed the state it was heard in"
            again = restored(image(after), after.setup)
            assert image(again) == image(after)
    assert [image(node) for node in sites] == images
    return found


def conversations(count: int, draw: random.Random) -> Counter[str]:
    """The agreement of one site, in which the message of some turn is made up."""
    found = Counter[str]()
    guarded: dict[str, Any] = {
        "data": {"file": "rows", "target": "y", "test": 0.0},
        "guard": True,
        "model": "auto",
    }
    nets = [Net(Path("unused"), agents=4, edges=5)]
    nets.append(Net(Path("unused"), agents=4, edges=5, **guarded))
    missions = [{n: net.mission(n) for n in net.names} for net in nets]

    def talks(which: int) -> dict[str, Conversation[Ready]]:
        made, net = {}, nets[which]
        for n, m in missions[which].items():
            most = Wanted(m.wanted.basis, m.wanted.spread, 64)
            made[n] = Conversation(site_talk(m.rows, sorted(net.friends[n]), m.terms, most))
        return made

    for i in range(count):
        found[_lied(talks(i % 2), draw.randrange(60 if i % 2 == 0 else 120), draw)] += 1
    return found


def links(count: int, draw: random.Random) -> Counter[str]:
    """Bytes as they come over a link, in parts."""
    found, most = Counter[str](), 4096
    whole = [
        packed(kind, draw.randbytes(draw.randrange(300))) for kind in range(FRAME, REVOKED + 1)
    ]
    whole += [packed(FRAME, draw.randbytes(size)) for size in (0, 1, most, most + 1, 3 * most)]
    for _ in range(count):
        reader, data = Reader(most), b"".join(draw.choices(whole, k=draw.randrange(1, 4)))
        data = mangled(data, whole, draw)
        try:
            while data:
                part = draw.randrange(1, len(data) + 1)
                for kind, said in reader.feed(data[:part]):
                    assert len(said) <= (most if kind == FRAME else 1 << 20)
                    found["heard"] += 1
                data = data[part:]
        except MessageError:
            found["refused"] += 1
    return found


def audits(count: int, draw: random.Random) -> Counter[str]:
    """Statements in an audit: mangled on their way, or made up by a site and signed by it."""
    found, names, D = Counter[str](), ("a", "b", "c"), 6
    keys = {name: Signer.drawn() for name in names}
    near = {name: tuple(n for n in names if n != name) for name in names}
    told = {n: Vouched(1.0, 1.0, 1.0, near[n], keys[n].public) for n in names}
    liar = NodeAudit("b", Flows(told, 1.0), keys["b"], D)
    liar.call(30)
    liar.look(40, {}, 1.0, 1.0)
    liar.closed("a", 40)
    said = [post.data for post in liar.outbox]
    for _ in range(count):
        audit, data = (
            NodeAudit("a", Flows(told, 1.0), keys["a"], D),
            mangled(draw.choice(said), said, draw),
        )
        if draw.random() < 0.5:
            body = data[:-SIGNATURE]
            data = body + keys["b"].sign(liar._run + body)
        try:
            audit.hear("b", data, 40)
            audit.look(60, {}, 1.0, 1.0)
            found["heard"] += 1
        except MessageError:
            found["refused"] += 1
        assert len(audit._heard) <= len(names)
    return found


def _lied(held: dict[str, Conversation[Ready]], turn: int, draw: random.Random) -> str:
    """How all sites' conversations end whose message of that number is made up."""
    posted, seen = list[tuple[str, str, bytes]](), 0
    for me, talk in held.items():
        posted += [(me, to, data) for to, data in talk.go_on()]
    while posted:
        me, to, data = posted.pop(0)
        seen += 1
        if seen == turn:
            data = mangled(data or b"\0", [data or b"\0", bytes(50)], draw)
        held[to].take(me, data)
        try:
            posted += [(to, n, said) for n, said in held[to].go_on()]
        except CokeError:
            return "refused, with the reason"
    return "done" if all(one.done for one in held.values()) else "waiting"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    draw = random.Random(wanted.seed)
    parts: dict[Callable[[int, random.Random], Counter[str]], int] = {
        conversations: TALKS, audits: 100, links: 10, training: 1,
    }  # fmt: skip
    for part, rare in parts.items():
        count, what = wanted.frames // rare, part.__name__
        part(min(count, 200), draw)  # once, so that caches are full
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with np.errstate(all="ignore"):
            found = part(count, draw)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{what}: {dict(found)}, memory grew by {grown:.1f} MB")
        assert grown <= GROWTH
    print("no crash, no growth, states as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main())
