"""What the paper's discussion says, and what was found; every verdict is computed."""

from collections.abc import Callable, Iterable, Sequence

from experiments.core import Claim, Result
from experiments.discussion.config import Case
from experiments.discussion.summary import (
    best,
    cases,
    correlation,
    error,
    in_a_word,
    mean,
    of_case,
    regret,
    trained,
    where,
)

# Rank correlation that counts as "the higher, the higher".
CLEAR = 0.5
# Training that A ended may leave this many times the 1 − Q of the best length, which takes the
# categories to know.
TOLERATED = 1.25
# Loss of Q, of ARI or of correct merges that counts as none.
SMALL = 0.02
# Share of the price of the distances that counts as "almost no cost".
CHEAP = 0.01

NOT_YET = "not measured"

Found = tuple[str, str]  # what we measured, and the verdict


def claims(results: Sequence[Result]) -> list[Claim]:
    """One for each statement of the discussion."""
    spectral, stopping = where(results, part="spectral"), where(results, part="stopping")
    choosing = where(results, part="choosing")
    decay = _chooses(where(choosing, setting="weight decay"))[0]
    found: dict[str, Found] = {
        "Q depends directly on A: the higher A, the higher Q.": _follows(stopping),
        "A comes at almost no cost and needs no labels.": _costs(spectral),
        "Training can be ended whenever A stops improving, since Q keeps improving as long as A "
        "is increasing.": _ends(stopping),
        "A allows a principled choice of the learning rate.": _chooses(
            where(choosing, setting="learning rate")
        ),
        "… and of the momentum.": (
            f"Adam, which the paper uses as well, has none to set. Weight decay instead: {decay}",
            NOT_YET,
        ),
        "A could guide the selection of the architecture.": _chooses(
            where(choosing, setting="network")
        ),
        "The distances could be fed to spectral algorithms.": _spectral(spectral),
        "Training from scratch after every merge is costly; more efficient alternatives could be "
        "explored.": _cheaper(where(results, part="merging")),
    }
    return [Claim(paper, *measured) for paper, measured in found.items()]


def _verdict(holds: Iterable[bool]) -> str:
    """Reproduced if it holds in every case, changed if in some, not reproduced if in none."""
    known = list(holds)
    if not known:
        return NOT_YET
    return "reproduced" if all(known) else "changed" if any(known) else "not reproduced"


def _of_each(
    results: Sequence[Result], value: Callable[[Sequence[Result]], float]
) -> dict[Case, float]:
    """A number for every case, from its results."""
    return {case: value(of_case(results, case)) for case in cases(results)}


def _text(values: dict[Case, float], digits: int = 2) -> str:
    return ", ".join(f"{in_a_word(case)} {value:.{digits}f}" for case, value in values.items())


def _follows(stopping: Sequence[Result]) -> Found:
    paper = where(stopping, estimator="paper")
    if not paper:
        return "", NOT_YET
    hard = _of_each(paper, lambda some: mean(correlation(r["fixed"]) for r in some))
    soft = _of_each(paper, lambda some: mean(correlation(r["fixed"], "lecam") for r in some))
    text = f"Rank correlation over the course of training: {_text(hard)}; with Q of lecam: "
    return f"{text}{_text(soft)}.", _verdict(value >= CLEAR for value in hard.values())


def _costs(spectral: Sequence[Result]) -> Found:
    if not spectral:
        return "", NOT_YET
    share = max(r["CPU seconds of A"] / r["CPU seconds"] for r in spectral)
    text = f"At most {share:.2%} of the time that the distances take."
    return text, _verdict([share < CHEAP])


