"""The node audit: statements that are signed, flooded, read with suspicion and added up by all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import MessageError
from coke.field.auditing import APART, FALSE, MOST, TWICE, NodeAudit
from coke.field.edge import Edge, End, zero
from coke.field.renewal import Renewal
from coke.field.signing import FILE, Signer, genuine
from coke.field.silence import STEPS
from coke.field.statements import asked, rounded
from coke.maths.algorithms.codecs import Float64
from coke.maths.audit import Flows, Vouched
from coke.maths.guards import FADES, FIRST

D = 6


@cache
def _keys() -> dict[str, Signer]:
    return {str(i): Signer.drawn() for i in range(13)}


def _audits(graph: nx.Graph) -> dict[str, NodeAudit]:
    """Of sites in a graph, which have vouched for themselves."""
    keys = _keys()
    told = {
        str(i): Vouched(1.0, 1.0, 1.0, tuple(map(str, graph[i])), keys[str(i)].public)
        for i in graph
    }
    flows = Flows(told, 1.0)
    return {name: NodeAudit(name, flows, keys[name], D) for name in told}


def _ends(
    audits: dict[str, NodeAudit], name: str, gamma: dict[tuple[str, str], float]
) -> dict[str, End]:
    """Edges whose duals are so large, in one direction."""
    start, found = zero(Edge(Float64(), D, True)), dict[str, End]()
    for other in audits[name].flows.near[name]:
        size = gamma.get((name, other), 0.0) - gamma.get((other, name), 0.0)
        found[other] = start._replace(s=FIRST, g=size * np.arange(1.0, D + 1))
    return found


Lost = Callable[[str, str, bytes], bool]


def _flood(
    audits: dict[str, NodeAudit], k: int, mute: str = "", lost: Lost = lambda *_: False
) -> None:
    """Until nobody has anything to pass on."""
    while any(audit.outbox for audit in audits.values()):
        for name, audit in audits.items():
            for to, data in list(audit.posts(dict.fromkeys(audit.flows.near[name]))):
                if mute not in (name, to) and not lost(name, to, data):
                    audits[to].hear(name, data, k)


def _called(audits: dict[str, NodeAudit]) -> int:
    audits["0"].call(1)
    _flood(audits, 1)
    return next(iter(audits.values()))._due


def _judge(
    audits: dict[str, NodeAudit],
    gamma: dict[tuple[str, str], float],
    mute: str = "",
    lost: Lost = lambda *_: False,
    loss: float = 0.5,
) -> dict[str, str | None]:
    """Whom each convicts, once all have stated that loss and their edges."""
    k = _called(audits)
    for later in range(k, k + 40):
        for name, audit in audits.items():
            if name != mute:
                found = audit.look(later, _ends(audits, name, gamma), 1.0, loss)
                if found is not None:
                    audit.__dict__.setdefault("convicted", found)
        _flood(audits, later, mute, lost)
    return {n: getattr(a.__dict__.get("convicted"), "who", None) for n, a in audits.items()}


PULL = {("2", "1"): 3.0, ("2", "3"): 3.0, ("1", "0"): 2.0, ("3", "4"): 2.0}  # all from 2


def test_all_convict_the_one_where_a_pull_begins() -> None:
    """On a ring: its neighbours' edges carry as much, but add up to less."""
    found = _judge(_audits(nx.cycle_graph(5)), PULL)
    assert {found[n] for n in "0134"} == {"2"}


@pytest.mark.parametrize(("fades", "mute"), [(False, ""), (True, ""), (True, "2")])
def test_while_what_a_liar_did_fades_who_stands_out_is_no_liar(fades: bool, mute: str) -> None:
    """Whoever pulled against it does, as all are dragged; who is silent has no such excuse."""
    audits = _audits(nx.cycle_graph(5))
    for audit in audits.values():
        audit.shaken = 10**6 if fades else 0
    found = _judge(audits, {e: 0.3 * size for e, size in PULL.items()}, mute, loss=2.0)
    assert {found[n] for n in "0134"} == {None if fades and not mute else "2"}


