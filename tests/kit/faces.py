"""Every face on the same few rows, for every loss and algorithm: what it learnt and what it cost.

Run as a program it prints all of one face as JSON; `test_bits.py` compares that with what is
stored. The last bits of a matrix product depend on the processor, so the program is run with
arithmetic that every x86 processor since 2013 has (`PINNED`), and elsewhere the test says why it is
skipped.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from coke import (
    DKLA,
    COKEClassifier,
    CokePaper,
    COKERegressor,
    Diffusion,
    Features,
    Until,
)
from coke.data.tables import checked_rows
from coke.engines.checkpoint import load_checkpoint
from coke.field.agent import Agent
from kit.agents import PACE, Net
from kit.commands import coke
from kit.jobs import commands_on_ranks

PINNED = {
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": " ".join(
        ("AVX512F", "AVX512CD", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL", "AVX512_ICL", "X86_V4")
    ),
}
T, AGENTS, EDGES, SEED = 240, 4, 4, 1
MANY = 2000  # rows with numbers: so many at a site that their features are computed in float32


class Case(NamedTuple):
    """What is learnt, and how."""

    loss: str
    algorithm: str
    classes: int = 0  # none: numbers

    def __str__(self) -> str:
        return f"{self.loss} {self.algorithm}" + f" {self.classes} classes" * bool(self.classes)


LOSSES = (
    ("quadratic", 0), ("logistic", 2), ("logistic", 3), ("hinge", 2),
    ("least-squares", 3), ("softmax", 3),
)  # fmt: skip
CASES = [
    Case(loss, algorithm, classes)
    for loss, classes in LOSSES
    for algorithm in ("coke", "coke-paper", "dkla", "cta")
]


def rows(classes: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Inputs, targets, and sites of different sizes that see different inputs."""
    rng, n = np.random.default_rng(7), T if classes else MANY
    where = np.sort(rng.integers(0, AGENTS, n))
    X = rng.normal(size=(n, 3)) + 0.4 * where[:, None]
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    y = f if not classes else np.digitize(f, np.quantile(f, np.arange(1, classes) / classes))
    return X, y, where


def digest(*parts: Any) -> str:
    """Of arrays or bytes."""
    found = hashlib.blake2b(digest_size=12)
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def said(theta: Any, model: bytes, rounds: int, ledger: tuple[int, int, int]) -> dict[str, Any]:
    """What is stored of a run."""
    keys = ("transmissions", "bytes", "wire_bytes")
    costs = dict(zip(keys, map(int, ledger), strict=True))
    return {"theta": digest(theta), "model": digest(model), "rounds": int(rounds), **costs}


CHOSEN = {
    "coke": "coke",
    "coke-paper": CokePaper(rho=0.05, v=0.5, mu=0.9),
    "dkla": DKLA(rho=0.05),
    "cta": Diffusion(eta=0.2),
}


def each(
    work: Callable[[Case, Path], dict[str, Any]], cases: Sequence[Case], folder: Path
) -> list[dict[str, Any]]:
    """One case after the other."""
    found = []
    for i, case in enumerate(cases):
        (folder / str(i)).mkdir()
        found.append(work(case, folder / str(i)))
    return found


def estimator(case: Case, folder: Path) -> dict[str, Any]:
    """`fit`."""
    X, y, where = rows(case.classes)
    kind: Any = COKEClassifier if case.classes else COKERegressor
    own = kind(
        model="plain", graph="random", edges=EDGES,
        algorithm=CHOSEN[case.algorithm], loss=case.loss,
        features=Features(n_features=8, sigma=1.5), lam=1e-2, random_state=SEED,
        limits=Until(rounds=40, tol=1e-2 if case.algorithm == "coke" else None),
    ).fit(X, y, sites=where)  # fmt: skip
    ledger = (own.transmissions_, own.bytes_, own.wire_bytes_)
    return said(own.thetas_, own.model_.to_bytes(), own.n_iter_, ledger)


def written(case: Case, folder: Path, **data: Any) -> list[str]:
    """Arguments of `coke run` for such a case; its rows and settings are in the folder."""
    X, y, where = rows(case.classes)
    columns = {f"x{j}": X[:, j] for j in range(3)}
    pa.parquet.write_table(pa.table({**columns, "y": y, "who": where}), folder / "rows.parquet")
    tol = "tol = 1e-2" if case.algorithm == "coke" else ""
    more = "\n".join(f"{key} = {json.dumps(value)}" for key, value in data.items())
    (folder / "case.toml").write_text(
        f"""
model = "plain"
algorithm = "{case.algorithm}"
loss = "{case.loss}"
lambda = 1e-2
rho = 0.05
v = 0.5
mu = 0.9
eta = 0.2
rounds = 40
seed = {SEED}
whitening = "{"gram" if data else "mixture"}"
{tol}
[data]
file = "rows.parquet"
target = "y"
site = "who"
test = 0.25
{more}
[features]
n_features = 8
sigma = 1.5
[graph]
edges = {EDGES}
"""
    )
    return ["run", "case.toml", "--out", "out", "--json"]


