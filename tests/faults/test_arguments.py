"""Every parameter of every public function, given values of the wrong kind.

Each value is refused in one sentence, an InputError, unless the table says that it is right.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unsplit
from unsplit import datasets, metrics, overclustering, plots
from unsplit.data.saving import verify_folder
from unsplit.pairwise.wasserstein import PairwiseWasserstein
from unsplit.selection import Candidate

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.standard_normal((12, 2)), RNG.standard_normal((12, 2)) + 4])
Y = np.repeat([0, 1], 12)
D = [[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]]
CATEGORIES = ["a", "b"] * 12
TABLE = [[5, 0], [4, 1], [0, 5]]
MEANS = [[0, 1], [1, 2]]
P = [[0.5, 0.5], [1.0, 0.0]]

VALUES: dict[str, Any] = {
    "bool": True,
    "str": "a",
    "None": None,
    "list": [1, 2],
    "nan": float("nan"),
    "inf": float("inf"),
    "float": 1.5,
    "negative": -1,
    "dict": {},
    "object": object(),
    "array": np.array([0.5, 0.2]),
    "square": np.ones((2, 2)),
}
ANYTHING = " ".join(VALUES)

ESTIMATE: dict[str, Any] = {"X": X, "labels": Y, "random_state": 0}
QUICK = unsplit.TrainConfig(epochs=1)
FIT: dict[str, Any] = {"X": X, "initial_labels": Y}


def tree() -> unsplit.MergeTree:
    return unsplit.merge(D, n_clusters=1)


def estimate() -> unsplit.PairwiseTVD:
    return unsplit.pairwise_tvd(**ESTIMATE, training=QUICK, cv=2)


def merger(**settings: Any) -> unsplit.ClusterMerger:
    return unsplit.ClusterMerger(**{"training": QUICK, "cv": 2, "random_state": 0, **settings})


TREE, TVD = tree(), estimate()
SPARSE = unsplit.pairwise_tvd(**ESTIMATE, training=QUICK, cv=2, form="sparse")
WASSERSTEIN = unsplit.pairwise_wasserstein(**ESTIMATE, epochs=1, cv=2, n_maps=1)
GRAPH = unsplit.neighbour_graph(X, Y)
FITTED = merger().fit(**FIT)


def to_fit(**settings: Any) -> unsplit.ClusterMerger:
    return merger(**settings).fit(**FIT)


# For each function a call that works, and the kinds of values that are right for its parameters;
# for those that are not named, none is.
PATH = {"path": "str"}
STOP = {"n_clusters": "None list", **dict.fromkeys(("max_tvd", "alpha", "constraints"), "None")}
MERGE = {**STOP, "rule": "None"}
TRAIN = {
    "batch": "None",
    "groups": "None",
    "training": "None",
    "random_state": "None",
    "progress": "bool",
    "checkpoint": "None str",
}
DATA = {"y": ANYTHING, **dict.fromkeys(("initial_labels", "batch", "groups", "features"), "None")}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, str]]] = {
    "pairwise_tvd": (unsplit.pairwise_tvd, {**ESTIMATE, "training": QUICK, "cv": 2}, TRAIN),
    "pairwise_wasserstein": (
        unsplit.pairwise_wasserstein,
        {**ESTIMATE, "epochs": 1, "cv": 2, "n_maps": 1},
        {"random_state": "None", "progress": "bool"},
    ),
    "merge": (
        unsplit.merge,
        {"distances": TVD},
        {**MERGE, "neighbours": "None", "random_state": "None"},
    ),
    "merge a matrix": (
        unsplit.merge,
        {"distances": D, "n_clusters": 2},
        {
            **MERGE,
            "distances": "square",
            "n_clusters": "",
            "neighbours": "None",
            "random_state": "None",
        },
    ),
    "paper": (
        unsplit.paper,
        {**ESTIMATE, "training": QUICK, "n_clusters": 1},
        {"training": "None", "random_state": "None"},
    ),
    "refine": (unsplit.refine, {"labels": Y, "neighbours": GRAPH}, {"distances": "None"}),
    "neighbour_graph": (
        unsplit.neighbour_graph,
        {"X": X, "labels": Y},
        {"batch": "None", "groups": "None", "everything": "bool"},
    ),
    "select": (
        unsplit.select,
        {**ESTIMATE, "training": QUICK, "candidates": ["single-layer"]},
        {
            "candidates": "None",
            "batch": "None",
            "groups": "None",
            "training": "None",
            "random_state": "None",
            "progress": "bool",
        },
    ),
    "read": (
        unsplit.read,
        {"path": "x.csv"},
        {
            **dict.fromkeys(("labels", "batch", "groups"), "str None"),
            **dict.fromkeys(("id", "features", "progress", "use_rep", "missing"), "None"),
            "scale": "bool",
        },
    ),
    "features": (
        unsplit.features,
        {"network": torch.nn.Flatten(), "X": X},
        {"X": "square", "transform": "None", "kind": "None", "progress": "bool"},
    ),
    "verify_folder": (verify_folder, {"path": "result"}, {}),
    "TrainConfig": (
        unsplit.TrainConfig,
        {},
        {
            "augment": "bool",
            "learning_rate": "float None",
            "weight_decay": "float None",
            "batch_size": "None",
            "patience": "None",
            "batch_folds": "bool None",
        },
    ),
    "Candidate": (Candidate, {}, {}),
    "ClusterMerger": (to_fit, {}, {**TRAIN, **STOP, "overclusterer": "None"}),
    "ClusterMerger.fit": (merger().fit, FIT, DATA),
    "ClusterMerger.predict": (FITTED.predict, {"X": X}, {"X": "square"}),
    "ClusterMerger.predict_proba": (FITTED.predict_proba, {"X": X}, {"X": "square"}),
    "ClusterMerger.describe": (FITTED.describe, {"X": X}, {}),
    "ClusterMerger.transform": (FITTED.transform, {"X": X}, {"X": "square"}),
    "ClusterMerger.report": (
        lambda X=None, image_shape=None: FITTED.report(X, image_shape=image_shape),
        {},
        {"X": "None", "image_shape": "None list"},
    ),
    "MergeTree.labels": (TREE.labels, {"initial_labels": [0, 1]}, {"initial_labels": "list"}),
    "MergeTree.cut": (TREE.cut, {}, {"height": "inf float negative"}),
    "MergeTree.undo": (TREE.undo, {"step": 0}, {}),
    "MergeTree.report": (
        TREE.report,
        {"distances": D},
        dict.fromkeys(inspect.signature(TREE.report).parameters, "None")
        | {"labels": "None list", "distances": "None"},
    ),
    "MergeTree.name": (TREE.name, {"node": 0}, {}),
    "MergeTree.why": (TREE.why, {"a": 0, "b": 1}, {}),
    "MergeTree.save": (TREE.save, {"path": "new.npz"}, PATH),
    "MergeTree.load": (unsplit.MergeTree.load, {"path": "tree.npz"}, {}),
    "PairwiseTVD.save": (TVD.save, {"path": "new.npz"}, {**PATH, "scores": "bool"}),
    "PairwiseTVD.load": (unsplit.PairwiseTVD.load, {"path": "tvd.npz"}, {}),
    "PairwiseTVD.divergence": (TVD.divergence, {}, {}),
    "PairwiseTVD.reordered": (TVD.reordered, {"order": [1, 0]}, {}),
    "PairwiseTVD.confidence_interval": (TVD.confidence_interval, {}, {}),
    "PairwiseTVD.table": (TVD.table, {}, {}),
    "PairwiseTVD.to_frame": (TVD.to_frame, {}, {}),
    "PairwiseWasserstein.save": (WASSERSTEIN.save, {"path": "new.npz"}, PATH),
    "PairwiseWasserstein.load": (PairwiseWasserstein.load, {"path": "w1.npz"}, {}),
    "datasets.gaussians": (
        datasets.gaussians,
        {"means": MEANS, "size": 3},
        {"means": "square", "random_state": "None"},
    ),
    "datasets.gaussians_tvd": (datasets.gaussians_tvd, {"means": MEANS}, {"means": "square"}),
    "datasets.mixtures": (
        datasets.mixtures,
        {"weights": [0.5, 1], "separation": 2.0, "n_features": 2, "size": 3},
        {"weights": "array", "separation": "float", "random_state": "None"},
    ),
    "datasets.mixtures_tvd": (
        datasets.mixtures_tvd,
        {"weights": [0.5, 1], "separation": 2.0},
        {"weights": "array", "separation": "float"},
    ),
    "datasets.scaled_gaussians": (
        datasets.scaled_gaussians,
        {"scales": [1, 2], "size": 3},
        {"scales": "list array", "random_state": "None"},
    ),
    "datasets.scaled_gaussians_tvd": (
        datasets.scaled_gaussians_tvd,
        {"scales": [1, 2]},
        {"scales": "list array"},
    ),
    "datasets.discrete": (
        datasets.discrete,
        {"probabilities": P, "size": 3},
        {"random_state": "None"},
    ),
    "datasets.discrete_tvd": (datasets.discrete_tvd, {"probabilities": P}, {}),
    "metrics.majority_categories": (
        metrics.majority_categories,
        {"labels": Y, "categories": CATEGORIES},
        {},
    ),
    "metrics.purity": (metrics.purity, {"labels": Y, "categories": CATEGORIES}, {}),
    "metrics.category_counts": (
        metrics.category_counts,
        {"labels": Y, "categories": CATEGORIES},
        {},
    ),
    "metrics.n_unique_majorities": (
        metrics.n_unique_majorities,
        {"labels": Y, "categories": CATEGORIES},
        {},
    ),
    "metrics.quality": (metrics.quality, {"distances": D, "majorities": ["a", "a", "b"]}, {}),
    "metrics.correct_merges": (
        metrics.correct_merges,
        {"merges": [(0, 1), (3, 2)], "cluster_categories": TABLE},
        {"merges": "square"},
    ),
    "overclustering.artificial": (
        overclustering.artificial,
        {"categories": CATEGORIES, "size": 3},
        {"random_state": "None"},
    ),
    "overclustering.default_clusterer": (
        overclustering.default_clusterer,
        {"n_observations": 30},
        {},
    ),
    "overclustering.greedy_dense": (
        overclustering.greedy_dense,
        {"R": X, "n_clusters": 2, "size": 3},
        {},
    ),
    "overclustering.overcluster": (
        overclustering.overcluster,
        {"X": X, "random_state": 0},
        {"clusterer": "None", "random_state": "None"},
    ),
    "plots.dendrogram": (plots.dendrogram, {"tree": TREE}, {"ax": "None", "most_leaves": "None"}),
    "plots.distances": (plots.distances, {"tree": TREE, "tvd": D}, {"ax": "None"}),
    "plots.merge_curve": (plots.merge_curve, {"tree": TREE}, {"ax": "None"}),
    "plots.save_figures": (
        plots.save_figures,
        {"folder": "figures", "tree": TREE, "tvd": D},
        {"folder": "str", "tvd": "None"},
    ),
}

# Classes whose objects the library makes; users only read them.
MADE = {
    "EpochRecord", "History", "Merge", "MergeTree", "NeighbourGraph", "PairwiseTVD",
    "PairwiseWasserstein", "Selection", "StepRecord",
}  # fmt: skip
# Called by the library alone.
WITHIN = {
    "PairwiseTVD.nearest",
    "TrainConfig.over",
    "History.of",
    "ClusterMerger.set_fit_request",
    "Reporter",
    "ClusterMerger.fit_predict",  # it calls fit
    *(f"Reporter.on_{what}" for what in ("phase", "progress", "step", "epoch", "resume")),
}


def parameters(name: str) -> list[str]:
    function = unsplit.ClusterMerger if name == "ClusterMerger" else CALLS[name][0]
    return list(inspect.signature(function).parameters)


def public_functions() -> Iterator[str]:
    """Names of everything public that takes parameters."""
    for module, prefix in [
        (unsplit, ""),
        (datasets, "datasets."),
        (metrics, "metrics."),
        (overclustering, "overclustering."),
        (plots, "plots."),
    ]:
        for name in getattr(module, "__all__", vars(module)):
            thing = getattr(module, name)
            own = getattr(thing, "__module__", "").startswith(module.__name__)
            if inspect.isfunction(thing) and own and not name.startswith("_"):
                yield prefix + name
            if inspect.isclass(thing) and own and not issubclass(thing, Exception):
                yield from () if name in MADE else [prefix + name]
                yield from (f"{name}.{method}" for method in methods(thing))


def methods(thing: type) -> Iterator[str]:
    for name in vars(thing):
        if not name.startswith("_") and callable(getattr(thing, name)):
            taken = [p for p in inspect.signature(getattr(thing, name)).parameters if p != "self"]
            if taken:
                yield name


def test_the_table_has_every_public_function() -> None:
    found = set(public_functions()) - WITHIN
    assert len(found) > 40
    assert found <= set(CALLS), "add what is new to CALLS"
    for name, (_, base, right) in CALLS.items():
        extra = {"batch", "groups"} if name == "ClusterMerger" else set()
        assert {*base, *right} <= {*parameters(name), *extra}, name


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("x.csv", X, delimiter=",", header="a,b", comments="")
    TREE.save("tree.npz")
    TVD.save("tvd.npz")
    SPARSE.save("sparse.npz")
    WASSERSTEIN.save("w1.npz")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrong_kinds_are_refused_in_one_sentence(name: str) -> None:
    call, base, right = CALLS[name]
    wrong = []
    for parameter in parameters(name):
        for kind, value in VALUES.items():
            expected = "works" if kind in right.get(parameter, "").split() else "refused"
            found = outcome(call, {**base, parameter: value})
            if found != expected:
                wrong.append(f"{parameter}={value!r} {found}, not {expected}")
    assert not wrong


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            call(**given)
    except unsplit.InputError as error:
        sentence = str(error)
        plain = "\n" not in sentence and len(sentence) < 700 and sentence.endswith(".")
        return "refused" if plain else f"says {sentence!r}"
    except FileNotFoundError:
        return "refused"  # as documented for files of results that do not exist
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "works"
