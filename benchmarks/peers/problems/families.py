"""Families of problems, and the half of the data that each problem is in.

Rules and limits are chosen on one half and reported on the other.  Within a list of problems every
second one, in alphabetical order, is held back.  A family has one list, or two where sets were
added later: new sets alternate among themselves, so none of the old ones changed its half.  Data
without structure say how often a rule sees groups where there are none, so all of them are chosen
on.
"""

from collections.abc import Iterable

from benchmarks.peers.problems.batteries import BATTERIES, MORE_BATTERIES
from benchmarks.peers.problems.real import MORE_REAL, REAL
from benchmarks.peers.problems.simulated import GROUPED, ONE_GROUP

CHOSEN_ON, HELD_BACK = HALVES = ("chosen on", "held back")

# Every list of a family, the oldest first.
_LISTS: dict[str, tuple[Iterable[str], ...]] = {
    "real": (REAL, MORE_REAL),
    "battery": (BATTERIES, MORE_BATTERIES),
    "simulated": (GROUPED,),
    "structureless": (ONE_GROUP,),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(sorted(name for names in lists for name in names))
    for family, lists in _LISTS.items()
}
_FAMILY = {name: family for family, names in FAMILIES.items() for name in names}
_HALF = {
    name: HALVES[place % 2] if family != "structureless" else CHOSEN_ON
    for family, lists in _LISTS.items()
    for names in lists
    for place, name in enumerate(sorted(names))
}


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
    >>> half_of("20 newsgroups"), half_of("mnist"), half_of("battery: a2")
    ('chosen on', 'held back', 'chosen on')
    """
    return _HALF[problem]
