"""The verdict: did joining pay, in figures of rows that no model was trained on, and in a sentence.

R² and the root of the mean squared error in the target's own unit; of classes, accuracy and log
loss. `together` is the common model, `alone` a site's own model on all sites' rows, `home` the same
on its own rows, `pooled` the optimum of all rows in one place, `linear` a plain linear model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coke.learning.tally import Shown
from coke.maths.ledger import Ledger
from coke.maths.losses.excess import Certificate
from coke.maths.sizes import sized

HELD, LEFT = "held-out rows", "training rows, each as if it had been left out"
FIFTHS = "training rows, a fifth at a time left out of all fits"
_PROVE = "the model may be off; allow more rounds or a larger accuracy, or raise lambda"
KEYS = {True: ("r2", "rmse"), False: ("accuracy", "log_loss")}


class Figure(NamedTuple):
    """How well one model does on some rows; None where they do not say."""

    score: float | None  # R² or accuracy
    error: float | None  # RMSE in the target's unit, of one target; log loss

    def document(self, numbers: bool) -> dict[str, float | None]:
        """By the names of the measures."""
        return dict(zip(KEYS[numbers], self, strict=True))

    def __str__(self) -> str:
        return "–" if self.score is None else f"{self.score:.3f}"


class AtSite(NamedTuple):
    """What a site has of it."""

    alone: Figure | None  # its own model on all sites' rows; None where it was not sent around
    home: Figure  # its own model on its own rows
    together: Figure  # the common model on its own rows
    gain: float | None  # in the score, on all sites' rows: together − alone
    gain_home: float | None  # on its own

    def document(self, numbers: bool) -> dict[str, Any]:
        """For machines."""
        return {
            "alone": self.alone and self.alone.document(numbers),
            "home": self.home.document(numbers),
            "together": self.together.document(numbers),
            "gain": self.gain,
            "gain_home": self.gain_home,
        }


class Ended(NamedTuple):
    """How training ended, and what it took."""

    rounds: int
    settled: bool | None  # within the tolerance; None: none was asked for
    ledger: Ledger
    certificate: Certificate | None = None  # what was proven of the model

    @property
    def warning(self) -> str:
        """What to say of a run that has not settled; nothing of one that has, or is proven."""
        rounds, proven = f"after {self.rounds} rounds", self.certificate
        if proven is not None:
            late = f"not settled {rounds}" if self.settled is False else rounds
            return "" if proven.holds else f"{late}, {proven}; {_PROVE}"
        if self.settled is not False:
            return ""
        return (
            f"not settled {rounds}: the limit or a budget came first, and the model may be off; "
            "allow more rounds, or a larger tol"
        )

    def proven(self) -> dict[str, Any] | None:
        """Of the model, for machines."""
        found = self.certificate
        if found is None:
            return None
        numbers = {"within": found.share, **found._asdict()}
        told = {key: value if math.isfinite(value) else None for key, value in numbers.items()}
        return {"text": str(found), "certified": found.holds, **told}

    def __str__(self) -> str:
        words = {True: "settled after", False: "not settled after", None: "after"}[self.settled]
        said = f"{sized(self.ledger.bytes)} sent; {words} {self.rounds} rounds"
        return said if self.certificate is None else f"{said}, {self.certificate}"


def weakest(documents: Sequence[Mapping[str, Any] | None]) -> Certificate | None:
    """Of what sites say was proven; None where one of them knows nothing."""
    names, told = Certificate._fields, [one for one in documents if one is not None]
    if len(told) < len(documents):
        return None
    numbers = ([math.inf if one[name] is None else one[name] for name in names] for one in told)
    return max((Certificate(*each) for each in numbers), key=lambda one: one.gap)


@dataclass(frozen=True)
class Verdict:
    """Of one run. Models that nobody here can know are None."""

    numbers: bool
    rows: int
    how: str  # HELD, LEFT or FIFTHS
    together: Figure
    home: Figure  # every site's own model on its own rows
    ended: Ended
    alone: Figure | None = None  # the mean over sites
    worst: tuple[str, Figure] | None = None  # the site whose own model does worst on all rows
    pooled: Figure | None = None
    linear: Figure | None = None
    linear_wins: bool = False
    sites: Mapping[str, AtSite] = field(default_factory=dict)
    shown: Shown | None = None  # predictions, where somebody looks

    def __str__(self) -> str:
        """In one sentence."""
        said = [f"{self.together} together"]
        if self.alone is not None and self.worst is not None:
            said.append(f"{self.alone} alone (worst site {self.worst[1]})")
        else:
            said.append(f"{self.home} alone")
        if self.pooled is not None:
            said.append(f"{self.pooled} if all rows were pooled")
        parts = [f"{'R²' if self.numbers else 'accuracy'} {', '.join(said)}", str(self.ended)]
        return "; ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What stands behind the sentence: the rows, at home, a line, the other measure."""
        rows, own = f"on {self.rows} {self.how}", "each site's own model on its own rows"
        if self.pooled is None:
            rows += " of this site; what all rows pooled would give, no site can know"
            own = "the site's own model"
        said = [rows, f"at home {self.home}: {own}"]
        if self.linear is not None:
            said.append(f"a plain linear model of all rows has {self.linear}")
        if self.together.error is not None:
            unit = "RMSE" if self.numbers else "log loss"
            others = {"alone": self.alone or self.home, "pooled": self.pooled}
            told = (f"{one.error:.4g} {name}" for name, one in others.items() if one)
            said.append(f"{unit} {self.together.error:.4g} together, {', '.join(told)}")
        return said

    @property
    def warnings(self) -> list[str]:
        """What is to be heard first."""
        line = (
            f"a plain linear model does better: {self.linear} against {self.together}; use that, "
            'or model = "auto", which has it among its choices'
        )
        return [*([line] if self.linear_wins else []), *filter(None, [self.ended.warning])]

    def document(self) -> dict[str, Any]:
        """For machines."""
        names, numbers = ("together", "alone", "home", "pooled", "linear"), self.numbers
        figures: dict[str, Figure | None] = {name: getattr(self, name) for name in names}
        worst = self.worst and {"site": self.worst[0], **self.worst[1].document(numbers)}
        return {
            "text": str(self), "measure": KEYS[numbers][0], "rows": self.rows, "of": self.how,
            **{name: one and one.document(numbers) for name, one in figures.items()},
            "worst": worst, "linear_wins": self.linear_wins, "certificate": self.ended.proven(),
            "sites": {name: one.document(numbers) for name, one in self.sites.items()},
            "notes": self.notes, "warnings": self.warnings,
        }  # fmt: skip
