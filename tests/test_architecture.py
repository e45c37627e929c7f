"""Who may import whom."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import unsplit

ROOT = Path(unsplit.__file__).parent

# Rooms from the ground up: a module imports from its own room and from the lines above its own.
LAYERS = [
    {"_typing", "errors"},
    {"datasets", "devices", "randomness"},
    {"data"},
    {"metrics", "networks", "overclustering"},
    {"pairwise"},
    {"merging", "selection"},
    {"pipeline", "plots"},
    {"estimator"},
    {"unsplit"},
    {"cli"},
    {"__main__"},
]
LAYER = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# They judge numbers, whatever made them.
NO_TORCH = [
    "pairwise.statistics", "merging.dip", "merging.tree", "merging.contrast", "merging.rules",
    "merging.closest_pairs", "merging.inputs", "merging.neighbours.neck",
    "merging.neighbours.structureless", "merging.neighbours.edges", "merging.neighbours.lumps",
    "merging.neighbours.evidence",
]  # fmt: skip

# Needed for some files, tables and figures only.
OPTIONAL = {"pandas", "matplotlib", "pyarrow", "h5py", "PIL", "trimesh", "pypcd4"}


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


def test_there_are_at_most_twenty_rooms_and_each_has_its_layer():
    entries = [path for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 20
    assert {room_of(module) for module in FILES} == set(LAYER)


@pytest.mark.parametrize("module", sorted(FILES))
def test_nothing_imports_from_a_room_above_its_own(module):
    here = room_of(module)
    for other in our_modules(imports_of(module)):
        assert room_of(other) == here or LAYER[room_of(other)] < LAYER[here], other


def test_no_modules_import_each_other_in_a_circle():
    list(
        TopologicalSorter({m: set(our_modules(imports_of(m))) - {m} for m in FILES}).static_order()
    )


def test_only_the_package_itself_imports_metrics():
    # Nothing that trains, estimates or merges may see the ground truth.
    users = {module for module in FILES if "metrics" in our_modules(imports_of(module))}
    assert users == {"unsplit"}


@pytest.mark.parametrize("module", NO_TORCH)
def test_numbers_are_judged_without_torch(module):
    assert "torch" not in {name.split(".")[0] for name in imports_of(module)}


def test_the_walk_sees_every_way_to_import():
    source = """
import unsplit.pairwise.statistics as s
from unsplit import metrics
from unsplit.data.rows.vectors import VectorRows
from unsplit import __version__
def later():
    from unsplit.data.labels import encode_labels
    import torch.nn
"""
    names = list(imported_names(source))
    expected = {"pairwise.statistics", "metrics", "data.rows.vectors", "unsplit", "data.labels"}
    assert set(our_modules(names)) == expected
    assert "torch.nn" in names


def run_on_import(tree):
    """The nodes that run when a module is imported: all but the bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from run_on_import(node)


@pytest.mark.parametrize("module", sorted(FILES))
def test_optional_packages_are_imported_only_inside_functions(module):
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    imports = [n for n in run_on_import(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    names = imported_names("\n".join(ast.unparse(node) for node in imports))
    assert not {name.split(".")[0] for name in names} & OPTIONAL


@pytest.mark.slow
def test_import_works_without_the_optional_packages():
    # Asking whether pandas was loaded would say nothing: scikit-learn loads it where it can.
    program = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))  # importing them is now an error
import unsplit
print(unsplit.pairwise_tvd.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pairwise_tvd"
