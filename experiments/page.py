"""Writes docs/paper.md and what the experiments' READMEs say was measured, from the results alone.

Run ``python -m experiments.page``.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import markdown
from experiments.core import NAMES, Claim, Experiment, Result, folder_of, load, results_in
from experiments.story import story

PAGE = Path(__file__).parents[1] / "docs" / "paper.md"
IMAGES = PAGE.parent / "images" / "paper"
MARK = "<!-- measured -->"

HEAD = """# The paper's experiments, repeated

Written by `python -m experiments.page` from experiments/*/results; do not edit. The paper is
Reiser, Schlötterer and Granitzer, *Parallel Total Variation Distance Estimation with Neural
Networks for Merging Over-Clusterings* (2019). It uses all of ImageNet; each section below says
which data we used, so our numbers stand beside the paper's and need not equal them. The paper's
figures belong to its authors: we describe them in words and show our own. Each experiment is one
command, `python -m experiments NAME --data PATH`; experiments/NAME/README.md has the details. Q is
the chance that two clusters of one category are closer than two of different categories. A is the
mean held-out accuracy over all pairs of clusters.
"""


def page(found: dict[str, list[Result]]) -> str:
    """All of it: the story, the claims, then a section for every experiment that was run."""
    claims = {name: load(name).claims(results) for name, results in found.items()}
    all_claims = "## What became of the paper's claims\n"
    parts = [HEAD, story(claims), all_claims, _all_claims(claims)]
    for name, results in found.items():
        if results:
            parts.append(_section(name, results))
    return "\n".join(parts)


def measured(name: str, results: Sequence[Result]) -> str:
    """What an experiment's README ends with."""
    if not results:
        return "Not measured yet.\n"
    experiment = load(name)
    return f"{_made_with(results)}\n{reading(experiment, results)}"


def reading(experiment: Experiment, results: Sequence[Result]) -> str:
    """The numbers and what they say of the paper's claims, in Markdown."""
    rows = [(c.paper, c.ours, f"**{c.verdict}**") for c in experiment.claims(results)]
    claims = markdown.table(("the paper", "here", "verdict"), rows)
    return f"{experiment.table(results)}\n\n{claims}\n"


def _section(name: str, results: Sequence[Result]) -> str:
    experiment = load(name)
    readme = (folder_of(name) / "README.md").read_text("utf-8")
    title, about, *others = readme.removeprefix("# ").split("\n\n")
    theirs = [part for part in others if part.startswith("The paper")]
    figures = experiment.draw(results, IMAGES)
    shown = [f"![{path.stem.replace('_', ' ')}](images/paper/{path.name})" for path in figures]
    parts = [f"## {title}", about, *theirs, _made_with(results), *shown, experiment.table(results)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _made_with(results: Sequence[Result]) -> str:
    """Where and how long."""
    minutes = sum(result["seconds"] for result in results) / 60
    where = sorted({result["made with"].split(", unsplit")[0] for result in results})
    most = max(result.get("at once", 1) for result in results)
    beside = f", up to {most} at a time" if most > 1 else ""
    took = f"{minutes:.1f} minutes in all{beside}"
    return f"Here: {len(results)} trials, {took} ({'; '.join(where)}).\n"


def _all_claims(claims: dict[str, list[Claim]]) -> str:
    rows = [(c.paper, c.ours, f"**{c.verdict}**", name) for name in claims for c in claims[name]]
    return markdown.table(("the paper", "here", "verdict", "experiment"), rows) + "\n"


def main() -> None:
    """Write the page, its figures and the ends of the READMEs."""
    found = {name: results_in(folder_of(name) / "results") for name in NAMES}
    IMAGES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(found), "utf-8")
    for name, results in found.items():
        path = folder_of(name) / "README.md"
        kept = path.read_text("utf-8").split(MARK)[0]
        path.write_text(f"{kept}{MARK}\n\n{measured(name, results)}", "utf-8")


if __name__ == "__main__":
    main()
