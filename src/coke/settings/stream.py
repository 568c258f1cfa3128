"""The settings of a stream, [stream]: when its rows are, and what becomes of odd ones."""
# Types are evaluated here and now, as in `declaration`.

from typing import Annotated

import msgspec

from coke.settings.knobs import Face, Knob, Scope

LATE = 1000  # ticks after which nobody knows any more whether a row came before
LEAVE, LAST, REFUSE = "leave", "last", "refuse"
_AUTO = "auto"
_BOTH = Face.RUN | Face.SITE


# fmt: off
MEMORY = Knob(
    "Ticks of a stream after which a row counts 1/e; inf: it always counts one.", "[2, inf]",
    "at least 2 ticks, or inf", faces=_BOTH | Face.ESTIMATORS)


class StreamTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[stream]: rows that come, each at its tick; with `coke run --online` and on agents."""

    time: Annotated[str | None, Knob(
        "Column that says when a row was: numbers, or dates with a time.",
        scope=Scope.SITE, faces=_BOTH)] = None
    tick: Annotated[float | str, Knob(
        "Length of a tick: seconds where times are dates, else in units of the column; "
        "auto is an hour, or 1.", "(0, inf)", 'a length above 0, or "auto"',
        choices={_AUTO: ""}, faces=_BOTH)] = _AUTO
    late: Annotated[int, Knob(
        "Ticks by which a row may be late, or ahead of all other sites.", "[1, 1000000]",
        "from 1 to 1000000 ticks", faces=_BOTH)] = LATE
    on_gap: Annotated[str, Knob("Rows with a value that is missing.", choices={
        LEAVE: "left out and counted", LAST: "with the site's last value of that input",
        REFUSE: "an error"}, scope=Scope.SITE, faces=_BOTH)] = LEAVE
    first: Annotated[int, Knob(
        "Rows of a site before the sites agree on units and a model.", "[2, 100000]",
        "from 2 to 100000 rows", faces=_BOTH)] = 100
    wait: Annotated[float, Knob(
        "Seconds without a row after which a tick that others have ended is over.", "[0, inf)",
        "seconds from 0 on", scope=Scope.SITE, faces=Face.SITE)] = 10.0
