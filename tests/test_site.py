"""Sites on a network that fails in every way: the same answer, the same bits, and an end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.agents import edge as edges
from coke.agents.edge import Edge, End, Setup
from coke.agents.image import image, restored
from coke.agents.site import Site, Turn, started
from coke.agents.words import Place, Stop, Word, decode, encode
from coke.errors import ConvergenceError, FileError, InputError, MessageError
from coke.maths.arrays import Array
from coke.maths.coke import COKE
from coke.maths.problem import Problem
from coke.maths.quantise import GRID, Coarse, Float64
from coke.maths.stopping import NEVER
from coke.maths.thresholds import Geometric, Shrinking
from coke.run.ledger import Ledger
from coke.run.simulate import simulate
from events import GOING_ON, Faults, World, invariants, name, whitened
from forging import forgeries

GOAL = 1e-9
SMALL = whitened(6, 12, 8, seed=1)
ALGORITHMS = {
    "coarse, shrinking, warm": COKE(0.3, Shrinking(0.5), Coarse(), warm=True),
    "float64, shrinking, warm": COKE(0.3, Shrinking(0.5), Float64(), warm=True),
    "coarse, geometric": COKE(0.3, Geometric(0.3, 0.9), Coarse()),
}


@cache
def lockstep(*absent: int) -> tuple[int, float]:
    """Ticks and steps that the undisturbed network needs."""
    world = World(SMALL, Faults(), absent=absent)
    return world.until(GOAL, 1000), world.steps()


# The same bits as the simulation (I3, I4, I12).


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_wait_are_the_simulation_bit_for_bit(algorithm: COKE) -> None:
    """θ, θ̂, heard, g, h, losses and the ledger, for 300 rounds on a random graph; Σg = 0."""
    case = whitened(8, 16, 13)._replace(algorithm=algorithm)
    world, before = World(case, Faults()), None
    for r in simulate(Problem(case.risk), case.graph, algorithm, rounds=300):
        world.tick()
        sites = list(world.sites.values())
        assert {site.k for site in sites} == {r.k}
        assert_array_equal(np.concatenate([site.theta for site in sites]), r.state.theta)
        assert_array_equal([site.loss for site in sites], r.state.loss)
        assert Ledger(*np.sum([site.ledger for site in sites], axis=0).tolist()) == r.ledger
        if isinstance(algorithm.threshold, Shrinking):
            for site, h in zip(sites, r.state.h[:, 0], strict=True):
                assert {end.h for end in site.ends.values()} == {h}
        if before is not None:
            _completed_is(sites, before)
        before = r.state
    assert before is not None
    assert_array_equal(np.sum([_sum(site, "g") for site in sites], axis=0), 0)


def _sum(site: Site, what: str) -> Array:
    return np.sum([getattr(end, what) for end in site.ends.values()], axis=0)


def _completed_is(sites: list[Site], state: Any) -> None:
    for i, site in enumerate(sites):
        for end in site.ends.values():
            assert_array_equal(end.own, state.hat[i])
        assert_array_equal(_sum(site, "cp"), state.heard[i])
        assert_array_equal(_sum(site, "g"), state.g[i])


def test_sums_off_the_grid_are_not_the_simulations() -> None:
    """Why messages are on the grid: with float64 as it comes, bits part within a few rounds."""

    class Raw(Float64):
        def encode(self, x: Array) -> bytes:
            return x.tobytes()

        def decode(self, data: bytes, size: int) -> Array:
            return np.frombuffer(data).copy()

    case = whitened(8, 16, 13)._replace(algorithm=COKE(0.3, Geometric(0.0), Raw()))
    world = World(case, Faults())
    for _ in range(20):
        world.tick()
    *_, r = simulate(Problem(case.risk), case.graph, case.algorithm, rounds=20)
    thetas = np.concatenate([site.theta for site in world.sites.values()])
    assert np.allclose(thetas, r.state.theta)
    assert not np.array_equal(thetas, r.state.theta)


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_wait_all_stop_after_the_simulations_last_round(
    algorithm: COKE, tol: float
) -> None:
    """And within 3 tol of the optimum."""
    case = SMALL._replace(algorithm=algorithm)
    *_, last = simulate(Problem(case.risk), case.graph, algorithm, rounds=900, tol=tol)
    assert last.settled
    world = World(case, Faults(), tol=tol)
    for _ in range(last.k + 1):
        assert not any(site.done for site in world.sites.values())
        world.tick()
    assert all(site.done and site.free and site.k == last.k for site in world.sites.values())
    assert not any(site.short for site in world.sites.values())
    thetas = np.concatenate([site.theta for site in world.sites.values()])
    assert_array_equal(thetas, last.state.theta)
    assert np.abs(thetas - case.optimum(range(6))).max() <= 3 * tol


def test_a_limit_ends_all_in_the_same_round_and_says_that_it_was_one() -> None:
    world, D = World(SMALL, Faults(), tol=1e-9), nx.diameter(SMALL.graph)
    for _ in range(20):
        world.tick()
    agent = world.agents[name(3)]
    agent.site = agent.site.declare()
    for _ in range(2 * D + 2):
        world.tick()
    assert all(s.done and s.short and s.free for s in world.sites.values())
    assert {s.k for s in world.sites.values()} == {20 + D}


# Faults (I1, I2, I5 to I9).


def test_kills_at_any_point_change_no_bit_where_sites_wait() -> None:
    """Before the image, after it, after sending: every durable θ is the undisturbed run's."""
    calm, wild = World(SMALL, Faults()), World(SMALL, Faults(kill=0.07), seed=3)
    thetas: dict[tuple[str, int], bytes] = {}
    for _ in range(150):
        calm.tick()
        thetas |= {(n, s.k): s.theta.tobytes() for n, s in calm.sites.items()}
    seen: set[tuple[str, int]] = set()
    while len(seen) < 6 * 100:
        wild.tick()
        invariants(wild)
        for n, agent in wild.agents.items():
            assert agent.disk.k == 0 or agent.disk.theta.tobytes() == thetas[n, agent.disk.k]
            seen.add((n, agent.disk.k))
    assert wild.kills > 100


