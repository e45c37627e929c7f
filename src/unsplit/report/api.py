"""Make a page from a tree, and from what is known about its clusters and observations."""

import base64
import csv
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import StrictUndefined, Template
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from unsplit._typing import Index
from unsplit.data.labels import encode_labels
from unsplit.data.saving import plain_values, replacing, verify_folder
from unsplit.devices import version_of
from unsplit.errors import InputError, shown
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.figures import matrix_of
from unsplit.report import sections
from unsplit.report.collect import NAME as KEPT
from unsplit.report.collect import Kept, Source, collect
from unsplit.report.sections import MOST_LEAVES, View

PAGE = "report.html"
RESULT = "result.json"
NEEDED = ("tree.npz", "distances.npz", "labels.csv", RESULT)
TEMPLATES = Path(__file__).parent / "templates"
# In the order in which they need each other.
SCRIPTS = (
    "model.js", "elements.js", "picture.js", "tree.js", "matrix.js", "clusters.js", "review.js",
    "downloads.js", "main.js",
)  # fmt: skip


class Report:
    """A page about a merge, as one HTML file without any reference to the network.

    A notebook shows it in a frame.

    Parameters
    ----------
    html : str
        The whole page.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> "3 clusters merge into 2" in tree.report().html
    True
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, replacing an older one.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile, unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.report().save(tempfile.mkdtemp() + "/report.html")
        """
        with replacing(path) as new:
            new.write_bytes(self.html.encode("utf-8", "backslashreplace"))

    def _repr_html_(self) -> str:
        """The page in a frame, which keeps its style and the notebook's apart."""
        content = html.escape(self.html, quote=True)
        return (
            f'<iframe title="Unsplit report" srcdoc="{content}" '
            'style="width:100%;height:900px;border:1px solid #8888;border-radius:6px"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report: {len(self.html) / 1e6:.1f} MB of HTML; write it with save(path)"


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that a page is made from.

    Parameters
    ----------
    tree : MergeTree
    distances : PairwiseTVD, array-like of shape (k, k) or None
    kept : Kept
        What is kept of the observations.
    clusters : ndarray of shape (n,) or None
        Index of each observation's initial cluster.
    row_ids : ndarray of shape (n,) or None
    about : mapping
        Settings, versions and the command, each as a table of names and values.
    live : str
        Where answers are saved if the page is served and sends them; otherwise empty.
    """

    tree: MergeTree
    distances: PairwiseTVD | ArrayLike | None = None
    kept: Kept = field(default_factory=Kept)
    clusters: Index | None = None
    row_ids: NDArray[Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    live: str = ""


def report(
    tree: MergeTree,
    distances: PairwiseTVD | ArrayLike | None = None,
    X: Any = None,
    labels: ArrayLike | None = None,
    *,
    row_ids: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    picture: ArrayLike | None = None,
    image_shape: Sequence[int] | None = None,
) -> Report:
    """Make a page about a merge: the answer, the tree, the data, and pairs to review.

    Parameters
    ----------
    tree : MergeTree
        The result of a merge.
    distances : PairwiseTVD or array-like of shape (k, k), optional
        The distances that the tree was made from.  A matrix must lie in [0, 1].
    X : array-like, SciPy sparse matrix, list of sequences, or torch Dataset, optional
        The observations, for a picture and for exemplars.
    labels : array-like of shape (n,), optional
        The initial cluster of every observation; needed with X.
    row_ids : array-like of shape (n,), optional
        Names of the observations, for the table of labels.
    feature_names : sequence of d str, optional
        Names of the features, by default those of a data frame.  If all end in a row and a column,
        such as "pixel_0_7", they are drawn as images.
    picture : array-like of shape (n, 2), optional
        Where to draw each observation, for example ``adata.obsm["X_umap"]``; otherwise t-SNE or
        PCA place them.
    image_shape : (height, width), optional
        Draw each row of X as an image of so many pixels, dark where values are large.

    Returns
    -------
    Report
        A notebook shows it; ``save`` writes it to a file.

    Examples
    --------
    >>> import unsplit
    >>> X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 40, random_state=0)
    >>> result = unsplit.pairwise_tvd(X, labels, cv=2, random_state=0)
    >>> unsplit.merge(result, n_clusters=2).report(result, X, labels)
    Report: ... MB of HTML; write it with save(path)
    """
    if X is not None and labels is None:
        raise InputError("labels is required with X; pass the initial cluster of every row.")
    clusters = None if labels is None else clusters_of(tree, X, labels)
    if row_ids is not None and (clusters is None or np.shape(row_ids) != clusters.shape):
        raise InputError(
            f"row_ids must name each observation in labels, got {shown(row_ids)}; pass one id for "
            "each label."
        )
    kept = Kept()
    if X is not None and clusters is not None:
        named = getattr(X, "columns", None) if feature_names is None else feature_names
        feature_names = None if named is None else list(map(str, named))
        source = Source(
            X, clusters, tree.n_initial, feature_names, picture, image_shape=image_shape
        )
        kept = collect(source, _estimate(distances))
    elif any(given is not None for given in (feature_names, picture, image_shape)):
        raise InputError(
            "feature_names, picture and image_shape are about X, which is missing; pass X and "
            "labels as well."
        )
    ids = None if row_ids is None else np.asarray(row_ids)
    return make_page(Content(tree, distances, kept, clusters, ids))


def _estimate(distances: PairwiseTVD | ArrayLike | None) -> PairwiseTVD | None:
    """The distances if they are an estimate for all pairs, which knows more than a matrix."""
    dense = isinstance(distances, PairwiseTVD) and not distances.is_sparse
    return distances if dense else None  # type: ignore[return-value]


def clusters_of(tree: MergeTree, X: Any, labels: ArrayLike) -> Index:
    """The index of each observation's cluster in the tree."""
    n = None  # where only reading would tell how many there are
    if len(getattr(X, "shape", ())):
        n = int(X.shape[0])
    elif hasattr(X, "__len__"):
        n = len(X)
    encode_labels(labels, n, at_least=1)
    unmerged = replace(tree, taken=np.zeros_like(tree.taken))
    return np.asarray(unmerged.labels(labels))


