"""`coke predict`: predictions of a trained model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import print_json, say
from coke.errors import ConfigError
from coke.settings.knobs import Face

_NAMES = {"r2": "R²", "rmse": "RMSE", "accuracy": "accuracy", "log_loss": "log loss"}

app = options.app()


@app.command()
@options.command(Face.PREDICT, typer.Option(help="TOML file that says how rows are read."))
def predict(
    wanted: options.Wanted,
    model: Annotated[Path, typer.Argument(help="Model file of `coke run --out`.")],
    data: Annotated[
        str,
        typer.Argument(help="File with the model's inputs, as coke run reads them; or a database."),
    ],
    out: Annotated[
        Path, typer.Option(help="Where to write the predictions: .csv or .parquet.")
    ] = Path("predictions.csv"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Class probabilities beside the labels.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(help="Columns low and high: they hold such a share of targets; try 0.9."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column of the rows to stand beside the predictions; may be repeated."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Predictions of a trained model for the rows of a file."""
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out}: expected a file ending in .csv or .parquet")
    from coke.learning.kinds import reading_of
    from coke.learning.model import load_model
    from coke.learning.predicting import Asked, predict_file

    how, asked = reading_of(wanted(), say), Asked(proba, interval, tuple(keep or ()))
    rows, score, gaps, others = predict_file(load_model(model), data, out, asked, how)
    if json:
        said = {"rows": rows, "out": str(out), "score": score}
        print_json(said | {"gaps": gaps, "other_levels": others})
        return
    for what, found in (("gaps filled as in training", gaps), ("levels that are no input", others)):
        if found:
            say(f"{what}: {', '.join(f'{name} {n}' for name, n in found.items())}")
    sys.stdout.write(f"{rows} predictions in {out}\n")
    for target, scores in (score or {}).items():
        shown = [f"{_NAMES[k]} {v:.4g}" for k, v in scores.items() if k in _NAMES and v is not None]
        if shown:
            sys.stdout.write(f"{target}: {', '.join(shown)} on {scores['scored']} rows\n")
