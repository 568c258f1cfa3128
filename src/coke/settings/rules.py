"""Rules between settings: each yields what it has against them, before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coke.data.reading import is_database
from coke.maths.algorithms import ALGORITHMS
from coke.maths.losses import CLASSES, LOSSES, OF_CLASSES
from coke.settings.declaration import AUTO, LOOKING, PUBLIC, ROWS, Settings
from coke.settings.kernels import against_kernels
from coke.settings.knobs import Face

Rule = Callable[[Any], Iterator[str]]


def of_source(settings: Settings) -> Iterator[str]:
    """Whether there is anything to learn from, and how it can be read."""
    data = settings.data
    if data.file is not None and data.target is None:
        yield f"data.file = {data.file!r} without data.target: name the target column"
    if data.file is None and (data.target or data.site):
        yield "data.target or data.site without data.file: name the file of the rows"
    if data.query is not None and data.file is not None and not is_database(data.file):
        yield f"data.query with {data.file}: a query is for a database, postgresql:// or SQLite's"
    folder = data.file is not None and Path(data.file).is_dir()
    if folder and data.site is not None:
        yield f"data.site with the folder {data.file}: its files are the sites"
    if data.out_of_core and (data.file is None or not (folder or data.site)):
        yield "data.out_of_core without sites: name data.file and data.site, or a folder"
    if str(data.file).endswith(".npy") and not (data.out_of_core or data.on_disk):
        yield (
            f"{data.file}: arrays are read in chunks only: add data.out_of_core = true, or for "
            f"losses other than {_summed()} data.on_disk"
        )
    if data.file is not None and data.example != "synthetic":
        yield f"data.example = {data.example!r} with data.file = {data.file!r}: name one of them"
    known = data.file is not None or data.example == "digits"
    if not known and LOSSES[settings.loss].kind == CLASSES:
        yield f'loss = "{settings.loss}" needs class labels: name a data.file with them'


def _solvable(settings: Settings) -> Iterator[str]:
    if settings.lam == 0 and not LOSSES[settings.loss].statistics:
        yield f"lambda=0 with the {settings.loss} loss: expected lambda > 0, try 1e-4"
    if (settings.whitening == "sample") != (settings.sample is not None):
        yield (
            f"whitening={settings.whitening!r} with sample={settings.sample!r}: name a file of "
            'public inputs for whitening = "sample", and none for any other'
        )
    if settings.whitening == "range" and settings.data.scale != PUBLIC:
        yield 'whitening = "range" takes the ranges of scale = "public": give them'


def against_descent(settings: Settings) -> Iterator[str]:
    """Why these settings leave no sums over the tree to go down by."""
    budget = settings.max_bytes is not None or settings.max_transmissions is not None
    against = {
        "sums over the tree are not allowed": not settings.sums,
        f"the {settings.loss} loss has no gradient everywhere": not LOSSES[settings.loss].smooth,
        "a budget is each site's own affair": budget,
        "with guard, parents on a tree could lie about its sums": settings.guard,
        "nothing can be proven without a regulariser": settings.lam == 0,
        "noised statistics have no objective to be near to": settings.privacy != "none",
    }
    yield from (reason for reason, holds in against.items() if holds)


def _descending(settings: Settings) -> Iterator[str]:
    """A tree method that is asked for by name needs what "auto" would look at."""
    for name in (settings.algorithm, *settings.beside):
        why = "; ".join(against_descent(settings)) if ALGORITHMS[name].descends else ""
        if why:
            yield f'algorithm = "{name}": {why}; expected other settings, or "auto" or "coke"'


def _plainly(settings: Settings) -> Iterator[str]:
    """What only sites that choose can do."""
    f = settings.features
    for name, given in (("inputs", f.inputs == "quantiles"), ("linear", f.linear not in (AUTO, 0))):
        if settings.model == "plain" and given:
            yield (
                f'{name} = {getattr(f, name)!r} with model = "plain": expected model = "auto", '
                "without privacy, public units or a loss for outliers, which make it plain"
            )


def _compiled(settings: Settings) -> Iterator[str]:
    outputs = len(settings.data.targets)
    if settings.fast and not LOSSES[settings.loss].statistics:
        yield f'fast with loss = "{settings.loss}": only {_summed()} rounds are compiled'
    if settings.fast and outputs > 1:
        yield f"fast with {outputs} targets: only rounds of one are compiled; leave it out"
    if settings.fast and find_spec("numba") is None:
        yield "fast needs Numba: pip install 'coke-learn[fast]', or leave it out"


def _weighed(settings: Settings) -> Iterator[str]:
    """Weights of classes need some."""
    numbers = settings.loss != AUTO and LOSSES[settings.loss].kind != CLASSES
    if settings.class_weight != "none" and numbers:
        yield (
            f'class_weight = "{settings.class_weight}" with loss = "{settings.loss}", which is of '
            "numbers: expected a loss of classes, or leave it out"
        )


def _several(settings: Settings) -> Iterator[str]:
    """What only one target can have."""
    targets, loss = settings.data.targets, LOSSES[settings.loss]
    if not targets or len(set(targets)) < len(targets):
        yield f"data.target = {list(targets)}: expected columns to predict, each once"
    if len(targets) < 2:
        return
    if loss.kind == CLASSES:
        yield (
            f'{len(targets)} targets with loss = "{settings.loss}": a class is one column; '
            "expected one target, or a model for each"
        )
    elif not loss.statistics:
        yield (
            f'{len(targets)} targets with loss = "{settings.loss}", whose columns have no Gram '
            'matrix in common: expected loss = "quadratic", or a model for each target'
        )
    if settings.privacy != "none":
        yield (
            f'{len(targets)} targets with privacy = "{settings.privacy}": how much noise hides a '
            "row is known for one number or a class; expected one target"
        )


def _summed() -> str:
    """The losses of which sums over the rows are all that training needs."""
    named = (
        name for name, loss in LOSSES.items() if loss.statistics and name not in (AUTO, OF_CLASSES)
    )
    return " or ".join(named)


def _out_of_core(settings: Settings) -> Iterator[str]:
    """What needs a row again after it has gone by cannot do without it in memory."""
    bases = [name for name in (settings.algorithm, *settings.beside) if ALGORITHMS[name].basis]
    needs_rows = {
        f'loss = "{settings.loss}"': not LOSSES[settings.loss].statistics,
        f'privacy = "{settings.privacy}"': settings.privacy != "none",
        f'class_weight = "{settings.class_weight}"': settings.class_weight != "none",
        f'weight = "{settings.data.weight}"': settings.data.weight is not None,
        f'split = "{settings.data.split}"': settings.data.split is not None,
        f'whitening = "{settings.whitening}" of {", ".join(bases)}': bases
        and settings.whitening in LOOKING,
    }
    for what, refused in needs_rows.items():
        if settings.data.out_of_core and refused:
            yield (
                f"out_of_core with {what}: that needs rows in memory; out of core is for sites "
                f"with names, the {_summed()} loss, and for a common basis whitening = "
                '"gram" or "sample"; for other losses use on_disk'
            )
    if settings.data.on_disk is not None and LOSSES[settings.loss].statistics:
        yield (
            f'data.on_disk with loss = "{settings.loss}", which keeps no features: for rows that '
            "do not fit into memory use data.out_of_core"
        )


def _private(settings: Settings) -> Iterator[str]:
    """Nothing by which raw rows would speak past the noise."""
    if settings.privacy != "dp":
        for name in ("epsilon", "classes", "secure_sum", "new_budget"):
            if getattr(settings, name):
                yield f'{name} without privacy = "dp": set both'
        return
    if settings.epsilon is None:
        yield 'privacy = "dp" without epsilon: 1 is strict, 10 weak'
    if settings.class_weight != "none":
        yield f'class_weight = "{settings.class_weight}" with privacy: a row\'s part is bounded'
    if settings.data.weight is not None:
        yield f'weight = "{settings.data.weight}" with privacy: a row\'s part is bounded'
    if not LOSSES[settings.loss].statistics:
        yield (
            f'privacy = "dp" with loss = "{settings.loss}": only the {_summed()} loss has '
            "statistics that can be noised once; others touch raw rows in every round"
        )
    yield from _public_classes(settings)
    if settings.data.scale != PUBLIC:
        yield (
            f'privacy = "dp" with scale = "{settings.data.scale}": ranges must be known '
            'beforehand; use scale = "public" and data.ranges'
        )
    if settings.features.sigma == AUTO:
        yield 'privacy = "dp" with sigma = "auto": that looks at raw rows; give σ'
    if settings.whitening in LOOKING:
        yield (
            f'privacy = "dp" with whitening = "{settings.whitening}": moments of raw inputs are '
            'not noised; use "range" (of public units), "sample" (public inputs) or "gram" '
            "(noised statistics)"
        )


def _public_classes(settings: Settings) -> Iterator[str]:
    """Those that there can be, not those that there are: that is about rows."""
    given, wanted = settings.classes, LOSSES[settings.loss].kind == CLASSES
    if wanted and not given:
        yield (
            'privacy = "dp" without classes: which ones a site has is about its rows; list all '
            "that there can be, known beforehand"
        )
    if given and not wanted and settings.loss != AUTO:
        yield f'classes with loss = "{settings.loss}", which is of numbers: leave them out'
    if len({isinstance(label, str) for label in given}) > 1:
        yield f"classes = {given}: expected labels of one kind, all text or all numbers"
    if given and not len(given) == len(set(given)) > 1:
        yield f"classes = {given}: expected at least two, each once"


def _compared(settings: Settings) -> Iterator[str]:
    if settings.privacy != "none":
        yield (
            f'privacy = "{settings.privacy}": a comparison looks at raw rows; compare on public '
            "data, or without it"
        )


def _audited(settings: Settings) -> Iterator[str]:
    if not LOSSES[settings.loss].statistics:
        yield (
            f'loss = "{settings.loss}": the attacks are on the {_summed()} loss; others send what '
            "is no less telling"
        )
    reason = ALGORITHMS[settings.algorithm].not_for.get("audit")
    if reason:
        yield f'algorithm = "{settings.algorithm}" cannot be audited: {reason}'


def _alike(settings: Settings) -> Iterator[str]:
    if settings.data.weight is not None:
        yield f'weight = "{settings.data.weight}": here all rows weigh alike; leave it out'


def _in_theory(settings: Settings) -> Iterator[str]:
    if not LOSSES[settings.loss].statistics:
        yield f'loss = "{settings.loss}": the theorems\' constants need the {_summed()} loss'
    if settings.data.out_of_core:
        yield "out_of_core: the constants need rows in memory; use some of the rows"


STREAMED = ("quadratic", "least-squares")
_ONLINE = (AUTO, "coke")


def of_stream(settings: Settings) -> Iterator[str]:
    """What a stream cannot be learnt with, and why."""
    s, losses = settings, (AUTO, OF_CLASSES, *STREAMED)
    against = {
        f'privacy = "{s.privacy}": every round is a new release': s.privacy != "none",
        f'class_weight = "{s.class_weight}": classes are not counted yet': s.class_weight != "none",
        f'weigh = "{s.features.weigh}": nobody knows how many will come': s.features.weigh == ROWS,
        f'loss = "{s.loss}": rows are needed again; a stream has {" or ".join(STREAMED)}':
            s.loss not in losses,
        f'algorithm = "{s.algorithm}": a stream is learnt by {" or ".join(_ONLINE)}':
            s.algorithm not in _ONLINE,
        "beside: other algorithms have no streams": bool(s.beside),
        "guard: audits are of the rounds of a batch, and nobody watches those of a stream": s.guard,
        "out_of_core: rows go by anyway": s.data.out_of_core or s.data.on_disk is not None,
        f'weight = "{s.data.weight}": rows of a stream weigh alike': s.data.weight is not None,
        "a budget: a stream has no end to share it out to":
            s.max_bytes is not None or s.max_transmissions is not None,
    }  # fmt: skip
    for reason, holds in against.items():
        if holds:
            yield f"a stream with {reason}; leave it out, or learn from all rows at once"


def on_agents(settings: Settings) -> Iterator[str]:
    """Why these settings cannot run on agents."""
    reason = ALGORITHMS[settings.algorithm].not_for.get("agents")
    if reason:
        yield f'algorithm = "{settings.algorithm}" cannot run on agents: {reason}'
    if settings.data.out_of_core:
        yield "data.out_of_core is for coke run: an agent reads its own rows at once"


RULES: tuple[Rule, ...] = (
    *(_solvable, _descending, _plainly, against_kernels, _weighed, _several, _compiled),
    *(_out_of_core, _private),
)
FACES: dict[Face, tuple[Rule, ...]] = {
    Face.COMPARE: (_compared, _alike),
    Face.AUDIT: (_audited, _alike),
    Face.THEORY: (_in_theory, _alike),
    Face.NETWORK: (on_agents,),
}
