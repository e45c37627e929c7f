"""Who may import whom."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import unsplit
import unsplit.data
from benchmarks.files_of_a_fit import fit, functions_entered
from tests.checks import run_without_torch
from unsplit.old_names import MOVED

ROOT = Path(unsplit.__file__).parent

# Rooms from the ground up: a module imports from its own room and from the lines above its own.
LAYERS = [
    {"_typing", "errors"},
    {"devices", "old_names"},
    {"data", "datasets"},
    {"metrics", "networks", "overclustering"},
    {"pairwise"},
    {"merging", "selection"},
    {"plots"},
    {"estimator", "original", "report"},
    {"anndata"},
    {"unsplit"},
    {"cli"},
    {"__main__"},
]
LAYER = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# The estimate of all pairs and what is made of it: importing these must not import torch, however
# many modules lie between.  A package stands for all of its modules.
WITHOUT_TORCH = [
    "unsplit", "_typing", "errors", "datasets", "devices", "metrics", "plots",
    "data.labels", "data.saving", "networks.training.progress",
    "pairwise.result", "pairwise.stored_pairs", "pairwise.divergences", "pairwise.statistics",
    "pairwise.groups", "merging", "report",
]  # fmt: skip

# Only the search for neighbours among very many observations computes with torch itself.
SEARCH_WITH_TORCH = {"merging.neighbours.search"}

# Needed for some files, tables and figures only.
OPTIONAL = {"pandas", "matplotlib", "pyarrow", "h5py", "PIL", "trimesh", "anndata"}


def short_name(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or "unsplit"


FILES = {short_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported_names(source):
    """Full names of everything a source text imports, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def our_modules(names):
    """The modules of ours among the names; ``unsplit.errors.E`` is ``errors``."""
    for name in names:
        top, *parts = name.split(".")
        if top != "unsplit":
            continue
        while parts and ".".join(parts) not in FILES:
            parts.pop()
        yield ".".join(parts) or "unsplit"


def imports_of(module):
    return list(imported_names(FILES[module].read_text(encoding="utf-8")))


def room_of(module):
    return module.split(".")[0]


def test_a_fit_passes_through_few_files():
    assert len(functions_entered(fit)) <= 24


def test_there_are_at_most_twenty_rooms_and_each_has_its_layer():
    entries = [path for path in ROOT.iterdir() if path.name not in ("__pycache__", "py.typed")]
    assert len(entries) <= 20
    assert {room_of(module) for module in FILES} == set(LAYER)


def test_nothing_imports_from_a_room_above_its_own():
    for module in FILES:
        here = room_of(module)
        for other in our_modules(imports_of(module)):
            below = room_of(other) == here or LAYER[room_of(other)] < LAYER[here]
            assert below, (module, other)


def test_no_modules_import_each_other_in_a_circle():
    imports = {module: set(our_modules(imports_of(module))) - {module} for module in FILES}
    assert set(TopologicalSorter(imports).static_order()) == set(FILES)  # a circle is an error


def test_only_the_package_itself_imports_metrics():
    # Nothing that trains, estimates or merges may see the ground truth.
    users = {module for module in FILES if "metrics" in our_modules(imports_of(module))}
    assert users == {"unsplit"}


def test_what_feeds_networks_does_not_import_what_reads_files():
    for module in (m for m in FILES if m.startswith("data.rows")):
        others = our_modules(imports_of(module))
        assert not [other for other in others if other.startswith("data.readers")], module


def test_the_walk_sees_every_way_to_import():
    source = """
import unsplit.pairwise.statistics as s
from unsplit import metrics
from unsplit.data.rows.kinds import VectorRows
from unsplit import __version__
def later():
    from unsplit.data.labels import encode_labels
    import torch.nn
"""
    names = list(imported_names(source))
    expected = {"pairwise.statistics", "metrics", "data.rows.kinds", "unsplit", "data.labels"}
    assert set(our_modules(names)) == expected
    assert "torch.nn" in names


def for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def run_on_import(tree):
    """The nodes that run when a module is imported.

    These are all but the bodies of functions and what only type checkers see.
    """
    for node in ast.iter_child_nodes(tree):
        if for_type_checkers(node):
            yield from (part for other in node.orelse for part in (other, *run_on_import(other)))
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from run_on_import(node)


