"""Agents that go down the tree: the simulation's bits, whoever is killed; and on without a site."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from math import inf

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.field.carriers.memory import lossy
from coke.field.descending import Descend
from coke.field.frames import (
    CHECK,
    CHECKED,
    PARTED,
    TALK,
    Done,
    Proven,
    Said,
    Standing,
    decode_letter,
    encode,
    is_word,
)
from coke.learning.descending import Descending
from coke.maths.algorithms.tree_newton import END
from coke.maths.losses.excess import values
from coke.talk.tree import mark_of
from kit.agents import LONG, PACE, Net, Nets, others
from kit.descents import (
    TREE,
    are_the_simulation,
    descent,
    held,
    root_of,
    rounds_after,
    swept,
)
from kit.driven import Driven

LEAVING = PACE._replace(patience=0.3, linger=0.3)
ROUGH = 1e-6
CRASHES: dict[str, Callable[[str, str], str | None]] = {
    "nobody": lambda sender, receiver: None,
    "the sender": lambda sender, receiver: sender,
    "the receiver": lambda sender, receiver: receiver,
}


@pytest.mark.parametrize("algorithm", ["tree-newton", "coke"])
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_agents_are_the_simulation_whoever_is_killed_after_each_message(
    nets: Nets, crash: Callable[[str, str], str | None], algorithm: str
) -> None:
    """Of a descent, and of rounds brought together."""
    net = nets(agents=4, edges=4, **TREE | {"algorithm": algorithm})
    driven = Driven(net, crash)
    driven.run()
    are_the_simulation(net, driven.agents.values())


@pytest.mark.parametrize("algorithm", ["tree-newton", "coke"])
def test_loss_changes_no_bit(nets: Nets, algorithm: str) -> None:
    """A tenth of all frames, and some come twice."""
    net = nets(agents=5, edges=6, **TREE | {"algorithm": algorithm})
    net.memory.fault = lossy(1, loss=0.1, twice=0.1)
    net.start()
    net.wait()
    are_the_simulation(net, net.agents.values())


def test_fewer_links_than_there_are_change_no_bit(nets: Nets) -> None:
    """Rounds go along the tree and a few edges; the others stay closed, and nobody misses them."""
    net = nets(agents=7, edges=17, **TREE | {"algorithm": "coke", "links": "unicast"})
    net.memory.fault = lossy(2, loss=0.1, twice=0.1)
    net.start()
    net.until(lambda: net.rounds() >= 5)
    net.stop(*net.names[:3])
    net.start(*net.names[:3])
    net.wait()
    are_the_simulation(net, net.agents.values())
    nodes = [net.node(name) for name in net.names]
    assert all(node.reserve == sorted(node.setup.reserve) for node in nodes)
    assert sum(len(node.reserve) for node in nodes) >= 10
    assert not any(agent.outcome().lost for agent in net.agents.values())


def test_sites_that_sleep_are_waited_for(nets: Nets) -> None:
    """Half of them, in the middle of a descent; and all of them, once more when it is over."""
    net = nets(agents=5, edges=6, **TREE)
    net.memory.fault = held(net, 3)
    net.start()
    net.until(lambda: all(map(swept(net, 2), net.names)))
    net.stop(*net.names[::2])
    net.until(lambda: any(net.agents[n]._descend.missing for n in net.names[1::2]))
    net.memory.fault = lossy(0, loss=0.0)
    net.start(*net.names[::2])
    net.wait()
    are_the_simulation(net, net.agents.values())
    net.start()
    net.wait()
    are_the_simulation(net, net.agents.values())


def test_what_is_no_word_is_no_reason_for_rounds(nets: Nets) -> None:
    """Where an edge stands, that a site says no more, and proofs that are none."""
    net = nets(agents=4, edges=5, **TREE)
    nothing = struct.pack("<fff", 0.0, np.nan, 1.0)

    def more(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        found = descent(net, receiver)
        mark = b"else" if found is None else mark_of(found.u)
        proofs = Proven(mark, nothing), Proven(b"else", bytes(12))
        strange = [encode(one) for one in (Done(0, 0), Standing(0, False), *proofs)]
        return (frame, *strange) if frame[0] == TALK else (frame,)

    net.memory.fault = more
    net.start()
    net.wait()
    are_the_simulation(net, net.agents.values())
    assert any(agent.desk.refused for agent in net.agents.values())


# Without a site, or with one more: by rounds.


def test_without_the_root_the_others_go_on_by_rounds(nets: Nets) -> None:
    """To the last of them. No dual is left over, and nothing is proven."""
    net = nets(agents=5, edges=7, pace=LEAVING, **TREE | {"tol": 1e-9, "rounds": 12})
    root = root_of(net)
    rest = others(net, root)
    net.memory.fault = held(net, 3)
    net.start()
    net.until(lambda: all(map(swept(net, 2), net.names)))
    net.stop(root)
    net.wait(*rest)
    assert all(net.node(name).short for name in rest)
    assert net.asymmetry(*rest) == 0
    assert all(net.agents[name].outcome().certificate is None for name in rest)


def test_rounds_that_took_the_place_of_a_descent_are_kept(nets: Nets) -> None:
    """A site that is started again goes on with them; without the root, to the others' optimum."""
    net = nets(agents=5, edges=7, pace=LEAVING, **TREE | {"tol": 1e-9, "rounds": 3000})
    root = root_of(net)
    rest = others(net, root)
    net.memory.fault = held(net, 3)
    net.start()
    net.until(lambda: all(map(swept(net, 2), net.names)))
    net.stop(root)
    net.until(lambda: net.rounds(*rest) >= 10)
    net.stop()
    before = {name: net.node(name).k for name in rest}
    net.friends = {name: friends - {root} for name, friends in net.friends.items()}
    net.start(*rest)
    net.wait(*rest)
    assert all(net.node(name).k > before[name] for name in rest)
    assert net.distance(*rest) <= ROUGH
    assert net.asymmetry(*rest) == 0


