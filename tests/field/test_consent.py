"""An agent starts only with settings that its owner has confirmed, if he asks for that."""

from __future__ import annotations

import pytest

from coke.errors import ConfigError
from coke.settings.sites import WARNED_DAYS, digest_of, expiry_warning
from kit.agents import A, B, Nets


def test_settings_are_refused_until_their_digest_is_approved(nets: Nets) -> None:
    """The refusal names digest, settings and neighbours; then any change is refused again."""
    net = nets()
    digest = digest_of(net.mission(A).settings)
    net.table[A] = {"approve": "?"}
    with pytest.raises(ConfigError) as refused:
        net.mission(A)
    said = str(refused.value)
    assert f'approve = "{digest}"' in said
    assert "lambda = 0.001" in said
    assert all(name in said for name in net.friends[A])
    net.table[A] = {"approve": digest}
    net.mission(A)
    net.settings["lambda"] = 2e-3
    with pytest.raises(ConfigError, match="have digest"):
        net.mission(A)


def test_all_sites_have_one_digest(nets: Nets) -> None:
    net = nets()
    net.table[A] = {"patience": "wait"}  # a site's own affair
    assert digest_of(net.mission(A).settings) == digest_of(net.mission(B).settings)


@pytest.mark.parametrize(
    ("days", "said"), [(None, False), (WARNED_DAYS, False), (29.9, True), (0.0, True), (-3.0, True)]
)
def test_an_identity_is_warned_of_from_thirty_days_on(days: float | None, said: bool) -> None:
    assert bool(expiry_warning("a", None if days is None else days * 86400.0)) is said
