"""What the documents show is what the code does."""

from __future__ import annotations

import importlib.util
import inspect
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coke
from coke.settings.page import settings_page
from kit.readme import ROOT, example

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_run(path: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout


@pytest.mark.parametrize("path", TUTORIALS, ids=[path.stem for path in TUTORIALS])
def test_every_block_of_the_tutorials_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, for one takes a second to start; with pictures that nobody sees."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runpy.run_path(str(path))
    assert capsys.readouterr().out
    assert plt.get_fignums()
    plt.close("all")


def test_one_tutorial_is_of_each_kind() -> None:
    said = ["hospital", "algorithm", "compare", "privacy", "streaming"]
    assert [word for word in said if not any(word in path.stem for path in TUTORIALS)] == []


@pytest.mark.parametrize("path", [*EXAMPLES, *TUTORIALS], ids=lambda path: path.stem)
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


def test_the_job_for_users_of_others_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours and scikit-learn's; the other frameworks are not installed."""
    page = (ROOT / "docs/others.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for k, site in enumerate(("north", "south", "port")):
        age, ward = rng.normal(50 + 8 * k, 12, 80), rng.choice(["heart", "lungs", "surgery"], 80)
        back = np.where(age + 20 * (ward == "heart") > 62, "yes", "no")
        pressure = np.where(rng.random(80) < 0.1, np.nan, rng.normal(130, 15, 80))
        columns = {"age": age, "pressure": pressure, "ward": ward, "back": back}
        pd.DataFrame(columns).to_csv(f"{site}.csv", index=False)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["model"].score(names["X"], names["y"]) > 0.85
    assert names["pooled"].score(names["X"], names["y"]) > 0.85


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs/reference.md").read_text("utf-8")
    found = re.findall(r"^\.\. auto(?:class|function):: (\w+)$", page, re.MULTILINE)
    assert sorted(found) == sorted(coke.__all__)


def test_every_page_is_in_the_sites_contents() -> None:
    index = (ROOT / "docs/index.md").read_text("utf-8").split()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= set(index)


@pytest.mark.parametrize("name", coke.__all__)
def test_docstrings_become_markup_without_a_complaint(name: str) -> None:
    """And none of their words is lost."""
    from docutils.core import publish_doctree

    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs/docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = inspect.getdoc(getattr(coke, name)) or ""
    markup = "\n".join(module.as_markup(text.splitlines()))
    complaints = io.StringIO()
    settings = {"warning_stream": complaints, "report_level": 1}
    shown = publish_doctree(markup, settings_overrides=settings).astext()
    assert complaints.getvalue() == ""
    wanted = sorted(re.sub(r"[`\s:]|-{3,}", "", text))
    assert wanted == sorted(re.sub(r"[`\s:]", "", shown))


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
