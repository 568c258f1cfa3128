"""Sites that leave, join, die, come back, stop or are missing: those present find their optimum."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.errors import ConvergenceError, FileError
from coke.field.carriers.memory import Fault, faithful
from coke.field.frames import CHECK, CLOSED, TALK, TOTALS, Standing, Totals, encode, is_word
from coke.field.store import Store
from kit.agents import (
    GOAL,
    LONG,
    PACE,
    A,
    B,
    D,
    Net,
    Nets,
    fails,
    forger,
    made_rows,
    others,
)
from kit.field import Field

# Membership.


def withholding(kinds: bytes) -> Fault:
    """Frames that begin so do not arrive."""
    return lambda sender, receiver, frame: () if frame[0] in kinds else (frame,)


def test_a_site_that_leaves_is_no_longer_in_the_answer(nets: Nets) -> None:
    """The optimum of those who stay; it goes as soon as its neighbours know, and is told apart."""
    net = nets(agents=6, edges=8, pace=PACE._replace(linger=20))
    net.friends = {n: {net.names[i - 1], net.names[i - 5]} for i, n in enumerate(net.names)}
    net.start()
    net.until(lambda: net.rounds() >= 20)
    net.agents[B].leave()
    began = time.monotonic()
    net.wait(B)
    assert time.monotonic() - began < 20
    net.wait()
    rest = others(net, B)
    assert net.distance(*rest) <= GOAL
    assert np.abs(net.optimum(rest) - net.optimum(net.names)).max() > 1e-3
    # Those who never were its neighbours know, too, that the graph is not what it was.
    assert {net.node(n).setup.reach for n in rest} == {11}


def joined(net: Net, newcomer: str) -> None:
    """Everybody but one begins; after a restart its neighbours name it."""
    friends, everybody = dict(net.friends), list(net.names)
    net.friends = {n: f - {newcomer} for n, f in friends.items()}
    rest = others(net, newcomer)
    net.start(*rest)
    net.until(lambda: net.rounds(*rest) >= 20)
    net.stop()
    net.friends, net.names = friends, everybody
    net.table[newcomer] = {"joins": True}
    net.start()


def thinned(nets: Nets, spared: bool) -> tuple[Net, str, frozenset[str]]:
    """A network in the middle of its rounds, a site to leave, and those it has in reserve.

    One that lingers for as long as it takes: an inner site of the tree, or one with a reserve.
    """
    net = nets(agents=7, edges=17, links="unicast", pace=PACE._replace(linger=LONG))
    net.start()
    net.until(lambda: net.rounds() >= 10)
    places = {n: at.places[0] for n in net.names if (at := net.agents[n].agreed) is not None}
    assert all(net.node(n).reserve for n in net.names if places[n].reserve)
    gone = next(n for n, at in places.items() if (at.reserve if spared else at.children))
    return net, gone, places[gone].reserve


def hang_together(net: Net, gone: str) -> None:
    """All links but to that site are open, and the others find their optimum."""
    rest = others(net, gone)
    assert net.distance(*rest) <= GOAL
    for n in rest:
        assert not net.node(n).reserve
        assert net.node(n).open.keys() == net.friends[n] - {gone}
    assert net.asymmetry(*rest) == 0


@pytest.mark.parametrize("spared", [False, True], ids=["an inner site", "one with a reserve"])
def test_where_a_site_leaves_links_in_reserve_are_opened(nets: Nets, spared: bool) -> None:
    """All of them but its own: those it had in reserve know before it goes, if by nobody else."""
    net, gone, spare = thinned(nets, spared)

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        return () if gone not in (sender, receiver) and receiver in spare else (frame,)

    net.memory.fault = fault
    net.agents[gone].leave()
    net.wait(gone)
    assert not any(gone in net.node(n).reserve for n in spare)
    net.memory.fault = faithful
    net.wait()
    hang_together(net, gone)


def test_whoever_opens_a_link_to_a_site_that_has_left_is_answered(nets: Nets) -> None:
    """Where the letters that would have closed it for good are lost."""
    net, gone, spare = thinned(nets, spared=True)
    opened = set[str]()

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        if sender == gone and gone in net.node(receiver).reserve:
            return ()
        if receiver == gone and sender in spare and is_word(frame):
            opened.add(sender)
        return (frame,)

    net.memory.fault = fault
    net.agents[gone].leave()
    net.wait()
    assert opened == spare
    hang_together(net, gone)


def test_a_site_that_joins_is_in_the_answer(nets: Nets) -> None:
    """It takes over what was agreed on, to the bit, and λ's share of the others."""
    net = nets()
    joined(net, D)
    net.until(lambda: net.rounds(D) >= 3)
    net.stop(D)  # and it is no newcomer the second time
    net.start(D)
    net.wait()
    assert net.distance() <= GOAL
    agreed = [agent.agreed for agent in net.agents.values()]
    assert len({a.whitened[1].whitening.C.tobytes() for a in agreed if a is not None}) == 1
    assert net.end(D, next(iter(net.friends[D]))).epoch == 1


