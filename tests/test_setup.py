"""What `make` installs and runs."""

import re
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
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [Requirement(text) for group in extras for text in group]
    wanted += [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    for requirement in wanted:
        if requirement.name != "unsplit":
            version = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement


def test_make_installs_what_the_tests_of_the_peers_need():
    (extras,) = re.findall(r'-e "\.\[(.*?)\]"', MAKEFILE)
    assert {"dev", "peers"} <= set(extras.split(","))


def test_continuous_integration_runs_the_test_command_of_the_readme():
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert command == "make test"
    assert command in (ROOT / "README.md").read_text()
