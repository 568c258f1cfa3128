"""What sites agree on before training: the network, units, classes, and a common basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.units import columns_of, fit_scaling
from coke.errors import InputError
from coke.learning.agreement import Agreement
from coke.learning.basis import Own, common_basis
from coke.learning.terms import Terms
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.features.merging import Detail
from coke.maths.features.mixtures import Gaussian, expected_gram
from coke.maths.features.whitening import mixture_basis
from coke.maths.ledger import LETTERHEAD, Ledger
from coke.settings.reading import checked_settings
from coke.talk.conversation import Talk, together
from coke.talk.place import Place
from coke.talk.sums import add_grams, add_targets, describe_inputs, swept
from coke.talk.told import Told
from kit.problems import GRAPHS, placed

NAMES = tuple("abcdef")
RNG = np.random.default_rng(0)
SITES = [RNG.normal(0.5 * i, 1 + i, size=(40, 3)) for i in range(6)]


Net = dict[str, Place]


def all_sites(net: Net, talk: Callable[[Place, int], Talk[Any]]) -> tuple[list[Any], Ledger]:
    found, ledgers = together({name: talk(net[name], i) for i, name in enumerate(NAMES)})
    total = Ledger(*map(sum, zip(*ledgers.values(), strict=True)))
    return [found[name] for name in NAMES], total


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_descriptions_merge_to_the_pooled_moments(graph: nx.Graph) -> None:
    """One Gaussian each: mean and covariance of all rows together, up to the coding's 10 %."""
    net = placed(graph, NAMES)

    def talk(me: Place, i: int) -> Talk[Any]:
        own = [Gaussian.of(SITES[i]).truncated(5)]
        how = Detail(1e-3)
        return describe_inputs(partial(swept, me, []), own, columns_of(SITES[i][:, :1]), how)

    found, ledger = all_sites(net, talk)
    whole = Gaussian.of(np.concatenate(SITES))
    (one,) = found[0].mixture
    sd = np.sqrt(np.diag(whole.cov))
    assert (np.abs(one.mean - whole.mean) <= 0.2 * sd).all()
    assert_allclose(np.diag(one.cov), np.diag(whole.cov), rtol=0.25)
    assert_allclose(found[0].spread, np.concatenate(SITES)[:, 0].std(), rtol=1e-6)
    for other in found:
        assert_array_equal(other.mixture[0].cov, one.cov)
    assert ledger.transmissions == net["a"].shape.messages
    assert 12 < ledger.bytes / net["a"].shape.messages < 120
    copies = 2 * (len(net) - 1)  # on the wire: one up and one down every edge of the tree
    assert ledger.wire_bytes >= ledger.bytes + copies * LETTERHEAD


def test_gram_matrices_and_targets_add_up() -> None:
    net = placed(GRAPHS["random"], NAMES)
    grams = [X.T @ X for X in SITES]
    y = [columns_of(X[:, :1]) for X in SITES]
    found, _ = all_sites(net, lambda me, i: add_grams(partial(swept, me, []), grams[i], y[i]))
    spreads, ledger = all_sites(net, lambda me, i: add_targets(partial(swept, me, []), y[i]))
    for total, spread in found:
        assert_allclose(total, sum(grams), rtol=1e-5)
        assert_array_equal(total, found[0][0])
        assert spread == spreads[0]
    assert ledger.bytes == net["a"].shape.messages * 12


@pytest.mark.parametrize("whitening", ["mixture", "moments", "gram", "sample"])
@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
def test_every_site_has_the_same_basis_and_it_whitens(whitening: str, mapping: str) -> None:
    """The average Gram matrix in the basis is near the identity, to the bit the same everywhere."""
    net = placed(GRAPHS["ring"], NAMES)
    how = {"n_features": 15, "sigma": 2.0, "mapping": mapping}
    X = [RNG.normal(size=(400, 3)) for _ in range(6)]
    sample = RNG.normal(size=(500, 3)) if whitening == "sample" else None
    common = agreed(net, sample, whitening=whitening, features=how)
    f = common.features
    A = [f(Xi).T @ f(Xi) / len(Xi) for Xi in X]
    own = [Own(X[i], partial(A.__getitem__, i), columns_of(X[i][:, :1]), 1e-3) for i in range(6)]
    found, ledger = all_sites(
        net, lambda me, i: common_basis(partial(swept, me, []), common, own[i])
    )
    ridge = 1e-3 * np.eye(len(A[0]))
    inner, _ = found[0].whitening.statistics(np.mean(A, axis=0) + ridge, np.zeros(len(A[0])))
    values = np.linalg.eigvalsh(inner)
    assert 0.4 < values[0] < values[-1] < 2.5
    for other in found:
        assert_array_equal(other.whitening.C, found[0].whitening.C)
    assert ledger.transmissions == net["a"].shape.messages
    if whitening == "sample":
        assert ledger.bytes == net["a"].shape.messages * 12  # nothing about the inputs


def agreed(net: Net, sample: Any, **wanted: Any) -> Agreement:
    """What sites know of each other where units are given."""
    given = {"model": "plain", "data": {"scale": "none"}, **wanted}
    given["sample"] = None if sample is None else "given"
    nothing = Told(columns_of(np.empty((1, 0))))
    terms = Terms(checked_settings(given), ("a", "b", "c"), sample)
    units = fit_scaling("none", 3, nothing.columns)
    return Agreement(terms, net["a"].shape, units, nothing)


def test_a_basis_that_lacks_its_sample_is_refused() -> None:
    net = placed(GRAPHS["ring"], NAMES)
    features = {"n_features": 4, "sigma": 1.0}
    common = agreed(net, RNG.normal(size=(5, 3)), whitening="sample", features=features)
    common = replace(common, terms=common.terms._replace(sample=None))
    own = Own(SITES[0], partial(np.eye, 8), columns_of(SITES[0][:, :1]), 1e-3)
    with pytest.raises(InputError, match="public inputs"):
        next(common_basis(partial(swept, net["a"], []), common, own))


def test_a_basis_is_made_once_for_what_was_said_and_anew_for_anything_else() -> None:
    """Of E φφᵀ + ridge I for each mixture and ridge, however many were asked for before."""
    features = draw_features(FeatureSettings(4), 3)
    narrow, wide = (Gaussian(1.0, np.zeros(3), scale * np.eye(3)) for scale in (0.1, 1.0))
    for parts, ridge in (([narrow], 1e-3), ([wide], 1e-3), ([narrow, wide], 1e-3), ([wide], 1e-2)):
        P = expected_gram(features, parts) + ridge * np.eye(8)
        found = mixture_basis(features, parts, ridge)
        assert_array_equal(found.C, np.linalg.cholesky(P))
        assert mixture_basis(features, list(parts), ridge) is found


def test_a_broadcast_is_one_transmission_and_a_copy_each_on_the_wire() -> None:
    assert Ledger().sent([b"xyz", b"xyz"], broadcast=True) == (1, 3, 2 * (3 + LETTERHEAD))
    assert Ledger().sent([b"xyz", b"xyz"], broadcast=False) == (2, 6, 2 * (3 + LETTERHEAD))
    assert Ledger().sent([b""], broadcast=True) == (0, 0, LETTERHEAD)
