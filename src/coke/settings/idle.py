"""Options that were given and change nothing: each says why, so that nobody counts on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from coke.maths.algorithms import ALGORITHMS
from coke.maths.losses import LOSSES
from coke.settings.declaration import AUTO, KNOBS, PUBLIC, Settings
from coke.settings.knobs import Face


class _Seen(NamedTuple):
    """What a rule looks at."""

    settings: Settings
    algorithms: tuple[str, ...]  # that run


def idle(settings: Settings, given: Collection[str], face: Face) -> Iterator[str]:
    """A sentence for every option among these keys that has no effect with these settings."""
    every = face in (Face.COMPARE, Face.THEORY)  # they run the paper's methods by themselves
    names = tuple(ALGORITHMS) if every else (settings.algorithm, *settings.beside)
    for key, rule in _RULES.items():
        reason = rule(_Seen(settings, names), key) if key in given else ""
        if reason:
            yield f"--{KNOBS[key].option} has no effect: {reason}"


def _dealt(seen: _Seen, key: str) -> str:
    """Rows whose sites have names are dealt out to nobody."""
    data = seen.settings.data
    if data.split is not None:
        return ""
    again = "leave it out, or deal the rows out anew with --split"
    if data.file is None:
        made = "the synthetic problem draws its sites' sizes from --size-range"
        return f"{made}; {again}" if key == "data.sizes" else ""
    if Path(data.file).is_dir():
        return f"the files in {data.file} are the sites; {again}"
    return "" if data.site is None else f"the column {data.site!r} names the sites; {again}"


def _sized(seen: _Seen, key: str) -> str:
    drawn = seen.settings.data.size_range is not None
    return _dealt(seen, key) or "--size-range draws the sizes; give one of the two" * drawn


def _read(seen: _Seen, key: str) -> str:
    return "" if seen.settings.data.file else "synthetic rows have no such columns; name --data"


def _scaled(seen: _Seen, key: str) -> str:
    given = seen.settings.data.scale
    return "" if given == PUBLIC else f"--scale is {given}; ranges are for --scale {PUBLIC}"


def _summed(seen: _Seen, key: str) -> str:
    loss = seen.settings.loss
    none = loss != AUTO and not LOSSES[loss].statistics
    return f"the {loss} loss takes no sums of features" if none else ""


def _tuned(seen: _Seen, key: str) -> str:
    """Of a setting that only some algorithms take."""
    takers = [name for name, entry in ALGORITHMS.items() if key in entry.uses]
    if set(takers) & set(seen.algorithms):
        return ""
    return f"{', '.join(seen.algorithms)} does not take it; it is for {', '.join(takers)}"


def _whitened(seen: _Seen, key: str) -> str:
    some = any(ALGORITHMS[name].basis for name in seen.algorithms)
    return "" if some else f"{', '.join(seen.algorithms)} runs without a common basis"


def _linked(seen: _Seen, key: str) -> str:
    some = any(name == AUTO or ALGORITHMS[name].descends for name in seen.algorithms)
    return "" if some else f"{', '.join(seen.algorithms)} says the same on all links"


def _noised(seen: _Seen, key: str) -> str:
    return "" if seen.settings.privacy == "dp" else "nothing is noised without --privacy dp"


def _shared(seen: _Seen, key: str) -> str:
    return "" if seen.settings.secure_sum else "nothing is shared without --secure-sum"


_RULES: Mapping[str, Callable[[_Seen, str], str]] = {
    "data.agents": _dealt,
    "data.sizes": _sized,
    "data.size_range": _dealt,
    "data.drop": _read,
    "data.weight": _read,
    "data.missing": _read,
    "data.ranges": _scaled,
    "data.precision": _summed,
    "rho": _tuned,
    "v": _tuned,
    "mu": _tuned,
    "eta": _tuned,
    "links": _linked,
    "whitening": _whitened,
    "sample": _whitened,
    "delta": _noised,
    "colluding": _shared,
}
