"""Docstrings of coke as reStructuredText: they are plain text, with symbols that would be markup.

What is indented is shown as it stands, `name : words` is a definition, `code` is code, a heading is
one that is underlined. All other signs stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DEFINED = re.compile(r"([A-Za-z_*][\w*]*(?:, [A-Za-z_*][\w*]*)*) : (.*)")
_CODE = re.compile(r"`([^`]+)`")
_MARKS = re.compile(r"([\\*|_<>:])")


def as_markup(lines: list[str]) -> list[str]:
    """The same lines, to be read as markup."""
    found: list[str] = []
    for part in _parts(lines):
        found += [*part, ""]
    return found


def _parts(lines: list[str]) -> Iterator[list[str]]:
    """Paragraph by paragraph."""
    for part in _split(lines):
        if part[0].startswith(">>>"):
            yield part
        elif part[0].startswith(" "):
            yield [".. code-block:: text", "", *(f"   {line}" for line in part)]
        else:
            yield from _written(part)


def _split(lines: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            part.append(line.rstrip())
        elif part:
            yield part
            part = []


def _written(part: list[str]) -> Iterator[list[str]]:
    if len(part) > 1 and set(part[1]) == {"-"}:
        yield [f".. rubric:: {part[0]}"]
        part = part[2:]
    defined = [_DEFINED.fullmatch(line) for line in part]
    text: list[str] = []
    for line, match in zip(part, defined, strict=True):
        if match:
            if text:
                yield text
            names = ", ".join(f"``{name.strip()}``" for name in match[1].split(","))
            text = [names, f"    {_plain(match[2])}"]
        elif line.startswith(" ") or (text and text[-1].startswith("    ") and defined[0]):
            text.append(f"    {_plain(line.strip())}")
        else:
            text.append(_plain(line))
    if text:
        yield text


def _plain(line: str) -> str:
    """Signs as they are, but for code, which needs a border on both sides."""
    text = ""
    for k, piece in enumerate(_CODE.split(line)):
        if k % 2:
            text += ("\\ " if text[-1:].isalnum() else "") + f"``{piece}``"
        else:
            text += ("\\ " if text and piece[:1].isalnum() else "") + _MARKS.sub(r"\\\1", piece)
    return text
