"""What of the paper holds, in ten lines: the front of docs/paper.md."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import markdown
from experiments.core import Claim

TEXT = """## The paper in ten lines

The paper's idea holds: clusters that a classifier cannot tell apart on unseen data are the same,
one network answers for all pairs at once, and the mean accuracy A, which needs no labels, says
which network, which settings and how many epochs. What was hard to reproduce is the end of the
paper, where photographs are clustered by good features and a network has to merge better than
distances between these features do.

**What does not hold.** Trained anew before each merge on a fifth held out, as the paper does it,
the network is on the mean behind Euclidean distance on our data: few images are held out, so that
many pairs tie, and each training makes errors of its own. Small images and small clusters are a
part of the reason, but only a part: it stays behind where both are as large as the paper's.

**What is better.** Cross-fitting holds every image out once, so one training makes more right
merges than the paper's twelve, in about the time of these. Overlap, which asks all images about two
clusters, ranks impure clusters better than the accuracy of the two. And the features need not be
the opponent: the network and the neighbour graph of the features make different mistakes. On the
mean their mean rank is better than either, and better than Euclidean distance by more than a merge
of twelve.

**How sure this is.** The draws share their ten categories, and half of them gain much more than the
others; the table has both. Clusters as large as the paper's are less pure here than there. Clusters
of half of the categories are as pure or purer (two draws, 96 pixels): the first half gains, by the
network alone as much as with the features; on the second, Euclidean distance makes no mistake, the
network alone makes none either, and together with the features it makes one or two.

**What a reader should do.** With fifty images a cluster or more, pass both, the images and the
features that the clusters came from (`ClusterMerger().fit(images, initial_labels=labels,
features=embedding)`). With fewer, the features alone do as well.
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
        "holds, in minutes",
    ),
    Line(
        "With k² outputs memory ends it at a few hundred clusters.",
        "scaling",
        "With k² outputs",
        "holds in kind; today's cards take more",
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
        "The paper's network makes more right merges than Euclidean distance.",
        "imagenette",
        "More correct merges than Euclidean distance at every number 1–7, 96 pixels, s of 75 and "
        "100: the paper's method",
        "does not hold here",
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


def story(claims: Mapping[str, Sequence[Claim]]) -> str:
    """Text and table; the numbers are those of the claims, of experiments that are there."""
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
    return f"{TEXT}\n{markdown.table(header, rows)}\n"
