"""Neighbours that lie by the rules: named by all, and cut by those who guard themselves.

A sample; `make bench-liars` tries all lies on real rows.
"""

from __future__ import annotations

from functools import cache
from itertools import islice

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.data.split import deal
from coke.errors import ConfigError
from coke.field.auditing import CONVICTS
from coke.field.edge import Edge, End, zero
from coke.field.guarding import Look, Watch
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.results import keep
from coke.learning.case import resolved
from coke.learning.ready import Ready
from coke.maths.algorithms.codecs import Float64
from coke.maths.graph import build_graph
from coke.maths.guards import ALARMS, FADES
from coke.maths.ledger import Ledger
from coke.settings.reading import checked_settings
from kit.agents import B, Nets, made_rows, others
from kit.hard import hard_cases
from kit.liars import LIES, Network, lying, network
from kit.ready import held, ready


@cache
def _task(ring: bool = False) -> Ready:
    rows = made_rows(600)
    noisy = rows._replace(y=rows.y + np.random.default_rng(5).normal(size=len(rows.y)))
    sites = held(noisy, deal(noisy.y, 6, seed=0))
    graph = build_graph("ring", 6, seed=1) if ring else build_graph("random", 6, edges=9, seed=1)
    return ready(sites, graph, data={"scale": "standard"}, features={"n_features": 8, "sigma": 2.0})


def test_honest_sites_suspect_nobody() -> None:
    told = network(_task(), True, {}, 100)
    assert not told.warned
    assert not told.lost
    assert told.harm <= 1.02


@pytest.mark.parametrize("lie", ["-10 θ*", "much noise", "to and fro", "a ramp"])
def test_a_liar_is_named_and_cut_before_it_owns_the_answer(lie: str) -> None:
    """With the guard the honest models lose little; without it, who harms is named."""
    task = _task()
    who = task.names[2]
    free, guarded = (network(task, guard, {who: LIES[lie]}, 100) for guard in (False, True))
    assert guarded.harm <= 2.6
    assert free.harm <= 2 or who in {name for _, name in free.warned}
    assert not free.lost


@pytest.mark.parametrize("lie", ["to one only", "-10 θ*", "two faces"])
def test_who_cuts_a_liar_is_not_cut_for_what_that_does_to_its_model(lie: str) -> None:
    """The other duals pull on as if the edge were there: θ leaps, and comes back."""
    task = _task(ring=True)
    told = network(task, True, {task.names[2]: LIES[lie]}, 100)
    assert {who for _, who in told.lost} == {task.names[2]}
    assert told.harm <= 1.1


def test_models_do_not_leap_when_an_edge_that_pulled_is_closed() -> None:
    """All stand still until all know of it, and begin anew: nobody gets worse than it was."""
    task, worst = _task(ring=True), list[tuple[bool, float]]()
    net = Network(task, True, {task.names[2]: LIES["to one only"]})
    while len(worst) < 120:
        net._round()
        net._flood()
        losses = [float(net.nodes[name].state.loss[0]) for name in net.watches]
        worst.append((bool(net.cuts), max(losses)))
    before, after = (max(loss for cut, loss in worst if cut == later) for later in (False, True))
    assert after <= 1.1 * before
    duals = {(n, who): end.g for n in net.watches for who, end in net.nodes[n].open.items()}
    assert all(np.array_equal(g, -duals[who, n]) for (n, who), g in duals.items())
    assert all(end.epoch == 1 for n in net.watches for end in net.nodes[n].open.values())


@pytest.mark.parametrize(("case", "rounds"), [(5, 120), (55, 60), (75, 60), (95, 60), (96, 180)])
def test_honest_sites_of_hard_tables_are_not_cut(case: int, rounds: int) -> None:
    """Few rows with far targets ask for large models, and are far from the optimum for long."""
    (hard,) = islice(hard_cases(case + 1), case, None)
    assert not network(hard.ready(), True, {}, rounds).lost


def _ends(watch: Watch, gammas: dict[str, float]) -> dict[str, End]:
    """Edges with duals of these sizes, all along one direction."""
    D = watch.risk.size
    start = zero(Edge(Float64(), D, True))
    return {name: start._replace(g=size * np.eye(D)[0]) for name, size in gammas.items()}


def test_a_leaf_is_named_from_as_much_on_as_where_all_know_the_graph() -> None:
    """2√((N − 1) Λ v) is far below N √(Λ v): what is much on a leaf's edge is little on another."""
    task = _task()
    risk, v = task.case("coke").problem.train.rows(slice(0, 1)), task.case("coke").spread ** 2
    for leaves, part, named in (("b", 1.05, True), ("b", 0.95, False), ("", 1.05, False)):
        watch = Watch(risk, 10, v, 1.0, frozenset(leaves))
        size = part * ALARMS * watch._bounds.leaf
        assert watch.cut(Look(30, False, 0.0, 1.0, _ends(watch, {"a": 0.1, "b": size}))) is None
        assert (watch.suspects.keys() == {"b"}) == named


