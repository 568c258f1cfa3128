"""Blocks on ranks, partitions and few-row risks: the same numbers as one process.

Run as a program under `mpiexec`, this file is the ranks' side of the tests: it runs every case of
`CASES` on whatever ranks there are and leaves arrays for the test to read.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.units import columns_of
from coke.engines.checkpoint import load_checkpoint, save_checkpoint
from coke.engines.fingerprint import fingerprint
from coke.engines.history import History
from coke.engines.process import Record, simulate
from coke.engines.ranks import rounds as mpi
from coke.engines.ranks.collectives import posted, world
from coke.engines.ranks.engine import Ranks
from coke.errors import ConvergenceError, GraphError, InputError, MessageError
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE, Geometric, automatic
from coke.maths.algorithms.cta import CTA
from coke.maths.algorithms.stopping import Limits
from coke.maths.arrays import Array
from coke.maths.graph import adjacency, build_graph
from coke.maths.ledger import Ledger
from coke.maths.losses import LOSSES
from coke.maths.losses.mixed import risks_of
from coke.maths.losses.problem import Problem, Quadratic
from coke.maths.losses.rowwise import Rowwise
from coke.talk.conversation import Letter, Talk, Turn, together
from coke.talk.sums import swept
from coke.talk.told import Told, tell
from coke.talk.wave import wave
from kit.jobs import on_ranks
from kit.problems import case, shape_of
from kit.tracked import GradientTracking

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

N, ROUNDS, HALF = 17, 30, 12
GRAPH = build_graph("random", N, edges=40, seed=3)
ROWS = case(N, L=6, seed=5)
TEST = case(N, L=6, seed=6)  # other rows, same features
LAM = 0.5 / N


class Run(NamedTuple):
    """A problem of some of the agents, an algorithm and its limits."""

    problem: Callable[[list[int]], Problem]
    algorithm: Algorithm
    limits: dict[str, Any]


def quadratic(agents: list[int]) -> Problem:
    held = Quadratic.from_rows(ROWS.features, *_rows(TEST, agents), LAM)
    return Problem(Quadratic.from_rows(ROWS.features, *_rows(ROWS, agents), LAM), held)


def mixed(agents: list[int]) -> Problem:
    """Agents with fewer rows than features, each with another number, and one with more."""
    X, y = (
        [part[: 40 if i == 1 else 3 + i] for i, part in zip(agents, rows, strict=True)]
        for rows in _rows(ROWS, agents)
    )
    return Problem(risks_of(ROWS.features, X, y, LAM))


def logistic(agents: list[int]) -> Problem:
    X, y = _rows(ROWS, agents)
    Phi, signs = map(ROWS.features, X), (np.where(yi > 1.0, 1.0, -1.0) for yi in y)
    return Problem(Rowwise(tuple(Phi), tuple(signs), LAM, LOSSES["logistic"]))


def huge(agents: list[int]) -> Problem:
    """One agent, hence one rank, whose θ no message can carry."""
    X, y = _rows(ROWS, agents)
    y = [1e9 * yi if i == 0 else yi for i, yi in zip(agents, y, strict=True)]
    return Problem(Quadratic.from_rows(ROWS.features, X, y, LAM))


def _rows(rows: Any, agents: list[int]) -> tuple[list[Array], list[Array]]:
    return [rows.X[i] for i in agents], [rows.y[i] for i in agents]


CENSORED, OURS = COKE(0.1, Geometric(0.5, 0.9)), automatic(2.0, shape_of(GRAPH), 1.0)
CASES = {
    "paper": Run(quadratic, CENSORED, {}),
    "ours": Run(quadratic, OURS, {"tol": 0.4}),
    "budget": Run(quadratic, OURS, {"max_bytes": 1400}),
    "cta": Run(quadratic, CTA(0.2), {}),
    "wide": Run(quadratic, GradientTracking(0.1), {"tol": 0.5}),
    "mixed": Run(mixed, CENSORED, {}),
    "logistic": Run(logistic, CENSORED, {}),
}
FAILURES = {
    "diverges": Run(quadratic, CTA(1e30), {}),
    "cannot be coded": Run(huge, COKE(0.1, codec=Coarse()), {}),
    "first messages": Run(quadratic, OURS, {"max_bytes": 40}),
}
EXACT = ("theta", "hat", "heard", "spoke", "ledger", "spent", "settled", "quiet")
MEANS = ("score", "gaps")


NAMES = [f"site {i:02d}" for i in range(N)]


def conversation(i: int) -> Talk[bytes]:
    """Site i learns the network, and everybody's moments."""
    place = yield from wave(NAMES[i], [NAMES[n] for n in sorted(GRAPH[i])])
    sweep = partial(swept, place, [])
    told = yield from tell(sweep, Told(columns_of(ROWS.X[i])))
    assert told is not None  # of a site whose columns are no numbers
    return told.encode()


