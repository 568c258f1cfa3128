"""What is installed is what is here, under the name coke-learn."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import coke
from kit.readme import ROOT, example

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install 'coke-learn[dev]'")


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    own = {**os.environ, "PYTHONPATH": "", **environment}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=own, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel made from it, by a backend that is here already."""
    needs("build")
    needs("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_the_wheel_runs_the_readmes_example(built: Path, tmp_path: Path) -> None:
    """Installed without dependencies and without a network, apart from this checkout."""
    (wheel,) = built.glob("coke_learn-*.whl")
    folder, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    run("-m", "pip", "install", "--no-deps", "--no-index", "--target", folder, wheel)
    code = f"{example()}\nimport coke\nprint(coke.__file__, model.score(X, y))\n"
    file, score = run("-c", code, cwd=work, PYTHONPATH=str(folder)).split()
    assert Path(file).is_relative_to(folder)
    assert f"# {float(score):.3f}" in code
    assert (work / "model.coke").exists()


def test_the_wheel_holds_the_package_whole(built: Path) -> None:
    """Every file of src/coke, and metadata that say what pyproject.toml says."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        said = BytesParser().parsebytes(files.read(metadata))
    here = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/coke").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here == {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert (said["Name"], said["Version"]) == ("coke-learn", coke.__version__)
    assert set(said.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert said.get_all("Project-URL") is None


def test_the_sdist_holds_what_the_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "Makefile"}
    assert wanted | {"pyproject.toml", "tests/conftest.py", "src/coke/py.typed"} <= names
    assert not {name for name in names if name.startswith((".venv", "out/", "dist/"))}


def test_twine_finds_nothing_wrong(built: Path) -> None:
    needs("twine")
    assert run("-m", "twine", "check", "--strict", *built.iterdir()).count("PASSED") == 2


def test_this_python_is_among_those_named() -> None:
    """The classifiers name the versions that the tests have run with."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_every_hint_names_the_distribution() -> None:
    """`pip install 'coke[agent]'` would fetch another package, which only has our import's name."""
    extras = "|".join(PROJECT["optional-dependencies"])
    wrong = re.compile(rf"(?<![-\w])coke\\?\[(?:{extras})|pip install ['\"]?coke(?![-\w])")
    files = [
        path for room in ("src", "docs", "benchmarks", "tests") for path in (ROOT / room).rglob("*")
    ]
    files = [
        path
        for path in (*files, *ROOT.glob("*.md"), ROOT / "Makefile")
        if path.suffix in (".py", ".md", "")
    ]
    texts = {
        path: path.read_text("utf-8") for path in files if path.is_file() and path != Path(__file__)
    }
    assert not {
        str(path): wrong.findall(text) for path, text in texts.items() if wrong.search(text)
    }


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {coke.__version__}\n" in text
    for name in ("Xu", "Wang", "Chen", "Tian"):
        assert f"family-names: {name}\n" in text
