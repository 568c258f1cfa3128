"""What is known before any row is looked at: units from ranges and, with privacy, all classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from coke.data.site import Sites
from coke.data.units import Scaling
from coke.errors import ConfigError, DataError
from coke.maths.losses import LOSSES, NUMBERS
from coke.privacy.release import public_scaling
from coke.settings.declaration import Settings


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
