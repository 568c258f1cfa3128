"""The last models of a site, one a run, and which of them is in use.

    models/run-3.coke   the model of run 3
    models/model.coke   a copy of the one in use: the newest, unless somebody has gone back

Every run has a state folder of its own; these outlast them. To look at them takes no NumPy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from coke.errors import FileError, InputError

_DIGEST = 32  # bytes at the end of a model file, which tell models apart
_RUN = re.compile(r"run-([1-9]\d{0,8})\.coke")
USED = "model.coke"


class KeptModels(NamedTuple):
    """What there is."""

    folder: Path
    runs: list[int]  # of which there is a model, rising
    used: int | None  # of these, the one in use; None: another, or none

    @property
    def path(self) -> Path:
        """Where the model in use is."""
        return self.folder / USED

    def of(self, run: int) -> Path:
        """Where the model of a run is."""
        return self.folder / f"run-{run}.coke"


def kept_models(folder: Path) -> KeptModels:
    """As they are on the disk."""
    found = KeptModels(folder, [], None)
    names = folder.iterdir() if folder.is_dir() else ()
    runs = sorted(int(match[1]) for path in names if (match := _RUN.fullmatch(path.name)))
    end = _end(found.path)
    same = [run for run in runs if end and _end(found.of(run)) == end]
    return found._replace(runs=runs, used=max(same, default=None))


def _end(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _DIGEST))
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def keep_model(folder: Path, run: int, model: Path, most: int) -> None:
    """One more; a new run's is in use from now on. More than so many are not kept.

    An agent that is started again after its end writes its model again, and changes no choice.
    """
    from coke.data.files import make_folder, read_file, write_file

    make_folder(folder)
    before, data = kept_models(folder), read_file(model)
    write_file(before.of(run), data)
    if run not in before.runs:
        write_file(before.path, data)
    now = kept_models(folder)
    for old in [run for run in now.runs if run != now.used][: len(now.runs) - most]:
        now.of(old).unlink(missing_ok=True)


def go_back(folder: Path, run: int | None = None) -> int:
    """The model of that run in use, by default of the run before the one in use; its number."""
    from coke.data.files import read_file, write_file

    now = kept_models(folder)
    earlier, end = [one for one in now.runs if one < (now.used or 0)], _end(now.path)
    others = [one for one in earlier if _end(now.of(one)) != end]  # a run may change nothing
    wanted = run if run is not None else max(others or earlier, default=None)
    if wanted not in now.runs or wanted is None:
        have = ", ".join(map(str, now.runs)) or "none"
        asked = "an earlier one" if run is None else f"that of run {run}"
        raise InputError(
            f"{folder}: {asked} is not there: models of runs {have} are kept, run {now.used} is "
            "in use; name one of them with --run"
        )
    write_file(now.path, read_file(now.of(wanted)))
    return wanted
