"""The numbers worth reading, in Markdown: means over the seeds with standard deviations."""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import markdown
from experiments.core import Result
from experiments.discussion.config import WAYS
from experiments.discussion.merging import STATISTICS
from experiments.discussion.summary import (
    best,
    cases,
    correlation,
    error,
    in_words,
    mean,
    of_case,
    regret,
    spread,
    trained,
    where,
)

Row = Sequence[Any]


def table(results: Sequence[Result]) -> str:
    """One table for each part that was measured."""
    parts = [
        ("ARI of spectral clustering and of average linkage, same distances", SPECTRAL, _spectral),
        ("Merging down to as many clusters as there are majority categories", MERGING, _merging),
        ("Training that A ends against a fixed number of epochs", STOPPING, _stopping),
        ("Settings chosen by A against the best by Q", CHOOSING, _choosing),
    ]  # fmt: skip
    texts = []
    for title, head, rows_of in parts:
        rows = list(rows_of(results))
        if rows:
            texts.append(f"**{title}**\n\n{markdown.table(head, rows)}")
    return "\n\n".join(texts)


SPECTRAL = (
    "clusters",
    "k",
    "purity",
    "highest possible",
    *(f"{w}, {s}" for s in STATISTICS for w in ("linkage", "spectral")),
)


def _spectral(results: Sequence[Result]) -> Iterator[Row]:
    for case, some in _by_case(where(results, part="spectral")):
        scores = (
            spread([r["ARI"][way][name] for r in some])
            for name in STATISTICS
            for way in ("linkage", "spectral")
        )
        shares = (f"{mean(r[key] for r in some):.2f}" for key in ("purity", "highest ARI"))
        yield in_words(case), some[0]["k"], *shares, *scores


MERGING = ("clusters", "strategy", "correct merges", "ARI", "trainings", "processor seconds")


def _merging(results: Sequence[Result]) -> Iterator[Row]:
    for case, some in _by_case(where(results, part="merging")):
        for strategy in WAYS:
            found = where(some, strategy=strategy)
            if found:
                right, all_ = (sum(r[key] for r in found) for key in ("correct", "merges"))
                yield (
                    in_words(case), strategy, f"{right} of {all_}",
                    spread([r["ARI"] for r in found]),
                    f"{mean(r['trainings'] for r in found):.0f}",
                    spread([r["CPU seconds"] for r in found], 1),
                )  # fmt: skip


STOPPING = (
    "clusters", "estimator", "epochs by A", "1 − Q", "best length", "its 1 − Q", "longest",
    "its 1 − Q", "processor seconds", "of the longest", "A and Q", "A and Q of lecam",
)  # fmt: skip


def _stopping(results: Sequence[Result]) -> Iterator[Row]:
    for case, both in _by_case(where(results, part="stopping")):
        for estimator in sorted({r["estimator"] for r in both}, reverse=True):
            some = where(both, estimator=estimator)
            lengths = list(zip(*(r["fixed"] for r in some), strict=True))
            right = min(lengths, key=lambda same: mean(map(error, same)))
            yield (
                in_words(case), estimator, f"{mean(r['epochs run'] for r in some):.0f}",
                spread([error(r) for r in some], 4),
                right[0]["epochs run"], spread([error(one) for one in right], 4),
                lengths[-1][0]["epochs run"], spread([error(one) for one in lengths[-1]], 4),
                f"{mean(r['CPU seconds'] for r in some):.1f}",
                f"{mean(one['CPU seconds'] for one in lengths[-1]):.1f}",
                spread([correlation(r["fixed"]) for r in some]),
                spread([correlation(r["fixed"], "lecam") for r in some]),
            )  # fmt: skip


CHOOSING = (
    "clusters", "setting", "chosen by A", "best by Q", "1 − Q of the chosen", "of the best",
    "of the worst", "lost", "A and Q", "`unsplit.select` takes",
)  # fmt: skip


def _choosing(results: Sequence[Result]) -> Iterator[Row]:
    choosing = where(results, part="choosing")
    for setting in dict.fromkeys(r["setting"] for r in choosing):
        for case, some in _by_case(where(choosing, setting=setting)):
            able = [trained(r) for r in some]
            yield (
                in_words(case), setting,
                _values(r["chosen"] for r in some), _values(best(tried)["value"] for tried in able),
                spread([error(r) for r in some], 3),
                spread([error(best(tried)) for tried in able], 3),
                spread([max(map(error, tried)) for tried in able], 3),
                spread([regret(r) for r in some], 3),
                spread([correlation(tried) for tried in able]),
                _values(r["searched"] for r in some if "searched" in r),
            )  # fmt: skip


def _by_case(results: Sequence[Result]) -> Iterator[tuple[tuple[str, str], list[Result]]]:
    for case in cases(results):
        yield case, of_case(results, case)


def _values(values: Any) -> str:
    return ", ".join(value if isinstance(value, str) else f"{value:g}" for value in values)