def test_while_all_begin_anew_sums_of_duals_convict_nobody() -> None:
    """They are what is given up, or of models far from the optimum, which the bounds are of."""
    for closed, convicted in ((FIRST - 4, None), (FIRST, "2")):
        audits = _audits(nx.cycle_graph(5))
        for audit in audits.values():
            audit.renewal.plan(closed, 4, closed)
        found = _judge(audits, PULL)
        assert {found[n] for n in "0134"} == {convicted}
        assert {audits[n].complete for n in "0134"} == {convicted is not None}


def test_a_liar_that_states_nothing_and_passes_nothing_on_is_convicted_all_the_same() -> None:
    found = _judge(_audits(nx.cycle_graph(5)), PULL, mute="2")
    assert {found[n] for n in "0134"} == {"2"}


def _first_copies() -> Lost:
    """Whatever is sent is lost the first time."""
    seen = set[tuple[str, str, bytes]]()

    def lost(*frame: Any) -> bool:
        new = frame not in seen
        seen.add(frame)
        return new

    return lost


@pytest.mark.parametrize("mute", ["", "2"])
def test_what_is_lost_on_the_way_is_asked_for_until_it_is_there(mute: str) -> None:
    """All come to the same verdict, and none convicts an honest site of which it knows a part."""
    audits = _audits(nx.cycle_graph(5))
    found = _judge(audits, PULL, mute, _first_copies())
    assert {found[n] for n in "0134"} == {"2"}
    assert {audits[n].flows.out for n in "0134"} == {frozenset("2")}
    assert len({audits[n]._heard.keys() - {mute} == audits.keys() - {mute} for n in "0134"}) == 1


def test_a_site_that_nobody_hears_is_convicted_of_nothing_by_a_part_of_its_edges() -> None:
    """No sum is above 0.58 of its bound; but one edge has 0.7, of which half is passed on."""
    audits = _audits(nx.cycle_graph(5))
    unit = audits["0"].flows.node(2.5) / float(np.linalg.norm(np.arange(1.0, D + 1)))
    gamma = {("4", "0"): 0.35 * unit, ("0", "1"): 0.7 * unit, ("1", "2"): 0.35 * unit}
    found = _judge(audits, gamma, lost=lambda sender, *_: sender in ("1", "2"))
    assert {found[n] for n in "034"} == {None}
    assert all(audits[n].judged for n in "034")


def test_a_statement_takes_one_way_to_every_site_and_a_call_all() -> None:
    """N − 1 copies of each where nothing is lost, however many edges there are."""
    audits = _audits(nx.circulant_graph(7, [1, 3]))
    calls, stated = list[bytes](), list[bytes]()

    def counted(_from: str, _to: str, data: bytes) -> bool:
        (stated if len(data) > 64 else calls).append(data)
        return False

    audits["0"].call(1)
    _flood(audits, 1, lost=counted)
    k = audits["3"]._due
    for name, audit in audits.items():
        audit.look(k, _ends(audits, name, {}), 1.0, 0.5)
    _flood(audits, k, lost=counted)
    assert all(audit._heard.keys() == audits.keys() for audit in audits.values())
    assert len(calls) >= 6
    assert len(stated) == 7 * 6
    assert sum(map(len, calls)) < len(stated[0])


def _hop(audits: dict[str, NodeAudit], k: int, mute: str) -> int:
    """What is posted goes one edge further; how many bytes."""
    posted = [
        (name, to, data)
        for name, audit in audits.items()
        for to, data in audit.posts(dict.fromkeys(audit.flows.near[name]))
    ]
    for name, to, data in posted:
        if mute not in (name, to):
            audits[to].hear(name, data, k)
    return sum(len(data) for _, _, data in posted)


@pytest.mark.parametrize("N", [6, 13])
@pytest.mark.parametrize("mute", range(3))
def test_who_is_silent_on_the_tree_holds_up_nothing_that_has_another_way(N: int, mute: int) -> None:
    """All others have what there is 3 rounds after the longest way round, at most."""
    audits, silent = _audits(nx.cycle_graph(N)), str(mute)
    k = _called(audits)
    for later in range(k, k + N + 3):
        for name, audit in audits.items():
            if name != silent:
                assert audit.look(later, _ends(audits, name, {}), 1.0, 0.5) is None
        _hop(audits, later, silent)
    rest = audits.keys() - {silent}
    assert all(audits[n]._heard.keys() == rest for n in rest)


