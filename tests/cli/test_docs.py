"""What the documents show is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import coke
from coke.settings.page import settings_page
from kit.readme import ROOT, example

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_run(path: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_import_nothing_internal(path: Path) -> None:
    assert not re.findall(r"(?:from|import) coke\.", path.read_text("utf-8"))


def test_the_guide_shows_the_examples_own_source() -> None:
    source = (ROOT / "examples/own_algorithm.py").read_text("utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", guide(), re.DOTALL)
    assert len(shown.splitlines()) > 20
    assert shown in source


def guide() -> str:
    return (ROOT / "docs/adding-an-algorithm.md").read_text("utf-8")


def test_the_readmes_example_runs_and_says_the_truth(tmp_path: Path) -> None:
    code = example()
    names: dict[str, object] = {}
    exec(code.replace('"model.coke"', repr(str(tmp_path / "model.coke"))), names)
    model = names["model"]
    score = model.score(names["X"], names["y"])  # type: ignore[attr-defined]
    assert f"# {score:.3f}" in code
    spent, sent = model.bytes_, model.transmissions_  # type: ignore[attr-defined]
    assert f"# {spent}, agreement included; {sent} messages" in code


def test_the_example_of_histories_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/running.md").read_text("utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    assert (tmp_path / "losses.png").exists()
    assert min(names["scores"]) > 0.8  # type: ignore[call-overload]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    lost = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_no_page_waits_for_a_figure(page: Path) -> None:
    environment = "COKE_(DATA|POSTGRES)|OPENBLAS_CORETYPE"
    text = re.sub(environment, "", page.read_text("utf-8"))
    assert not re.search(r"\b[A-Z]{3,}_[A-Z0-9]+\b", text)


def test_the_table_of_settings_is_the_declarations() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs/settings.md").read_text("utf-8") == settings_page()


def test_every_dependency_has_its_sentence() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs/dependencies.md").read_text("utf-8")
    pins = (ROOT / "constraints.txt").read_text("utf-8").lower()
    assert "://" not in pins
    extras = [need for extra in project["optional-dependencies"].values() for need in extra]
    for needed in [need for need in project["dependencies"] + extras if "coke-learn[" not in need]:
        name = re.split(r"[><=\[]", needed)[0]
        assert name in page, name
        assert re.search(rf"^{name.replace('-', '[-_]')}==", pins, re.MULTILINE), name


def test_changelog_and_version_agree() -> None:
    releases = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == coke.__version__


PUBLIC = """
Agents Algorithm Auto COKE COKEClassifier COKERegressor CTA Coarse Codec Coke CokeError CokePaper
DKLA DP Diffusion FeatureSettings Features Float64 Geometric History Model Problem Quadratic
RandomFeatures Record Risk Schedule Sequential Shrinking Spoken Threshold TreeNewton Until
adjacency build_graph dkla draw_features export_onnx load_model local_only metropolis
one_shot_average plot say simulate
"""


def test_the_public_names_are_these() -> None:
    """A name added or lost is a decision, not an accident."""
    assert sorted(coke.__all__) == PUBLIC.split()
    assert set(dir(coke)) == {*PUBLIC.split(), "__version__"}
    for name in coke.__all__:
        assert getattr(coke, name).__doc__