def test_a_site_that_joins_during_a_descent_is_in_the_answer(nets: Nets) -> None:
    net = nets(agents=5, edges=7, pace=LEAVING, **TREE | {"tol": 1e-9, "rounds": 3000})
    everybody, friends, late = net.names, dict(net.friends), net.names[-1]
    net.names = others(net, late)
    net.friends = {name: friends[name] - {late} for name in net.names}
    net.memory.fault = held(net, 3)
    net.start()
    net.until(lambda: all(map(swept(net, 2), net.names)))
    net.stop()
    net.names, net.friends = everybody, friends
    net.table[late] = {"joins": True}
    net.start()
    net.wait()
    assert net.distance() <= ROUGH
    assert net.asymmetry() == 0


@pytest.mark.parametrize("order", [2, 4])
def test_rounds_that_take_its_place_are_the_simulation(
    nets: Nets, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    """All sites go on from the same order: the bits of COKE from what they knew then."""
    net = nets(agents=5, edges=7, **TREE | {"tol": 1e-6, "rounds": 400})
    work = Descend.work

    def until(self: Descend) -> bool:
        found = work(self)
        if self.descent is not None and self.descent.k >= order:
            self.hand_over("all do, to see what comes of it")
        return found

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        early = is_word(frame) and not all(map(swept(net, order), net.names))
        return () if early else (frame,)

    monkeypatch.setattr(Descend, "work", until)
    net.memory.fault = fault
    net.start()
    net.wait()
    ready = net.task()
    twin = Descending(ready, ready.case("tree-newton"))
    for _ in itertools.islice(twin.sweeps(), order):
        pass
    last = rounds_after(ready, twin._sites, ready.case("tree-newton").spent)[-1]
    assert {net.node(name).k for name in net.names} == {last.k}
    assert_array_equal(net.theta(), last.state.theta)
    assert net.asymmetry() == 0
    assert_array_equal(last.state.g.sum(axis=0), 0.0)


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "no byte": lambda message: b"",
    "too much": lambda message: message + b"more",
    "others": lambda message: b"\xff" * len(message),
}


