"""One small exception tree. Every message says what came, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CokeError(Exception):
    """Anything this package refuses or fails to do."""


class InputError(CokeError, ValueError):
    """A setting, a name or an array that cannot be used."""


class DataError(InputError):
    """Rows, labels or tables that cannot be used."""


class GraphError(InputError):
    """A network that cannot be used."""


class ConfigError(InputError):
    """A configuration file or command line that cannot be used."""


class MessageError(InputError):
    """Bytes from outside that no sender can have meant."""


class FileError(CokeError, OSError):
    """A file or folder that cannot be read or written, or whose content is damaged."""


class ConvergenceError(CokeError, ArithmeticError):
    """A solver that stopped short of its promise."""


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' for a misspelt name, or nothing where no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that is not in the list of known ones."""
    known = sorted(known)
    hint = nearest(name, known) if isinstance(name, str) else ""
    return f"unknown {what} {name!r}: expected one of {', '.join(known)}.{hint}"
