"""What of the paper holds: the front of docs/paper.md."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import markdown
from experiments.core import Claim

# The experiment nearest to the paper's last one.
FIGURE = "imagenette.png"
SHOWN = f"![Wrong merges of photographs by their number, four ways](images/paper/{FIGURE})\n"

TEXT = """The paper's idea holds: clusters that a classifier cannot tell apart on unseen data are
the same, one network answers for all pairs at once, and the mean accuracy A, which needs no
labels, says which network to take and how long to train it. Whether the network merges
photographs better than Euclidean distance between DeepCluster's features does, which the paper
says, could not be tested at the paper's conditions; against SSCD's features, which came later, it
does not on average. Best is to pass both (`ClusterMerger().fit(images, initial_labels=labels,
features=embedding)`): one cross-fitted training and the neighbours of the features make more
right merges here than the paper's twelve trainings, and more than the features alone.
"""


class Line(NamedTuple):
    """A statement of the paper in short, and how the claim begins that has the numbers."""

    paper: str
    experiment: str
    claim: str
    so: str


LINES = (
    Line(
        "One network with k outputs gives all k(k−1)/2 distances, for 26,000 clusters and more.",
        "scaling",
        "About 26,000 clusters",
        "holds; how good such distances are, one epoch does not show",
    ),
    Line(
        "With k² outputs memory ends it at a few hundred clusters.",
        "scaling",
        "With k² outputs",
        "holds in kind; today's cards take more",
    ),
    Line(
        "Q is about 97 % for clusters of fifty with 30 % noise, on all of ImageNet.",
        "imagenet-artificial",
        "Q ≈ 97 %",
        "our 60 categories of 64 pixels are not ImageNet",
    ),
    Line(
        "Larger and purer clusters are compared better.",
        "imagenet-artificial",
        "Q grows with the clusters",
        "holds",
    ),
    Line(
        "A, which needs no labels, follows the quality Q in training.",
        "imagenet-artificial",
        "Q grows with A",
        "holds: stop when A does",
    ),
    Line(
        "A chooses the architecture.",
        "modelnet40",
        "A can guide the choice of the architecture",
        "holds: `unsplit.select`",
    ),
    Line(
        "PointNet++ with 10 objects a cluster beats one layer with 150.",
        "modelnet40",
        "PointNet++ at s = 10",
        "holds unless the points are sorted, when one layer is enough",
    ),
    Line(
        "Good features over-cluster ImageNet at a purity of about 92 %.",
        "imagenette",
        "Purity 89%",
        "holds for clusters of fifty; larger ones are less pure",
    ),
    Line(
        "The paper's network makes more right merges than Euclidean distance between DeepCluster's "
        "features.",
        "imagenet-realistic",
        "More correct merges than Euclidean distance at every number 1–7: the paper's method by",
        "open: our DeepCluster clusters are far less pure",
    ),
    Line(
        "… than between SSCD's features, which came later.",
        "imagenette",
        "More correct merges than Euclidean distance at every number 1–7, 96 pixels, s of 75 and "
        "100: the paper's method",
        "not claimed by the paper; does not hold",
    ),
    Line(
        "… and ours, trained once, with the features' own neighbours.",
        "imagenette",
        "(Ours:) not below Euclidean distance at 1–7, and a correct merge of 12 above it: our "
        "default with features",
        "better than the paper's: pass images and features",
    ),
    Line(
        "Training anew after every merge is costly.",
        "imagenette",
        "(Ours:) one training makes",
        "one training is enough and better, but our default is not quicker",
    ),
)


def front(with_figure: bool) -> str:
    """The figure and what is to be said first."""
    return f"{SHOWN}\n{TEXT}" if with_figure else TEXT


def main_claims(claims: Mapping[str, Sequence[Claim]]) -> str:
    """The statements that matter; the numbers are those of the experiments that are there."""
    rows = []
    for line in LINES:
        if line.experiment not in claims:
            continue
        found = [c for c in claims[line.experiment] if c.paper.startswith(line.claim)]
        if len(found) != 1:
            raise ValueError(f"{line.experiment} has {len(found)} claims {line.claim!r}, not one")
        claim = found[0]
        rows.append((line.paper, claim.ours.split("; ")[0], f"**{claim.verdict}**", line.so))
    header = ("the paper says", "measured here", "verdict", "so")
    return f"{markdown.table(header, rows)}\n"