@pytest.mark.parametrize("garbled", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_garbage_leads_to_rounds_and_a_proof_of_these(
    nets: Nets, garbled: Callable[[bytes], bytes], up: bool
) -> None:
    """Nobody stops; the proof is a conversation of its own, however far each had come before."""
    net = nets(agents=5, edges=6, **TREE | {"tol": 1e-6, "rounds": 3000})
    spoilt = set[tuple[str, int]]()
    above = {place.name: place.parent for place in net.task().places}

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        letter = decode_letter(frame) if frame[0] == TALK else None
        way = above[sender] == receiver if up else above[receiver] == sender
        if not (way and isinstance(letter, Said) and swept(net, 2)(sender)):
            return (frame,)
        if not spoilt:
            spoilt.add((sender, letter.which))
        if (sender, letter.which) not in spoilt:
            return (frame,)
        return (encode(letter._replace(message=garbled(letter.message))),)

    net.memory.fault = fault
    net.start()
    net.wait()
    assert spoilt
    ends = [agent.outcome() for agent in net.agents.values()]
    assert len({end.certificate for end in ends}) == len({end.theta.tobytes() for end in ends}) == 1
    assert all(end.certificate is not None and end.certificate.holds for end in ends)
    assert all(net.node(name).k > 0 for name in net.names)
    assert net.asymmetry() == 0


# The root's last order.


def _last(frame: bytes) -> bool:
    letter = decode_letter(frame) if frame[0] == TALK else None
    if isinstance(letter, Said):
        return len(letter.message) == 7 and letter.message[0] == END
    return isinstance(decode_letter(frame), Proven) if frame[0] > TALK else False


def _ended(net: Net, *names: str) -> bool:
    """Whether they know of the end of the descent."""
    return all((found := descent(net, name)) is not None and found.done for name in names)


def _rounds(net: Net, name: str) -> int:
    """That a site has made in place of the descent."""
    node = net.agents[name].node
    return 0 if node is None else node.k


def _deaf(net: Net, deaf: set[str]) -> None:
    """Nobody tells these how the descent has ended; nor do those who know of it part meanwhile."""

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        parting = bool(deaf) and frame[0] in (CHECK, CHECKED, PARTED)
        return () if parting or (receiver in deaf and _last(frame)) else (frame,)

    net.memory.fault = fault


def test_a_root_that_is_killed_before_its_last_order_is_heard_tells_it_again(nets: Nets) -> None:
    net = nets(agents=5, edges=7, **TREE)
    root = root_of(net)
    _deaf(net, {*others(net, root)})
    net.start()
    net.until(lambda: _ended(net, root))
    net.stop(root)
    _deaf(net, set())
    net.start(root)
    net.wait()
    are_the_simulation(net, net.agents.values())


@pytest.mark.parametrize("patience", [inf, 0.3], ids=["waiting", "by rounds"])
def test_one_that_has_heard_the_last_order_tells_all(nets: Nets, patience: float) -> None:
    """Though the root is away, and though the others had gone on to rounds: every bit.

    Started again, all of them hold it from their disks.
    """
    net = nets(agents=5, edges=7, pace=PACE._replace(patience=patience, linger=LONG), **TREE)
    root = root_of(net)
    knows = max(net.friends[root], key=lambda name: len(net.friends[name]))
    rest = [name for name in others(net, root) if name != knows]
    _deaf(net, {*rest})
    net.start()
    net.until(lambda: _ended(net, knows))
    net.stop(root)
    net.until(lambda: patience == inf or all(_rounds(net, name) > 0 for name in rest))
    _deaf(net, set())
    net.until(lambda: _ended(net, *rest))
    said = set[int]()
    for started in ([root], net.names):
        net.start(*started)
        net.wait()
        are_the_simulation(net, net.agents.values())
        said.add(sum(net.node(name).ledger.wire_bytes for name in net.names))
    assert len(said) == 1
    assert (said == {0}) == (patience == inf)


def test_what_is_proven_is_no_less_than_the_truth(nets: Nets) -> None:
    net = nets(agents=3, edges=3, **TREE)
    driven = Driven(net, CRASHES["nobody"])
    driven.run()
    task = net.task()
    case = task.case("tree-newton")
    end = next(iter(driven.agents.values())).outcome()
    risk, best = case.problem.train, case.problem.optimum
    objective, least = (float(values(risk, np.tile(u, (3, 1))).sum()) for u in (end.theta, best))
    assert end.certificate is not None
    assert objective - least <= end.certificate.gap <= 0.011 * least
