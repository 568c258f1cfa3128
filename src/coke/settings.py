"""Configuration: a TOML file and command-line options, typed, with every key checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coke.data.passes import PRECISIONS
from coke.data.scaling import SCALES
from coke.data.site import SPLITS
from coke.errors import ConfigError, FileError, nearest, unknown
from coke.maths import compiled
from coke.maths.algorithms import ALGORITHMS
from coke.maths.features.features import FeatureSettings
from coke.maths.graph import GRAPHS
from coke.maths.losses import LOSSES
from coke.privacy.noise import Budget
from coke.privacy.release import check_private

Settings = dict[str, Any]
MISSING = ("refuse", "drop")
WHITENINGS = ("mixture", "moments", "gram", "sample", "range")
LIMITS = ("tol", "max_bytes", "max_transmissions")
LOOKING = ("mixture", "moments")  # whitenings for which a site looks at its inputs
PUBLIC = "public"  # units known before any row
AUTO = "auto"  # σ from the spread of the inputs
TOL = 1e-3  # of the target's spread, by which nothing moves any more when `coke` stops


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the rows come from, and who holds them."""

    file: str | None = None
    target: str | None = None
    site: str | None = None
    drop: list[str] = []
    missing: str = "refuse"
    split: str | None = None
    sizes: list[int] | None = None
    size_range: tuple[int, int] | None = None
    agents: int = 10
    test: float = 0.3
    scale: str = "standard"
    ranges: dict[str, tuple[float, float]] = {}
    stream: bool = False
    precision: str = "auto"
    on_disk: str | None = None


class FeatureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The random features."""

    n_features: int = 100
    kernel: str = "gaussian"
    sigma: float | str = "auto"
    mapping: str = "cos-sin"
    sampling: str = "iid"


class GraphConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network."""

    kind: str = "random"
    edges: int | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run. `resources/synthetic.toml` explains every key."""

    algorithm: str = "coke"
    beside: list[str] = []
    loss: str = "quadratic"
    lam: float = msgspec.field(name="lambda", default=1e-3)
    rho: float = 1e-2
    v: float = 1.0
    mu: float = 0.95
    eta: float = 0.99
    rounds: int = 1000
    tol: float | None = None
    max_bytes: int | None = None
    max_transmissions: int | None = None
    whitening: str = "mixture"
    sample: str | None = None
    privacy: str = "none"
    epsilon: float | None = None
    delta: float = 1e-5
    secure_sum: bool = False
    colluding: int = 1
    new_budget: bool = False
    fast: bool = False
    seed: int = 0
    data: DataConfig = DataConfig()
    features: FeatureConfig = FeatureConfig()
    graph: GraphConfig = GraphConfig()

    def algorithms(self) -> list[str]:
        """The algorithm and those beside it."""
        return list(dict.fromkeys([self.algorithm, *self.beside]))

    def tolerance(self, name: str) -> float | None:
        """In units of the target's spread; the paper's methods run all rounds unless told."""
        return TOL if self.tol is None and name == "coke" else self.tol

    def shared(self) -> Settings:
        """What the files of all sites of a network have in common."""
        plain, apart = self.settings(), ("beside", "graph")
        kept = {key: value for key, value in plain.items() if key not in apart}
        kept["data"] = {key: plain["data"][key] for key in ("test", "scale", "ranges")}
        return kept

    def settings(self) -> Settings:
        """Plain dictionaries that `from_settings` takes back."""
        plain: Settings = msgspec.to_builtins(self)
        return plain


C = TypeVar("C", bound=Config)


def default_settings() -> Settings:
    """The paper's synthetic problem."""
    text = resources.files("coke").joinpath("resources/synthetic.toml").read_text("utf-8")
    return tomllib.loads(text)


def read_settings(path: str | Path) -> Settings:
    """A TOML file as dictionaries."""
    try:
        settings = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error
    return settings


