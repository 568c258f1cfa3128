"""What commands share: the options of data and model, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from coke.settings import Config, Settings, default_settings, from_settings, merged, read_settings

Text = str | None
ConfigFile = Annotated[
    Path | None, Argument(help="TOML file; without it, the paper's synthetic problem.")
]
Data = Annotated[
    Path | None, Option(help="Parquet or CSV file of rows, or a folder with one for each site.")
]
Target = Annotated[Text, Option(help="Column to predict.")]
Site = Annotated[Text, Option(help="Column that says which site holds a row.")]
Drop = Annotated[list[str] | None, Option(help="Column to leave out; may be repeated.")]
Missing = Annotated[Text, Option(help="Rows with missing values: refuse or drop.")]
Agents = Annotated[int | None, Option(help="Number of agents, where no column names the sites.")]
Split = Annotated[Text, Option(help="How rows are dealt out: iid, or sorted by target.")]
Scale = Annotated[Text, Option(help="none, standard, minmax or public.")]
GraphName = Annotated[
    Text, Option(help="random, erdos-renyi, ring, star, complete, grid or small-world.")
]
Edges = Annotated[int | None, Option(help="Edges of a random graph.")]
Sigma = Annotated[Text, Option(help="Kernel bandwidth σ, or auto.")]
Features = Annotated[int | None, Option(help="Number of random features L.")]
Kernel = Annotated[Text, Option(help="gaussian, laplacian, cauchy, matern32 or matern52.")]
FeatureMap = Annotated[Text, Option(help="cos-sin or cos-phase.")]
Lambda = Annotated[float | None, Option("--lambda", help="Regularisation λ.")]
Loss = Annotated[Text, Option(help="quadratic, logistic or hinge.")]
Algorithm = Annotated[Text, Option(help="coke, or the paper's coke-paper, dkla or cta.")]
Mu = Annotated[float | None, Option(help="Threshold h(k) = v μᵏ of coke-paper: μ.")]
Whitening = Annotated[Text, Option(help="Common basis: mixture, moments, gram or sample.")]
Sample = Annotated[Path | None, Option(help="File of public inputs, for --whitening sample.")]
Seed = Annotated[int | None, Option(help="Of features, graph, data and splits.")]

KEYS = {  # a command's parameter → the configuration's dotted key
    "data": "data.file", "target": "data.target", "site": "data.site", "drop": "data.drop",
    "missing": "data.missing", "agents": "data.agents", "split": "data.split",
    "scale": "data.scale", "stream": "data.stream", "on_disk": "data.on_disk",
    "sigma": "features.sigma", "features": "features.n_features",
    "kernel": "features.kernel", "mapping": "features.mapping", "graph": "graph.kind",
    "edges": "graph.edges", "lam": "lambda",
    **{name: name for name in (
        "loss", "algorithm", "beside", "rho", "v", "mu", "eta", "rounds", "tol", "max_bytes",
        "max_transmissions", "whitening", "sample", "privacy", "epsilon", "delta", "fast", "seed",
    )},
}  # fmt: skip


def changes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to a configuration by dotted key, from a command's parameters by name."""
    changes = {KEYS[name]: _plain(value) for name, value in given.items() if name in KEYS}
    return changes | {"features.sigma": number_or_word(given.get("sigma"))}


def _plain(value: Any) -> Any:
    """As a configuration has it; None for a flag that is not given, which changes nothing."""
    if value is False:
        return None
    return str(value.resolve()) if isinstance(value, Path) else value


def number_or_word(text: str | None) -> float | str | None:
    """An option that is a number or a word such as auto."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def settings_from(path: Path | None, changes: Mapping[str, Any]) -> Settings:
    """A file's settings, or the defaults of one's own data, or the synthetic problem's; changed."""
    if path is not None:
        return merged(read_settings(path), changes)
    return merged({} if changes.get("data.file") else default_settings(), changes)


def config_from(path: Path | None, given: Mapping[str, Any]) -> Config:
    """The configuration of a command with these parameters."""
    return from_settings(settings_from(path, changes_of(given)))