FAULTS: dict[str, tuple[Faults, float]] = {  # and ticks, as a multiple of lockstep
    "loss, doubles, reordering": (GOING_ON._replace(loss=0.2, double=0.1, late=1), 6),
    "awake half of the time": (GOING_ON._replace(awake=0.5), 4),
    "awake a fifth of the time": (GOING_ON._replace(awake=0.2), 10),
    "kills": (GOING_ON._replace(kill=0.05), 4),
    "all of it": (Faults(1, 1, 0.2, 0.1, 0.02, 0.5), 16),
}


@pytest.mark.parametrize(("faults", "most"), FAULTS.values(), ids=FAULTS)
def test_faults_cost_time_and_hardly_any_steps(faults: Faults, most: float) -> None:
    """≤ 1e-9 in at most 1.15 times the steps; ends agree exactly after every tick."""
    ticks, steps = lockstep()
    world = World(SMALL, faults, seed=2)
    assert world.until(GOAL, int(most * ticks), invariants) > 0
    assert world.steps() <= 1.15 * steps


def test_a_dual_that_goes_on_without_the_pair_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why g moves on completed steps only: in every own round it would be off."""
    plain = Site.round

    def eager(self: Site, force: bool = False) -> Turn:
        turn = plain(self, force)
        ends = {
            n: end if end.due else end._replace(g=end.g + (end.own - end.cp))
            for n, end in turn.site.ends.items()
        }
        return turn._replace(site=turn.site._replace(ends=ends))

    monkeypatch.setattr(Site, "round", eager)
    world = World(SMALL, GOING_ON._replace(awake=0.5), seed=2)
    assert world.until(1e-2, 4 * lockstep()[0]) < 0


def test_a_threshold_that_counts_sends_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No send, no decay."""
    plain = edges.freeze

    def counting(edge: Edge, end: End, theta: Array, quiet: int, short: bool = False) -> End:
        h = Geometric(0.3, 0.9)(1 + int(end.h))
        after = plain(edge._replace(threshold=lambda k: h), end, theta, quiet, short)
        assert after.out is not None
        return after._replace(h=end.h + bool(after.out.payload))

    monkeypatch.setattr(edges, "freeze", counting)
    assert World(SMALL, Faults()).until(GOAL, 4 * lockstep()[0]) < 0


# Membership (I10).


def _cut(world: World) -> None:
    world.cut = lambda a, b: (a < name(3)) != (b < name(3))


def _healed(world: World) -> None:
    world.cut = lambda a, b: False