def left(case: Case, folder: Path, text: str) -> dict[str, Any]:
    """What a run left in its folder."""
    document = json.loads(text)
    theta = load_checkpoint(folder / f"out/checkpoint-{case.algorithm}.coke")[0].checkpoint.state
    ledger = (document["transmissions"], document["bytes"], document["wire_bytes"])
    model = (folder / "out/model.coke").read_bytes()
    return said(theta["theta"], model, document["rounds"], ledger)


def run(case: Case, folder: Path) -> dict[str, Any]:
    """`coke run`."""
    return left(case, folder, coke(*written(case, folder), cwd=folder).stdout)


def out_of_core(case: Case, folder: Path) -> dict[str, Any]:
    """`coke run` that keeps no row; rows with class labels lie on disk."""
    rows = case.classes and case.loss != "least-squares"  # of which sums do not say all
    more = {"on_disk": "scratch"} if rows else {"out_of_core": True}
    return left(case, folder, coke(*written(case, folder, **more), cwd=folder).stdout)


def ranks(cases: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """`coke run --engine mpi` on two ranks: one process's bits."""
    places = [folder / str(i) for i in range(len(cases))]
    for place in places:
        place.mkdir()
    runs = [
        (at, [*written(case, at), "--engine", "mpi"])
        for case, at in zip(cases, places, strict=True)
    ]
    texts = commands_on_ranks(2, *runs)
    return [left(*one) for one in zip(cases, places, texts, strict=True)]


def agents(case: Case, folder: Path) -> dict[str, Any]:
    """An agent for each site, over a network in memory, until all have settled."""
    X, y, where = rows(case.classes)
    net = Net(
        folder, AGENTS, EDGES, pace=PACE, algorithm=case.algorithm, loss=case.loss,
        rho=0.05, v=0.5, mu=0.9, rounds=2000, seed=SEED,
        tol=1e-2 if case.algorithm == "coke" else 0.1,
        data={"file": "rows", "target": "y", "test": 0.0, "scale": "standard"},
        features={"n_features": 8, "sigma": 1.5},
    )  # fmt: skip
    net.settings["lambda"] = 1e-2
    net.rows = checked_rows(X, y)
    net.parts = {i: np.flatnonzero(where == i) for i in range(AGENTS)}
    net.start()
    net.wait(timeout=1800)
    own: list[Agent] = [net.agents[name] for name in net.names]
    ends = [agent.outcome() for agent in own]
    models = []
    for agent, end in zip(own, ends, strict=True):
        assert end.converged
        assert agent.agreed is not None
        models.append(agent.mission.model(agent.agreed, end.theta).to_bytes())
    ledger = np.sum([end.ledger for end in ends], axis=0).tolist()
    return said([end.theta for end in ends], b"".join(models), ends[0].rounds, tuple(ledger))


FACES: dict[str, Callable[[Sequence[Case], Path], list[dict[str, Any]]]] = {
    "estimator": partial(each, estimator),
    "run": partial(each, run),
    "out of core": partial(each, out_of_core),
    "mpi": ranks,
    "agents": partial(each, agents),
}


def wanted(face: str, case: Case) -> bool:
    """Whether that face runs that case; ranks and disks are for a part of them, to save time."""
    if face == "agents":
        return case.algorithm != "cta" and case.classes != 3
    if face == "mpi":
        return (case.loss, case.algorithm) in (
            ("quadratic", "coke"), ("quadratic", "cta"), ("logistic", "coke"), ("hinge", "dkla"),
        )  # fmt: skip
    return True


def arithmetic() -> str:
    """Two machines with the same answer have the same last bits, as far as we can see."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 40))
    S = A.T @ A
    parts = np.cos(A), np.sum(A, axis=0), S, np.linalg.inv(S), np.linalg.eigh(S)[1]
    return digest(*parts, np.linalg.cholesky(S), np.vecdot(A, A), np.exp(A))


def everything(face: str) -> dict[str, Any]:
    """All cases of a face."""
    cases = [case for case in CASES if wanted(face, case)]
    with tempfile.TemporaryDirectory() as folder:
        found = FACES[face](cases, Path(folder))
    names = (f"{face}: {case}" for case in cases)
    return {"arithmetic": arithmetic(), **dict(zip(names, found, strict=True))}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(everything(sys.argv[1]), indent=1) + "\n")
