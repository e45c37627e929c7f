"""How many clusters, images and steps: in full, and quickly."""

from dataclasses import dataclass

GIB = 2**30

# What the paper says it could handle without its trick, and with it.
PAPER_NAIVE = 200
PAPER_CLUSTERS = 26_000


@dataclass(frozen=True)
class Config:
    """What there is to do.

    The run of all parts has ``clusters`` of ``size`` images from so many ``categories``, with
    ``pixels`` a side; Q is computed for the clusters of ``looked_at`` categories.  Heads alone are
    given ``features``, and k is doubled until a step needs more than ``budget`` bytes.  Whole
    networks are kept to ``confined`` bytes of a GPU.
    """

    clusters: int
    size: int
    categories: int
    pixels: int
    looked_at: int
    epochs: int
    features: int
    batch: int
    steps: int
    budget: int
    confined: int
    fed: int


# The paper's card has 11 GB; the features are ResNet-18's.
FULL = Config(
    clusters=PAPER_CLUSTERS, size=50, categories=1000, pixels=224, looked_at=80, epochs=1,
    features=512, batch=256, steps=20, budget=11 * GIB, confined=11 * GIB,
    fed=25_600,
)  # fmt: skip
QUICK = Config(
    clusters=60, size=10, categories=6, pixels=16, looked_at=6, epochs=2,
    features=32, batch=32, steps=2, budget=2**24, confined=GIB, fed=256,
)  # fmt: skip
