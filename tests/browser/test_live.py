"""``unsplit review`` in a real browser: every answer merges again, as the page then shows."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unsplit
from tests.cli_cases import QUICK, read_csv, succeeds
from tests.cli_cases import unsplit as command
from tests.merging_cases import partition_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals"),
]


@pytest.fixture
def served(browser, tmp_path, monkeypatch):
    """The page of twelve clusters, three of each group, and the program that serves it."""
    monkeypatch.chdir(tmp_path)
    means = np.repeat([[0, 0], [7, 0], [0, 7], [7, 7]], 3, axis=0)
    X, labels = unsplit.datasets.gaussians(means, 30, random_state=0)
    np.savez("cells.npz", X=X, leiden=np.array([f"leiden {label}" for label in labels]))
    where = ("cells.npz", "--labels", "leiden", "--seed", 1, *QUICK, "--out", "out")
    succeeds(command("merge", *where, "--report", "--also", "scores"))
    program = [sys.executable, "-m", "unsplit", "review", "out"]
    wrong = []
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as run:
        address = re.search(r"http://\S+", run.stdout.readline())[0]
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        here = (address, "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(here) or wrong.append(asked.url))
        page.goto(address)
        yield page, run, wrong
        context.close()
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.wait(60)


def when_merged(page, n_answers):
    """Wait until the page has taken the result that obeys so many answers."""
    page.wait_for_function(
        "n => unsplitPage.given.length === n && unsplitPage.review.answers.length === n",
        arg=n_answers,
    )


def kept():
    return json.loads(Path("out/unsplit-review.json").read_text("utf-8"))["answers"]


def test_every_answer_merges_again_and_the_page_stays_where_it_was(served):
    page, _, wrong = served
    assert page.locator("#review-intro").inner_text().endswith("saved in out/unsplit-review.json.")
    merged = page.evaluate("unsplitPage.review.pairs.findIndex((pair) => pair.done === 'merged')")
    page.evaluate("index => unsplitPage.review.open(index)", merged)
    before = page.evaluate("unsplitPage.tree.n_clusters")
    page.keyboard.press("d")
    assert page.evaluate("unsplitPage.cut.count") == before + 1  # shown at once
    next_pair = page.evaluate("unsplitPage.review.sides(unsplitPage.review.index)")
    when_merged(page, 1)
    (first,) = kept()
    assert first["answer"] == "different"
    assert page.evaluate("unsplitPage.review.sides(unsplitPage.review.index)") == next_pair
    top = page.locator("#card").bounding_box()["y"]
    assert -50 < top < 850
    assert page.locator("#toast").is_visible()
    assert "1 answer: this result obeys it." in page.locator("#effect").inner_text()
    new = page.evaluate("unsplitPage.tree.n_clusters")
    assert f"12 clusters merge into {new}" in page.locator("#headline").inner_text()

    # Answers that are given while merging goes on are sent afterwards; all are there in the end.
    pairs = page.evaluate("unsplitPage.review.pairs.map(({ done, why }) => [done, why])")
    apart = next(i for i, (x, why) in enumerate(pairs) if x == "kept apart" and "link" not in why)
    page.evaluate("index => unsplitPage.review.open(index)", apart)
    page.evaluate(
        "unsplitPage.review.give('same'); unsplitPage.review.give('skip'); unsplitPage.setCount(5)"
    )
    when_merged(page, 2)
    assert page.evaluate("unsplitPage.count") == 5
    assert [one["answer"] for one in kept()] == ["different", "same"]
    page.keyboard.press("u")
    when_merged(page, 1)
    assert kept() == [first]

    # What contradicts is said below the card by the server too, and nothing is saved.
    page.evaluate(
        """() => {
          const { review } = unsplitPage;
          const [one] = review.answers;
          review.change([one, { ...one, answer: "same" }]);
        }"""
    )
    message = page.locator("#review-message")
    message.get_by_text("are to be kept apart").wait_for()
    assert kept() == [first]
    page.locator("#answers li button").last.click()
    when_merged(page, 1)

    # Another window with an older result is told so.
    other = page.context.new_page()
    other.goto(page.url)
    page.locator("#clear").click()
    when_merged(page, 0)
    other.evaluate("unsplitPage.review.open(0)")
    other.keyboard.press("d")
    other.locator("#review-message").get_by_text("Another window").wait_for()
    assert kept() == []
    assert not wrong


def test_the_session_ends_with_the_command_that_makes_the_result(served):
    page, run, wrong = served
    page.evaluate("unsplitPage.review.open(0)")
    page.keyboard.press(
        "s" if page.evaluate("unsplitPage.review.pairs[0].done") != "merged" else "d"
    )
    when_merged(page, 1)
    groups = page.evaluate("[unsplitPage.tree.names, Array.from(unsplitPage.cut.group)]")
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 0
    assert "with answers in out/unsplit-review.json" in said
    page.evaluate("unsplitPage.review.open(1)")
    page.keyboard.press("s")
    page.locator("#review-message").get_by_text("does not answer").wait_for()
    typed = said.splitlines()[-1].split()
    succeeds(command(*typed[1:]))
    table = read_csv("out/labels.csv")
    new = dict(zip(table["old"], table["new"], strict=True))
    names, numbers = groups
    assert partition_of([new[name] for (name,) in names]) == partition_of(numbers)
    assert [text for text in wrong if "ERR_CONNECTION_REFUSED" not in text] == []
