"""The end of a stream: the optimum of all rows as they count now, by ordinary rounds, then proven.

The sites agree on a basis of all rows and go on from where they are. Thresholds shrink with silence
as in a batch, and at the end all adopt one common model. With β = 1 it is the batch's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coke.engines.process import Checkpoint
from coke.learning.case import Case, goal_of, tol_of
from coke.learning.descending import Descending
from coke.learning.streaming import Stream
from coke.learning.verdict import Ended
from coke.maths.algorithms import ALGORITHMS, Seen
from coke.maths.algorithms.coke import COKE
from coke.maths.algorithms.stopping import Limits, at_first
from coke.maths.ledger import Ledger
from coke.maths.losses.problem import Problem


def finished(stream: Stream, rounds: int) -> Ended:
    """Leaves the model of the end in every site's θ; what it took, and what was proven of it."""
    plain, risk = stream.gathered()
    case, settled, at = case_of(stream, Problem(risk)), None, stream.known
    ready, engine = replace(stream.ready, problem=Problem(plain)), stream.ready.engine
    limits = Limits(rounds, case.tol, None, None, ready.reach)
    state = {name: engine.everyones(rows) for name, rows in at.coke._asdict().items()}
    here = Checkpoint(0, engine.everyones(stream.spent), at_first(stream.near.N), state)
    run = engine.rounds(case.problem, ready.graph, case.algorithm, limits, stream.spent, here)
    for record in run:
        at, settled = at._replace(coke=record.state), record.settled
        stream.spent, stream.rounds = record.spent, stream.rounds + 1
    u, proven = at.coke.theta, None
    if case.goal is not None:
        found = Descending(ready, case, at.coke)
        for spent in found.sweeps():
            stream.spent = stream.spent + spent
        u, proven = np.tile(found.u, (len(u), 1)), found.certificate
    stream.ended(at, u)
    return Ended(stream.rounds, settled, Ledger.of(engine.everyones(stream.spent)), proven)


def case_of(stream: Stream, problem: Problem) -> Case:
    """COKE as of a batch, in the stream's last basis, from where the sites are."""
    agreed, basis, entry = stream.ready.agreement, stream.basis, ALGORITHMS["coke"]
    assert basis is not None  # whoever has gathered has one
    settings, spread = agreed.terms.settings, basis.spread or 1.0
    tol = tol_of(settings, entry, agreed.terms.loss)
    built = entry.build({}, Seen(agreed.kappa, agreed.shape, spread))
    assert isinstance(built, COKE)  # whose first message was said long ago
    return Case(
        problem=problem, algorithm=replace(built, warm=False),
        spread=spread, spent=stream.spent, tol=None if tol is None else tol * spread,
        basis=basis.whitening, goal=goal_of(settings, agreed.terms.loss),
    )  # fmt: skip