def merged(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """`settings` with changes by dotted key ("data.file") where they are not None."""
    result = {key: dict(v) if isinstance(v, dict) else v for key, v in settings.items()}
    for dotted, value in changes.items():
        if value is not None:
            *table, key = dotted.split(".")
            (result.setdefault(table[0], {}) if table else result)[key] = value
    return result


def from_settings(settings: Settings) -> Config:
    """The typed configuration, or `ConfigError` naming the key at fault and its nearest match."""
    return typed(settings, Config)


def typed(settings: Settings, kind: type[C]) -> C:
    """The same for a configuration with more keys."""
    _known_keys(settings, kind, "")
    try:
        config = msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {error}") from error
    _checked(config)
    return config


def _known_keys(settings: Settings, kind: Any, where: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(
                f"configuration: unknown key {where + key!r}.{nearest(key, fields)} "
                f"Expected one of {', '.join(fields)}"
            )
        if isinstance(value, dict) and isinstance(fields[key], type):
            _known_keys(value, fields[key], f"{key}.")


def _checked(config: Config) -> None:
    """All that can be refused before a row is read."""
    for name in config.algorithms():
        _known("algorithm", name, ALGORITHMS)
    for key, good in {"rho": config.rho > 0, "eta": config.eta > 0, "v": config.v >= 0}.items():
        if not good or not getattr(config, key) < inf:
            raise ConfigError(f"{key}={getattr(config, key)}: expected a positive number; v ≥ 0")
    if not 0 < config.mu < 1:
        raise ConfigError(f"mu={config.mu}: expected 0 < μ < 1; the paper uses 0.95 … 0.99")
    feature_settings(config).checked()
    _known("loss", config.loss, LOSSES)
    _known("graph", config.graph.kind, GRAPHS)
    _known("whitening", config.whitening, WHITENINGS)
    _known("privacy", config.privacy, ("none", "dp"))
    _check_privacy(config)
    _check_fast(config)
    _check_stream(config)
    _check_on_disk(config)
    if (config.whitening == "sample") != (config.sample is not None):
        raise ConfigError(
            f"whitening={config.whitening!r} with sample={config.sample!r}: name a file of public "
            'inputs for whitening = "sample", and none for any other'
        )
    _known("scale", config.data.scale, SCALES)
    _known("split", config.data.split or "iid", SPLITS)
    _known("treatment of missing values", config.data.missing, MISSING)
    numbers = {
        "lambda": (config.lam, 0 <= config.lam < inf, "λ ≥ 0; the paper uses 1e-5 … 1e-3"),
        "rounds": (config.rounds, config.rounds >= 1, "at least 1"),
        "tol": (config.tol, config.tol is None or config.tol >= 0, "a number, 0 for all rounds"),
        "max_bytes": (config.max_bytes, _positive(config.max_bytes), "a positive number"),
        "max_transmissions": (
            config.max_transmissions,
            _positive(config.max_transmissions),
            "a positive number",
        ),
        "test": (config.data.test, 0 <= config.data.test < 1, "a share from 0 to below 1"),
        "agents": (config.data.agents, config.data.agents >= 1, "at least 1"),
        "colluding": (config.colluding, config.colluding >= 1, "at least 1: a site knows itself"),
    }
    for name, (value, good, expected) in numbers.items():
        if not good:
            raise ConfigError(f"{name}={value}: expected {expected}")
    if config.lam == 0 and config.loss != "quadratic":
        raise ConfigError(f"lambda=0 with the {config.loss} loss: expected lambda > 0, try 1e-4")


def _check_fast(config: Config) -> None:
    if config.fast and config.loss != "quadratic":
        raise ConfigError(f'fast with loss = "{config.loss}": only quadratic rounds are compiled')
    if config.fast and not compiled.available():
        raise ConfigError("fast needs Numba: pip install 'coke[fast]', or leave it out")


def _check_stream(config: Config) -> None:
    """What needs a row again after it has gone by cannot stream."""
    _known("precision", config.data.precision, PRECISIONS)
    ours = "coke" in config.algorithms()
    needs_rows = {
        f'loss = "{config.loss}"': config.loss != "quadratic",
        f'privacy = "{config.privacy}"': config.privacy != "none",
        f'split = "{config.data.split}"': config.data.split is not None,
        f'whitening = "{config.whitening}" of coke': ours and config.whitening in LOOKING,
    }
    for what, refused in needs_rows.items():
        if config.data.stream and refused:
            raise ConfigError(
                f"stream = true with {what}: that needs rows in memory; streaming is for sites "
                'with names, the quadratic loss, and for coke whitening = "gram" or "sample"; for '
                "class labels use on_disk"
            )


def _check_on_disk(config: Config) -> None:
    if config.data.on_disk is not None and config.loss == "quadratic":
        raise ConfigError(
            'data.on_disk with loss = "quadratic", which keeps no features: for rows that do not '
            "fit into memory use data.stream"
        )


def _check_privacy(config: Config) -> None:
    if config.whitening == "range" and config.data.scale != PUBLIC:
        raise ConfigError('whitening = "range" takes the ranges of scale = "public": give them')
    if config.privacy != "dp":
        for name in ("epsilon", "secure_sum", "new_budget"):
            if getattr(config, name):
                raise ConfigError(f'{name} without privacy = "dp": set both')
        return
    if config.epsilon is None:
        raise ConfigError('privacy = "dp" without epsilon: 1 is strict, 10 weak')
    Budget(config.epsilon, config.delta).checked()
    if config.data.scale != PUBLIC:
        raise ConfigError(
            f'privacy = "dp" with scale = "{config.data.scale}": ranges must be known beforehand; '
            'use scale = "public" and data.ranges'
        )
    check_private(
        loss=config.loss, scale=config.data.scale,
        auto_sigma=config.features.sigma == AUTO, whitening=config.whitening,
    )  # fmt: skip


def _positive(limit: int | None) -> bool:
    return limit is None or limit > 0


def _known(what: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise ConfigError(unknown(what, name, names))


def feature_settings(config: Config) -> FeatureSettings:
    """The features that all sites draw."""
    f = config.features
    if isinstance(f.sigma, str) and f.sigma != AUTO:
        raise ConfigError(f'sigma={f.sigma!r}: expected a positive number, or "{AUTO}"')
    sigma = 1.0 if isinstance(f.sigma, str) else f.sigma
    return FeatureSettings(f.n_features, f.kernel, sigma, f.mapping, f.sampling, config.seed)


def check_source(config: Config) -> None:
    """The file and its columns belong together."""
    data = config.data
    if data.file is not None and data.target is None:
        raise ConfigError(f"data.file = {data.file!r} without data.target: name the target column")
    if data.file is None and (data.target or data.site):
        raise ConfigError("data.target or data.site without data.file: name the file of the rows")
    by_file = data.file is not None and Path(data.file).is_dir()
    if by_file and data.site is not None:
        raise ConfigError(f"data.site with the folder {data.file}: its files are the sites")
    if data.stream and (data.file is None or not (by_file or data.site)):
        raise ConfigError("data.stream without sites: name data.file and data.site, or a folder")
    if str(data.file).endswith(".npy") and not (data.stream or data.on_disk):
        raise ConfigError(
            f"{data.file}: arrays are read in chunks only: add data.stream = true, or for class "
            "labels data.on_disk"
        )
    if data.file is None and config.loss != "quadratic":
        raise ConfigError(f'loss = "{config.loss}" needs class labels: name a data.file with them')
