"""Where a run leaves its files; usable before any work starts, or refused."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coke.data.files import make_folder, write_file
from coke.engines.checkpoint import Saved, check_same, load_checkpoint
from coke.settings.declaration import Settings
from coke.settings.reading import SAVED


class Folder:
    """Settings, checkpoints, histories and the model of a run."""

    def __init__(self, path: Path):
        self.path = path
        make_folder(path)

    def checkpoint(self, name: str) -> Path:
        """The state after the last round of an algorithm."""
        return self.path / f"checkpoint-{name}.coke"

    def history(self, name: str) -> Path:
        """All rounds of an algorithm."""
        return self.path / f"history-{name}.parquet"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model.coke"

    @property
    def settings(self) -> Path:
        """The settings of the run, written when it starts and when it is resumed."""
        return self.path / SAVED

    def begin(self, settings: Settings, *, resume: bool) -> None:
        """Keeps the settings; a new run forgets the checkpoints of one before."""
        for path in () if resume else self.path.glob("checkpoint-*.coke"):
            path.unlink()
        write_file(self.settings, msgspec.json.format(msgspec.json.encode(settings.plain())))

    def saved(self, name: str, fingerprint: str) -> Saved | None:
        """An algorithm's checkpoint, if there is one; refused if it is another problem's."""
        path = self.checkpoint(name)
        if not path.exists():
            return None
        saved, problem = load_checkpoint(path)
        check_same(path, problem, fingerprint)
        return saved