def _leaves(world: World) -> None:
    """Gracefully."""
    world.take(name(0), world.agents[name(0)].site.leave())
    world.agents[name(0)].gone = True


def _dies(world: World) -> None:
    world.agents[name(0)].gone = True


def _forgotten(world: World) -> None:
    for n, site in world.sites.items():
        if name(0) in site.ends:
            world.take(n, site.close(name(0)))


def _back(world: World) -> None:
    """With its old disk; its neighbours open their edges."""
    world.agents[name(0)].gone = False
    for n, site in world.sites.items():
        if name(0) in site.ends:
            world.take(n, site.join(name(0)))


def _joins(world: World) -> None:
    around = sorted(world.problem.graph[5])
    world.add(5, around)
    for n in map(name, around):
        world.take(n, world.sites[n].join(name(5)))


def _resets(world: World) -> None:
    for n in map(name, (1, 2, 4)):
        site = world.sites[n]
        world.take(n, site.join(next(iter(site.open))))


def _rolled_back(world: World) -> None:
    """An old backup, here the very first one."""
    agent = world.agents[name(2)]
    agent.site = agent.disk = started(agent.site.setup, agent.site.ends)


Change = Callable[[World], None]
CHANGES: dict[str, dict[int, Change]] = {
    "partition": {40: _cut, 90: _healed},
    "leaves": {40: _leaves},
    "dies and is forgotten": {40: _dies, 60: _forgotten},
    "dies, is forgotten and comes back": {30: _dies, 50: _forgotten, 90: _back},
    "joins": {50: _joins},
    "edges start again": {40: _resets, 60: _resets},
    "an old backup": {50: _rolled_back},
}


