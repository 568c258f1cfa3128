"""The estimators' signatures are written out; here they are held against the declaration."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

import coke
from coke.maths.algorithms import ALGORITHMS
from coke.maths.losses import LOSSES
from coke.settings.declaration import KNOBS, PLAIN
from coke.settings.groups import CHOSEN
from coke.settings.knobs import Face

PARAMETERS = {  # of an estimator ↦ the setting
    "n_agents": "data.agents", "graph": "graph.kind", "edges": "graph.edges",
    "algorithm": "algorithm", "loss": "loss", "model": "model", "lam": "lambda",
    "scale": "data.scale", "ranges": "data.ranges", "random_state": "seed",
}  # fmt: skip
GROUPED: dict[Any, list[str]] = {
    coke.Features: [key for key in KNOBS if key.startswith("features.")],
    coke.Until: ["rounds", "accuracy", "tol", "max_bytes", "max_transmissions"],
    coke.DP: ["epsilon", "delta", "secure_sum", "colluding", "new_budget", "classes"],
    coke.Auto: ["whitening", "sample", "sums", "memory", "links"],
    coke.TreeNewton: ["whitening", "sample", "links"],
    coke.Coke: ["whitening", "sample", "sums", "memory"],
    **{kind: list(ALGORITHMS[x].uses) for x, kind in CHOSEN.items() if not ALGORITHMS[x].basis},
}
OTHERWISE = {  # what estimators say in another way, and why
    (coke.DP, "releases"),  # a run has its folder for them
    (coke.DP, "epsilon"),  # is given with privacy
    (coke.DP, "classes"),  # an array will do
    *((kind, "sample") for kind in (coke.Auto, coke.TreeNewton, coke.Coke)),  # an array, no file
}


@pytest.mark.parametrize("kind", GROUPED, ids=[kind.__name__ for kind in GROUPED])
def test_a_groups_fields_are_the_declared_settings(kind: Any) -> None:
    """Names, defaults and types."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    own = [name for name in fields if (kind, name) != (coke.DP, "releases")]
    assert own == [KNOBS[key].name for key in GROUPED[kind]]
    for key in GROUPED[kind]:
        one = KNOBS[key]
        if (kind, one.name) not in OTHERWISE:
            field = fields[one.name]
            hint = field.type if get_origin(field.type) is None else get_args(field.type)[0]
            assert field.default == one.default, key
            assert one.kind in (hint, field.type), key
    assert kind.__doc__


def test_every_algorithm_has_its_group() -> None:
    assert CHOSEN.keys() == ALGORITHMS.keys()
    basis = [name for name, entry in ALGORITHMS.items() if entry.basis]
    assert basis == ["auto", "tree-newton", "coke"]


@pytest.mark.parametrize("kind", [coke.COKERegressor, coke.COKEClassifier])
def test_an_estimators_parameters_are_the_declared_settings(kind: Any) -> None:
    signature = inspect.signature(kind.__init__).parameters
    assert list(signature)[1:] == [
        "n_agents", "graph", "edges", "algorithm", "loss", "model", "features", "lam", "scale",
        "ranges", "limits", "privacy", "engine", "random_state", "verbose",
        *(["class_weight"] if kind is coke.COKEClassifier else []),
    ]  # fmt: skip
    assert len(signature) - 1 <= 16
    hints = get_type_hints(kind.__init__)
    for name, key in PARAMETERS.items():
        one, default = KNOBS[key], signature[name].default
        if name == "loss":
            assert default == "auto"
        else:
            assert default == one.default or (default, one.default) == (None, {}), name
        if name not in ("graph", "algorithm", "ranges"):  # which may also be objects
            assert hints[name] == one.kind, name


def test_all_that_estimators_can_be_told_is_a_parameter_or_in_a_group() -> None:
    there = {
        *PARAMETERS.values(),
        "privacy",
        "class_weight",
        *(key for keys in GROUPED.values() for key in keys),
    }
    assert there == {key for key, one in KNOBS.items() if Face.ESTIMATORS in one.knob.faces}


def test_the_transformer_has_the_features_settings() -> None:
    """Of the plain model, but for σ, which no rows can tell it; nothing is chosen."""
    signature = inspect.signature(coke.RandomFeatures).parameters
    fields = {field.name: field.default for field in msgspec.structs.fields(coke.Features)}
    choosing = {"kernels", "frequencies", "inputs", "linear", "weigh"}
    assert list(signature) == [*(name for name in fields if name not in choosing), "random_state"]
    for name, default in (fields | PLAIN).items():
        assert name in {"sigma", *choosing} or signature[name].default == default


def test_losses_are_dealt_out_by_kind() -> None:
    kinds = {"numbers": coke.COKERegressor, "classes": coke.COKEClassifier}
    assert {loss.kind for loss in LOSSES.values()} == set(kinds)
    X, y = [[0.0], [1.0], [2.0], [3.0]] * 3, [0, 1, 0, 1] * 3
    for name, loss in LOSSES.items():
        kind: Any = kinds[loss.kind]
        limits, features = coke.Until(rounds=3), coke.Features(n_features=3)
        fitted = kind(n_agents=2, loss=name, limits=limits, features=features).fit(X, y)
        assert hasattr(fitted, "predict_proba") == loss.probabilities