def patient() -> Talk[bytes]:
    """Waits for a site that says nothing."""
    heard = yield Turn({}, [NAMES[0]])
    return heard[NAMES[0]]


def told(records: Iterator[Record | None]) -> dict[str, Any]:
    """What the tests compare, round by round."""
    kept: list[dict[str, Any]] = [
        {
            **{name: np.copy(getattr(r.state, name)) for name in ("theta", "hat", "heard")},
            **{"spoke": r.spoke, "ledger": r.ledger, "spent": r.spent, "settled": r.settled},
            **{"quiet": r.quiet, "score": r.score, "gaps": (r.consensus_gap, r.optimality_gap)},
        }
        for r in records
        if r is not None
    ]
    return {name: np.array([row[name] for row in kept]) for name in (*EXACT, *MEANS)}


def main(folder: Path) -> None:
    """One rank's part in the tests, each step taken by all ranks."""
    mpi.AGENTS, mpi.ROWS = 3, 2  # several pieces and turns, also of so few agents
    comm = world()
    A = adjacency(GRAPH)
    ranks = Ranks(comm, A, tuple(NAMES))
    own, mine = ranks.own, ranks.own.agents.tolist()

    def records(run: Run, rounds: int = ROUNDS, **more: Any) -> Iterator[Record | None]:
        limits, problem = Limits(rounds, **run.limits), run.problem(mine)
        for record in mpi.simulate_block(
            comm, own, A, problem, run.algorithm, limits=limits, **more
        ):
            yield ranks.record(record)

    for name, run in CASES.items():
        found = told(records(run))
        if comm.rank == 0:
            np.savez(folder / f"{name}-{comm.size}.npz", **found)
    for name, run in FAILURES.items():
        try:
            list(records(run))
        except (ConvergenceError, InputError) as error:
            (folder / f"{name}-{comm.size}-{comm.rank}.txt").write_text(str(error), "utf-8")
    talks = {NAMES[i]: conversation(i) for i in mine}
    heard = ranks.guarded(partial(together, talks, ranks.post))
    (folder / f"talk-{comm.size}-{comm.rank}").write_bytes(msgspec.msgpack.encode(heard))
    with pytest.raises(GraphError, match="wait for each other"):
        ranks.guarded(partial(together, {NAMES[i]: patient() for i in mine}, ranks.post))
    mark = ranks.fingerprint(quadratic(mine), GRAPH, OURS)
    for path in sorted(folder.glob("*.coke")):
        saved, before = load_checkpoint(path)
        assert mark == before
        found = told(records(CASES["ours"], resume=saved.checkpoint.rows(own.agents)))
        if comm.rank == 0:
            np.savez(folder / f"{path.stem}-resumed-{comm.size}.npz", **found)
    *_, last = records(CASES["ours"], HALF)
    if last is not None:
        history = _history(HALF)
        save_checkpoint(folder / f"of-{comm.size}.coke", last, history, mark, {})