def _ends(stopping: Sequence[Result]) -> Found:
    paper = where(stopping, estimator="paper")
    if not paper:
        return "", NOT_YET
    over_best = _of_each(paper, _over_best)
    over_longest = _of_each(paper, lambda some: _ratio(_error(some), _error(_longest(some))))
    time = _of_each(paper, lambda some: _price(some) / _price(_longest(some)))
    gain = _of_each(paper, lambda some: mean(r["A"] for r in _longest(some)) - _accuracy(some))
    text = (
        f"1 − Q where A ended training over that of the best fixed length: {_text(over_best)}; "
        f"over that of {paper[0]['fixed'][-1]['epochs run']} epochs: {_text(over_longest)}, in "
        f"this share of the time: {_text(time)}."
    )
    rising = {case: value for case, value in gain.items() if value > 0}
    if rising:
        text += f" A was not at its end, but would have risen further by: {_text(rising, 3)}."
    return text, _verdict(value <= TOLERATED for value in over_best.values())


def _over_best(some: Sequence[Result]) -> float:
    """1 − Q where A ended training over that of the length which is best on average."""
    lengths = zip(*(r["fixed"] for r in some), strict=True)
    return _ratio(_error(some), min(map(_error, lengths)))


def _longest(some: Sequence[Result]) -> list[Result]:
    return [r["fixed"][-1] for r in some]


def _error(some: Sequence[Result]) -> float:
    return mean(map(error, some))


def _accuracy(some: Sequence[Result]) -> float:
    return mean(r["A"] for r in some)


def _price(some: Sequence[Result]) -> float:
    return mean(r["CPU seconds"] for r in some)


def _ratio(value: float, to: float) -> float:
    return value / to if to else (float("inf") if value else 1.0)


def _chooses(choosing: Sequence[Result]) -> Found:
    if not choosing:
        return NOT_YET, NOT_YET
    lost = _of_each(choosing, lambda some: mean(map(regret, some)))
    worst = _of_each(choosing, lambda some: mean(map(_worst_regret, some)))
    text = f"Q lost by A's choice: {_text(lost, 3)}; by the worst choice: {_text(worst, 3)}."
    return text, _verdict(value <= SMALL for value in lost.values())


def _worst_regret(choice: Result) -> float:
    return max(map(error, trained(choice))) - error(best(trained(choice)))


def _spectral(spectral: Sequence[Result]) -> Found:
    if not spectral:
        return "", NOT_YET
    names = list(spectral[0]["ARI"]["spectral"])
    level = {name: mean(r["ARI"]["spectral"][name] for r in spectral) for name in names}
    gain = {name: mean(_gain(r, name) for r in spectral) for name in names}
    text = "Mean ARI of spectral clustering, and its gain over average linkage: " + ", ".join(
        f"{name} {level[name]:.2f} ({gain[name]:+.2f})" for name in names
    )
    by_case = _of_each(spectral, lambda some: mean(_gain(r, "tv") for r in some))
    text += f"; the gain with tv: {_text(by_case)}."
    return text, _verdict(value >= -SMALL for value in by_case.values())


def _gain(result: Result, statistic: str) -> float:
    return float(result["ARI"]["spectral"][statistic] - result["ARI"]["linkage"][statistic])


def _cheaper(merging: Sequence[Result]) -> Found:
    """Whether the default, which trains once or twice, is as good as training after every merge."""
    ways = {r["strategy"]: where(merging, strategy=r["strategy"]) for r in merging}
    if not {"linkage", "paper"} <= set(ways):
        return "", NOT_YET
    text = "Correct merges and processor seconds: " + "; ".join(
        f"{name} {_right(some):.0%}, {_price(some):.1f} s" for name, some in ways.items()
    )
    usual, costly = ways["linkage"], ways["paper"]
    better = _of_each(usual, _right)
    other = _of_each(costly, _right)
    holds = [better[case] >= other[case] - SMALL for case in better if case in other]
    return f"{text}.", _verdict(one and _price(usual) < _price(costly) for one in holds)


def _right(some: Sequence[Result]) -> float:
    return sum(r["correct"] for r in some) / sum(r["merges"] for r in some)
