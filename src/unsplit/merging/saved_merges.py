"""Read merges back from a saved file, and refuse those that cannot be a tree."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from unsplit.data.content_check import ROUNDING, ContentCheck
from unsplit.merging.review import Merge

_NAMES = {field.name for field in fields(Merge)}
_COUNTS = {"left": 0, "right": 0, "size_left": 1, "size_right": 1, "n_border": 0}
_SHARES = ("tvd", "low", "high", "p_adjusted", "p_valley")
_AT_LEAST_0 = ("edges", "times_chance", "neck", "strength")


def read_merges(check: ContentCheck, content: Any, name: str) -> list[Merge]:
    """Turn a list of plain mappings into merges, each with possible values.

    Parameters
    ----------
    check : ContentCheck
    content : anything
        What the file holds; should be a list of mappings with the fields of :class:`Merge`.
    name : str
        What the list is called.

    Examples
    --------
    >>> read_merges(ContentCheck("tree.npz", "MergeTree", "make it again"), [], "merges")
    []
    >>> read_merges(ContentCheck("tree.npz", "MergeTree", "make it again"), [3], "merges")
    Traceback (most recent call last):
    unsplit.errors.InputError: tree.npz is not a valid MergeTree: merges must be a list of mappings; make it again.
    """  # noqa: E501
    mappings = isinstance(content, list) and all(isinstance(entry, dict) for entry in content)
    check.require(mappings, f"{name} must be a list of mappings")
    return [_read_merge(check, entry) for entry in content]


def _read_merge(check: ContentCheck, values: dict[str, Any]) -> Merge:
    check.names(values, _NAMES, set())
    for name, low in _COUNTS.items():
        check.integer(values, name, low, math.inf)
    for name in _SHARES:
        check.number(values, name, 0, 1, unknown=True, rounding=ROUNDING)
    for name in _AT_LEAST_0:
        check.number(values, name, 0, math.inf, unknown=True)
    check.number(values, "statistic", -math.inf, math.inf, unknown=True)
    check.number(values, "height", 0, math.inf)
    check.text(values, "why")
    return Merge(**values)


def check_tree(check: ContentCheck, merges: Sequence[Merge], k: int) -> None:
    """Refuse merges of clusters that do not exist yet or were merged before.

    Parameters
    ----------
    check : ContentCheck
    merges : sequence of Merge
        In order, and not more than k − 1.
    k : int
        Number of initial clusters.

    Examples
    --------
    >>> check_tree(ContentCheck("tree.npz", "MergeTree", "make it again"), [], 2)
    """
    check.require(len(merges) < k, f"{k} clusters have at most {k - 1} merges, got {len(merges)}")
    gone: set[int] = set()
    height = 0.0
    for step, merge in enumerate(merges):
        for node in (merge.left, merge.right):
            check.require(node < k + step, f"merge {step} uses cluster {node} before it exists")
            check.require(node not in gone, f"merge {step} uses cluster {node} a second time")
            gone.add(node)
        check.require(merge.height >= height, f"the height of merge {step} must not decrease")
        height = merge.height


def check_sizes(check: ContentCheck, pairs: Iterable[Merge], sizes: Sequence[int]) -> None:
    """Refuse pairs of unknown clusters, of a cluster with itself, or with wrong sizes.

    Parameters
    ----------
    check : ContentCheck
    pairs : iterable of Merge
    sizes : sequence of int
        Number of observations in all clusters of the tree, initial ones first.

    Examples
    --------
    >>> check_sizes(ContentCheck("tree.npz", "MergeTree", "make it again"), [], [3, 4, 7])
    """
    for pair in pairs:
        known = max(pair.left, pair.right) < len(sizes) and pair.left != pair.right
        check.require(
            known, f"clusters {pair.left} and {pair.right} must be two clusters of the tree"
        )
        check.require(
            (pair.size_left, pair.size_right) == (sizes[pair.left], sizes[pair.right]),
            f"the sizes of clusters {pair.left} and {pair.right} do not match those in sizes",
        )