def _history(rounds: int) -> History:
    history = History("coke", "mse", map(str, range(N)))
    for record in simulate(quadratic(list(range(N))), GRAPH, OURS, rounds=rounds, tol=0.4):
        history.append(record)
    return history


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What 2 ranks left, and then 3, which also go on from the checkpoint of the 2."""
    folder = tmp_path_factory.mktemp("mpi")
    for R in (2, 3):
        on_ranks(R, "-m", "mpi4py", __file__, folder)
    return folder


def alone(name: str) -> dict[str, Any]:
    """The same case in one process."""
    run = CASES[name]
    problem = run.problem(list(range(N)))
    return told(iter(simulate(problem, GRAPH, run.algorithm, rounds=ROUNDS, **run.limits)))


@pytest.mark.parametrize("R", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_what_one_process_does_bit_for_bit(ranks: Path, name: str, R: int) -> None:
    """θ, θ̂, Σθ̂, who spoke, every byte and the round of stopping; means to the last digits."""
    with np.load(ranks / f"{name}-{R}.npz") as found:
        expected = alone(name)
        for key in EXACT:
            assert_array_equal(found[key], expected[key], err_msg=key)
        assert 0 < expected["spoke"].mean() <= 1
        assert_allclose(found["score"], expected["score"], rtol=1e-12)
        gaps = expected["gaps"] if name != "logistic" else expected["gaps"] * [1.0, np.nan]
        assert_allclose(found["gaps"], gaps, rtol=1e-10)
    if name in ("ours", "budget", "wide"):
        assert len(expected["theta"]) < ROUNDS  # the limits do end these runs


@pytest.mark.parametrize("R", [2, 3])
def test_where_one_rank_fails_all_do_and_one_says_why(ranks: Path, R: int) -> None:
    """Nobody waits for a rank that has given up."""
    for name, run in FAILURES.items():
        said = [(ranks / f"{name}-{R}-{rank}.txt").read_text("utf-8") for rank in range(R)]
        with pytest.raises((ConvergenceError, InputError)) as caught:
            list(simulate(run.problem(list(range(N))), GRAPH, run.algorithm, rounds=ROUNDS,
                          **run.limits))  # fmt: skip
        begins = str(caught.value)[:20]
        assert any(text.startswith(begins) for text in said), (name, said, begins)


def test_a_checkpoint_of_two_ranks_goes_on_with_three_and_in_one_process(ranks: Path) -> None:
    """The same bits as if nothing had happened; the fingerprint is the whole problem's."""
    saved, mark = load_checkpoint(ranks / "of-2.coke")
    problem, expected = quadratic(list(range(N))), alone("ours")
    assert mark == fingerprint(problem, GRAPH, OURS)
    again = simulate(problem, GRAPH, OURS, rounds=ROUNDS, tol=0.4, resume=saved.checkpoint)
    with np.load(ranks / "of-2-resumed-3.npz") as three:
        for found in (told(iter(again)), three):
            for key in EXACT:
                assert_array_equal(found[key], expected[key][HALF:], err_msg=key)
    assert saved.checkpoint.k == HALF < len(expected["theta"])


@pytest.mark.parametrize("R", [2, 3])
def test_sites_at_different_ranks_agree_as_in_one_process(ranks: Path, R: int) -> None:
    """The same conclusions and ledgers, though no rank sees another's rows."""
    found, spent = together({NAMES[i]: conversation(i) for i in range(N)})
    parts = [(ranks / f"talk-{R}-{rank}").read_bytes() for rank in range(R)]
    kind = tuple[dict[str, bytes], dict[str, Ledger]]
    results, ledgers = zip(
        *(msgspec.msgpack.decode(part, type=kind) for part in parts), strict=True
    )
    assert dict(ChainMap(*results)) == found
    assert dict(ChainMap(*ledgers)) == spent


class One:
    """A communicator of one rank, to which anything may come."""

    size, rank = 1, 0

    def __init__(self, came: bytes):
        self.came = np.frombuffer(came, np.uint8)

    def Allgather(self, row: Any, rows: Any) -> None:
        rows[0] = row

    def Alltoall(self, sizes: Any, coming: Any) -> None:
        coming[0] = len(self.came)

    def Alltoallv(self, sent: Any, got: Any) -> None:
        got[0][:] = self.came


@given(st.binary() | st.lists(st.tuples(st.text(), st.text(), st.binary())))
def test_letters_are_read_back_or_refused(sent: bytes | list[Letter]) -> None:
    """Whatever comes is letters or a MessageError."""
    came = sent if isinstance(sent, bytes) else msgspec.msgpack.encode(sent)
    comm: Any = One(came)
    try:
        found = posted(comm, {"b": 0}, lambda: [("a", "b", b"said")])
    except MessageError:
        assert isinstance(sent, bytes)
        return
    if isinstance(sent, list):
        assert found == sent
    kinds = (str, str, bytes)
    assert all(
        isinstance(part, kind) for row in found or () for part, kind in zip(row, kinds, strict=True)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