def test_patience_with_one_neighbour_is_not_used_up_by_another() -> None:
    """And begins anew when somebody has closed an edge elsewhere."""
    net = Network(_task(ring=True), True, {})
    watch = net.watches[net.task.names[0]]
    a, b = net.nodes[net.task.names[0]].open
    assert watch.audit is not None
    bound = watch.audit.flows.edge(watch.audit.name, a)
    look = Look(21, False, 0.0, 1.0, _ends(watch, {a: 0.25 * bound, b: 0.0}))
    assert not any(watch.cut(look._replace(k=k)) for k in range(21, 141))
    assert watch.suspects.keys() == {a}
    worse = look._replace(loss=7 * watch._bounds.loss, ends=_ends(watch, {a: 0.0, b: bound}))
    assert not any(watch.cut(worse._replace(k=k)) for k in range(141, 141 + 2 * FADES))
    watch.audit.shaken = 181 + FADES
    assert not any(watch.cut(worse._replace(k=k)) for k in range(181, 181 + 2 * FADES))
    assert any(watch.cut(worse._replace(k=k)) == b for k in range(221, 221 + FADES))


def test_an_alarm_calls_for_an_audit_where_one_could_convict() -> None:
    """What an edge carries, times his edges, is all that he can carry; a leaf's is its own pull."""
    star = _star()
    hub, leaf = star.task.names[0], star.task.names[1]
    for name, other, part, calls in ((hub, leaf, 1.05, True), (hub, leaf, 0.95, False),
                                     (leaf, hub, 1.05, False)):  # fmt: skip
        watch = _star().watches[name]
        assert watch.audit is not None
        size = part * CONVICTS * watch.audit.flows.node()
        look = Look(30, False, 2 * watch._bounds.loss, 1.0, _ends(watch, {other: size}))
        found = watch._pulled(other, look.ends[other].g, look.loss)
        assert (found.part > found.calls) == calls
        assert found.part > found.warns


def _star() -> Network:
    rows = made_rows(600)
    task = ready(
        held(rows, deal(rows.y, 6, seed=0)), nx.star_graph(5),
        data={"scale": "standard"}, features={"n_features": 8, "sigma": 2.0},
    )  # fmt: skip
    assert all(place.parted == place.degrees.keys() for place in task.places)
    return Network(task, True, {})


class Lying(Mission):
    """One site of them tells of −100 θ*, whatever its rows say."""

    def setup(self, ready: Ready, spent: Ledger) -> Setup:
        setup = super().setup(ready, spent)
        if self.name != B:
            return setup
        return lying(setup, lambda at: 0 * at.own - 5.0, setup.start().theta[0], np.inf)


@pytest.mark.parametrize("guard", [True, False])
def test_agents_name_a_liar_and_cut_it_if_they_are_to(nets: Nets, guard: bool) -> None:
    """An event, the result, a warning; the edge is closed for good, and the others end."""
    net = nets(algorithm="coke", guard=guard, tol=1e-3, rounds=150)
    net.kind = Lying
    net.start()
    rest = others(net, B)
    net.wait(*rest)
    near = [name for name in rest if B in net.friends[name]]
    for name in near:
        found = keep(net.agents[name])
        assert B in found["suspects"]
        assert any(event.kind == "suspect" and event.who == B for event in net.events[name])
        assert any(line.startswith(B) for line in found["warnings"])
        assert found["lost"] == ({B: "struck out"} if guard else {})
    if guard:
        best = net.optimum(rest)
        assert np.abs(net.theta(*rest) - best).max() <= 0.1 * np.abs(best).max()


def test_a_guard_that_finds_nothing_changes_no_bit(nets: Nets) -> None:
    thetas = []
    for guard in (False, True):
        net = nets(algorithm="coke", guard=guard, tol=1e-3)
        net.start()
        net.wait()
        thetas.append(net.theta())
        assert not any(keep(net.agents[name])["suspects"] for name in net.names)
    assert_array_equal(thetas[0], thetas[1])


def test_with_a_guard_auto_is_consensus() -> None:
    """Parents on a tree could lie about its sums."""
    assert resolved(checked_settings({"guard": True}))[0] == "coke"
    assert "could lie" in resolved(checked_settings({"guard": True}))[1]


def test_a_cap_that_bounded_nothing_is_no_setting_any_more() -> None:
    with pytest.raises(ConfigError, match="cap"):
        checked_settings({"cap": 0.05})
