"""From settings to rows at sites, and on to sites that are ready to train."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coke.data.digits import digits_rows
from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.ondisk import OnDisk
from coke.data.out_of_core import pass_over
from coke.data.picking import owners, picked
from coke.data.reading import PLAINLY, Reading, files_in, label_of
from coke.data.site import Kept, Sites
from coke.data.sources import Passing, Source, Watch, joined
from coke.data.split import parts_of, split
from coke.data.synthetic import synthetic_rows
from coke.data.tables import Rows, inputs_of, read_rows, read_table
from coke.engines.process import ALONE, Engine
from coke.engines.ranks.engine import Ranks
from coke.errors import ConfigError
from coke.learning.costs import Expected, expected
from coke.learning.kinds import Say, reading_of, why_numbers, with_kind, with_target
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.maths.arrays import Room
from coke.maths.graph import Graph, adjacency, build_graph
from coke.maths.losses import LOSSES
from coke.settings.declaration import Settings
from coke.settings.rules import of_source

if TYPE_CHECKING:
    from mpi4py import MPI


class _Here(NamedTuple):
    """The sites that are here, and the network of all."""

    sites: Sites
    columns: tuple[str, ...]  # names of the inputs
    names: tuple[str, ...]  # of all sites
    graph: Graph
    engine: Engine


def open_ready(
    settings: Settings, releases: Path | None = None, comm: MPI.Comm | None = None,
    watch: Watch | None = None, foretell: Callable[[Expected], None] | None = None,
    say: Say = PLAINLY.say,
) -> Ready:  # fmt: skip
    """Everything a run needs; most of its time goes into the passes over the rows.

    Once the rows are read, and before the sites agree, it is foretold what the run may cost.
    What is found out about files is said.
    """
    for reason in of_source(settings):
        raise ConfigError(reason)
    settings = with_kind(with_target(settings), say)
    how = reading_of(settings, say)
    sites, columns, names, graph, engine = _open_sites(settings, comm, watch, how)
    costs = expected(sites, settings)
    if foretell is not None and costs is not None and engine is ALONE:
        foretell(costs)
    sample = None
    if settings.sample is not None:
        sample = inputs_of(read_table(settings.sample), columns)
    ready = agree(sites, graph, Terms(settings, columns, sample, releases), engine, names)
    coding = ready.agreement.coding
    for line in () if coding is None else coding.words:
        say(line)
    return ready


def load_rows(settings: Settings, how: Reading = PLAINLY) -> Rows:
    """The rows of the file, or of an example."""
    data = settings.data
    if data.file is None and data.example == "digits":
        return digits_rows()
    if data.file is None or data.target is None:
        return synthetic_rows(data.agents, data.size_range or (4000, 6000), seed=settings.seed)
    return read_rows(
        data.file, data.targets, site=data.site, weight=data.weight, drop=data.drop,
        missing=data.missing, how=how,
    )  # fmt: skip


def dealing(settings: Settings) -> dict[str, Any]:
    """How rows without sites are dealt out."""
    data = settings.data
    size_range = data.size_range if data.file else None
    return {
        "split": data.split, "n_agents": data.agents, "sizes": data.sizes,
        "size_range": size_range, "seed": settings.seed,
    }  # fmt: skip


def _open_sites(
    settings: Settings, comm: MPI.Comm | None = None, watch: Watch | None = None,
    how: Reading = PLAINLY,
) -> _Here:  # fmt: skip
    """The sites' rows, on ranks those of this rank; or, out of core, how to pass over them.

    With `data.on_disk` they are read in chunks, too, but kept, there.
    """
    names, columns, sites, some = _at_hand(settings, comm, watch, how)
    kind, edges, N = settings.graph.kind, settings.graph.edges, len(names)
    graph = build_graph(kind, N, edges=edges, seed=settings.seed)
    engine = ALONE if comm is None else Ranks(comm, adjacency(graph), names)
    if sites is None or comm is not None:
        sites = engine.guarded(partial(some, engine.agents(N)))
    return _Here(sites, columns, names, graph, engine)


class _AtHand(NamedTuple):
    """The sites of a source, and how to have some of them."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    sites: Sites | None  # all of them; None where their rows are yet to be picked
    some: Callable[[Any], Sites]


def _at_hand(
    settings: Settings, comm: MPI.Comm | None, watch: Watch | None, how: Reading
) -> _AtHand:
    data, numbers = settings.data, LOSSES[settings.loss].kind == "numbers"
    room: Room = np.empty if data.on_disk is None else OnDisk(Path(data.on_disk))
    seed, dealt = settings.seed, dealing(settings)
    if data.file is None or not _in_chunks(settings, comm):
        rows = load_rows(settings, how)
        places = split(parts_of(rows.y, rows.sites, **dealt), test=data.test, seed=seed)
        kept = places.kept(rows, numbers=numbers, room=room, watch=watch)
        return _AtHand(kept.names, rows.columns, kept, kept.of)
    passing, source = _passing(settings, comm, how.say), _open_rows(settings, how)
    if data.out_of_core:
        passed = pass_over(source, passing, test=data.test, seed=seed, watch=watch)
        return _AtHand(passed.names, source.columns, passed, passed.of)
    whose = owners(source, passing, watch)
    places = split(parts_of(whose.y, whose.sites, **dealt), test=data.test, seed=seed)
    own = whose.sites is not None and data.split is None

    def picking(agents: Any) -> Kept:
        some = places.of(agents)
        few = own and len(some.names) < len(places.names)  # else all rows are wanted
        found = picked(source, passing, some, whose, by_label=few, room=room, watch=watch)
        return replace(found, numbers=numbers, watch=watch)

    return _AtHand(places.names, source.columns, None, picking)


def _in_chunks(settings: Settings, comm: MPI.Comm | None) -> bool:
    """Out of core, on disk, on ranks, and of a folder of files."""
    data = settings.data
    apart = comm is not None or Path(str(data.file)).is_dir()
    return data.out_of_core or data.on_disk is not None or apart


def _open_rows(settings: Settings, how: Reading = PLAINLY) -> Source:
    """The rows a chunk at a time: of a file, of .npy arrays, or of a folder's files, one a site."""
    data, classes = settings.data, LOSSES[settings.loss].kind == "classes"
    assert data.file is not None
    assert data.target is not None
    path = Path(data.file)
    if path.suffix == ".npy":
        if data.weight is not None:
            raise ConfigError("weight with arrays, which have no such column: use a table of rows")
        y = list(data.targets) if len(data.targets) > 1 else data.targets[0]
        return open_arrays(path, y, data.site, classes=classes)
    open_ = partial(
        open_table,
        target=data.targets,
        weight=data.weight,
        drop=data.drop,
        classes=classes,
        how=how,
        known={},
    )
    if not path.is_dir():
        return open_(data.file, site=data.site)
    files = [(label_of(file), file) for file in files_in(path)]
    twice = [name for name, n in Counter(name for name, _ in files).items() if n > 1]
    if twice:
        raise ConfigError(f"{path} has two files for site {twice[0]}: expected one a site")
    return joined({name: open_(file) for name, file in files})


def _passing(settings: Settings, comm: MPI.Comm | None, say: Say) -> Passing:
    workers = os.cpu_count() if comm is None else 1  # a rank has a core of its own
    data, said = settings.data, set[str]()

    def once(line: str) -> None:
        """Not again in the next pass."""
        if line not in said:
            said.add(line)
            say(line)

    missing = "refuse" if data.missing == "fill" and why_numbers(settings) else data.missing
    return Passing(data.precision, workers or 1, missing, fast=settings.fast, say=once)
