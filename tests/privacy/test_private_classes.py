"""Classes with privacy: the sensitivity of codes, what is public, and what it costs."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal
from scipy.special import log_softmax
from test_attacks import off, said

from coke import DP, Agents, Coke, COKEClassifier, Features
from coke.errors import ConfigError, DataError
from coke.learning import ready as learning
from coke.learning.closing import closed
from coke.maths.algorithms.coke import COKE, Geometric
from coke.maths.losses.codes import code_size, coded, corners, explained
from coke.maths.losses.problem import Problem, Quadratic
from coke.privacy import private
from coke.privacy.attacks import Known, full_view, reconstruct
from coke.privacy.auditing import audited, worst_pair
from coke.privacy.noise import Budget, calibrated, sensitivity
from coke.privacy.release import Conditions, Release, private_statistics
from coke.privacy.secure_sum import secure_sum
from coke.privacy.share import Share
from coke.settings.reading import checked_settings
from coke.talk.conversation import together
from coke.talk.sums import swept
from kit.clouds import RANGES, ROWS, SITES, clouds
from kit.problems import Array, placed
from kit.ready import held, ready
from kit.releases import DELTA, features_of

rng = np.random.default_rng(0)
Y = np.array(["no", "yes", "perhaps"])[rng.integers(3, size=1200)]
X = rng.uniform(-1, 1, size=(1200, 2)) * 0.4 + 0.5 * coded(Y, np.unique(Y))
CLASSES = ["no", "yes", "perhaps"]
SETTINGS: dict[str, Any] = {
    "loss": "least-squares", "privacy": "dp", "epsilon": 3.0, "whitening": "range",
    "classes": CLASSES, "features": {"n_features": 15, "sigma": 1.0},
    "data": {"scale": "public", "ranges": {"x0": [-1, 1], "x1": [-1, 1]}, "target": "y",
             "file": "-"},
}  # fmt: skip
GOOD: dict[str, Any] = {
    "privacy": DP(epsilon=3.0, classes=CLASSES), "scale": "public", "n_agents": 3,
    "ranges": {"x0": (-1, 1), "x1": (-1, 1)}, "features": Features(15, sigma=1.0),
    "algorithm": Coke(whitening="range"),
}  # fmt: skip


def moved(phi: Array, z: Array) -> Array:
    """‖(φφᵀ − φ'φ'ᵀ, zφᵀ − z'φ'ᵀ)‖ of pairs of rows (n, 2, D), (n, 2, K − 1)."""
    A = np.einsum("npi,npj->npij", phi, phi)
    B = np.einsum("npi,npj->npij", z, phi)
    apart = ((part[:, 0] - part[:, 1]) ** 2 for part in (A, B))
    return np.asarray(np.sqrt(sum(part.sum(axis=(1, 2)) for part in apart)))


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("B", [1.0, math.sqrt(2)])
def test_sensitivity_of_codes_is_exact(K: int, B: float) -> None:
    """Δ = √2 (B² + (1 − 1/K)/2): over all angles reached, and by no shorter φ passed."""
    angle, V = np.linspace(0, np.pi, 1441), corners(K)
    phi = B * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pairs = np.stack([np.broadcast_to([B, 0.0], phi.shape), phi], axis=1)
    found = {
        same: moved(pairs, np.broadcast_to(V[[0, 0 if same else 1]], (1441, 2, K - 1))).max()
        for same in (True, False)
    }
    delta = sensitivity(B, code_size(K))
    assert delta == pytest.approx(math.sqrt(2) * (B**2 + (1 - 1 / K) / 2), abs=1e-12)
    assert max(found.values()) == pytest.approx(delta, rel=1e-5)
    assert found[True] >= found[False] - 1e-5  # one class, unlike inputs: the worst
    draw = np.random.default_rng(1)
    shorter = draw.normal(size=(20_000, 2, 3))
    shorter *= B * draw.uniform(size=(20_000, 2, 1)) / np.linalg.norm(shorter, axis=2)[..., None]
    assert moved(shorter, V[draw.integers(K, size=(20_000, 2))]).max() <= delta


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_an_audit_of_codes_finds_no_more_than_epsilon(epsilon: float) -> None:
    """On the worst pair, two rows of one class; and it finds half the noise out."""
    V, draw = corners(4), np.random.default_rng(0)
    noise = calibrated(Budget(epsilon, DELTA), 1.0, code_size(4), 2, 3)
    found = partial(audited, delta=DELTA, normals=draw.standard_normal, n=100_000)
    assert 0.4 * epsilon < found(noise, worlds=worst_pair(V[0], V[0])) <= epsilon
    assert found(noise, worlds=worst_pair(V[0], V[1])) <= epsilon
    half = noise._replace(s=noise.s / 2)
    assert found(half, worlds=worst_pair(V[0], V[0])) > epsilon


def test_other_labels_or_classes_need_a_new_budget(tmp_path: Path) -> None:
    """One row's label, one class more: refused; the release has K − 1 rows b, end to end."""
    features, x = features_of(), np.random.default_rng(0).normal(size=(90, 5))
    y = np.repeat(["a", "b", "c"], 30)

    def release(y: Any, classes: str) -> Release:
        K = len(classes)
        terms = Conditions(features, code_size(K), Budget(1.0, DELTA), K - 1)
        return private_statistics(tmp_path / "r", terms, x, coded(y, list(classes)))

    first = release(y, "abc")
    assert first.found.b.shape == (2 * features.size,)
    assert release(y, "abc").found.b.tobytes() == first.found.b.tobytes()
    for labels, classes in ((np.roll(y, 1), "abc"), (y, "abcd")):
        with pytest.raises(DataError, match="epsilon=1 was spent"):
            release(labels, classes)
    narrow = Conditions(features, code_size(3), Budget(1.0, DELTA))
    with pytest.raises(DataError, match="expected 1 numbers each"):
        narrow.exact(x, coded(y, list("abc")))


