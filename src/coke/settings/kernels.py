"""Several kernels, each in a few letters: 0.1, "matern32", "laplacian:2", "gaussian:1,0.5,3"."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from coke.errors import ConfigError, unknown
from coke.maths.losses import CLASSES, LOSSES
from coke.settings.declaration import AUTO, KNOBS, PLAIN, Features, Settings

_MOST = 16  # kernels at once
_EXPECTED = 'expected a bandwidth, a kernel, or "KERNEL:σ", with a σ for each column "KERNEL:σ,σ,…"'


class Kernel(NamedTuple):
    """κ((x − y)/σ), with one bandwidth or one for each column, which is a metric."""

    family: str
    widths: tuple[float, ...] = ()  # σ; none: from the inputs' spread

    def __str__(self) -> str:
        """As it is written in settings; the same numbers in the same letters."""
        widths = ",".join(repr(width).removesuffix(".0") for width in self.widths)
        return f"{self.family}:{widths}" if widths else self.family


def kernels_of(features: Features) -> tuple[Kernel, ...]:
    """Those that are given, or `ConfigError`; none where there is one only."""
    usual = PLAIN["kernel"] if features.kernel == AUTO else features.kernel
    return tuple(_kernel(given, usual) for given in features.kernels)


def against_kernels(settings: Settings) -> Iterator[str]:
    """At least two, each once, and rows to compare them by."""
    f, loss = settings.features, LOSSES[settings.loss]
    found = kernels_of(f)
    if not found:
        return
    if len(set(found)) < len(found) or not 1 < len(found) <= _MOST:
        yield f"kernels = {list(f.kernels)}: expected 2 to {_MOST}, each once; one is kernel, sigma"
    if f.sigma != AUTO:
        yield f"sigma = {f.sigma} with kernels: each has its own bandwidth; leave sigma out"
    if settings.privacy != "none":
        yield f'kernels with privacy = "{settings.privacy}": whose costs tell of raw rows; name one'
    if not (loss.statistics or loss.kind == CLASSES):
        yield (
            f'kernels with loss = "{settings.loss}": they are compared by squared errors, which '
            "outliers own; name one"
        )


def _kernel(given: str | float, usual: str) -> Kernel:
    """One of them; a bandwidth alone is the usual kernel's."""
    family, _, widths = str(given).partition(":")
    if not widths and _number(family) is not None:
        family, widths = usual, family
    known = [name for name in KNOBS["features.kernel"].knob.choices if name != AUTO]
    if family not in known:
        raise ConfigError(f"kernels: {unknown('kernel', family, known)}; {_EXPECTED}")
    numbers = [_number(width) for width in widths.split(",")] if widths else []
    sigma = tuple(number for number in numbers if number is not None and 0 < number < math.inf)
    if len(sigma) < len(numbers):
        raise ConfigError(f"kernels: {given!r} has a bandwidth that is none: {_EXPECTED}, all > 0")
    return Kernel(family, sigma)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
