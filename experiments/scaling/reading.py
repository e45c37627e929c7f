"""What the numbers say: the tables, and what became of the paper's claims."""

from collections.abc import Sequence
from typing import Any

from benchmarks import markdown
from experiments.core import Claim, Result
from experiments.scaling.config import GIB, PAPER_CLUSTERS, PAPER_NAIVE
from experiments.texts import unmeasured, verdict

NAMES = {"k": "k", "k2": "k²"}

# With as few clusters as that the naive network ends early, if not as early as the paper says.
FAR_FEWER = 0.1


def table(results: Sequence[Result]) -> str:
    """Heads alone, how far each gets, the parts of the whole run, and how images come."""
    tables = (_growth(results), _reach(results), _parts(results), _feeding(results))
    return "\n\n".join(part for part in tables if part)


def claims(results: Sequence[Result]) -> list[Claim]:
    """All clusters of ImageNet in 11 GB, and few without the trick."""
    return [_largest_run(results), _naive(results)]


def of_part(results: Sequence[Result], part: str) -> list[Result]:
    """The results of one part, k outputs before k²."""
    found = [result for result in results if result["part"] == part]
    return sorted(found, key=lambda r: (r.get("outputs", ""), r.get("precision", "")))


def gibibytes(n_bytes: float) -> str:
    """Bytes in words that have about three digits.

    Examples
    --------
    >>> gibibytes(3.5 * 2**30), gibibytes(2**20)
    ('3.50', '0.00098')
    """
    size = n_bytes / GIB
    return f"{size:.2f}" if size >= 0.1 else f"{size:.2g}"


def _growth(results: Sequence[Result]) -> str:
    heads = of_part(results, "heads")
    if not heads:
        return ""
    of = {(r["outputs"], row["k"]): row for r in heads for row in r["growth"]}
    header, rows = ["k"], []
    for head in heads:
        kind = "peak GiB" if head["measured memory"] else "GiB at least"
        header += [f"{NAMES[head['outputs']]} outputs: parameters", kind, "ms a step"]
    for k in sorted({k for _, k in of}):
        row: list[Any] = [f"{k:,}"]
        for head in heads:
            found = of.get((head["outputs"], k))
            row += (
                [f"{found['parameters']:,}", gibibytes(found["bytes"]), found["ms"]]
                if found
                else ["", "", ""]
            )
        rows.append(row)
    budget = gibibytes(heads[0]["budget"])
    title = (
        f"The last layer alone, in float32 with Adam, until a step needs more than {budget} GiB:"
    )
    return f"{title}\n\n" + markdown.table(header, rows, ".3g")


def _reach(results: Sequence[Result]) -> str:
    found = of_part(results, "reach")
    if not found:
        return ""
    widths = sorted({int(h) for r in found for h in r["head alone"]})
    header = ("outputs", "products in", "most clusters", *(f"h = {h:,}" for h in widths))
    rows = [
        (
            NAMES[r["outputs"]],
            r["precision"],
            f"{r['most clusters']:,}" if r["measured memory"] else "",
            *(f"{r['head alone'][str(h)]:,}" for h in widths),
        )
        for r in found
    ]
    first = found[0]
    title = (
        f"Most clusters with which a step of ResNet-18 ({first['pixels']} pixels, batch "
        f"{first['batch']}) fits into {gibibytes(first['budget'])} GiB; beside it the most that "
        "the last layer's weights, gradients and Adam's moments alone leave room for on h features:"
    )
    return f"{title}\n\n" + markdown.table(header, rows)


def _parts(results: Sequence[Result]) -> str:
    return "\n\n".join(map(_parts_of_one, of_part(results, "whole")))


def _parts_of_one(run: Result) -> str:
    rows = [
        (
            name,
            part["seconds"],
            f"{part['images']:,}" if part["images"] else "",
            f"{part['images'] / part['seconds']:,.0f}" if part["images"] else "",
            _peak(part["bytes"]),
        )
        for name, part in run["parts"].items()
    ]
    rows.append(("all", seconds_of(run), "", "", _peak(most_bytes(run))))
    step = run["parts"]["training"]
    title = (
        f"{run['k']:,} clusters of {run['n']:,} images, epochs: {run['epochs run']}, loss: "
        f"{run['loss']}. {run['distances']:,} distances, A {run['A']:.4f}, Q "
        f"{1 - run['1-Q']['tv']:.4f} among {run['clusters looked at']:,} of the clusters; "
        f"{1000 * step['seconds'] / step['batches']:.1f} ms a step of training:"
    )
    header = ("part", "seconds", "images", "images a second", "peak GiB")
    return f"{title}\n\n" + markdown.table(header, rows, ".3g")


def _peak(n_bytes: int) -> str:
    return gibibytes(n_bytes) if n_bytes else ""


def _feeding(results: Sequence[Result]) -> str:
    rows = [(r["source"], f"{r['images a second']:,.0f}") for r in of_part(results, "feeding")]
    if not rows:
        return ""
    return "How fast the images come if no network takes time:\n\n" + markdown.table(
        ("images", "a second"), rows
    )


def seconds_of(run: Result) -> float:
    """How long all parts took."""
    return float(sum(part["seconds"] for part in run["parts"].values()))


def most_bytes(run: Result) -> int:
    """The largest peak of any part."""
    return int(max(part["bytes"] for part in run["parts"].values()))


def _largest_run(results: Sequence[Result]) -> Claim:
    claim = (
        f"About {PAPER_CLUSTERS:,} clusters, more than 10⁸ distances, with ResNet-18 on a GPU with "
        "11 GB."
    )
    runs = [r for r in of_part(results, "whole") if r["measured memory"]]
    runs = [r for r in runs if r["k"] >= PAPER_CLUSTERS]
    if not runs:
        return unmeasured(claim)
    run = runs[-1]
    held = max(part["held"] for part in run["parts"].values())
    said = (
        f"{run['distances']:,} distances of {run['n']:,} made-up images (224 pixels, epochs: "
        f"{run['epochs run']}, Q {1 - run['1-Q']['tv']:.2f}) in {seconds_of(run) / 60:.1f} "
        f"minutes; peak {gibibytes(most_bytes(run))} GiB, {gibibytes(held)} held"
    )
    return Claim(claim, said, verdict(run["distances"] > 1e8 and held <= run["budget"]))


def _naive(results: Sequence[Result]) -> Claim:
    claim = f"With k² outputs fewer than {PAPER_NAIVE} clusters, same network and hardware."
    most = {
        r["outputs"]: r["most clusters"]
        for r in of_part(results, "reach")
        if r["measured memory"] and r["precision"] == "float32"
    }
    if len(most) < len(NAMES):
        return unmeasured(claim)
    naive, ours = most["k2"], most["k"]
    said = f"{naive:,} clusters in float32 where k outputs reach {ours:,}"
    if naive < PAPER_NAIVE:
        return Claim(claim, said, "reproduced")
    far = naive <= FAR_FEWER * ours
    return Claim(claim, said, "changed" if far else "not reproduced")