@pytest.mark.parametrize("patience", [math.inf, 1], ids=["waiting", "going on"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_whoever_is_present_finds_their_optimum(
    changes: dict[int, Change], patience: float
) -> None:
    """≤ 1e-9 from the optimum of those present, in 1.2 × their lockstep after the last event."""
    joining = [5] if _joins in changes.values() else []
    world = World(SMALL, Faults(patience), absent=joining)
    for t in range(max(changes)):
        world.tick()
        invariants(world)
        if t + 1 in changes:
            changes[t + 1](world)
    gone = [i for i in SMALL.graph if name(i) not in world.sites]
    assert world.until(GOAL, int(1.2 * lockstep(*gone)[0]), invariants) > 0
    present = {n: set(site.open) for n, site in world.sites.items()}
    assert all(a in present[b] for a, others in present.items() for b in others)


def test_a_solver_is_prepared_anew_when_the_number_of_neighbours_changes() -> None:
    """θ of a site that all have left is its own minimum."""
    site = started(SMALL.setup(0), [name(1), name(2)])
    site = site.round().site.leave().site
    alone = site.round().site
    best = SMALL.optimum([0])
    np.testing.assert_allclose(alone.theta[0], best, rtol=1e-12)
    assert not np.allclose(site.theta[0], best)


# The end, without a coordinator (I13).

ENDINGS = {
    "waiting": Faults(),
    "going on, half asleep": GOING_ON._replace(awake=0.5),
    "loss": GOING_ON._replace(loss=0.2, double=0.1, late=2),
    "kills": GOING_ON._replace(kill=0.05),
    "one is slow": Faults(patience=3, slow=10),
}


def _ends(world: World, most: int, how: str = "done") -> bool:
    for _ in range(most):
        world.tick()
        if all(getattr(site, how) for site in world.sites.values()):
            return True
    return False


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("faults", ENDINGS.values(), ids=ENDINGS)
def test_nobody_declares_early_and_everybody_ends(faults: Faults, tol: float) -> None:
    """max |θ − θ*| ≤ 3 tol once a countdown begins; all are done, and know that all are."""
    world, best = World(SMALL, faults, seed=4, tol=tol), SMALL.optimum(range(6))
    for _ in range(30 * lockstep()[0]):
        world.tick()
        if any(site.countdown < NEVER for site in world.sites.values()):
            break
    assert max(np.abs(s.theta - best).max() for s in world.sites.values()) <= 3 * tol
    assert _ends(world, 300)
    assert _ends(world, 100, "free")


def test_nobody_stops_while_a_neighbour_is_missing() -> None:
    """By intent; once its edges are closed, all do."""
    world = World(SMALL, GOING_ON, tol=1e-3)
    world.agents[name(0)].gone = True
    for _ in range(3 * lockstep()[0]):
        world.tick()
    assert not any(site.done for site in world.sites.values())
    _forgotten(world)
    assert _ends(world, 200)


def _counting() -> Site:
    """A site in the middle of a quiet time: its neighbours count as it does."""
    world = World(SMALL, Faults(), tol=0.5)
    for agent in world.agents.values():
        setup = replace(agent.site.setup, diameter=50)
        agent.site = agent.disk = agent.site._replace(setup=setup)
    while min(site.laps for site in world.sites.values()) < 3:
        world.tick()
    return world.sites[name(2)]


def test_counts_go_by_laps_in_which_all_was_well() -> None:
    """A round without a neighbour's word is none; one with something left to do begins anew."""
    site = _counting()
    longer = {n: end._replace(quiet=9) for n, end in site.ends.items()}
    site = site._replace(ends=longer)
    alone = site.round(force=True).site  # nobody has answered its last words
    assert alone.laps == alone.round(force=True).site.laps == site.laps >= 3
    strict = site._replace(setup=replace(site.setup, tol=0.0))
    assert strict.round(force=True).site.laps == 0
    for fine in (True, False):
        heard = {n: e._replace(box=(e.out, None)) for n, e in site.ends.items()}
        lap = site._replace(ends=heard, fine=fine).round().site
        assert (lap.laps > 0) == fine


def test_an_edge_that_begins_anew_counts_for_nothing() -> None:
    """Its first word says 0; a neighbour that closes an edge in a round is told so."""
    site = _counting()
    neighbour, end = next(iter(site.ends.items()))
    ((_, data),) = site.join(neighbour).letters
    word = decode(data, 12)
    assert isinstance(word, Word)
    assert (word.epoch, word.step, word.quiet) == (1, 0, 0)
    wild = end._replace(strikes=2, cp=np.full(12, 4096.0), g=end.own, box=(end.out, None))
    wild = wild._replace(own=np.full(12, -4096.0))
    turn = site._replace(ends={**site.ends, neighbour: wild}).round(force=True)
    assert dict(turn.letters)[neighbour] == encode(Place(1, True))


def test_done_sites_that_fall_silent_leave_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a done site answers every word by STOP."""
    plain, faults = World.send, Faults(loss=0.3)
    assert _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)

    def mute(self: World, sender: str, letters: Any) -> None:
        plain(self, sender, () if self.agents[sender].site.done else letters)

    monkeypatch.setattr(World, "send", mute)
    assert not _ends(World(SMALL, faults, seed=1, tol=1e-2), 1500)


# What comes from outside: frames and images.


def _running() -> Site:
    world = World(SMALL, GOING_ON._replace(loss=0.3), tol=1e-3)
    for _ in range(25):
        world.tick()
    return world.agents[name(2)].site


RUNNING = _running()
NEIGHBOUR = next(iter(RUNNING.ends))
END = RUNNING.ends[NEIGHBOUR]
NEAR = st.builds(
    Word,
    st.integers(0, 2),
    st.integers(max(END.s - 3, 0), END.s + 3),
    st.sampled_from([END.tag[:4], b"else"]),
    st.integers(-3, 9),
    st.binary(max_size=20)
    | st.builds(Coarse().encode, st.just(np.linspace(-9, 9, SMALL.risk.size))),
    st.booleans(),
    st.just(False),
)
SHORT_FRAMES = st.sampled_from([Place, Stop]).flatmap(
    lambda kind: st.builds(kind, st.integers(0, 3), st.booleans())
)


@settings(max_examples=300)
@given(st.binary(max_size=130) | (NEAR | SHORT_FRAMES).map(encode))
def test_any_bytes_are_heard_or_refused_and_then_nothing_has_changed(data: bytes) -> None:
    """One answer at most; whatever is heard, the site can be kept, and go on."""
    before = image(RUNNING)
    try:
        turn = RUNNING.hear(NEIGHBOUR, data)
    except MessageError:
        assert image(RUNNING) == before
        return
    assert image(RUNNING) == before
    assert len(turn.letters) <= 1
    moved = turn.site.ends[NEIGHBOUR].place != END.place
    assert turn.durable == moved
    kept = restored(image(turn.site), RUNNING.setup)
    assert image(kept) == image(turn.site)
    turn.site.round(force=True)


def test_strangers_and_divergence_are_refused() -> None:
    with pytest.raises(MessageError, match="no neighbour"):
        RUNNING.hear("nobody", encode(Stop(0)))
    with pytest.raises(InputError, match="6 risks"):
        Setup("all", SMALL.risk, SMALL.algorithm, 2, None)
    with pytest.raises(InputError, match="diameter=-1"):
        SMALL.setup(0, diameter=-1)
    far = np.full(12, 4096.0)
    wild = RUNNING.ends[NEIGHBOUR]._replace(own=-far, cp=-far, g=far)
    mad = Setup(name(2), SMALL.risk.rows(slice(2, 3)), COKE(1e9), 2, None)
    with pytest.raises(ConvergenceError, match="diverges"):
        RUNNING._replace(setup=mad, ends={f"n{i}": wild for i in range(5)}).round(force=True)


def test_an_image_is_the_site_without_its_boxes() -> None:
    """Bit for bit; the round after it is the same where nothing had come in."""
    data = image(RUNNING)
    back = restored(data, RUNNING.setup)
    assert image(back) == data
    assert all(end.box == (None, None) for end in back.ends.values())
    one, other = (s.round(force=True).site for s in (back, restored(data, RUNNING.setup)))
    assert image(one) == image(other)


@settings(max_examples=150)
@given(forgeries(image(RUNNING)) | st.binary(max_size=60))
def test_forged_images_are_refused_or_harmless(data: bytes) -> None:
    try:
        site = restored(data, RUNNING.setup)
    except FileError:
        return
    assert image(restored(image(site), RUNNING.setup)) == image(site)


def test_an_image_that_no_site_can_have_written_is_refused() -> None:
    """Numbers off the grid, words of other steps, chains of another length."""
    assert END.out is not None
    ends = [
        END._replace(g=END.g + 2.0**-50),
        END._replace(own=END.own + 2.0**20),
        END._replace(cp=END.cp * np.nan),
        END._replace(out=END.out._replace(step=END.s + 1)),
        END._replace(prev=END.out),
        END._replace(tag=b"abc"),
        END._replace(h=-1.0),
    ]
    for end in ends:
        with pytest.raises(FileError, match="fit together"):
            restored(image(RUNNING._replace(ends={NEIGHBOUR: end})), RUNNING.setup)
    restored(image(RUNNING._replace(ends={NEIGHBOUR: END})), RUNNING.setup)


def test_an_image_of_another_site_or_size_is_refused() -> None:
    with pytest.raises(FileError, match="expected 'site003'"):
        restored(image(RUNNING), SMALL.setup(3))
    with pytest.raises(FileError, match="fit together"):
        restored(image(RUNNING), whitened(6, 10, 8).setup(2))


def test_a_cap_bounds_what_one_liar_can_do() -> None:
    """Every entry of every edge's dual stays within the cap; honest ones below it feel nothing."""
    plain = World(SMALL, Faults())
    assert plain.until(GOAL, 1000) > 0
    rho, ends = SMALL.algorithm.rho, [e for s in plain.sites.values() for e in s.ends.values()]
    largest = rho * max(np.abs(end.g).max() for end in ends)
    for factor, exact in ((4.0, True), (0.3, False)):
        capped = World(SMALL, Faults())
        for agent in capped.agents.values():
            setup = replace(agent.site.setup, cap=factor * largest)
            agent.site = agent.disk = agent.site._replace(setup=setup)
        assert (capped.until(GOAL, 2 * lockstep()[0], invariants) > 0) == exact
        for site in capped.sites.values():
            assert all((e.g / GRID % 1 == 0).all() for e in site.ends.values())
            assert rho * max(np.abs(e.g).max() for e in site.ends.values()) <= factor * largest


def test_a_stop_of_another_epoch_stops_nobody() -> None:
    """A frame from before the edge started again is answered by where the edge is now."""
    end = edges.reopen(RUNNING.setup.edge(NEIGHBOUR), END)
    site = RUNNING._replace(ends={**RUNNING.ends, NEIGHBOUR: end})
    turn = site.hear(NEIGHBOUR, encode(Stop(END.epoch)))
    assert not turn.site.stopped
    assert decode(turn.letters[0][1], 12) == end.place
    assert RUNNING.hear(NEIGHBOUR, encode(Stop(END.epoch))).site.ready()
