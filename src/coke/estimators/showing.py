"""How an estimator shows itself: its progress, its parameters, the verdict on what it learnt."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from coke.learning.ready import Ready
from coke.learning.train import Effects
from coke.learning.verdict import Ended, Verdict
from coke.maths.losses.excess import Certificate
from coke.report.verdict import verdict_html


class Showing(BaseEstimator):
    """With `verdict_` in its text and its page."""

    verbose: bool
    certificate_: Certificate | None
    _judge: Callable[[], Verdict | None] | None
    _verdict: Verdict | None

    @property
    def verdict_(self) -> Verdict | None:
        """Found when somebody first looks; until then the sites' rows are kept."""
        check_is_fitted(self)
        if self._judge is not None:
            self._verdict, self._judge = self._judge(), None
        return self._verdict

    def __getstate__(self) -> Any:
        """With the verdict in place of the rows."""
        getattr(self, "verdict_", None)
        return super().__getstate__()

    def _agreeing(self) -> AbstractContextManager[Any]:
        """While the sites agree on units, a model and a basis."""
        if not self.verbose:
            return nullcontext()
        return _console().status("the sites agree on units and a model")

    @contextmanager
    def _training(self, ready: Ready) -> Iterator[Effects | None]:
        """While they train."""
        if not self.verbose:
            yield None
            return
        from coke.report.progress import training  # here: most never look

        with training(ready, _console()) as watch:
            yield Effects(watch=watch, handled=False)

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
        proven = self.certificate_ = ended.certificate
        settled = ended.settled is True if proven is None else proven.holds
        self.n_iter_, self.converged_ = ended.rounds, settled
        if ended.warning:
            warnings.warn(ended.warning, ConvergenceWarning, stacklevel=5)


def _console() -> Any:
    from rich.console import Console  # here: most never look

    return Console(stderr=True)
