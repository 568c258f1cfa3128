"""What a neighbour could learn from this configuration: the attacks, run against one's own data.

Everything happens in one process, on rows that are all here: a rehearsal, for the owner's eyes. The
site that is attacked is the most exposed: in rounds the one with the fewest neighbours, of sums
over the tree a leaf of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coke.data.files import read_file, write_file
from coke.engines.fingerprint import marks
from coke.engines.process import simulate
from coke.errors import InputError
from coke.learning.case import Case
from coke.learning.kernels import feature_settings
from coke.learning.links import links_of
from coke.learning.ready import Ready
from coke.maths.algorithms.coke import COKE
from coke.maths.arrays import Array, Mask
from coke.maths.features.features import draw_features
from coke.maths.graph import Graph
from coke.maths.losses.problem import Quadratic
from coke.privacy.attacks import (
    Known,
    Probing,
    from_probes,
    full_view,
    neighbours_view,
    probe,
    reconstruct,
)
from coke.studies.audit_tree import audited_descent
from coke.studies.findings import GRAM, Audit, Finding, of_gram, of_rows, off
from coke.threads import OneThread

if TYPE_CHECKING:
    from coke.field.mission import Mission

PATIENCE = 400  # rounds between two lies
WORK = 500_000  # agents' rounds that a rehearsal of lying may take; it is left out beyond
RETRAINED = (
    "the rows or settings are not those of the run before: whoever heard both runs can tell "
    "a row that came or went"
)


class _Overheard(NamedTuple):
    """A run, as those who listen hear it."""

    hats: Array  # (R, N, K·D)
    spoke: Mask  # (R, N)


def overheard(ready: Ready, case: Case, rounds: int) -> _Overheard:
    """All messages of so many rounds."""
    graph = links_of(ready, case)
    records = list(simulate(case.problem, graph, case.algorithm, rounds=rounds, scored=()))
    return _Overheard(
        np.stack([r.state.hat for r in records]), np.stack([r.spoke for r in records])
    )


def _victim_of(graph: Graph) -> tuple[int, int]:
    """The site with the fewest neighbours, and one of them."""
    i = min(graph, key=lambda n: (graph.degree[n], n))
    return i, min(graph[i])


def audited(ready: Ready, case: Case, rounds: int, probes: bool = True) -> Audit:
    """Every attack that fits the configuration, against the most exposed site."""
    if case.descends:
        return audited_descent(ready, case, probes)
    risk, how = case.problem.train.sums, case.algorithm
    if risk is None or not isinstance(how, COKE):
        raise InputError(
            f"{how} on the {case.problem.train.metric} loss: the attacks are on what ADMM sends of "
            "quadratic risks; audit coke, coke-paper, dkla or tree-newton"
        )
    graph = links_of(ready, case)
    i, n = _victim_of(graph)
    heard = overheard(ready, case, rounds)
    known = Known(risk.G, how.rho, graph.degree[i], how.warm)
    truth = risk.A[i]
    guess = risk.A.mean(axis=0)  # what the agreement tells anyway
    base = off(guess, truth)
    with OneThread().limit():
        prior, K = _prior(case, guess), ready.agreement.outputs
        whole = reconstruct(full_view(*heard, graph, i), known, prior, K)
        near = reconstruct(neighbours_view(*heard, graph, i, n), known, prior, K)
    private = ready.noised is not None
    found = [
        of_gram("hears the site and all its neighbours", off(whole.A, truth), base, private),
        of_gram("is one neighbour", off(near.A, truth), base, private),
    ]
    patience = PATIENCE if how.codec is None else PATIENCE // 10  # ours settles ten times sooner
    if probes and 2 * len(truth) * patience * len(risk.T) <= WORK:
        found.append(_probed(risk, graph, how, known, Probing(n, i, np.empty(0), patience)))
    if ready.rows is not None:
        found += of_rows(ready, case, whole, i)
    return Audit(ready.names[i], ready.names[n], f"{rounds} rounds", found)


def _prior(case: Case, guess: Array) -> Array | None:
    """Coarse messages need a prior; exact ones do better without."""
    codec = case.algorithm.codec if isinstance(case.algorithm, COKE) else None
    return None if codec is None else guess


def _probed(risk: Quadratic, graph: Graph, how: COKE, known: Known, plan: Probing) -> Finding:
    """A neighbour that lies on its own edge, twice as many times as A has rows.

    Of several outputs it lies about the first: they share one A.
    """
    i, D = plan.victim, risk.A.shape[-1]
    one = replace(risk, b=risk.b[:, :D])
    probes = np.random.default_rng(0).normal(size=(2 * D, D))
    replies = probe(one, graph, how, plan._replace(probes=probes))
    truth, base = risk.A[i], off(risk.A.mean(axis=0), risk.A[i])
    found = from_probes(probes, replies, known)
    miss = off(found, truth) if np.isfinite(found).all() else np.inf
    learns = miss < 0.5 * base
    said = "a patient liar learns it" if learns else "not with so few probes"
    return Finding("lies on its own edge", GRAM, miss, base, said, learns)


def warnings(ready: Ready, folder: Path | None = None) -> list[str]:
    """What is cheap to know before a run, for the owner of each site.

    In the folder is left what tells rows from those of the run before.
    """
    if ready.noised is not None:
        return []  # they are private
    D, T = ready.agreement.features.size, [one.T for one in ready.targets]
    said = _exposed({name: (T[i], ready.graph.degree[i]) for i, name in enumerate(ready.names)}, D)
    return said + ([RETRAINED] if folder and _changed(folder / "rows.digest", ready) else [])


def site_warnings(mission: Mission) -> list[str]:
    """The same for one site in the field, before it says a word."""
    (X,), site = mission.rows.X, mission.config.site
    if mission.terms.private is not None:
        return []
    D = draw_features(feature_settings(mission.config), X.shape[1]).size
    said = _exposed({site.name: (len(X), len(site.neighbours))}, D)
    return said + ([RETRAINED] if site.run > 1 else [])


def _exposed(sites: Mapping[str, tuple[float, int]], D: int) -> list[str]:
    """Whose messages tell most, given every site's number of rows and of neighbours."""
    small = [name for name, (T, _) in sites.items() if T <= 2 * D]
    lone = [name for name, (_, degree) in sites.items() if degree == 1]
    said = []
    if small:
        said.append(
            f"{len(small)} sites have at most {2 * D} rows, twice the length of θ, such as "
            f"{small[0]}: their messages may determine every row"
        )
    if lone:
        said.append(
            f"{len(lone)} sites have one neighbour only, such as {lone[0]}: it hears all they say"
        )
    return said


def _changed(path: Path, ready: Ready) -> bool:
    """Whether rows or settings are not those that left their digest there; leaves theirs."""
    digest = hashlib.blake2b(digest_size=16)
    for part in marks(ready.problem):
        digest.update(np.ascontiguousarray(part).tobytes())
    now = digest.hexdigest().encode()
    before = read_file(path) if path.exists() else now
    write_file(path, now)
    return before != now