def names_imported_at_once(source):
    """Full names of everything that importing a module with this source imports."""
    nodes = run_on_import(ast.parse(source))
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    return list(imported_names("\n".join(ast.unparse(node) for node in imports)))


AT_ONCE = {m: names_imported_at_once(p.read_text(encoding="utf-8")) for m, p in FILES.items()}


def packages_of(module):
    """The packages around a module, whose ``__init__`` files run before it: ``a.b.c`` has two."""
    parts = module.split(".")
    return {"unsplit", *(".".join(parts[:n]) for n in range(1, len(parts)))} - {module}


def way_to_torch(module):
    """The imports that lead from a module to torch, the shortest way; None if none do."""
    ways, seen = [[module]], {module}
    for way in ways:
        names = AT_ONCE[way[-1]]
        if "torch" in {name.split(".")[0] for name in names}:
            return [*way, "torch"]
        found = set(our_modules(names)) | packages_of(way[-1])
        ways += [[*way, other] for other in sorted(found - seen)]
        seen |= found
    return None


def modules_in(package):
    return {m for m in FILES if m == package or m.startswith(f"{package}.")}


NEVER_TORCH = set().union(*map(modules_in, WITHOUT_TORCH)) - SEARCH_WITH_TORCH


def test_saved_estimates_merges_and_plots_do_not_import_torch():
    assert [way for way in map(way_to_torch, sorted(NEVER_TORCH)) if way] == []


def test_the_way_to_torch_leads_through_other_modules():
    assert way_to_torch("merging.neighbours.search") == ["merging.neighbours.search", "torch"]
    assert way_to_torch("pairwise.api")[-1] == "torch"
    assert way_to_torch("networks.network") == ["networks.network", "torch"]
    assert packages_of("data.rows.kinds") == {"unsplit", "data", "data.rows"}


def test_what_runs_later_or_for_type_checkers_only_is_not_imported_at_once():
    source = """
import os
if TYPE_CHECKING:
    import torch
else:
    import json
def later():
    import pandas
class Now:
    import csv
"""
    assert names_imported_at_once(source) == ["os", "json", "csv"]


def test_those_modules_can_be_imported_where_torch_cannot():
    modules = ["unsplit" if m == "unsplit" else f"unsplit.{m}" for m in sorted(NEVER_TORCH)]
    program = f"""
from importlib import import_module
for name in {modules}:
    import_module(name)
"""
    assert run_without_torch(program) == ""


def test_optional_packages_are_imported_only_inside_functions():
    for module in FILES:
        assert not {name.split(".")[0] for name in AT_ONCE[module]} & OPTIONAL, module


def test_import_works_without_the_optional_packages():
    # Asking whether pandas was loaded would say nothing: scikit-learn loads it where it can.
    program = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))  # importing them is now an error
import unsplit
found = [getattr(unsplit, name) for name in unsplit.__all__]
print(unsplit.pairwise_tvd.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pairwise_tvd"


def test_importing_the_package_loads_nothing_heavy():
    program = """
import sys
import unsplit
print(*sorted({"torch", "numpy", "sklearn", "scipy"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_every_public_name_is_found_and_listed():
    for name in unsplit.__all__:
        assert getattr(unsplit, name) is getattr(unsplit, name)
    assert set(unsplit.__all__) <= set(dir(unsplit))
    assert unsplit.__all__ == sorted(unsplit.__all__)
    assert len(unsplit.__all__) == 20
    with pytest.raises(AttributeError, match="module 'unsplit' has no attribute 'merg'"):
        unsplit.merg  # noqa: B018


@pytest.mark.parametrize("name", sorted(MOVED))
def test_a_name_that_moved_is_where_the_message_says(name):
    said = f"unsplit.{name} has moved; write from {MOVED[name]} import {name}."
    with pytest.raises(ImportError, match=re.escape(said)):
        getattr(unsplit, name)
    assert hasattr(import_module(MOVED[name]), name)


def test_type_checkers_see_the_names_that_are_imported_later():
    tree = ast.parse(FILES["unsplit"].read_text(encoding="utf-8"))
    (block,) = filter(for_type_checkers, tree.body)
    seen = set(imported_names("\n".join(ast.unparse(node) for node in block.body)))
    assert seen == {f"{module}.{name}" for name, module in unsplit._DEFINED_IN.items()}
