"""Families of problems, and the half of the data that each problem is in.

Rules and limits are chosen on one half and reported on the other.  Within a family every second
problem, in alphabetical order, is held back.  Data without structure say how often a rule sees
groups where there are none, so all of them are chosen on.
"""

from benchmarks.peers.problems.batteries import BATTERIES
from benchmarks.peers.problems.real import REAL
from benchmarks.peers.problems.simulated import GROUPED, ONE_GROUP

CHOSEN_ON, HELD_BACK = HALVES = ("chosen on", "held back")

FAMILIES: dict[str, tuple[str, ...]] = {
    "real": tuple(sorted(REAL)),
    "battery": tuple(sorted(BATTERIES)),
    "simulated": tuple(sorted(GROUPED)),
    "structureless": tuple(sorted(ONE_GROUP)),
}
_FAMILY = {name: family for family, names in FAMILIES.items() for name in names}


def family_of(problem: str) -> str:
    """Name of its family.

    Examples
    --------
    >>> family_of("digits"), family_of("battery: a1"), family_of("uniform, 2-d")
    ('real', 'battery', 'structureless')
    """
    return _FAMILY[problem]


def half_of(problem: str) -> str:
    """Whether rules were chosen on it or it was held back.

    Examples
    --------
    >>> half_of("bladder cells"), half_of("digits"), half_of("uniform, 50-d")
    ('chosen on', 'held back', 'chosen on')
    """
    family = family_of(problem)
    if family == "structureless":
        return CHOSEN_ON
    return HALVES[FAMILIES[family].index(problem) % 2]
