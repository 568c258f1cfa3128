"""What the judge of a choice makes of errors and of how sure they are."""

from __future__ import annotations

import numpy as np
import pytest

from coke.learning.choice import LINEAR, PLAIN, TUNED, Candidate, Choice, linear
from coke.learning.judging import _Verdict, _won

MODELS = {name: linear(2, 0.1)._replace(name=name) for name in (LINEAR, PLAIN, TUNED)}


def won(errors: dict[str, float], sure: float) -> Choice:
    """Of models with these errors, whose differences are known to so much."""
    models: list[Candidate] = [MODELS[name] for name in errors]
    choice = Choice(models[-1], np.ones(2), {}, {}, 0.0, apart=False, noise=0.1)
    deviations = np.full((len(models), len(models)), sure)
    return _won(choice, models, _Verdict(np.array(list(errors.values())), deviations), 1.0)


@pytest.mark.parametrize(
    ("errors", "best", "lead"),
    [
        ({LINEAR: 0.5, PLAIN: 0.4, TUNED: 0.35}, PLAIN, -0.5),
        ({LINEAR: 0.5, PLAIN: 0.5, TUNED: 0.35}, TUNED, 1.5),
        ({LINEAR: 0.3, PLAIN: 0.35, TUNED: 0.32}, PLAIN, -0.5),
        ({LINEAR: 0.3, PLAIN: 0.45, TUNED: 0.32}, LINEAR, 0.2),
        ({LINEAR: 0.5, PLAIN: 0.2, TUNED: 0.35}, PLAIN, 1.5),
        ({LINEAR: 0.36, TUNED: 0.35}, LINEAR, -0.1),
    ],
)
def test_the_least_error_wins_and_in_doubt_plain_then_a_line_then_tuned(
    errors: dict[str, float], best: str, lead: float
) -> None:
    """Doubt is a standard error; the lead is over the next, and below zero where it decided."""
    choice = won(errors, 0.1)
    assert choice.best.name == best
    assert choice.judged == errors
    assert choice.lead == pytest.approx(lead)
    assert ("within a standard error" in choice.words(("a", "b"))[-1]) == (lead < 0)
