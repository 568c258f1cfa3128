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
    json: options.AsJson = False,
) -> None:
    """Predictions of a trained model for the rows of a file."""
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out}: expected a file ending in .csv or .parquet")
    from coke.learning.kinds import reading_of
    from coke.learning.model import load_model
    from coke.learning.predicting import Asked, predict_file

    how = reading_of(wanted(), say)
    rows, gaps, others = predict_file(load_model(model), data, out, Asked(proba, interval), how)
    if json:
        print_json({"rows": rows, "out": str(out), "gaps": gaps, "other_levels": others})
        return
    for what, found in (("gaps filled as in training", gaps), ("levels that are no input", others)):
        if found:
            say(f"{what}: {', '.join(f'{name} {n}' for name, n in found.items())}")
    sys.stdout.write(f"{rows} predictions in {out}\n")
