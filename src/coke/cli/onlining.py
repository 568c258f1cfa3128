"""What `coke run --online` does: predict, learn, say and leave, with progress."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
from rich.table import Table

from coke.cli.console import Screen, console, print_json, say
from coke.cli.running import Where
from coke.data.files import atomically, write_file
from coke.learning.finishing import finished
from coke.learning.folder import Folder
from coke.learning.online import Replay, open_online
from coke.learning.prequential import Prequential
from coke.report.online import online_document, online_page, online_rows
from coke.report.progress import following
from coke.settings.declaration import Settings


def run_online(settings: Settings, where: Where, finish: bool, json: bool) -> None:
    """Learns from the file's rows as if they came; shows how well that went, and leaves it."""
    with console.status("reading rows"):
        online = open_online(settings, where.comm, say)
    with following(len(online.rows.ticks), console) as watch:
        for rows in online.run():
            watch(rows, online.feed)
    ended = finished(online.feed.stream.ending(), settings.rounds) if finish else None
    document, model = online_document(online, ended), online.feed.model()
    if online.feed.stream.ready.engine.first:
        if where.folder is not None:
            document |= _leave(Folder(where.folder), online, model, document)
        _show(document, json)


def _leave(folder: Folder, online: Replay, model: Any, document: dict[str, Any]) -> dict[str, Any]:
    """Model, table of ticks and report in the folder."""
    model.save(folder.model)
    table = pa.table(Prequential(online.feed.predicted).columns())
    ticks = folder.path / "prequential.parquet"
    atomically(ticks, lambda part: pa.parquet.write_table(table, part))
    plain = online.feed.stream.ready.agreement.terms.settings.plain()
    text = msgspec.json.format(msgspec.json.encode(plain)).decode()
    report = folder.path / "report.html"
    write_file(report, online_page(document, online, text).encode())
    return {"model": str(folder.model), "prequential_file": str(ticks), "report": str(report)}


def _show(document: dict[str, Any], json: bool) -> None:
    if json:
        print_json(document)
        return
    title = f"{document['agents']} sites, {document['edges']} edges, {document['ticks']} ticks"
    table = Table(title=title, show_header=False, box=None, title_justify="left")
    for name, value in online_rows(document):
        table.add_row(name, value)
    Screen(highlight=False).print(table)
    if "report" in document:
        sys.stdout.write(f"model:  {document['model']}\nreport: {document['report']}\n")
