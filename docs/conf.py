"""How `make docs` makes the site: from these pages, the tutorials and the docstrings, offline."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("MPLBACKEND", "Agg")

from docstrings import as_markup
from sphinx.errors import ExtensionError

import coke

_TAGS = "script|img|link|iframe|source|video|audio|object|embed"
_ELSEWHERE = re.compile(
    rf"""<(?:{_TAGS})\b[^>]*(?:src|href|data)=["'](?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)
project, author = "coke", "the coke authors"
release = version = coke.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "tutorials/*.zip", "tutorials/*.py", "tutorials/*.ipynb"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # functions in the gallery's settings

html_theme = "pydata_sphinx_theme"
html_title = "coke"
html_static_path = ["_static"]
html_css_files = ["coke.css"]
html_favicon = "../src/coke/resources/icon.svg"
html_sidebars = {"index": [], "**": ["globaltoc.html"]}  # all pages, also where there are no parts
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it is fetched, which browsers refuse pages that are files
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "coke"},
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 4,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copyright = "the coke authors, MIT licence"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
add_module_names = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/tutorials"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "run_stale_examples": True,  # coke may have changed
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "copyfile_regex": r"",
    "default_thumb_file": str(HERE / "images" / "growth.png"),
}


def _outside(app: Any, name: str, source: list[str]) -> None:
    """Links to files of the repository that are no pages become their paths."""
    source[0] = re.sub(r"\[`?([^]`]+)`?\]\(\.\./([^)#]+)[^)]*\)", r"`\2`", source[0])


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_markup(lines)


def _foreign(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What scikit-learn, Python or msgspec wrote is in their own references."""
    plain = inspect.unwrap(getattr(obj, "fget", None) or getattr(obj, "__func__", obj))
    written = getattr(plain, "__module__", None) or ""
    return None if written.startswith("coke.") else True


def _alone(app: Any, failure: Exception | None) -> None:
    """No page may ask another machine for anything."""
    if failure is None and app.builder.name == "html":
        pages = [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]
        bad = [page.name for page in pages if _ELSEWHERE.search(page.read_text("utf-8"))]
        if bad:
            raise ExtensionError(f"pages {bad[:8]} load something from another machine")


def setup(app: Any) -> None:
    """What is done beside Sphinx's own."""
    app.connect("source-read", _outside)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-skip-member", _foreign)
    app.connect("build-finished", _alone)
