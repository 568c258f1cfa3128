"""How to learn, as all sites are told before they look at a row: settings, and what they name.

Of units in public ranges and, with privacy, of all classes that is everything there is to know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coke.data.site import Sites
from coke.data.units import Scaling
from coke.errors import ConfigError, DataError
from coke.maths.arrays import Array
from coke.maths.losses import CLASSES, LOSSES, NUMBERS, Loss, losses_of
from coke.privacy.noise import Budget
from coke.privacy.private import Private
from coke.privacy.release import public_scaling
from coke.privacy.share import Signing
from coke.settings.declaration import AUTO, PUBLIC, ROWS, Settings
from coke.settings.kernels import Kernel, kernels_of


class Terms(NamedTuple):
    """How to learn: the settings, and what they name that is more than a word."""

    settings: Settings
    columns: tuple[str, ...]  # names of the inputs
    sample: Array | None = None  # public inputs, in their own units
    releases: Path | None = None  # where private sites keep their noised statistics; None: nowhere
    streams: bool = False  # whether rows go on coming: then kernels are compared as they come
    signing: Signing | None = None  # of keys in a secure sum, where sites have identities

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the columns to predict; of .npy files, theirs."""
        names = self.settings.data.targets
        return tuple(Path(name).stem if name.endswith(".npy") else name for name in names)

    @property
    def loss(self) -> Loss:
        """What is declared of it."""
        return LOSSES[self.settings.loss]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Several to learn with, where they were given."""
        return kernels_of(self.settings.features)

    @property
    def width(self) -> float | None:
        """The least bandwidth of a stream's kernels; None where one of them has none of its own."""
        widths = [one.widths for one in self.kernels]
        known = self.streams and widths and all(widths)
        return min(map(min, widths)) if known else None

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers."""
        return self.loss.kind == NUMBERS

    @property
    def needed(self) -> tuple[bool, bool]:
        """Whether units, or a choice, follow from moments of the columns; and from their ranges."""
        s = self.settings
        sigma = s.features.sigma == AUTO and self.width is None
        moments = s.data.scale == "standard" or sigma or s.model == AUTO
        return moments, s.data.scale == "minmax"

    @property
    def by_rows(self) -> bool:
        """Whether rows weigh the same, not sites; a choice of the model goes by rows."""
        weigh = self.settings.features.weigh
        return weigh == ROWS or (weigh == AUTO and self.settings.model == AUTO)

    @property
    def tells(self) -> bool:
        """Whether sites tell each other anything of their columns, or how many rows they have."""
        return not self.numbers or any(self.needed) or self.by_rows

    def with_kind(self, kind: str = NUMBERS) -> Terms:
        """With the usual loss of such targets: of rows that came without a file, numbers.

        Of classes it is least squares, which needs a pass over the rows and sums alone.
        """
        usual = next(name for name in losses_of(kind) if LOSSES[name].codes == (kind == CLASSES))
        return self._replace(settings=msgspec.structs.replace(self.settings, loss=usual))

    @property
    def private(self) -> Private | None:
        """How sites noise their statistics, where they do."""
        s = self.settings
        if s.epsilon is None:
            return None
        assert self.releases is not None  # whoever reads private settings finds a place for them
        colluding = s.colluding if s.secure_sum else None
        return Private(
            budget=Budget(s.epsilon, s.delta),
            folder=self.releases,
            again=s.new_budget,
            colluding=colluding,
            classes=len(s.classes),
            by_rows=self.by_rows,
            signing=self.signing,
        )

    @property
    def public(self) -> Scaling | None:
        """Units that were known before any row, where these are wanted."""
        wanted = self.settings.data.scale == PUBLIC
        return public_units(self.settings, self.columns) if wanted else None


def public_units(settings: Settings, columns: tuple[str, ...]) -> Scaling:
    """Inputs and target to [−1, 1]; codes of public classes are centred at 1/K of each, zero."""
    data, numbers = settings.data, LOSSES[settings.loss].kind == NUMBERS
    wanted = (*columns, *(data.targets if numbers else ()))
    lacking = [name for name in wanted if name not in data.ranges]
    if lacking:
        raise ConfigError(
            f'scale = "public" without ranges of {", ".join(lacking[:8])}: give [low, high] '
            "for each in data.ranges, known before any row was looked at"
        )
    low, high = zip(*(data.ranges[name] for name in columns), strict=True)
    ends = [data.ranges[name] if numbers else (-1.0, 1.0) for name in data.targets]
    each = [public_scaling(np.array(low), np.array(high), pair) for pair in ends]
    shift, scale = zip(*((one.y_shift[0], one.y_scale[0]) for one in each), strict=True)
    if not numbers:
        shift = (0.0,) * max(len(settings.classes) - 1, 1)
        scale = (1.0,) * len(shift)
    return each[0]._replace(y_shift=np.array(shift), y_scale=np.array(scale))


def public_classes(settings: Settings) -> tuple[Any, ...]:
    """All there can be, sorted; none where they are not given."""
    return tuple(sorted(settings.classes))


def check_labels(settings: Settings, sites: Sites) -> None:
    """Every label of every row is among the public classes, or `DataError`."""
    known = public_classes(settings)
    for i, name in enumerate(sites.names if known else ()):
        strange = [label for label in sites.labels(i) if label not in known]
        if strange:
            raise DataError(
                f"site {name} has rows of class {strange[0]!r}, which is not in classes = "
                f"{list(known)}: leave those rows out, or list it at all sites"
            )
