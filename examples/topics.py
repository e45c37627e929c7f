"""Topics of texts: which topics are one, and which words tell the others apart?

The texts are the docstrings of SciPy, which is installed with Unsplit.  They are described by
tf-idf and latent semantic analysis, cut by k-means into thirty topics, and merged.  The subpackage
that a docstring comes from is never used, except to say how good the result is.

    python examples/topics.py             # a quarter of a minute
    python examples/topics.py --counts    # word counts for the network instead of embeddings

With BERTopic, topics are the labels and its embeddings are X:

    topics, _ = topic_model.fit_transform(docs, embeddings)
    tree = unsplit.ClusterMerger().fit(embeddings, initial_labels=topics).tree_
    topic_model.merge_topics(docs, tree.merged_groups())

The example writes topics.csv and topics.png; docs/topics.md explains the results.
"""

import argparse
import csv
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

import unsplit
from unsplit.metrics import purity

Array = NDArray[Any]

SUBPACKAGES = (
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "special",
    "stats",
)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    chosen = options().parse_args(arguments)
    texts, truth = docstrings()
    counts, words = counted(texts)
    embeddings = embedded(counts, chosen.seed)
    topics = KMeans(chosen.topics, n_init=5, random_state=chosen.seed).fit_predict(embeddings)
    merger = unsplit.ClusterMerger(random_state=chosen.seed)
    if chosen.counts:
        merger.fit(counts, initial_labels=topics, features=embeddings)
    else:
        merger.fit(embeddings, initial_labels=topics)
    told = KMeans(len(SUBPACKAGES), n_init=5, random_state=chosen.seed).fit_predict(embeddings)
    print(f"{len(texts):,} texts, {len(words):,} words, {chosen.topics} topics.\n")
    found = {"k-means": topics, "merged": merger.labels_, "k-means, told the number": told}
    report(found, truth)
    names = topic_names(counts, merger.labels_, words)
    print("\nThe topics, by the words that are most typical of them:")
    for number, name in enumerate(names):
        print(f"{number:3} {np.sum(merger.labels_ == number):5} texts   {name}")
    print("\nKept apart, though they are neighbours:")
    for left, right, tvd in neighbours_kept_apart(merger.tree_):
        here, there = (in_group(merger.labels_, merger.tree_, side) for side in (left, right))
        print(f"  TVD {tvd:.2f}: {telling_words(counts, here, there, words)}")
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    write_table(out / "topics.csv", topics, merger.labels_, names)
    draw(out / "topics.png", merger.labels_, truth, names)
    print(f"\nWrote {out / 'topics.csv'} and {out / 'topics.png'}.")
    return {"topics": float(merger.n_clusters_), **scores(merger.labels_, truth)}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--topics", type=int, default=30, help="topics that k-means makes")
    parser.add_argument("--counts", action="store_true", help="word counts for the network")
    parser.add_argument("--out", default="topics-output", help="folder for the results")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def docstrings() -> tuple[list[str], Array]:
    """What SciPy says about its functions and classes, and the subpackage of each."""
    where: dict[str, str] = {}
    for name in SUBPACKAGES:
        module = importlib.import_module(f"scipy.{name}")
        objects = (getattr(module, public) for public in module.__all__)
        texts = (inspect.getdoc(thing) for thing in objects if not inspect.ismodule(thing))
        where |= {text: name for text in texts if text and len(text) >= 200}
    return without_boilerplate(list(map(prose, where))), np.array(list(where.values()))


def prose(text: str) -> str:
    """A docstring without signature, code, references and names of packages, which give it away."""
    text = re.split(r"\n(?:Examples|References)\n-+", text)[0]
    text = re.sub(r"^\w+\(.*?\)\n", " ", text, flags=re.DOTALL)
    return re.sub(r"\b(?:scipy|numpy|np|matplotlib)(?:\.\w+)*", " ", text)


def without_boilerplate(texts: Sequence[str], most: int = 5) -> list[str]:
    """The texts without lines that more than ``most`` of them have, such as "out : ndarray"."""
    n_texts = Counter(line for text in texts for line in set(text.splitlines()))
    return [
        "\n".join(line for line in text.splitlines() if n_texts[line] <= most) for text in texts
    ]


