"""What `make` installs and runs."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_make_test_installs_a_browser_where_it_may(tmp_path):
    assert "test: lint chromium" in MAKEFILE
    assert f"\t@{INSTALL.relative_to(ROOT)}" in MAKEFILE
    log = tmp_path / "log"
    said = run_install(tmp_path, id="echo 0", apt_get=f'echo "$@" >> {log}')
    assert said == "Installing chromium, in which the page of a result is tested.\n"
    assert log.read_text().splitlines() == [
        "update",
        "install --yes --no-install-recommends chromium",
    ]


def test_make_test_says_where_it_may_not(tmp_path):
    skipped = "so the tests of the page will be skipped"
    said = run_install(tmp_path, id="echo 1000", apt_get="exit 1")
    assert "this user may not install it" in said
    assert skipped in said
    said = run_install(tmp_path, id="echo 0", apt_get="exit 1")
    assert f"Chromium could not be installed, {skipped}" in said
    assert run_install(tmp_path, chromium="exit 0") == ""
