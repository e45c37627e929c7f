"""The answer of a merge in words."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from unsplit.merging.decision import UNCLEAR
from unsplit.merging.review import Row
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.scores import DIVERGENCES

LONGEST_NAME = 28
MOST_NAMES = 3
# How many unclear pairs the first paragraph names.
N_FIRST = 3

RANKED_BY = DIVERGENCES | {"distance": "the distances that were passed"}


def counted(n: int, thing: str) -> str:
    """Join a number and what it counts.

    Examples
    --------
    >>> counted(1, "cluster"), counted(1200, "pair")
    ('1 cluster', '1,200 pairs')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def isolated(name: object) -> str:
    r"""A name between marks that keep right-to-left text from turning the words around it.

    Examples
    --------
    >>> isolated("B cells") == "\u2068B cells\u2069"
    True
    """
    text = " ".join(str(name).split())
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return f"\u2068{text}\u2069"


def group(names: Iterable[object]) -> str:
    r"""The first names of a group, and how many more there are.

    Examples
    --------
    >>> group("abcde").replace("\u2068", "").replace("\u2069", "")
    'a + b + c + 2 more'
    """
    names = list(names)
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*map(isolated, names[:MOST_NAMES]), *more])


def headline(tree: MergeTree) -> str:
    """What happened, in one sentence.

    Examples
    --------
    >>> import unsplit
    >>> headline(unsplit.merge([[0, 0.1], [0.1, 0]], n_clusters=1))
    '2 clusters are really 1'
    """
    if not tree.taken.any():
        return f"All {counted(tree.n_initial, 'cluster')} are different"
    return f"{counted(tree.n_initial, 'cluster')} are really {tree.n_clusters:,}"


def why_stopped(tree: MergeTree) -> str:
    """By which rule merging stopped, and what ranked the pairs."""
    sentence = f"Merging stopped because {tree.stopped}."
    if tree.strategy == "neighbours":
        return (
            f"{sentence} The clusters seem to be cut out of the same features, where every pair "
            "differs by construction, so nearest neighbours decided. If they come from elsewhere, "
            "such as classes given by hand, merge with --labels-from elsewhere: then tests decide."
        )
    return f"{sentence} Pairs were ranked by {RANKED_BY.get(tree.statistic, tree.statistic)}."


def how_sure(rows: list[Row]) -> str:
    """How many pairs are clear, and how many a person should look at."""
    words = Counter(row.pair.verdict for row in rows)
    told = sum(row.against_evidence and row.told for row in rows)
    against = sum(row.against_evidence and not row.told for row in rows)
    n, unclear = len(rows), words[UNCLEAR]
    if n == 0:
        return "There was no pair to compare."
    if all(math.isnan(row.pair.tvd) for row in rows):
        return "The distances came without scores, so nothing says how sure each pair is."
    if unclear == 0:
        sentence = f"The evidence is clear for all {counted(n, 'compared pair')}."
    else:
        sentence = (
            f"The evidence is clear for {n - unclear:,} of {counted(n, 'compared pair')}; "
            f"{unclear:,} {'is' if unclear == 1 else 'are'} unclear."
        )
    if told:
        decided = "was" if told == 1 else "were"
        sentence += (
            f" {counted(told, 'pair')} {decided} decided by a link, a cut or a requested number of "
            "clusters against the evidence."
        )
    if against:
        sentence += f" The decision goes against the verdict for {counted(against, 'pair')}."
    return sentence


def answer(tree: MergeTree, n_noise: int, folded_to: int | None) -> dict[str, Any]:
    """The first section: what happened, by which rule, how sure, and what to look at.

    Parameters
    ----------
    tree : MergeTree
    n_noise : int
        Observations outside all clusters.
    folded_to : int, optional
        Number of leaves if the page does not show every cluster.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> answer(tree, 0, None)["headline"]
    '3 clusters are really 2'
    """
    rows = tree.reviewed
    stable = [] if tree.how_stable is None else [tree.how_stable]
    sentences = [how_sure(rows), *stable, why_stopped(tree)]
    if n_noise:
        sentences.append(f"{counted(n_noise, 'observation')} labelled as noise stayed noise.")
    if folded_to is not None:
        sentences.append(
            f"This page shows the {tree.n_initial:,} clusters as {folded_to:,} groups, which the "
            "first merges made; the files of the result have every cluster."
        )
        if tree.n_clusters > folded_to:
            sentences.append(
                f"The result has more clusters ({tree.n_clusters:,}) than the page can show."
            )
    return {
        "headline": headline(tree),
        "n_initial": tree.n_initial,
        "n_clusters": tree.n_clusters,
        "n_unclear": sum(row.pair.verdict == UNCLEAR for row in rows),
        "sentences": sentences,
        "cards": [
            (f"{tree.n_initial:,} → {tree.n_clusters:,}", "clusters"),
            (f"{int(tree.sizes.sum()) + n_noise:,}", "observations"),
            (f"{int(tree.taken.sum()):,}", "merges made"),
            (f"{sum(row.pair.verdict == UNCLEAR for row in rows):,}", "unclear pairs"),
        ],
    }