def counted(texts: Sequence[str]) -> tuple[Any, Array]:
    """How often each text has each word, as a sparse matrix, and the words."""
    vectorizer = CountVectorizer(
        min_df=3, max_df=0.3, stop_words="english", token_pattern=r"[a-z]{3,}"
    )
    counts = vectorizer.fit_transform(texts)
    return counts, vectorizer.get_feature_names_out()


def embedded(counts: Any, seed: int) -> Array:
    """Vectors of length one: tf-idf, reduced to fifty dimensions (latent semantic analysis)."""
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    return normalize(TruncatedSVD(50, random_state=seed).fit_transform(weights))


def report(found: dict[str, Array], truth: Array) -> None:
    print(f"{'':26} topics   ARI   purity")
    for name, labels in found.items():
        row = scores(labels, truth)
        print(f"{name:26} {len(np.unique(labels)):6}  {row['ARI']:.2f}   {row['purity']:.2f}")


def scores(labels: Array, truth: Array) -> dict[str, float]:
    return {"ARI": adjusted_rand_score(truth, labels), "purity": purity(labels, truth)}


def topic_names(counts: Any, labels: Array, words: Array, n_words: int = 5) -> list[str]:
    """The words that are most typical of each topic."""
    everywhere = np.ones(len(labels), bool)
    return [
        ", ".join(typical_words(counts, labels == topic, everywhere, words)[:n_words])
        for topic in range(labels.max() + 1)
    ]


def typical_words(counts: Any, here: Array, there: Array, words: Array) -> Array:
    """Words in the order of how much more of the texts here have them than of those there.

    A word counts by its share of the texts times the logarithm of how many times more often it is
    here: a rare word is not typical, and neither is one that all have.
    """
    has = counts > 0
    inside, outside = (
        (np.asarray(has[side].sum(axis=0)).ravel() + 0.5) / (side.sum() + 1)
        for side in (here, there)
    )
    return words[np.argsort(-inside * np.log(inside / outside), kind="stable")]


def telling_words(counts: Any, here: Array, there: Array, words: Array, n_words: int = 4) -> str:
    """The words that tell two groups of texts apart, in one line."""
    sides = (typical_words(counts, *pair, words) for pair in ((here, there), (there, here)))
    return "  |  ".join(", ".join(side[:n_words]) for side in sides)


def neighbours_kept_apart(
    tree: unsplit.MergeTree, n_pairs: int = 5
) -> list[tuple[str, str, float]]:
    """The pairs that came closest to being merged: their old topics, and their distance."""
    review = tree.review_table()
    apart = [row for row, done in enumerate(review["done"]) if done == "kept apart"]
    apart.sort(key=lambda row: -np.nan_to_num(review["strength"][row], nan=-1.0))
    return [(review["left"][i], review["right"][i], review["tvd"][i]) for i in apart[:n_pairs]]


def in_group(labels: Array, tree: unsplit.MergeTree, members: str) -> Array:
    """Which texts are in the new topic that has these old ones, written as "3 + 12"."""
    return np.asarray(labels == tree.mapping[int(members.split(" + ")[0])])


def write_table(path: Path, topics: Array, merged: Array, names: Sequence[str]) -> None:
    rows = sorted(
        {(int(old), int(new), names[new]) for old, new in zip(topics, merged, strict=True)}
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("topic", "merged into", "words"), *rows])


def draw(path: Path, labels: Array, truth: Array, names: Sequence[str]) -> None:
    """Draw how many texts of each subpackage every topic has."""
    from matplotlib.figure import Figure

    table = np.array([[np.sum(labels[truth == name] == t) for name in SUBPACKAGES]
                      for t in range(len(names))])  # fmt: skip
    order = np.lexsort((-table.max(axis=1), table.argmax(axis=1)))
    share = table[order] / table[order].sum(axis=1, keepdims=True)
    figure = Figure(figsize=(9, 1.2 + 0.3 * len(names)), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), number in np.ndenumerate(table[order]):
        if number:
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, number, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(SUBPACKAGES)), SUBPACKAGES, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), [names[topic] for topic in order], fontsize=9)
    axes.set_xlabel("number of texts from each subpackage of SciPy (dark: most of the topic)")
    figure.savefig(path)


if __name__ == "__main__":
    main()
