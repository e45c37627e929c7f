"""Who may import whom."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import unsplit

ROOT = Path(unsplit.__file__).parent

# Module: the modules of ours it may import.  From the ground up; nothing imports upwards.
MAY_IMPORT = {
    "errors": set(),
    "stats": set(),
    "datasets": set(),
    "losses": set(),
    "sampling": set(),
    "dip": {"errors"},
    "files": {"errors"},
    "devices": {"errors"},
    "randomness": {"errors"},
    "labels": {"errors", "sampling"},
    "metrics": {"errors", "labels"},
    "data.arrays": {"errors", "sampling"},
    "data.tables": {"errors"},
    "data.formats": {"data.tables", "errors"},
    "data.rows": {"data.formats", "data.tables", "errors", "sampling"},
    "data.files": {"data.formats", "data.rows", "data.tables", "errors"},
    "data": {"data.arrays"},
    "overclustering.bounds": set(),
    "overclustering.greedy": {"devices", "errors", "overclustering.bounds"},
    "overclustering.artificial": {"errors", "labels", "randomness"},
    "overclustering.clusterers": {"errors", "randomness"},
    "overclustering": {
        "overclustering.artificial", "overclustering.clusterers", "overclustering.greedy",
    },
    "baselines.distances": {"data.arrays", "labels", "sampling"},
    "baselines.confusion": {"data.arrays", "errors", "labels", "randomness", "sampling"},
    "baselines": {"baselines.confusion", "baselines.distances"},
    "backbones.vectors": set(),
    "backbones": {"backbones.vectors"},
    "heads": {"losses"},
    "ensemble": {"heads", "sampling"},
    "networks": {"backbones", "data", "ensemble", "errors", "heads", "sampling"},
    "training": {"ensemble", "sampling"},
    "scores": {"ensemble", "sampling"},
    "divergences": {"ensemble", "errors", "scores"},
    "result": {
        "devices", "divergences", "errors", "files", "sampling", "scores", "stats", "training",
    },
    "heldout": {
        "data", "devices", "divergences", "ensemble", "labels", "networks", "randomness",
        "result", "sampling", "scores", "training",
    },
    "estimation": {
        "data", "devices", "errors", "heldout", "labels", "losses", "networks", "randomness",
        "result", "sampling", "training",
    },
    "merging.constraints": {"errors"},
    "merging.closest": {"sampling"},
    "merging.contrast": {"dip", "sampling", "stats"},
    "merging.tree": {"errors", "files", "labels", "sampling"},
    "merging.clusters": {"devices", "merging.contrast", "result", "sampling"},
    "merging.rules": {"merging.clusters", "merging.contrast", "sampling"},
    "merging.agglomerate": {
        "errors", "merging.closest", "merging.clusters", "merging.constraints", "merging.rules",
        "merging.tree", "sampling",
    },
    "merging.choices": {"errors", "merging.rules", "result"},
    "merging.given": {"errors", "result", "sampling"},
    "merging.front": {
        "merging.agglomerate", "merging.choices", "merging.clusters", "merging.constraints",
        "merging.given", "merging.rules", "merging.tree", "randomness", "result", "sampling",
    },
    "merging": {"merging.choices", "merging.front", "merging.tree"},
    "pipeline": {
        "estimation", "heldout", "labels", "merging.agglomerate", "merging.choices",
        "merging.clusters", "merging.constraints", "merging.front", "merging.tree", "randomness",
        "result", "sampling",
    },
    "estimator": {
        "estimation", "heldout", "merging.constraints", "overclustering", "pipeline",
        "randomness", "sampling", "training",
    },
    "plots.style": set(),
    "plots.layout": {"merging.tree", "sampling"},
    "plots.branches": {"errors", "merging.tree", "plots.layout", "plots.style", "sampling"},
    "plots.curve": {"merging.tree", "plots.style", "sampling"},
    "plots.matrix": {"errors", "merging.tree", "plots.layout", "plots.style", "result", "sampling"},
    "plots.saving": {
        "errors", "files", "merging.tree", "plots.branches", "plots.curve", "plots.matrix",
        "result",
    },
    "plots": {"plots.branches", "plots.curve", "plots.matrix", "plots.saving"},
    "unsplit": {
        "baselines", "datasets", "errors", "estimation", "estimator", "merging", "metrics",
        "overclustering", "result", "training",
    },
    "demo": {"data.files", "merging.tree", "sampling"},
    "cli.words": {"merging.tree", "result", "sampling"},
    "cli.options": {"estimation"},
    "cli.course": {"errors", "merging.agglomerate", "training"},
    "cli.choices": {"pipeline"},
    "cli.outputs": {
        "cli.course", "data.files", "devices", "errors", "estimation", "files", "merging.tree",
        "pipeline", "plots", "result", "unsplit",
    },
    "cli.resume": {"errors", "files", "merging.agglomerate", "merging.tree", "unsplit"},
    "cli.run": {
        "cli.course", "cli.outputs", "cli.resume", "data.files", "estimation", "labels",
        "merging.agglomerate", "pipeline",
    },
    "cli.demo": {
        "cli.course", "cli.outputs", "cli.run", "cli.words", "data.files", "demo", "estimation",
        "files", "pipeline",
    },
    "cli.distances": {
        "cli.course", "cli.options", "cli.outputs", "cli.run", "cli.words", "data.files",
        "estimation", "files",
    },
    "cli.merge": {
        "cli.choices", "cli.course", "cli.options", "cli.outputs", "cli.resume", "cli.run",
        "cli.words", "data.files", "divergences", "estimation", "files", "merging",
    },
    "cli.overcluster": {
        "cli.choices", "cli.course", "cli.options", "cli.outputs", "cli.run", "cli.words",
        "data.files", "errors", "files", "overclustering", "sampling",
    },
    "cli.program": {
        "cli.demo", "cli.distances", "cli.merge", "cli.overcluster", "cli.run", "errors",
        "unsplit",
    },
    "cli": {"cli.program"},
    "__main__": {"cli"},
}  # fmt: skip

# They judge numbers, whatever made them.
NO_TORCH = [
    "stats", "dip", "merging.tree", "merging.contrast", "merging.rules", "merging.closest",
    "merging.constraints",
]  # fmt: skip

# Needed for some files, tables and figures only.
OPTIONAL = {"pandas", "matplotlib", "pyarrow", "h5py"}


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
    """The modules of ours among the names; ``unsplit.stats.f`` is module ``stats``."""
    for name in names:
        top, *parts = name.split(".")
        if top != "unsplit":
            continue
        while parts and ".".join(parts) not in FILES:
            parts.pop()
        yield ".".join(parts) or "unsplit"


def imports_of(module):
    return list(imported_names(FILES[module].read_text(encoding="utf-8")))


def test_every_module_is_in_the_table_and_every_entry_is_a_module():
    assert set(MAY_IMPORT) == set(FILES)


@pytest.mark.parametrize("module", sorted(FILES))
def test_module_imports_only_what_the_table_allows(module):
    assert set(our_modules(imports_of(module))) <= MAY_IMPORT.get(module, set())


def test_table_has_no_circle():
    order = list(TopologicalSorter(MAY_IMPORT).static_order())
    assert set(order) == set(MAY_IMPORT)


def test_only_the_package_itself_imports_metrics():
    # Nothing that trains, estimates or merges may see the ground truth.
    users = {module for module in FILES if "metrics" in our_modules(imports_of(module))}
    assert users == {"unsplit"}


@pytest.mark.parametrize("module", NO_TORCH)
def test_numbers_are_judged_without_torch(module):
    assert "torch" not in {name.split(".")[0] for name in imports_of(module)}


def test_stats_imports_nothing_of_ours_that_could_import_torch():
    assert list(our_modules(imports_of("stats"))) == []


def test_the_walk_sees_every_way_to_import():
    source = """
import unsplit.stats as s
from unsplit import metrics
from unsplit.data.arrays import VectorRows
from unsplit import __version__
def later():
    from unsplit.labels import encode_labels
    import torch.nn
"""
    names = list(imported_names(source))
    expected = {"stats", "metrics", "data.arrays", "unsplit", "labels"}
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
