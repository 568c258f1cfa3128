"""How a fitted estimator shows itself: its parameters, and the verdict on what it learnt."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_html_repr

from coke.learning.verdict import Ended, Verdict
from coke.report.verdict import verdict_html


class Showing(BaseEstimator):
    """With `verdict_` in its text and its page."""

    verdict_: Verdict | None

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that differ from the defaults; once fitted, the verdict below."""
        told = getattr(self, "verdict_", None)
        return super().__repr__(N_CHAR_MAX) + ("" if told is None else f"\n{told}")

    def _repr_html_inner(self) -> str:
        told = getattr(self, "verdict_", None)
        return str(estimator_html_repr(self)) + (
            "" if told is None else verdict_html(told.document())
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """For notebooks."""
        output: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in output:
            output["text/html"] = self._repr_html_inner()
        return output

    def _ended(self, ended: Ended) -> None:
        """Warns where the agents have not settled; the caller of `fit` is three calls away."""
        self.n_iter_, self.converged_ = ended.rounds, ended.settled is True
        if ended.warning:
            warnings.warn(ended.warning, ConvergenceWarning, stacklevel=5)
