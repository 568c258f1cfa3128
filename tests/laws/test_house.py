"""The house keeps its order: few loose modules and public names, one meaning each, short bodies."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "coke"
SOURCES = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}


def bodies() -> Iterator[int]:
    """Lines of every function without its docstring."""
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body:
                    yield (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_few_modules_are_loose_in_the_root() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 7


def test_the_contract_has_at_most_twelve_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    assert len(layers) <= 12


def test_no_module_is_longer_than_300_lines() -> None:
    assert {str(p): text.count("\n") for p, text in SOURCES.items() if text.count("\n") > 300} == {}


def test_public_names_are_few() -> None:
    """At most 25 functions and classes at the top of modules per 1000 lines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    tops = [node for tree in TREES.values() for node in tree.body if isinstance(node, kinds)]
    names = [node.name for node in tops if not node.name.startswith("_")]
    lines = sum(text.count("\n") for text in SOURCES.values())
    assert 1000 * len(names) <= 25 * lines


def test_no_class_has_the_name_of_another() -> None:
    kinds = [
        n.name for tree in TREES.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)
    ]
    assert [name for name, n in Counter(kinds).items() if n > 1] == []


def test_bodies_are_short() -> None:
    """Median at most 4 lines, and nine of ten at most 14."""
    lines = list(bodies())
    assert median(lines) <= 4
    assert quantiles(lines, n=10)[-1] <= 14