def test_a_false_alarm_of_silence_costs_so_much_and_no_more() -> None:
    """Every edge carries a statement twice at most, however often it is said."""
    audits = _audits(nx.complete_graph(5))
    k, size, spent = _called(audits), 0, 0
    for later in range(k, k + 5):
        for name, audit in audits.items():
            audit.look(later, _ends(audits, name, {}), 1.0, 0.5)
        size = size or len(audits["0"]._heard["0"][0])
        if later == k + 1:
            for n in "0123":
                for _ in range(9):
                    audits[n].hear("4", asked(-k), later)
        spent += _hop(audits, later, "")
    assert spent <= 5 * 20 * 2 * size


def test_who_closes_an_edge_tells_all_once_for_each_end() -> None:
    """All begin anew in the same round; nobody says so of others, or of no edge."""
    audits = _audits(nx.cycle_graph(5))
    audits["1"].closed("2", 30)
    (notice,) = (data for _, data in audits["1"].posts({"0": None}))
    audits["0"].hear("1", notice, 31)
    _flood(audits, 31)
    assert {audits[n].renewal.at for n in "0134"} == {30 + 3 + 1}  # three steps, but by the liar
    assert {audits[n].shaken for n in "0134"} == {34 + FADES}
    audits["0"].hear("4", notice, 60)
    assert audits["0"].shaken == 34 + FADES
    assert all(audits[n].renewal.due(34) for n in "0134")
    audits["3"].closed("2", 81)
    _flood(audits, 82)
    assert {audits[n].shaken for n in "014"} == {85 + FADES}
    audits["1"].closed("3", 99)
    assert not audits["1"].outbox
    for wrong in (audits["2"]._signed((1, -9, 0, [])), audits["1"]._signed((1, -9, 3, []))):
        with pytest.raises(MessageError):
            audits["0"].hear("1", wrong, 100)


def test_whatever_a_notice_says_nobody_waits_for_long_or_begins_anew_soon_again() -> None:
    """One of long ago, or of a round to come, is of now; the earliest counts."""
    for closed in (0, 5, 100, 103, 2**31 - 1):
        plan = Renewal()
        assert plan.plan(closed, 4, 100) == 105
        assert plan.plan(98, 4, 100) == plan.plan(99, 4, 100) == 103
        assert [k for k in range(100, 110) if plan.due(k)] == [103]
        assert plan.plan(103, 4, 103) == 103
        assert not plan.still
        assert plan.plan(103 + FADES, 4, 103 + FADES) == 108 + FADES
        assert plan.still
    assert not Renewal().plan(FADES - 5, 4, FADES - 5)  # nothing has begun to last


def _mute(audits: dict[str, NodeAudit], mute: str, steps: int, times: int = 2) -> dict[str, str]:
    """Whom each convicts after so many audits in which one says words, and states nothing."""
    convicted = dict[str, str]()
    for _ in range(times):
        k = max(audit.judged for audit in audits.values()) + APART + 1
        for caller in ("0", str(len(audits) - 1)):  # on either side of it
            audits[caller].call(k)
        _flood(audits, k, mute)
        k = audits["0"]._due
        for later in range(k, k + 30):
            for name in audits.keys() - {mute}:
                ends = _ends(audits, name, {})
                s = k + steps * (later > k)
                ends["a newcomer"] = ends[min(ends)]  # that has not vouched, and has no key
                ends = {n: end._replace(s=s if n == mute else later) for n, end in ends.items()}
                found = audits[name].look(later, ends, 1.0, 0.5)
                convicted |= {} if found is None else {name: found.who}
            _flood(audits, later, mute)
    return convicted


