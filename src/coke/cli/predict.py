"""`coke predict`: predictions of a trained model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coke.cli import options
from coke.cli.console import print_json
from coke.errors import ConfigError

app = options.app()


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model file of `coke run --out`.")],
    data: Annotated[
        Path, typer.Argument(help="Parquet or CSV file with the model's input columns.")
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
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from coke.data.files import atomically
    from coke.learning.model import load_model

    writers = {".csv": pa.csv.write_csv, ".parquet": pa.parquet.write_table}
    trained = load_model(model)
    X = trained.inputs(data)
    if interval is None:
        columns = {"prediction": trained.predict(X)}
    else:
        ends = trained.interval(X, interval)
        columns = dict(zip(("prediction", "low", "high"), ends, strict=True))
    if proba:
        P = trained.predict_proba(X)
        columns |= {f"p_{label}": P[:, j] for j, label in enumerate(trained.classes)}
    atomically(out, lambda part: writers[out.suffix](pa.table(columns), part))
    if json:
        print_json({"rows": len(X), "out": str(out)})
    else:
        sys.stdout.write(f"{len(X)} predictions in {out}\n")
