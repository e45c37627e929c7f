"""The page of a saved result folder."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from unsplit.data.array_files import saved_meta
from unsplit.data.saving import verify_folder
from unsplit.errors import InputError
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.pairwise.saved_estimates import SPARSE_FORMAT
from unsplit.pairwise.sparse.result import SparsePairwiseTVD
from unsplit.report.api import Content
from unsplit.report.kept import NAME as KEPT
from unsplit.report.kept import Kept

PAGE = "report.html"
RESULT = "result.json"
NEEDED = ("tree.npz", "distances.npz", "labels.csv", RESULT)


def content_of_folder(path: str | os.PathLike[str]) -> tuple[Content, dict[str, Any]]:
    """Read a folder that ``unsplit merge`` wrote: what its page needs, and its result.json.

    The folder is verified first: a result that is not complete, has changed or was written by
    another version is an error.

    Parameters
    ----------
    path : str or path
        The result folder.  A picture of the data and exemplars are part of the page if the folder
        was written with ``--report``.
    """
    folder, shown = Path(path), os.path.join(os.fspath(path), "")
    files = files_of_result(path)
    tree = MergeTree.load(folder / "tree.npz")
    distances = _distances(folder / "distances.npz")
    if not np.array_equal(tree.cluster_ids, distances.cluster_ids):
        raise InputError(
            f"the tree and the distances in {shown} are of different clusters; merge again."
        )
    kept = Kept.load(folder / KEPT, tree.n_initial) if KEPT in files else Kept()
    ids, clusters = _rows(folder / "labels.csv", tree)
    result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    # The page has no room for all pairs of very many clusters.
    all_pairs = distances if isinstance(distances, PairwiseTVD) else None
    return Content(tree, all_pairs, kept, clusters, ids), result


def _distances(path: Path) -> PairwiseTVD | SparsePairwiseTVD:
    sparse = saved_meta(path).get("format") == SPARSE_FORMAT
    return SparsePairwiseTVD.load(path) if sparse else PairwiseTVD.load(path)


def files_of_result(path: str | os.PathLike[str]) -> list[str]:
    """Verify a folder that ``unsplit merge`` wrote, and return the names of its files.

    Parameters
    ----------
    path : str or path
        The result folder; its page may have changed.
    """
    if not Path(path).is_dir():
        raise InputError(f"{path} is not a folder; name the --out of an earlier unsplit merge.")
    files = verify_folder(path, ignore={PAGE})
    missing = [name for name in NEEDED if name not in files]
    if missing:
        raise InputError(
            f"{os.path.join(os.fspath(path), '')} is not the result of unsplit merge: it has no "
            f"{missing[0]}; name the --out of an earlier unsplit merge."
        )
    return files


def _rows(path: Path, tree: MergeTree) -> tuple[Any, Any]:
    """The ids and the initial clusters of labels.csv."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = [(row["id"], row["old"]) for row in reader]
    place = {str(name): i for i, name in enumerate(tree.cluster_ids.tolist())}
    unknown = {old for _, old in rows} - place.keys() - {"", "-1"}
    if unknown:
        raise InputError(
            f"{path} has the cluster {min(unknown)!r}, which is not in the tree; merge again."
        )
    clusters = np.array([place.get(old, -1) for _, old in rows], np.int64)
    ids = np.array([one for one, _ in rows])
    counted = np.array_equal(ids, np.arange(len(ids)).astype(str))
    return (np.arange(len(ids)) if counted else ids), clusters