def test_who_states_nothing_though_its_words_come_is_convicted_by_its_neighbours() -> None:
    """In the second audit, and where others have stated theirs: not who is gone, or all alone."""
    path = nx.path_graph(7)
    assert _mute(_audits(path), "3", STEPS) == {"2": "3", "4": "3"}
    assert not _mute(_audits(path), "3", STEPS, times=1)
    assert not _mute(_audits(path), "3", STEPS - 1)
    assert _mute(_audits(path), "1", STEPS) == {"2": "1"}


def test_steps_to_the_farthest_site_do_not_lead_by_a_liar() -> None:
    audits = _audits(nx.cycle_graph(5))
    assert audits["0"].flows.reach("1", "2") == audits["3"].flows.reach("1", "2") == 3
    assert _audits(nx.path_graph(4))["0"].flows.reach("1", "2") == 1
    assert _audits(nx.star_graph(4))["0"].flows.reach("1", "0") == 0


def test_a_call_that_was_lost_is_made_up_for_by_who_asks() -> None:
    audits = _audits(nx.path_graph(3))
    audits["0"].call(1)
    list(audits["0"].posts({"1": None}))  # and lost
    k = audits["0"]._due
    for later in range(k, k + 5):
        for name, audit in audits.items():
            audit.look(later, _ends(audits, name, {}), 1.0, 0.5)
        _flood(audits, later, lost=lambda sender, _, data: sender == "0" and len(data) > 64)
    assert {audit._due for audit in audits.values()} == {k}


def test_of_two_calls_at_a_time_all_follow_the_earlier() -> None:
    """Or each half of the sites would wait for the other's statements."""
    audits = _audits(nx.cycle_graph(5))
    audits["0"].call(21)
    audits["3"].call(27)
    assert audits["0"]._due < audits["3"]._due
    _flood(audits, 27)
    assert {audit._due for audit in audits.values()} == {audits["0"]._due}


def test_a_call_does_not_end_an_audit_that_is_not_judged_yet() -> None:
    audits = _audits(nx.path_graph(3))
    k = _called(audits)
    audits["1"].look(k, _ends(audits, "1", {}), 1.0, 0.5)
    audits["1"].call(k + APART)
    assert audits["1"]._due == k


def test_who_asks_again_and_again_is_told_so_often() -> None:
    audits = _audits(nx.path_graph(3))
    k = _called(audits)
    audits["1"].look(k, _ends(audits, "1", {}), 1.0, 0.5)
    list(audits["1"].posts({"0": None}))
    told = 0
    for _ in range(50):
        audits["1"].hear("0", msgspec.msgpack.encode((k, bytes(1))), k)
        told += len(list(audits["1"].posts({"0": None, "2": None})))
    assert told == MOST
    for wrong in ((k, bytes(2)), (-1, bytes(1)), (2**31, bytes(1))):
        with pytest.raises(MessageError):
            audits["1"].hear("0", msgspec.msgpack.encode(wrong), k)


def test_who_was_started_again_signs_no_second_statement() -> None:
    """Its neighbours speak of its edges, and it may ask for what it has stated itself."""
    audits = _audits(nx.cycle_graph(5))
    k = _called(audits)
    for name, audit in audits.items():
        audit.look(k, _ends(audits, name, {}), 1.0, 0.5)
    _flood(audits, k)
    audits["2"] = again = NodeAudit("2", audits["2"].flows, audits["2"].signer, D)
    for later in range(k + 1, k + 8):
        again.hear("1", msgspec.msgpack.encode((k, bytes(1))), later)
        assert again.look(later, _ends(audits, "2", PULL), 1.0, 0.7) is None
        _flood(audits, later)
    assert again._heard["2"][0] == audits["0"]._heard["2"][0]
    assert not any(audit.flows.out or audit._found for audit in audits.values())


def test_honest_sites_convict_nobody() -> None:
    small = {edge: 0.02 * size for edge, size in PULL.items()}
    assert {*_judge(_audits(nx.cycle_graph(5)), small).values()} == {None}


