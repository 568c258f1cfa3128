"""Where a run leaves its files; usable before any work starts, or refused."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coke.data.files import make_folder, read_file, write_file
from coke.engines.checkpoint import Saved, check_same, load_checkpoint
from coke.errors import FileError
from coke.settings import Config, from_settings


class Folder:
    """Settings, checkpoints, histories and the model of a run."""

    def __init__(self, path: Path, *, create: bool = True):
        self.path = path
        if not create and not path.is_dir():
            raise FileError(f"{path}: there is no such folder to resume from")
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
        return self.path / "settings.json"

    def begin(self, settings: Config, *, resume: bool) -> None:
        """Keeps the settings; a new run forgets the checkpoints of one before."""
        for path in () if resume else self.path.glob("checkpoint-*.coke"):
            path.unlink()
        write_file(self.settings, msgspec.json.format(msgspec.json.encode(settings.settings())))

    def saved_settings(self) -> Config:
        """Those of the run that left its checkpoints here."""
        if not self.settings.exists():
            raise FileError(f"{self.path}: no checkpoint to resume from; was --out this folder?")
        try:
            return from_settings(msgspec.json.decode(read_file(self.settings), type=dict))
        except msgspec.DecodeError as error:
            raise FileError(f"{self.settings}: cannot be read: {error}") from error

    def saved(self, name: str, fingerprint: str) -> Saved | None:
        """An algorithm's checkpoint, if there is one; refused if it is another problem's."""
        path = self.checkpoint(name)
        if not path.exists():
            return None
        saved, problem = load_checkpoint(path)
        check_same(path, problem, fingerprint)
        return saved