def task(folder: Path, y: Any = Y, **changes: Any) -> Any:
    from coke.data.tables import Rows

    rows = Rows(X, y, None, ("x0", "x1"))
    sites = held(rows, {i: np.arange(i, len(y), 4) for i in range(4)}, test=0.3)
    wanted = {**SETTINGS, **changes}
    return ready(sites, nx.cycle_graph(4), columns=rows.columns, releases=folder, **wanted)


def test_all_that_is_said_depends_on_the_release_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other labels, the same (Ã, b̃): the same messages, and the same sharpness at the end."""
    kept = dict[str, Release]()

    def once(path: Path, *args: Any, **given: Any) -> Release:
        return kept.setdefault(path.name, private_statistics(path, *args, **given))

    monkeypatch.setattr(private, "private_statistics", once)
    worlds = [task(tmp_path / name, y) for name, y in (("a", Y), ("b", np.roll(Y, 1)))]
    assert worlds[0].rows is worlds[1].rows is None
    assert not np.array_equal(worlds[0].noised.alone, worlds[1].noised.alone)
    heard, sharp = [], []
    for own in worlds:
        case = own.case("coke")
        hats, spoke = said(case.problem, own.graph, case.algorithm, 40)
        heard.append((hats.tobytes(), spoke.tobytes(), own.spent.tobytes()))
        sharp.append(closed(own, case, case.theta(hats[-1]))[0])
    assert heard[0] == heard[1]
    assert sharp[0] == sharp[1]
    assert sharp[0].sharpness is not None


def test_nobody_tells_shares_of_classes(tmp_path: Path) -> None:
    """The centre is 1/K each, and the agreement has the flood and Σ 1/T² alone."""
    numbers = {**SETTINGS["data"], "ranges": {**SETTINGS["data"]["ranges"], "y": [0, 1]}}
    as_numbers = task(
        tmp_path / "n", (Y == "no").astype(float), loss="quadratic", classes=[], data=numbers
    )
    own = task(tmp_path)
    assert_array_equal(own.agreement.units.y_shift, np.zeros(2))
    assert_array_equal(own.spent, as_numbers.spent)
    assert own.agreement.classes.tolist() == ["no", "perhaps", "yes"]
    assert own.agreement.spread == pytest.approx(math.sqrt(2 / 3))


def test_a_label_that_is_not_public_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("something was sent")

    monkeypatch.setattr(learning, "waves", refuse)
    with pytest.raises(DataError, match=r"site \d has rows of class 'perhaps'"):
        task(tmp_path, classes=["no", "yes"])
    with pytest.raises(DataError, match="list it at all sites"):
        task(tmp_path, classes=[0, 1, 2])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": []}, "which ones a site has is about its rows"),
        ({"classes": ["no"]}, "at least two"),
        ({"classes": ["no", "no"]}, "each once"),
        ({"classes": ["no", 1]}, "of one kind"),
        ({"loss": "quadratic"}, "is of numbers"),
        ({"loss": "softmax"}, "only the quadratic or least-squares loss"),
        ({"privacy": "none", "epsilon": None}, "classes without privacy"),
    ],
)
def test_settings_without_public_classes_are_refused(changes: Any, said: str) -> None:
    checked_settings(SETTINGS)
    with pytest.raises(ConfigError, match=said):
        checked_settings({**SETTINGS, **changes})


def test_the_classifier_serves_with_its_own_loss(tmp_path: Path) -> None:
    """Labels, probabilities, the sites' own models; a second fit spends nothing."""
    how = GOOD | {"privacy": DP(3.0, classes=np.unique(Y), releases=tmp_path)}
    est = COKEClassifier(**how).fit(X, Y)
    assert est.classes_.tolist() == ["no", "perhaps", "yes"]
    assert est.score(X, Y) > 0.8
    assert est.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert est.alone_ is not None
    assert est.alone_.shape == est.thetas_.shape == (3, 60)
    assert est.budget_ == (3.0, 1e-5)
    assert_array_equal(COKEClassifier(**how).fit(X, Y).thetas_, est.thetas_)
    with pytest.raises(DataError, match="allow a new budget"):
        COKEClassifier(**how).fit(X, np.roll(Y, 1))


