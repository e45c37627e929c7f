"""Reasons and endings in English, for the terminal, tables and the page."""

import math

from unsplit.merging.decision import (
    ALIKE,
    ASSIGNED,
    AT_LEAST,
    BEYOND,
    BOTH_SMALL,
    CANNOT_LINK,
    CLOSEST,
    CUT_AT_HEIGHT,
    CUT_AT_NUMBER,
    GRAPH,
    MAX_TVD,
    MUST_LINK,
    NO_SHARED_BATCH,
    NOT_ASKED,
    NUMBER,
    ONE_GROUP,
    ONE_LEFT,
    ONE_SMALL,
    OUT_OF_REACH,
    OVERRULED,
    REACHED,
    REQUESTED,
    SIGNIFICANCE,
    UNCONNECTED,
    UNDECIDED,
    USERS_RULE,
    Ending,
    PairEvidence,
    Reason,
)

# Reasons that need no numbers.
PLAIN = {
    BOTH_SMALL: "both clusters have too few observations to compare",
    ONE_SMALL: "one cluster has too few observations to compare",
    ASSIGNED: "too few observations to compare; the network assigns them to this cluster",
    NO_SHARED_BATCH: "no batch has at least two observations of each",
    ONE_GROUP: "one cluster is a single group, so no other group can say whether they differ",
    CLOSEST: "closest pair",
    UNCONNECTED: "nothing connects what is left, so it is joined, largest first",
    NOT_ASKED: "no rule was asked",
}

# What is added to the reason, by how a merge came about.
STAGES_IN_WORDS = {
    MUST_LINK: "required by must_link",
    CANNOT_LINK: "kept apart by cannot_link",
    NUMBER: "{}; merged to reach the requested number of clusters",
    REACHED: "the requested number of clusters was reached",
    BEYOND: "beyond the cut: {}",
    OUT_OF_REACH: "too far from each other to be compared",
}


def because(reason: Reason, known: PairEvidence) -> str:
    """Say what a rule found about a pair.

    Examples
    --------
    >>> connected = PairEvidence(0.9, 1.0, 1e-9, strength=1.3, edges=120)
    >>> because(Reason(GRAPH, 1.0), connected)
    'strongly connected: strength 1.3, merged from 1 on (120 edges)'
    >>> because(Reason(SIGNIFICANCE, 0.05), connected)
    'significant difference: adjusted p 1e-09'
    """
    if reason.kind == GRAPH:
        return _connected(known, reason.limit)
    if reason.kind == OVERRULED:
        strength = f"strength {told_apart(known.strength, reason.limit)[0]}"
        least = f"merged from {reason.limit:g} on" if math.isfinite(reason.limit) else "not counted"
        return (
            f"cannot decide: TVD {known.tvd:.2f}, and too few observations to overrule it "
            f"({strength}, {least})"
        )
    if reason.kind == UNDECIDED:
        return (
            f"cannot decide: TVD {known.tvd:.2f}, but too few observations for a significant "
            f"difference (adjusted p {known.p_adjusted:.2g})"
        )
    if reason.kind == MAX_TVD:
        side = "at most" if known.tvd <= reason.limit else "above"
        return f"TVD {known.tvd:.3f} is {side} {reason.limit:g}"
    if reason.kind in (SIGNIFICANCE, ALIKE):
        found = "no significant" if known.p_adjusted > reason.limit else "significant"
        most = f", TVD at most {known.high:.2f}" if reason.kind == ALIKE else ""
        return f"{found} difference: adjusted p {known.p_adjusted:.2g}{most}"
    return reason.note if reason.kind == USERS_RULE else PLAIN[reason.kind]


def why(stage: str, reason: str) -> str:
    """Say how a merge came about, or why a pair was kept apart.

    Parameters
    ----------
    stage : str
        One of :data:`unsplit.merging.decision.STAGES`.
    reason : str
        What the rule says, as :func:`because` puts it.

    Examples
    --------
    >>> why(BEYOND, "closest pair"), why(MUST_LINK, "closest pair")
    ('beyond the cut: closest pair', 'required by must_link')
    """
    return STAGES_IN_WORDS.get(stage, "{}").replace("{}", reason)


def stopped(ending: Ending) -> str:
    """Say why merging stopped, as a clause that can follow "because".

    Examples
    --------
    >>> stopped(Ending(REQUESTED, 3)), stopped(Ending(MAX_TVD, 0.2, links=True))
    ('3 clusters were requested', 'every remaining pair has a TVD above 0.2 or is kept apart by cannot_link')
    """  # noqa: E501
    undone = "".join(f"; merge {step} was undone" for step in ending.undone)
    also = " or has no batch with two observations of each" if ending.batches else ""
    also += " or is kept apart by cannot_link" if ending.links else ""
    also += " or has too few observations to decide" if ending.too_few else ""
    return f"{_ended(ending)}{also}{undone}"


def _ended(ending: Ending) -> str:
    number = f"{ending.number:g}" if ending.kind in (CUT_AT_HEIGHT, MAX_TVD) else ""
    if ending.kind in (REQUESTED, AT_LEAST, CUT_AT_NUMBER):
        number = f"{ending.number:.0f} cluster{'' if ending.number == 1 else 's'}"
    if ending.kind == SIGNIFICANCE:
        of = " of nearby clusters" if ending.nearby else ""
        return f"every remaining pair{of} differs significantly (adjusted p ≤ {ending.number:g})"
    return {
        ONE_LEFT: "only one cluster is left",
        REQUESTED: f"{number} were requested",
        AT_LEAST: f"at least {number} were requested",
        CUT_AT_NUMBER: f"the tree was cut at {number}",
        CUT_AT_HEIGHT: f"the tree was cut at height {number}",
        MAX_TVD: f"every remaining pair has a TVD above {number}",
        GRAPH: "every remaining pair is too weakly connected in the neighbour graph",
        CLOSEST: "no pair is left to merge",
    }.get(ending.kind, ending.note)


def _connected(known: PairEvidence, limit: float) -> str:
    if known.edges == 0:
        return "no edge between them in the neighbour graph"
    how = "strongly" if known.strength >= limit else "weakly"
    strength, least = told_apart(known.strength, limit)
    edges = f"{known.edges:,.0f} edge{'' if known.edges == 1 else 's'}"
    return f"{how} connected: strength {strength}, merged from {least} on ({edges})"


def told_apart(value: float, limit: float) -> tuple[str, str]:
    """Write two numbers with two digits, or with as many as it takes to tell them apart.

    Examples
    --------
    >>> told_apart(0.084, 1.0), told_apart(0.9987, 1.0), told_apart(130.0, 1.0)
    (('0.084', '1'), ('0.999', '1'), ('130', '1'))
    """
    if value >= 10:
        return f"{value:,.0f}", f"{limit:g}"
    written = [(f"{value:.{n}g}", f"{limit:.{n}g}") for n in range(2, 16)]
    return next((texts for texts in written if texts[0] != texts[1]), written[0])
