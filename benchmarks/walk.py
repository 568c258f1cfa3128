"""`make walk`: the way of a row through the package, face by face.

300 rows at 3 sites go through every face under `sys.setprofile`. The package's functions are listed
in the order of their first call; a switch is where the next one's module differs: fewer of them,
fewer pages to turn for whoever follows a row. `--show FACE` lists the stations of one face.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import coke

PACKAGE = str(Path(coke.__file__).parent) + os.sep
ROWS, SITES = 300, ("Aachen", "Bonn", "Ulm")


class Trace:
    """The package's functions, in all threads, in the order of their first call."""

    def __init__(self) -> None:
        self._seen: dict[CodeType, None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self._seen.setdefault(code)

    @property
    def stations(self) -> list[tuple[str, str]]:
        """(module, function); a comprehension belongs to the function that it stands in."""
        apart = ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
        named = (code for code in self._seen if code.co_name not in apart)
        return [(c.co_filename.removeprefix(PACKAGE), c.co_qualname) for c in named]


def imported() -> None:
    """All modules, so that what runs when one is imported is no station, however late that is."""
    for module in pkgutil.walk_packages(coke.__path__, "coke."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # an extra that is not installed
                import_module(module.name)


def traced(work: Callable[[], object]) -> list[tuple[str, str]]:
    """The stations of that work."""
    imported()
    trace = Trace()
    sys.setprofile(trace)
    try:
        work()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    return trace.stations


def rows() -> tuple[Any, Any, Any]:
    """Inputs, target and site of every row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2], np.array(SITES)[rng.integers(0, 3, ROWS)]


def command(folder: Path, *more: str) -> list[tuple[str, str]]:
    """`coke run --data` with further arguments."""
    from coke.cli.main import main

    X, y, where = rows()
    columns = {f"x{j}": X[:, j] for j in range(3)}
    pa.parquet.write_table(pa.table({**columns, "y": y, "site": where}), folder / "rows.parquet")
    given = ("--data", str(folder / "rows.parquet"), "--target", "y", "--site", "site")
    sys.argv = ["coke", "run", *given, "--model", "plain", "--features", "10", "--json", *more]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        return traced(main)


def estimator(folder: Path) -> list[tuple[str, str]]:
    """`fit` and `predict`."""
    from coke import COKERegressor, Features

    X, y, where = rows()
    plain = COKERegressor(model="plain", features=Features(n_features=10))
    return traced(lambda: plain.fit(X, y, sites=where).predict(X))


def agent(folder: Path) -> list[tuple[str, str]]:
    """One of three agents over a network in memory, and its model's `predict`."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from kit.agents import Net

    net = Net(folder, 3, 3, rows=ROWS)
    first, *others = net.names
    net.start(*others)
    own: dict[str, Any] = {}

    def live() -> None:
        from coke.field.agent import Agent
        from coke.field.store import Store

        carrier = net.memory.join(first, net.friends[first])
        one = own["agent"] = Agent(net.mission(first), carrier, Store(net.folder / first), net.pace)
        with one.store.claimed():
            for _ in one.run():
                pass
        if one.agreed is not None:
            one.mission.model(one.agreed, one.outcome().theta).predict(net.rows.X)

    found = traced(live)
    net.stop()
    return found


def mpi(folder: Path) -> list[tuple[str, str]]:
    """Rank 0 of 2."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec: pip install 'coke-learn[mpi]'")
    out = folder / "rank.json"
    ranks = [mpiexec, "-n", "2", sys.executable, __file__, "--rank", str(out)]
    subprocess.run(ranks, check=True, timeout=300)
    return [(module, name) for module, name in json.loads(out.read_text())]


FACES: dict[str, Callable[[Path], list[tuple[str, str]]]] = {
    "coke run": command,
    "out of core": lambda folder: command(folder, "--out-of-core", "--whitening", "gram"),
    "mpi": mpi,
    "estimator": estimator,
    "agent": agent,
}


def switches(stations: list[tuple[str, str]]) -> int:
    """How often the next function is another module's."""
    return sum(1 for _ in groupby(stations, key=lambda at: at[0])) - 1


def rank(out: Path) -> None:
    """The ranks' side of `mpi`."""
    from mpi4py import MPI

    folder = out.parent / f"rank-{MPI.COMM_WORLD.rank}"
    folder.mkdir(exist_ok=True)
    found = command(folder, "--engine", "mpi")
    if not MPI.COMM_WORLD.rank:
        out.write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", choices=FACES)
    parser.add_argument("--rank", type=Path)
    wanted = parser.parse_args()
    if wanted.rank is not None:
        rank(wanted.rank)
        return
    print(f"{'face':12} functions  modules  switches")
    for name, walk in FACES.items():
        if wanted.show in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                found = walk(Path(folder))
            modules = len({module for module, _ in found})
            print(f"{name:12} {len(found):9}  {modules:7}  {switches(found):8}")
            if wanted.show:
                for module, some in groupby(found, key=lambda at: at[0]):
                    print(f"  {module:32} {', '.join(at for _, at in some)}")


if __name__ == "__main__":
    main()
