"""Every limit of deciding: where it lies, and that docs/stopping.md says so."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.merging_cases import known_pair
from unsplit import neighbour_graph
from unsplit.merging import limits
from unsplit.merging.api import sure_merges
from unsplit.merging.decision import BY_RULE, NEIGHBOURS, TESTS, Auto, Merge, Pair
from unsplit.merging.neighbours.evidence import Connection, Neighbourhoods, Saddles, weight_of_edges
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.plan import _from_elsewhere, are_cores, at_random_like_most
from unsplit.merging.tree import Row
from unsplit.pairwise import statistics as stats

PAGE = Path(__file__).parents[1] / "docs" / "stopping.md"
LIMITS = {name: value for name, value in vars(limits).items() if name.isupper()}


def pair(p=0.5, low=0.0, high=0.3, smaller=100, **connection):
    """A pair of which this is known, and perhaps how neighbours connect the two."""
    scores = SimpleNamespace(
        contrast=lambda a, b: SimpleNamespace(interval=(low, high), tvd=(low + high) / 2),
    )
    known = {"edges": 30, "times_chance": 1.0, "least_times": 1.0, "dimension": 9.0} | connection
    graph = SimpleNamespace(connection=lambda a, b: Connection(**known)) if connection else None
    return Pair(0, 1, 0.3, 1, scores, graph, smaller=smaller, p_value=p)


def word(low=0.9, high=1.0, p=1e-12, **more):
    return known_pair(low, high, p, **more).verdict


def of_few_dimensions(share):
    known = Connection(30, 1.0, math.nan, neck=share * 0.5, usual_neck=0.5, dimension=2.0)
    return known.strength >= 1


def of_a_neck(ratio):
    return Connection(30, 1.0, 1.0, neck=ratio * 0.3, usual_neck=0.3, dimension=9.0).strength


def least_edges():
    many = SimpleNamespace(usual_edges=lambda a, b: 1e12)
    judge = SimpleNamespace(_structureless=lambda: 1.0, judged=many)
    return Neighbourhoods._least_times(judge, 0, 1)


def deepest(around, at_border):
    return Saddles.limit(SimpleNamespace(around=around), at_border)


def comes_last(size):
    merge = Merge(0, 1, size, 50, 0.9, 0.9, 0.9, 0.0, 1.0, 1.0, *[math.nan] * 4, "", "", 0.0, "")
    return Row(merge, 0).urgency[1]


def sure(strength):
    known = [math.nan] * 3
    merge = Merge(0, 1, 9, 9, 0.9, 0.9, 0.9, 0.0, 1.0, 1.0, *known, strength, BY_RULE, "", 0.0, "")
    return len(sure_merges([merge], 2))


def with_twins(share):
    """Whether a cluster without a twin counts as split at random if the others hold this share."""
    found, sizes = np.array([True, True, False]), np.array([share / 2, share / 2, 1 - share])
    return bool(at_random_like_most(found, np.ones(3, bool), sizes, lambda: False)[2])


def has_shortest_interval(n):
    """Whether two equal clusters of n held-out observations can count as alike."""
    high = stats.accuracy_interval(stats.Hits(0.5, 0.5, n, n), 0.95, 5)[1]
    return bool(2 * high - 1 <= limits.LARGE_TVD)


def from_elsewhere(rows_of_others, gap):
    """Whether halves of a line, the first of whose rows are others, come from elsewhere."""
    x = np.linspace(0, 1, 400)
    labels = (x > 0.5).astype(int)
    x += gap * labels
    labels[:rows_of_others] = 1 - np.arange(rows_of_others) % 2
    graph = neighbour_graph(x[:, None], labels, device="cpu")
    scores = SimpleNamespace(rows=np.arange(400), clusters=labels)
    sizes = np.bincount(labels)
    return _from_elsewhere(
        SimpleNamespace(scores=scores, sizes=sizes, n_noise=0), graph, np.zeros(2, bool)
    )


def low_dimensional(dimension):
    graph = SimpleNamespace(inverse_dimension=np.full(9, 1 / dimension), clusters=np.zeros(9))
    return NeighbourGraph.is_low_dimensional.func(graph)


def cores(share):
    return are_cores(SimpleNamespace(sizes=np.array([share]), n_noise=1000 - share))


# A value below the limit, one above, and what must differ between the two.
SIDES = {
    "LEVEL": (0.045, 0.055, lambda p: Auto(TESTS).judge(pair(p=p)).merge),
    "CLEAR_P": (0.009, 0.011, lambda p: word(0.3, 0.6, p)),
    "HINT_P": (0.19, 0.21, lambda p: word(0.0, 0.1, p)),
    "SMALL_TVD": (0.19, 0.21, lambda high: word(0.0, high, 1.0)),
    "LARGE_TVD": (0.49, 0.51, lambda high: word(0.0, high, 1.0)),
    "LEAST_TVD": (0.049, 0.051, lambda low: word(low, 0.3, 1e-9)),
    "FEWEST_TO_BE_ALIKE": (11, 12, has_shortest_interval),
    "REACH": (9, 10, lambda n: Auto(TESTS).reach > n),
    "FEW": (9, 10, comes_last),
    "ALMOST_ALL": (0.79, 0.81, with_twins),
    "CORES": (500, 501, cores),
    "MERGED_FROM": (
        0.99,
        1.01,
        lambda s: Auto(NEIGHBOURS).judge(pair(1e-9, 0.8, 1.0, times_chance=s)).merge,
    ),
    "LOW_DIMENSION": (2.99, 3.01, low_dimensional),
    "FEW_DIMENSIONS": (2.19, 2.21, lambda d: weight_of_edges(d) > 0),
    "MANY_DIMENSIONS": (3.69, 3.71, lambda d: weight_of_edges(d) == 1),
    "NECK_SHARE": (0.79, 0.81, of_few_dimensions),
    "WIDEST_NECK": (1.45, 1.55, lambda ratio: of_a_neck(ratio) == of_a_neck(3.0)),
    "EDGES_SHARE": (0.69, 0.71, lambda share: share >= least_edges()),
    "LEAST_DEPTH": (0.149, 0.151, lambda depth: depth > deepest(1e12, 1e15)),
    "ERRORS": (0.24, 0.26, lambda depth: depth > deepest(100, 1e9)),
    "ERRORS_OF_A_NARROW_BORDER": (0.49, 0.51, lambda depth: depth > deepest(100, 1)),
    "FEWEST_TO_OVERRULE": (14, 15, lambda n: pair(0.1, 0.8, 1.0, n, times_chance=1.2).overruled),
    "OVERRULING": (1.4, 1.6, lambda s: pair(0.1, 0.8, 1.0, 10, times_chance=s).overruled),
    "WEAK": (0.79, 0.81, lambda strength: word(strength=strength)),
    "FAIR": (1.24, 1.26, lambda strength: word(strength=strength)),
    "SELDOM": (0.09, 0.11, lambda share: word(strength=0.5, stability=share)),
    "ALWAYS": (0.998, 1.0, lambda share: word(strength=2.0, stability=share)),
    "SURE": (2.4, 2.6, sure),
    "FROM_ELSEWHERE": (10, 11, lambda n: from_elsewhere(n, gap=0)),
    "LEAST_OUTSIDE": (18, 19, lambda n: from_elsewhere(n, gap=9)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_lies_where_it_is_said_to_lie(name):
    below, above, outcome = SIDES[name]
    assert outcome(below) != outcome(above)


@pytest.mark.parametrize("name", LIMITS)
def test_the_page_names_every_limit(name):
    assert f"| `{name}` | {LIMITS[name]:g} |" in PAGE.read_text(encoding="utf-8")