def test_the_commands_learn_classes_privately_and_attack_plain_ones(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """`coke run` shows accuracy, for the owner; labels that are numbers come as options, too.

    `coke audit` of plain least squares: whoever hears a leaf's only neighbour has the Gram matrix.
    """
    from coke.cli.main import main

    number = np.searchsorted(np.unique(Y), Y)
    table = pa.table({"x0": X[:, 0], "x1": X[:, 1], "y": number})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    common = ["--data", "rows.parquet", "--target", "y", "--loss", "least-squares", "--agents", "4",
              "--features", "8", "--sigma", "1", "--json"]  # fmt: skip
    private = ["--privacy", "dp", "--epsilon", "3", "--whitening", "range", "--scale", "public",
               "--ranges", "x0 = [-1, 1]", "--ranges", "x1 = [-1, 1]",
               "--classes", "0", "--classes", "1", "--classes", "2"]  # fmt: skip
    plain = ["--model", "plain", "--graph", "star", "--algorithm", "coke-paper", "--mu", "0.98"]
    found = []
    for arguments in (["run", *private], ["audit", "--no-probes", *plain]):
        monkeypatch.setattr("sys.argv", ["coke", *arguments, *common])
        with pytest.raises(SystemExit) as stop:
            main()
        found.append(json.loads(capsys.readouterr().out))
        assert stop.value.code == 0, found[-1]
    assert found[0]["test_accuracy"] > 0.7
    assert found[0]["epsilon_spent"] == 3.0
    assert found[1]["findings"][0]["value"] < 1e-6
    assert {one["measure"] for one in found[1]["findings"]} >= {"ranked right (AUC)"}


@pytest.mark.parametrize("secure", [False, True])
def test_agents_learn_classes_privately(secure: bool) -> None:
    """One thread a site: all come to one model, with a sharpness that they added up."""
    how = GOOD | {"privacy": DP(10.0, classes=CLASSES, secure_sum=secure)}
    est = COKEClassifier(**how, engine=Agents(carrier="memory")).fit(X, Y)
    assert est.score(X, Y) > 0.8
    assert est.model_.closed.sharpness is not None
    assert np.abs(est.thetas_ - est.thetas_[0]).max() < 0.1


def test_a_secure_sum_of_codes_is_their_mean(tmp_path: Path) -> None:
    """(1/N) Σ_i (A_i, B_i) and the noise of one site, in D(D + 1)/2 + (K − 1)D words."""
    names, features, K = "abc", features_of(), 4
    terms = Conditions(features, code_size(K), Budget(3.0, DELTA), K - 1)
    draw, parts = np.random.default_rng(0), {}
    for name in names:
        parts[name] = draw.normal(size=(500, 5)), corners(K)[draw.integers(K, size=500)]
    places = placed(nx.complete_graph(3), names)
    talks = {}
    for name in names:
        share = Share(tmp_path / name, name, terms, parts[name], 1, again=False)
        talks[name] = secure_sum(partial(swept, places[name], []), 3, share)
    found, ledgers = together(talks)
    exact = [terms.exact(*parts[name]) for name in names]
    release = found["a"][0]
    noise = release.s / (3 * 500)
    assert np.abs(release.found.b - np.mean([e.b for e in exact], axis=0)).max() < 5 * noise
    assert_array_equal(release.found.b, found["c"][0].found.b)
    assert max(ledger.bytes for ledger in ledgers.values()) >= 8 * terms.draws
    assert terms.draws == features.size * (features.size + 1) // 2 + 3 * features.size


def test_messages_of_several_outputs_give_the_statistics_away() -> None:
    """Plain mode: K equations a message, so (D + K)/K messages determine A_i and all b_i."""
    features, K, draw = features_of(), 6, np.random.default_rng(0)
    sites = [(draw.normal(size=(300, 5)), corners(K)[draw.integers(K, size=300)]) for _ in "abcd"]
    inputs, codes = zip(*sites, strict=True)
    risk = Quadratic.from_rows(features, inputs, codes, 1e-3 / 4)
    graph = nx.cycle_graph(4)
    hats, spoke = said(Problem(risk), graph, COKE(0.01, Geometric(1.0, 0.98)), 150)
    found = reconstruct(full_view(hats, spoke, graph, 0), Known(1e-3 / 4, 0.01, 2), outputs=K - 1)
    assert off(found.A, risk.A[0]) < 1e-6
    assert off(found.b, risk.b[0]) < 1e-6


def test_explained_is_between_a_line_and_gaussian_classes() -> None:
    """Kc ≤ s ≤ Kc/(1 − R²); of twice as large predictions half; K where f says nothing."""
    for vf, ff in ((0.3, 0.2), (0.5, 0.4), (1e-3, 1e-2)):
        c, share = vf / ff, vf**2 / (0.9 * ff)
        found = explained(vf, ff, 10, total=False)
        assert explained(vf, ff, 10, total=True) == pytest.approx(10 * c)
        assert 10 * c <= found <= 10 * c / (1 - share)
        assert explained(2 * vf, 4 * ff, 10, total=False) == pytest.approx(found / 2)
    for vf in (0.0, -0.1):
        assert explained(vf, 0.1, 7, total=False) == 7.0


def test_privacy_costs_a_classifier_little_where_classes_are_apart() -> None:
    """Ten sites of 1000 rows, ten classes, L = 100, ε = 3: at most .05 of the accuracy.

    And the sharpness from noised statistics is better than the one that nothing is known of.
    """
    draw = np.random.default_rng(0)
    x, y = clouds(draw, SITES * ROWS)
    test, labels = clouds(draw, 3000)
    how: dict[str, Any] = GOOD | {
        "n_agents": SITES, "ranges": RANGES, "features": Features(100, sigma=1.5),
    }  # fmt: skip
    plain = COKEClassifier(**how | {"privacy": None}).fit(x, y)
    noised = COKEClassifier(**how | {"privacy": DP(3.0, classes=list(range(10)))}).fit(x, y)
    assert noised.score(test, labels) >= plain.score(test, labels) - 0.05
    scores, s = noised.decision_function(test), noised.model_.closed.sharpness or math.nan
    log_loss = [-log_softmax(t * scores, axis=1)[np.arange(3000), labels].mean() for t in (s, 10)]
    assert log_loss[0] < log_loss[1]
