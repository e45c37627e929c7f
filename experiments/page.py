"""Writes docs/paper.md and what the experiments' READMEs say was measured, from the results alone.

Run ``python -m experiments.page``.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import markdown
from experiments.core import NAMES, Experiment, Result, folder_of, load, results_in
from experiments.story import FIGURE, front, main_claims

PAGE = Path(__file__).parents[1] / "docs" / "paper.md"
IMAGES = PAGE.parent / "images" / "paper"
MARK = "<!-- measured -->"

HEAD = """# The paper's experiments, repeated

<!-- Written by `python -m experiments.page` from experiments/*/results; do not edit. -->

The paper is Reiser, Schlötterer and Granitzer, *Parallel Total Variation Distance Estimation with
Neural Networks for Merging Over-Clusterings* (2019). Our own network for vectors was
[twice as wide](method.md#the-network) when its numbers were measured.
"""

WORDS = """Q is the chance that two clusters of one category are closer than two of different
categories. A is the mean held-out accuracy over all pairs of clusters. *Not measured at the
paper's conditions* says that we had other data or other features than the statement is about.
Each experiment is one command, `python -m experiments NAME --data PATH`;
experiments/NAME/README.md has every table, and says what was not run. `unsplit.paper` is the
paper's method in one call ([its equations in code](method.md#for-readers-of-the-paper)). Where
only "the paper's method" is said, the run is older: its network was trained on 64 % of the images
instead of 80 %, with weight decay, and its weights were averaged.
"""


def page(found: dict[str, list[Result]]) -> str:
    """All of it: the story, then a folded section for every experiment that was run."""
    claims = {name: load(name).claims(results) for name, results in found.items()}
    sections = [_section(name, results) for name, results in found.items() if results]
    parts = [HEAD, front("imagenette" in found), "## What became of the paper's claims\n"]
    return "\n".join([*parts, main_claims(claims), WORDS, *sections])


def measured(name: str, results: Sequence[Result]) -> str:
    """What an experiment's README ends with."""
    if not results:
        return "Not measured yet.\n"
    experiment = load(name)
    return f"{_made_with(results)}\n{reading(experiment, results)}"


def reading(experiment: Experiment, results: Sequence[Result]) -> str:
    """The numbers and what they say of the paper's claims, in Markdown."""
    return f"{experiment.table(results)}\n\n{_claims_of(experiment, results)}\n"


def _section(name: str, results: Sequence[Result]) -> str:
    """What was asked, and folded what was found, in Markdown that mkdocs and others can fold."""
    experiment = load(name)
    readme = (folder_of(name) / "README.md").read_text("utf-8")
    title, about, *others = readme.removeprefix("# ").split("\n\n")
    theirs = [part for part in others if part.startswith("The paper")][:1]
    figures = [path.name for path in experiment.draw(results, IMAGES)]
    shown = [
        f"![{name.removesuffix('.png').replace('_', ' ')}](images/paper/{name})"
        for name in figures
        if name != FIGURE
    ]
    inside = [*theirs, _made_with(results), _claims_of(experiment, results), *shown]
    folded = "\n\n".join(part.rstrip() for part in inside)
    begin = '<details markdown="1"><summary>What the paper says, and what was found</summary>'
    return f"## {title}\n\n{about}\n\n{begin}\n\n{folded}\n\n</details>\n"


def _claims_of(experiment: Experiment, results: Sequence[Result]) -> str:
    rows = [(c.paper, c.ours, f"**{c.verdict}**") for c in experiment.claims(results)]
    return markdown.table(("the paper", "here", "verdict"), rows)


def _made_with(results: Sequence[Result]) -> str:
    """Where and how long."""
    minutes = sum(result["seconds"] for result in results) / 60
    where = sorted({result["made with"].split(", unsplit")[0] for result in results})
    most = max(result.get("at once", 1) for result in results)
    beside = f", up to {most} at a time" if most > 1 else ""
    took = f"{minutes:.1f} minutes in all{beside}"
    return f"Here: {len(results)} trials, {took} ({'; '.join(where)}).\n"


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
