"""`verbose`: a fit says how far it has come, on stderr and only where it is asked to."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke import COKEClassifier, COKERegressor
from coke.engines.history import History
from coke.report import progress

rng = np.random.default_rng(5)
X = rng.normal(size=(120, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1]
KINDS: Any = {COKERegressor: y, COKEClassifier: np.where(y > 0, "high", "low")}
PLAIN: Any = {"n_agents": 3, "model": "plain"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_says_nothing_unless_asked_to(kind: Any, capfd: Any, monkeypatch: Any) -> None:
    """And says it on stderr, round by round, with the same bits."""
    monkeypatch.setattr(progress, "_EVERY", 0.0)  # seconds between two lines
    silent = kind(**PLAIN).fit(X, KINDS[kind])
    assert capfd.readouterr() == ("", "")
    told = kind(**PLAIN, verbose=True).fit(X, KINDS[kind])
    out, err = capfd.readouterr()
    assert out == ""
    assert "× what may be left" in err
    assert "rows/s" in err
    assert_array_equal(silent.thetas_, told.thetas_)


def test_ctrl_c_is_the_callers(monkeypatch: Any) -> None:
    """As without a bar: no half-trained model comes back as if all were well."""
    append = History.append

    def interrupted(self: History, record: Any) -> None:
        append(self, record)
        if record.k == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(History, "append", interrupted)
    for verbose in (False, True):
        with pytest.raises(KeyboardInterrupt):
            COKERegressor(**PLAIN, verbose=verbose).fit(X, y)
