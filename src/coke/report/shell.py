"""What all pages share: one file, no other needed."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from string import Template


def page(title: str, *parts: str) -> str:
    """A page with that title and those parts, which are HTML."""
    shell = Template(resources.files("coke").joinpath("resources/page.html").read_text("utf-8"))
    return shell.substitute(title=html.escape(title), body="\n".join(filter(None, parts)))


def section(title: str, *parts: str) -> str:
    """A part under a heading."""
    return "\n".join((f"<h2>{html.escape(title)}</h2>", *filter(None, parts)))


def figures(found: Sequence[str]) -> str:
    """Pictures side by side, the first over the whole width."""
    return '<div class="figures">\n' + "\n".join(found) + "\n</div>" if found else ""


def figure(picture: str, caption: str) -> str:
    """A picture, as HTML or SVG, and what it shows."""
    return f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"


def image(png: bytes, caption: str) -> str:
    """A picture of pixels, within the page."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return figure(f'<img alt="{html.escape(caption)}" src="{source}">', caption)


def warning(text: str) -> str:
    """What must not be overlooked."""
    return f'<p class="warning">Warning: {html.escape(text)}.</p>'


def note(text: str) -> str:
    """What stands behind a figure."""
    return f'<p class="note">{html.escape(text)}</p>'


def folded(title: str, text: str) -> str:
    """Text that few want to see."""
    return (
        f"<details><summary>{html.escape(title)}</summary>\n"
        f"<pre>{html.escape(text)}</pre>\n</details>"
    )
