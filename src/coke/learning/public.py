"""What is known before any row is looked at: units from ranges and, with privacy, all classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from coke.data.site import Scaling, Sites
from coke.errors import ConfigError, DataError
from coke.maths.losses import LOSSES, NUMBERS
from coke.privacy.release import public_scaling
from coke.settings.declaration import PUBLIC, Settings


def public_units(settings: Settings, columns: tuple[str, ...]) -> Scaling | None:
    """Inputs and target to [−1, 1]; codes of public classes are centred at 1/K of each, zero."""
    data, numbers = settings.data, LOSSES[settings.loss].kind == NUMBERS
    if data.scale != PUBLIC:
        return None
    target = data.target or "y"
    lacking = [c for c in (*columns, *[target] * numbers) if c not in data.ranges]
    if lacking:
        raise ConfigError(
            f'scale = "public" without ranges of {", ".join(lacking[:8])}: give [low, high] '
            "for each in data.ranges, known before any row was looked at"
        )
    low, high = zip(*(data.ranges[name] for name in columns), strict=True)
    ends = data.ranges[target] if numbers else (-1.0, 1.0)
    units = public_scaling(np.array(low), np.array(high), ends)
    codes = np.zeros(max(len(settings.classes) - 1, 1))
    return units if numbers else units._replace(y_shift=codes, y_scale=np.ones_like(codes))


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
