"""What the wheel, the citation and the list of extras say."""

import re
import tomllib
from pathlib import Path

import pytest

import unsplit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOR_DEVELOPERS = {"dev", "docs", "peers"}


def test_the_wheel_is_typed_and_has_the_package_alone():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/unsplit"]}
    assert (ROOT / "src" / "unsplit" / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    assert not list((ROOT / "src").rglob("test_*.py"))


def test_supported_versions_of_python_agree():
    classifiers = PROJECT["project"]["classifiers"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert versions == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert "Python 3.11, 3.12 or 3.13" in (ROOT / "docs" / "index.md").read_text("utf-8")


def test_the_first_page_says_what_each_extra_is_for():
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `unsplit\[(\w+)\]` \|", page, re.MULTILINE))
    assert listed == set(PROJECT["project"]["optional-dependencies"]) - FOR_DEVELOPERS


def test_the_citation_is_of_this_version_and_names_the_paper():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == unsplit.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Reiser",
        "Schlötterer",
        "Granitzer",
    ]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text("utf-8").split())