def test_totals_that_make_no_sense_are_refused_and_others_asked_for(nets: Nets) -> None:
    net, told = nets(), list[str]()
    lone = Totals((msgspec.msgpack.encode([("x", ["y"]), ("y", [])]),))  # y does not name x

    def fault(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        if receiver == D and frame[0] == TOTALS and len(told) < 3:
            told.append(sender)
            return (encode(Totals((b"no records", b"x")) if len(told) > 1 else lone),)
        return (frame,)

    net.memory.fault = fault
    joined(net, D)
    net.wait()
    assert len(told) == 3
    assert net.agents[D].desk.refused.total() >= 3
    assert net.distance() <= GOAL


def test_a_dead_site_is_forgotten_and_may_come_back(nets: Nets) -> None:
    """Without it, the optimum of the rest; back with its old disk, everybody's again."""
    net = nets(tol=0.0)
    net.start()
    net.until(lambda: net.rounds() >= 20)
    net.stop()
    friends, rest = dict(net.friends), others(net, B)
    net.friends = {n: f - {B} for n, f in friends.items()}
    net.start(*rest)
    net.until(lambda: net.rounds(*rest) >= 400)
    assert net.distance(*rest) <= GOAL
    net.stop()
    net.friends = friends
    net.start()
    assert isinstance(fails(net, B), ConvergenceError)  # its neighbours have closed the edges
    net.table[B] = {"joins": True}
    net.start(B)
    net.until(lambda: net.rounds() >= 800)
    assert net.distance() <= GOAL


def test_a_forgotten_site_that_does_not_know_it_yet_comes_back_at_its_first_start(
    nets: Nets,
) -> None:
    """As docs/deploying.md says: joins = true, and its old state, in which its edges are open."""
    net = nets(tol=0.0)
    net.start()
    net.until(lambda: net.rounds() >= 20)
    net.stop()
    friends, rest = dict(net.friends), others(net, B)
    net.friends = {n: f - {B} for n, f in friends.items()}
    net.start(*rest)
    net.until(lambda: net.rounds(*rest) >= 30)
    net.stop()
    net.friends, net.table[B] = friends, {"joins": True}
    net.start()
    net.until(lambda: net.rounds() >= 400)
    assert all(not net.end(B, n).closed and net.end(B, n).epoch == 1 for n in friends[B])
    assert net.distance() <= GOAL


def test_one_that_leaves_stays_so_though_a_neighbour_joins_it_again(nets: Nets) -> None:
    """Else that neighbour would wait for it for ever."""
    net = nets(pace=PACE._replace(linger=LONG), fault=withholding(bytes([CLOSED])))
    net.start()
    net.until(lambda: net.rounds() >= 5)
    net.agents[B].leave()
    net.until(lambda: not net.node(B).open)
    net.stop()
    train, friend = net.agents[B]._train, min(net.friends[B])
    with train.store.claimed():
        train.hear(friend, encode(Standing(1, False)))
    assert train.trained.ends[friend].standing == Standing(1, True)


def test_one_whose_last_edge_is_closed_does_not_go_before_its_neighbour_knows(nets: Nets) -> None:
    """Though the first that it says of it is lost: else the other would wait for it for ever."""
    net, lost = nets(agents=2, edges=1), list[bytes]()
    forged = forger(lambda word: word._replace(tag=b"fake") if word.step > 2 else None, A)

    def fault(sender: str, receiver: str, frame: bytes) -> Iterable[bytes]:
        if sender == B and frame[0] == CLOSED and len(lost) < 4:
            lost.append(frame)
            return ()
        return forged(sender, receiver, frame)

    net.memory.fault = fault
    net.start()
    for name in (A, B):
        assert "every edge" in str(fails(net, name))
    assert len(lost) == 4
    net.start(B)  # once more, to nobody: not for ever
    assert "every edge" in str(fails(net, B))


# Stops, starts and two at once.


def everywhere(net: Net, phase: str) -> bool:
    return all(n in net.status and net.status[n].phase == phase for n in net.names)


def test_a_stop_in_every_phase_is_gone_on_from(nets: Nets) -> None:
    """Meeting, agreeing, training, parting: the same bits as if nobody had stopped."""
    net, phases = nets(tol=1e-3), ("meet", "agree", "train", "part")
    withheld = {"meet": b"@A", "agree": bytes([TALK]), "train": b"\0\1\2\3", "part": bytes([CHECK])}
    for phase in phases:
        net.memory.fault = withholding(withheld[phase])
        net.start()
        net.until(partial(everywhere, net, phase))
        net.stop()
        assert not net.errors
        assert all(agent.stopped for agent in net.agents.values())
    net.memory.fault = faithful
    net.start()
    net.wait()
    assert all(net.agents[n].outcome().converged for n in net.names)
    assert net.asymmetry() == 0
    calm = nets(tol=1e-3)
    calm.start()
    calm.wait()
    assert_array_equal(net.theta(), calm.theta())


def test_a_folder_has_one_agent_at_a_time_and_the_dead_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("999999\n")  # left by one that was killed
    with Store(tmp_path).claimed():
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(FileError, match=f"process {os.getpid()}"), Store(tmp_path).claimed():
            pass
    with Store(tmp_path).claimed():
        pass


def test_a_process_stops_with_143_and_refuses_a_second(tmp_path: Path) -> None:
    pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")
    field = Field(tmp_path, made_rows(100), 2, 1)
    a = field.names[0]
    try:
        field.start(a)
        field.until(lambda: any(line.get("phase") == "meet" for line in field.log(a)))
        first = field.processes[a]
        field.start(a)
        second, field.processes[a] = field.processes[a], first
        assert second.wait(300) not in (0, 143)
        assert f"another agent works here (process {first.pid})" in str(field.log(a))
        first.send_signal(signal.SIGTERM)
        assert first.wait(300) == 143
    finally:
        field.end()


# Patience.


@pytest.mark.parametrize("patience", [0.01, None], ids=["set", "from the usual round"])
def test_others_go_on_without_the_missing_and_do_not_end_without_it(
    nets: Nets, patience: float | None
) -> None:
    """Far more rounds than they needed, none slower than the one before; back, it lets them end."""
    net = nets(tol=1e-3, pace=PACE._replace(patience=patience, least=0.01))
    net.start()
    net.until(lambda: net.rounds() >= 3)
    net.stop(B)
    rest, then = others(net, B), net.rounds()
    net.until(lambda: net.rounds(*rest) >= then + 80)
    assert not any(net.node(n).done for n in rest)
    net.start(B)
    net.wait()
    assert all(net.agents[n].outcome().converged for n in net.names)


def test_whoever_knows_of_the_end_needs_nobody_to_finish(nets: Nets) -> None:
    """Cut off in the countdown and started again when all have gone, it ends by itself."""
    net = nets(tol=1e-3, pace=PACE._replace(linger=0.3))
    net.start()
    net.until(lambda: (s := net.status.get(B)) is not None and s.countdown is not None)
    for friend in net.friends[B]:
        net.memory.cut(B, friend)
    net.stop(B)
    net.wait()
    net.start(B)
    net.wait(B)
    assert all(net.agents[n].outcome().converged for n in net.names)
