"""What make installs and runs, and what is packed."""

import os
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import unsplit

# --- What `make` installs and runs ---


ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()


def test_every_dependency_is_pinned_within_its_range():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    wanted.append(Requirement("unsplit[dev,peers]"))  # what make installs
    for requirement in wanted:
        if requirement.name == "unsplit":
            wanted += [Requirement(text) for extra in requirement.extras for text in extras[extra]]
        else:
            version = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement
    assert len(wanted) > 30


def test_the_documentation_installs_extras_that_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = [re.findall(r"unsplit\[([\w,]+)\]", page.read_text("utf-8")) for page in pages]
    extras = {extra for page in named for text in page for extra in text.split(",")}
    assert "tables" in extras
    assert extras <= set(PROJECT["project"]["optional-dependencies"])


def test_users_get_an_anndata_that_can_write_the_strings_of_their_pandas():
    cells = PROJECT["project"]["optional-dependencies"]["cells"]
    (anndata,) = (r for r in map(Requirement, cells) if r.name == "anndata")
    assert not anndata.specifier.contains("0.12.6")  # the last that takes any pandas
    assert anndata.specifier.contains("0.12.7")


def test_make_installs_what_the_tests_of_the_peers_need():
    demo, tests = re.findall(r"\$\(environment\) (.*)", MAKEFILE)
    assert demo == ". pandas"
    assert tests == '".[dev,peers]"'


def test_continuous_integration_runs_the_test_command_of_the_readme():
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert command == "make test"
    assert command in (ROOT / "README.md").read_text()


INSTALL = ROOT / "tests" / "browser" / "install_chromium"


def run_install(folder, **programs):
    """Run the script where only these programs are found; what it prints."""
    for name, lines in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": str(folder)}
    done = subprocess.run(
        ["/bin/sh", INSTALL], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_make_test_all_installs_a_browser_where_it_may(tmp_path):
    assert "test-all: $(READY) chromium" in MAKEFILE
    assert f"\t@{INSTALL.relative_to(ROOT)}" in MAKEFILE
    log = tmp_path / "log"
    said = run_install(tmp_path, id="echo 0", apt_get=f'echo "$@" >> {log}')
    assert said == "Installing chromium, in which the page of a result is tested.\n"
    assert log.read_text().splitlines() == [
        "update",
        "install --yes --no-install-recommends chromium",
    ]


def test_make_test_all_says_where_it_may_not(tmp_path):
    skipped = "so the tests of the page will be skipped"
    said = run_install(tmp_path, id="echo 1000", apt_get="exit 1")
    assert "this user may not install it" in said
    assert skipped in said
    said = run_install(tmp_path, id="echo 0", apt_get="exit 1")
    assert f"Chromium could not be installed, {skipped}" in said
    assert run_install(tmp_path, chromium="exit 0") == ""


# --- What the wheel, the citation and the list of extras say ---


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


def test_pinned_versions_suit_each_other():
    """What pip can install together, on every supported version of Python."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(p.name): str(p.specifier).removeprefix("==") for p in pins}
    n_compared = 0
    for name, version in pinned.items():
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if found.version.partition("+")[0] != version:
            continue
        for text in found.requires or ():
            needed = Requirement(text)
            for python in ("3.11", "3.12", "3.13"):
                here = {"extra": "", "python_version": python, "python_full_version": f"{python}.0"}
                if needed.marker and not needed.marker.evaluate(here):
                    continue
                other = pinned.get(canonicalize_name(needed.name))
                assert other is None or needed.specifier.contains(other, prereleases=True), text
                n_compared += other is not None
    assert n_compared > 200
