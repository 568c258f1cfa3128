"""The declaration of the settings says what the code does, and all faces follow it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from coke.cli import audit, compare, network, options, run, theory
from coke.data.sources import PRECISIONS
from coke.data.split import SPLITS
from coke.data.units import SCALES
from coke.errors import ConfigError, InputError
from coke.learning.case import resolved
from coke.maths.algorithms import ALGORITHMS
from coke.maths.features.features import KERNELS, MAPPINGS, SAMPLINGS
from coke.maths.graph import GRAPHS
from coke.settings.declaration import KNOBS, LOOKING, Settings, SiteSettings
from coke.settings.knobs import Declared, Face, Scope
from coke.settings.reading import checked_settings, example, merged, wanted
from coke.settings.sites import checked_site, compared, read_site, shared

EVERY = pytest.mark.parametrize("one", KNOBS.values(), ids=list(KNOBS))
FACES = {
    Face.RUN: run,
    Face.COMPARE: compare,
    Face.AUDIT: audit,
    Face.THEORY: theory,
}
SITE: dict[str, Any] = {
    "data": {"file": "rows.csv", "target": "y"},
    "site": {"name": "a", "network": "n", "neighbours": {"b": ""}},
}


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("graph.kind", GRAPHS), ("features.kernel", [*KERNELS, "auto"]),
        ("features.mapping", MAPPINGS), ("features.sampling", SAMPLINGS),
        ("data.scale", SCALES), ("data.split", SPLITS), ("data.precision", PRECISIONS),
        ("algorithm", ALGORITHMS),
    ],
)  # fmt: skip
def test_the_choices_are_those_of_the_code(key: str, names: Iterable[str]) -> None:
    assert set(KNOBS[key].knob.choices) == set(names)


def test_defaults_are_within_their_own_bounds() -> None:
    assert checked_settings({}) == Settings()
    assert checked_settings(Settings().plain()) == Settings()


@EVERY
def test_every_setting_is_explained(one: Declared) -> None:
    assert one.knob.help.endswith(".")
    assert bool(one.knob.within) == bool(one.knob.expected)


def outside(one: Declared) -> Iterable[float]:
    """Numbers just not within the bounds of a setting, in its type."""
    low, high = map(float, one.knob.within[1:-1].split(","))
    step = 1 if "int" in str(one.kind) else 1e-13
    yield low - step if one.knob.within[0] == "[" else low
    if high < float("inf"):
        yield high if one.knob.within[-1] == ")" else high + step
    if "float" in str(one.kind):
        yield float("nan")


@EVERY
def test_a_value_out_of_bounds_is_refused_with_what_was_expected(one: Declared) -> None:
    if not one.knob.within or one.key.startswith("site."):
        return
    for number in outside(one):
        value: Any = [int(number)] * 2 if one.name in ("sizes", "size_range") else number
        value = [number] if one.name == "kernels" else value
        whole = one.kind in (int, int | None, int | str)
        value = int(value) if whole else value
        with pytest.raises(ConfigError) as error:
            checked_settings(merged({}, {one.key: value}))
        assert str(error.value).startswith(f"{one.name}=")
        assert str(error.value).endswith(one.knob.expected)


@EVERY
def test_a_word_that_is_no_choice_is_refused_with_the_nearest(one: Declared) -> None:
    if not one.knob.choices or one.key.startswith("site."):
        return
    name = next(iter(one.knob.choices))
    value: Any = [name + "x"] if one.kind == list[str] else name + "x"
    with pytest.raises(ConfigError, match="expected"):
        checked_settings(merged({}, {one.key: value}))


@EVERY
def test_a_misspelt_key_names_the_right_one(one: Declared) -> None:
    if len(one.name) > 2 and not one.key.startswith("site."):
        with pytest.raises(ConfigError, match=rf"unknown key .*Did you mean '{one.name}'"):
            checked_settings(merged({}, {one.key + one.name[-1]: 1}))


@pytest.mark.parametrize("face", FACES)
def test_a_command_has_an_option_for_every_setting_of_its_face(face: Face) -> None:
    """And shows its default."""
    command: Any = get_command(FACES[face].app)
    shown = {name: option for option in command.params for name in option.opts}
    for one in KNOBS.values():
        assert (f"--{one.option}" in shown) == (face in one.knob.faces), one.key
        if face in one.knob.faces and isinstance(one.default, str):
            assert f"[default: {one.default}]" in shown[f"--{one.option}"].help


def test_a_network_is_made_with_settings_too() -> None:
    command: Any = get_command(network.app)
    shown = {name for option in command.commands["init"].params for name in option.opts}
    assert {f"--{one.option}" for one in KNOBS.values() if Face.NETWORK in one.knob.faces} <= shown


def test_options_become_what_a_file_would_say(tmp_path: Path) -> None:
    found = {}

    @options.command(Face.RUN)
    def see(wanted: options.Wanted) -> None:
        found["settings"] = wanted()

    app = options.app()
    app.command()(see)
    line = "--lambda 0.5 --sigma 2 --drop a --drop b --fast --no-out-of-core --data rows.csv"
    more = "--target y --features 30 --linear auto"
    get_command(app)([*line.split(), *more.split()], standalone_mode=False)
    text = 'lambda = 0.5\nfast = true\n[data]\ndrop = ["a", "b"]\ntarget = "y"\n'
    text += f'file = "{Path("rows.csv").resolve()}"\n[features]\nsigma = 2.0\n'
    text += 'n_features = 30\nlinear = "auto"\n'
    (tmp_path / "same.toml").write_text(text)
    assert found["settings"] == wanted(tmp_path / "same.toml", {}, Face.RUN)


def test_a_resumed_run_changes_what_may_change(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(Settings(rho=0.5).plain()))
    free = [one.key for one in KNOBS.values() if one.knob.resume]
    assert free == ["rounds", "tol", "max_bytes", "max_transmissions"]
    found = wanted(None, dict.fromkeys(free, 7), Face.RUN, tmp_path)
    assert found == Settings(rho=0.5, rounds=7, tol=7, max_bytes=7, max_transmissions=7)
    for key in set(KNOBS) - set(free):
        with pytest.raises(ConfigError, match=f"with {key}: a resumed run keeps its own settings"):
            wanted(None, {key: 1}, Face.RUN, tmp_path)


def test_sites_compare_what_all_must_have_alike() -> None:
    """A site of its own: rows, folders, neighbours; all else must not differ."""
    one = checked_site(SITE)
    own = merged(SITE, {"data.test": 0.5, "data.file": "z.csv", "new_budget": False})
    own = merged(own, {"site.name": "c", "site.state": "s", "site.patience": "wait"})
    assert compared(checked_site(own)) == compared(one)
    for key, value in {"lambda": 1, "data.target": "z", "site.run": 2}.items():
        other = compared(checked_site(merged(SITE, {key: value})))
        assert [name for name in other if other[name] != compared(one)[name]] == [key]
    ranges = {"data.ranges": {"x": [0, 1]}, "data.scale": "public"}
    assert compared(checked_site(merged(SITE, ranges)))["data.ranges.x"] == "(0.0, 1.0)"


def test_a_network_shares_all_but_where_its_rows_come_from() -> None:
    plain = merged(example(), {"rho": 0.5, "data.test": 0.1, "beside": ["dkla"]})
    settings = checked_settings(plain)
    found = shared(settings)
    assert found["rho"] == 0.5
    given: dict[str, Any] = {
        "target": None,
        "levels": "plain",
        "test": 0.1,
        "scale": "minmax",
        "ranges": {},
    }
    assert found["data"] == given
    assert found["features"] == msgspec.to_builtins(settings.features)
    assert not {"graph", "beside"} & set(found)
    site = checked_site(merged(found, {"data.file": "f", "data.target": "y", "site": SITE["site"]}))
    assert site.rho == 0.5


def test_paths_in_a_sites_file_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        'whitening = "sample"\nsample = "public.csv"\n[data]\nfile = "rows.csv"\ntarget = "y"\n'
        '[site]\nname = "a"\nnetwork = "n"\nidentity = "/etc/coke"\n[site.neighbours]\nb = ""\n'
    )
    found = read_site(tmp_path / "site.toml")
    assert (found.data.file, found.sample) == (f"{tmp_path}/rows.csv", f"{tmp_path}/public.csv")
    assert (found.site.identity, found.site.state) == ("/etc/coke", f"{tmp_path}/state")
    assert found.site.releases == f"{tmp_path}/releases"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"site.neighbours": {}}, "no neighbours"),
        ({"site.name": "\x1b[2J"}, "no character to read"),
        ({"site.network": ""}, "expected 1 to 255 characters"),
        ({"data.file": None}, "name its rows"),
        ({"algorithm": "cta"}, "cannot run on agents: its messages are raw float64"),
        ({"beside": ["dkla"]}, "beside is for simulations"),
        ({"graph.kind": "ring"}, "graph.kind is for simulations"),
        ({"data.agents": 3}, "data.agents is for simulations"),
        ({"data.out_of_core": True, "whitening": "gram"}, "an agent reads its own rows at once"),
        ({"site.patience": "soon"}, 'expected seconds, "auto" or "wait"'),
        ({"site.patience": 0}, "expected seconds"),
        ({"site.max_sites": 0}, "at least 1"),
    ],
)
def test_what_a_site_cannot_say_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked_site(merged(SITE, changes))


def test_every_setting_that_reads_raw_rows_is_refused_with_its_reason() -> None:
    good: dict[str, Any] = {
        "privacy": "dp", "epsilon": 1.0, "whitening": "range", "features.sigma": 1.0,
        "data.scale": "public",
    }  # fmt: skip
    checked_settings(merged({}, good))
    wrong: list[tuple[str, Any, str]] = [
        ("loss", "logistic", "quadratic or least-squares loss"),
        ("loss", "hinge", "every round"),
        ("features.sigma", "auto", "looks at raw rows"),
        *(("whitening", name, "raw inputs are not noised") for name in LOOKING),
    ]
    for key, value, reason in wrong:
        with pytest.raises(ConfigError, match=reason):
            checked_settings(merged({}, {**good, key: value}))
    for scale in ("none", "standard", "minmax"):
        changes = {**good, "data.scale": scale, "whitening": "gram"}
        with pytest.raises(ConfigError, match="known beforehand"):
            checked_settings(merged({}, changes))


@pytest.mark.parametrize(
    ("face", "changes", "said"),
    [
        (Face.AUDIT, {"algorithm": "cta"}, "cannot be audited: the attacks are on what ADMM sends"),
        (Face.NETWORK, {"algorithm": "cta"}, "cannot run on agents"),
        (Face.COMPARE, {"privacy": "dp", "epsilon": 1.0, "whitening": "range",
                        "features.sigma": 1.0, "data.scale": "public"}, "looks at raw rows"),
    ],
)  # fmt: skip
def test_what_cannot_run_somewhere_is_refused_with_the_declared_reason(
    face: Face, changes: dict[str, Any], said: str
) -> None:
    assert wanted(None, changes, Face.RUN)
    with pytest.raises(ConfigError, match=said):
        wanted(None, changes, face)


@pytest.mark.parametrize("face", [Face.AUDIT, Face.THEORY])
def test_studies_of_statistics_refuse_losses_that_have_none(face: Face, tmp_path: Path) -> None:
    changes = {"loss": "hinge", "data.file": str(tmp_path / "rows.csv"), "data.target": "y"}
    assert wanted(None, changes, Face.RUN)
    with pytest.raises(ConfigError, match="quadratic or least-squares loss"):
        wanted(None, changes, face)


def test_scopes_tell_a_sites_own_from_what_is_common() -> None:
    site = [one for one in KNOBS.values() if Face.SITE in one.knob.faces]
    assert {one.key for one in site if one.knob.scope is Scope.RUN} == {
        "data.file", "data.drop", "data.missing", "data.on_disk", "data.separator", "data.decimal",
        "data.weight", "data.encoding", "data.header", "data.missing_values", "data.query",
    }  # fmt: skip
    assert SiteSettings.__struct_fields__[-1] == "site"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sums": False}, "sums over the tree are not allowed"),
        ({"loss": "hinge"}, "no gradient everywhere"),
        ({"lambda": 0.0, "loss": "quadratic"}, "without a regulariser"),
        ({"max_bytes": 10_000}, "a budget"),
        ({"guard": True}, "could lie about its sums"),
    ],
)
def test_what_forbids_sums_over_the_tree_forbids_them_by_name_too(
    changes: dict[str, Any], said: str
) -> None:
    """What "auto" takes coke for, and says so, is refused where the tree is asked for."""
    algorithm, why = resolved(checked_settings(changes))
    assert algorithm == "coke"
    assert said in why
    for named in ({"algorithm": "tree-newton"}, {"algorithm": "coke", "beside": ["tree-newton"]}):
        with pytest.raises(ConfigError, match=said):
            checked_settings(changes | named)
