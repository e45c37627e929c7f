"""What is said of the paper's claims follows from the numbers, whichever of them are there."""

import re

import pytest

from experiments import core, page
from experiments.artificial import DIVERGENCES
from experiments.core import folder_of, load, results_in
from experiments.expectations import surprises
from experiments.story import FIGURE
from experiments.texts import ELSEWHERE

NAMES = core.NAMES


def photographs(s, noise, estimator, wrong, best=None, epochs=30, A=0.9):
    values = dict.fromkeys(DIVERGENCES, wrong) | ({"overlap": best} if best is not None else {})
    return {
        "s": s, "noise": noise, "estimator": estimator, "epochs": epochs, "k": 1200 // s,
        "1-Q": values, "A": A, "seconds": 90.0, "made with": "one GPU, torch 2, unsplit 1",
    }  # fmt: skip


def shapes(s, backbone, wrong, A):
    return {
        "s": s, "backbone": backbone, "k": 900 // s, "epochs": 25, "points": 512, "A": A,
        "1-Q": dict.fromkeys(DIVERGENCES, wrong), "seconds": 30.0, "made with": "x, unsplit 1",
    }  # fmt: skip


GRID = [
    photographs(50, 0.0, "paper", 0.01),
    photographs(50, 0.0, "cross-fitted", 0.004, 0.0005),
    photographs(50, 0.3, "paper", 0.08),
    photographs(50, 0.3, "cross-fitted", 0.02, 0.01),
    photographs(200, 0.0, "paper", 0.001),
    photographs(200, 0.0, "cross-fitted", 0.0, 0.0),
]
COURSE = [
    photographs(50, 0.0, "course", wrong, epochs=epochs, A=A)
    for epochs, wrong, A in ((1, 0.3, 0.6), (2, 0.2, 0.7), (4, 0.1, 0.8))
]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_measured_is_said_so(name):
    found = load(name).claims([])
    assert found
    assert {claim.verdict for claim in found} == {"not measured"}
    assert page.measured(name, []) == "Not measured yet.\n"


def test_photographs():
    of = load("imagenet-artificial").claims(GRID + COURSE)
    assert [claim.verdict for claim in of] == [
        "reproduced", ELSEWHERE, "reproduced", "not reached",
    ]  # fmt: skip
    assert of[0].ours == "2 of 2 comparisons agree"
    assert of[1].ours == (
        "92.0% by the paper's estimator, 98.0% by TVD cross-fitted and 99.0% by the best of six "
        "divergences, of the 24 clusters that our data make"
    )
    assert of[2].ours == "rank correlation 1.00 at s = 50"
    assert of[3].ours == (
        "in 2 of 3 trials by the best of six divergences; at least 2 times by the same statistic "
        "as the paper's, TVD, and 8 times by the best; not at s = 50, noise 30% (8.0 times)"
    )


def test_photographs_that_disagree():
    turned = [photographs(50, 0.0, "paper", 0.1), photographs(50, 0.0, "cross-fitted", 0.01)]
    of = load("imagenet-artificial").claims([*GRID[2:], *turned, *COURSE[:2]])
    assert of[0].ours == "1 of 2 comparisons agree"
    assert of[0].verdict == "not reproduced"
    turned_course = [r | {"A": 1 - r["A"]} for r in COURSE]
    assert load("imagenet-artificial").claims(turned_course)[2].verdict == "not reproduced"


def test_table_of_photographs():
    rows = load("imagenet-artificial").table(GRID).splitlines()
    assert len(rows) == 2 + 3
    assert rows[2].startswith("| 50 | 0% | 24 | 0.9 | 0.01 | 0.004 |")
    assert rows[2].endswith("| 2× | 20× |")
    assert rows[-1].endswith("| ∞ | ∞ |")


def test_shapes():
    results = [
        shapes(10, "pointnet++", 0.03, 0.93), shapes(10, "single-layer", 0.3, 0.7),
        shapes(10, "sorted single-layer", 0.2, 0.8), shapes(150, "pointnet++", 0.01, 0.96),
        shapes(150, "single-layer", 0.25, 0.75), shapes(150, "sorted single-layer", 0.1, 0.94),
    ]  # fmt: skip
    found = load("modelnet40").claims(results)
    assert found[0].ours.startswith("Q 0.9700 against 0.7500 with points in the file's random")
    assert found[0].ours.endswith("and 0.9000 with points sorted by a coordinate")
    assert found[2].ours == "at 2 of 2 sizes the network with the highest A has the highest Q"
    assert [c.verdict for c in found] == ["reproduced", "reproduced", "reproduced"]
    good = [*results[:5], shapes(150, "sorted single-layer", 0.0, 0.94)]
    verdicts = ["changed", "reproduced", "not reproduced"]
    assert [c.verdict for c in load("modelnet40").claims(good)] == verdicts
    assert load("modelnet40").claims(results[:5])[0].verdict == "not measured"


def test_page_has_the_claims_and_a_folded_section_for_what_was_run(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "IMAGES", tmp_path)
    text = page.page({"imagenet-artificial": GRID + COURSE, "modelnet40": []})
    assert text.split("What became of")[1].count("**not measured**") == 2
    for claim in load("imagenet-artificial").claims(GRID + COURSE):
        assert f"| {claim.paper} | {claim.ours} | **{claim.verdict}** |" in text
    assert text.count("<details") == text.count("</details>") == 1
    assert "## ImageNet, over-clustered by hand" in text
    assert "## ModelNet40" not in text
    assert "\n\nThe paper, on 1.3 million photographs" in text
    assert "Here: 9 trials, 13.5 minutes in all (one GPU, torch 2)." in text
    for name in re.findall(r"\(images/paper/(.+?)\)", text):
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("name", NAMES)
def test_committed_numbers_are_as_expected(name):
    assert surprises(name, results_in(folder_of(name) / "results")) == []


@pytest.mark.parametrize("name", NAMES)
def test_readme_has_the_command_and_what_was_measured(name):
    readme = (folder_of(name) / "README.md").read_text("utf-8")
    assert f"python -m experiments {name}" in readme
    results = results_in(folder_of(name) / "results")
    assert readme.split(page.MARK)[1] == f"\n\n{page.measured(name, results)}"


def test_page_is_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "IMAGES", tmp_path)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)  # takes long
    found = {name: results_in(folder_of(name) / "results") for name in NAMES}
    assert page.PAGE.read_text("utf-8") == page.page(found)


def test_page_begins_with_one_figure_three_sentences_and_the_claims():
    text = page.PAGE.read_text("utf-8")
    front = text.split("## What became of")[0]
    assert re.findall(r"images/paper/(\S+?)\)", front) == [FIGURE]
    sentences = front.split(")\n\n")[1].strip()
    assert len(re.findall(r"[.](?:\s|$)", sentences)) == 3
    assert len(text.split()) < 4_200