@np.errstate(all="ignore")
def make_page(content: Content, most_leaves: int = MOST_LEAVES) -> Report:
    """Make the page of a tree, which is folded to ``most_leaves`` leaves if it is larger."""
    tree, kept = content.tree, content.kept
    view = View(tree, most_leaves)
    estimate = _estimate(content.distances)
    noise = 0 if content.clusters is None else int((content.clusters < 0).sum())
    noise = noise if estimate is None else estimate.n_noise
    given = content.distances
    if given is not estimate and isinstance(given, PairwiseTVD) and view.folded:
        given = None  # sparse: there is no room for all pairs of very many clusters
    matrix = None if given is None else matrix_of(tree, given)
    return _rendered(
        {
            "answer": sections.answer(tree, noise, len(view.leaves) if view.folded else None),
            "tree": sections.tree_section(view),
            "matrix": sections.matrix_section(view, matrix, estimate),
            "picture": sections.picture_section(view, kept),
            "exemplars": sections.exemplar_section(view, kept),
            "features": sections.feature_section(view, kept),
            "review": sections.review_section(view, estimate),
            "labels": sections.label_section(view, content.clusters, content.row_ids),
            "training": sections.training_words(estimate),
            "about": _about(tree) | dict(content.about),
            "live": content.live,
        }
    )


def _about(tree: MergeTree) -> dict[str, Any]:
    """What is known about a run from its tree alone."""
    rows = [("strategy", tree.strategy), ("statistic", tree.statistic)]
    return {
        "tables": [{"title": "Settings", "rows": [*rows, ("unsplit", version_of("unsplit"))]}],
        "command": "",
        "again": 'unsplit.merge(distances, constraints="unsplit-review.json")',
    }


def _rendered(data: Mapping[str, Any]) -> Report:
    """The page with data, template, style and script in one file, and every text escaped."""
    script = "\n".join(_text(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = Template(
        _text("page.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = template.render(
        answer=data["answer"],
        about=data["about"],
        training=data["training"],
        live=data["live"],
        data=htmlsafe_json_dumps(plain_values(data), separators=(",", ":"), allow_nan=False),
        style=Markup(_text("page.css")),
        script=Markup(script),
        script_hash=digest,
    )
    return Report(page)


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def files_of_result(path: str | os.PathLike[str]) -> list[str]:
    """Verify a folder that ``unsplit merge`` wrote, and return the names of its files.

    Only its page may have changed.
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


def content_of_folder(path: str | os.PathLike[str]) -> tuple[Content, dict[str, Any]]:
    """Verify and read such a folder: what its page needs, and its result.json.

    A picture of the data and exemplars are in it only if it was written with ``--report``.
    """
    folder, files = Path(path), files_of_result(path)
    tree = MergeTree.load(folder / "tree.npz")
    distances = PairwiseTVD.load(folder / "distances.npz")
    kept = Kept.load(folder / KEPT, tree.n_initial) if KEPT in files else Kept()
    ids, clusters = _rows(folder / "labels.csv", tree)
    result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return Content(tree, distances, kept, clusters, ids), result


def _rows(path: Path, tree: MergeTree) -> tuple[NDArray[Any], Index]:
    """The ids and the initial clusters of labels.csv."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["id"], row["old"]) for row in csv.DictReader(file)]
    names = tree.cluster_ids.tolist()
    place = {"": -1, "-1": -1} | {str(name): i for i, name in enumerate(names)}
    return np.array([one for one, _ in rows]), np.array([place[old] for _, old in rows], np.int64)