def test_who_states_of_an_edge_what_is_not_so_is_convicted_by_its_other_end() -> None:
    audits = _audits(nx.cycle_graph(5))
    k = _called(audits)
    false = _ends(audits, "2", {("2", "1"): 1e3})
    audits["2"].look(k, false, 1.0, 0.5)
    _flood(audits, k)
    found = audits["1"].look(k, _ends(audits, "1", {}), 1.0, 0.5)
    assert found == ("2", FALSE)
    audits["4"].look(k, _ends(audits, "4", {}), 1.0, 0.5)
    assert "1" not in audits["4"].flows.out  # whom the lie was about


def test_who_signs_two_statements_of_a_round_is_convicted_by_all() -> None:
    audits = _audits(nx.cycle_graph(5))
    k = _called(audits)
    twin = NodeAudit("2", audits["2"].flows, audits["2"].signer, D)
    twin._due = k
    audits["2"].look(k, _ends(audits, "2", {}), 1.0, 0.5)
    twin.look(k, _ends(audits, "2", PULL), 1.0, 0.5)
    first, second = audits["2"].outbox[-1].data, twin.outbox[-1].data
    audits["1"].hear("2", first, k)
    audits["3"].hear("2", second, k)
    _flood(audits, k, mute="2")
    assert audits["0"].look(k, _ends(audits, "0", {}), 1.0, 0.5) == ("2", TWICE)


def test_a_relay_cannot_make_up_what_others_state() -> None:
    audits = _audits(nx.path_graph(3))
    k = _called(audits)
    audits["0"].look(k, _ends(audits, "0", {}), 1.0, 0.5)
    data = audits["0"].outbox[-1].data
    forged = audits["1"]._signed((0, k, 0, []))  # of site 0, signed by site 1
    for wrong in (forged, data[:-1] + bytes([data[-1] ^ 1]), data[:40] + data[41:], b""):
        with pytest.raises(MessageError):
            audits["2"].hear("1", wrong, k)
    other = NodeAudit("2", Flows({"0": audits["0"].flows.told["0"]}, 1.0), _keys()["2"], D)
    with pytest.raises(MessageError, match="not signed"):
        other.hear("0", data, k)  # of another run


@given(st.binary(max_size=300))
def test_whatever_comes_is_refused_or_read(data: bytes) -> None:
    audit = _audits(nx.path_graph(3))["1"]
    with pytest.raises(MessageError):
        audit.hear("0", data, 3)
    assert not audit.outbox


def test_calls_are_few_and_near() -> None:
    """None within so many rounds of the last, none far ahead: a liar's calls cost little."""
    audits = _audits(nx.path_graph(3))
    k = _called(audits)
    audits["1"].call(k)
    assert not audits["1"].outbox
    ahead = msgspec.msgpack.encode((10**6, b""))
    audits["1"].hear("0", ahead, k)
    assert audits["1"]._due == k
    audits["1"].judged = k
    audits["1"].call(k + APART)
    assert audits["1"]._due > k + APART
    audits["1"].judged = before = audits["1"]._due
    for at, now in ((k + 4 * APART, k + 6 * APART), (k + 4 * APART + 1, k + 4 * APART)):
        audits["1"].hear("0", msgspec.msgpack.encode((at, b"")), now)
        assert audits["1"]._due == before


@given(st.lists(st.floats(-1e9, 1e9), min_size=D, max_size=D))
def test_both_ends_round_alike(values: list[float]) -> None:
    gamma = np.array(values)
    (e, n), (other, m) = rounded(gamma), rounded(-gamma)
    assert e == other
    assert np.array_equal(n, -m)
    size = np.sqrt(np.mean(gamma**2))
    assert np.abs(np.ldexp(n, e) - gamma).max() <= size / 8 + 1e-300


def test_a_run_s_key_is_its_owner_s_alone(tmp_path: Path) -> None:
    first, again = Signer.kept(tmp_path), Signer.kept(tmp_path)
    assert first.public == again.public
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert genuine(first.public, b"x", again.sign(b"x"))
    assert not genuine(first.public, b"y", again.sign(b"x"))
    assert not genuine(b"short", b"x", first.sign(b"x"))


def test_of_two_sites_nobody_can_say_who_lies() -> None:
    found = _judge(_audits(nx.path_graph(2)), {("1", "0"): 99.0})
    assert {*found.values()} == {None}
