"""Review in a real browser: answers, what they change, undo, export, and merging again."""

import json
from pathlib import Path

import numpy as np
import pytest

import unsplit
from tests.browser.cases import scored_page
from tests.cli_cases import QUICK, read_csv, succeeds
from tests.cli_cases import unsplit as command
from tests.merging_cases import partition_of
from unsplit.merging.tree import members_of_nodes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def forty():
    return scored_page()


def answers_on(page):
    return page.evaluate("unsplitPage.review.answers.map(({ pair, answer }) => [pair, answer])")


def groups_on(page):
    return page.evaluate("Array.from(unsplitPage.cut.group)")


def exported(page, path):
    with page.expect_download() as download:
        page.locator("#export").click()
    assert download.value.suggested_filename == "unsplit-review.json"
    Path(download.value.path()).replace(path)
    return path


def allowed_groups(tree, taken, answers):
    """A slow twin of the page's cut: sets of leaves, and every pair looked at."""
    answers = [(set(left), set(right), answer) for left, right, answer in answers]
    sets = [{leaf} for leaf in range(tree.n_initial)]

    def join(leaves):
        touched = [one for one in sets if one & leaves]
        sets[:] = [one for one in sets if not one & leaves] + [set().union(*touched)]

    forbidden = [(left, right) for left, right, answer in answers if answer == "different"]
    for left, right, answer in answers:
        if answer == "same":
            join(left | right)
    nodes = [{leaf} for leaf in range(tree.n_initial)]  # what is left of each node of the tree
    for merge, wanted in zip(tree.merges, taken, strict=True):
        left, right = (
            next(one for one in sets if one & nodes[node]) for node in (merge.left, merge.right)
        )
        # Of a merge that is not made, the larger side goes on.
        size = lambda leaves: tree.sizes[list(leaves)].sum()  # noqa: E731
        nodes.append(nodes[merge.left if size(left) >= size(right) else merge.right])
        breaks = left is not right and any(
            (left & a and right & b) or (left & b and right & a) for a, b in forbidden
        )
        if wanted and not breaks:
            join(left | right)
    return {frozenset(one) for one in sets}


def test_answers_by_button_and_key_change_the_page_at_once(forty, opened):
    _, tree, report = forty
    page = opened(report)
    pairs = page.evaluate("unsplitPage.review.pairs.map(p => [p.left, p.right, p.done])")
    merged = next(i for i, pair in enumerate(pairs) if pair[2] == "merged")
    page.evaluate("index => unsplitPage.review.open(index)", merged)
    page.locator("[data-answer='different']").click()
    assert answers_on(page) == [[merged, "different"]]
    leaves = members_of_nodes(tree.merges, tree.n_initial)
    answer = (*(leaves[node] for node in pairs[merged][:2]), "different")
    obeyed = groups_on(page)
    assert partition_of(obeyed) == allowed_groups(tree, tree.taken, [answer])
    assert page.locator("#count").inner_text() == str(tree.n_clusters + 1)
    said = page.locator("#effect").inner_text()
    assert f"{tree.n_clusters} → {tree.n_clusters + 1} clusters" in said
    assert page.locator("#toast").is_visible()
    page.keyboard.press("k")  # skip
    assert len(answers_on(page)) == 1
    apart = next(i for i, pair in enumerate(pairs) if pair[2] == "kept apart")
    page.evaluate("index => unsplitPage.review.open(index)", apart)
    page.keyboard.press("s")
    assert answers_on(page) == [[merged, "different"], [apart, "same"]]
    assert page.locator("#count").inner_text() == str(tree.n_clusters)
    page.locator("#toast-undo").click()
    assert groups_on(page) == obeyed
    page.keyboard.press("u")
    assert groups_on(page) == tree.groups.tolist()
    assert answers_on(page) == []
    # The keys can be switched off, and act only while the pair can be seen.
    page.locator("#keys").uncheck()
    page.keyboard.press("s")
    page.locator("#keys").check()
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("s")
    assert answers_on(page) == []


def test_the_card_shows_both_sides(forty, opened):
    _, tree, report = forty
    page = opened(report)
    first = tree.reviewed[0].pair
    card = page.locator("#card")
    assert first.verdict in card.inner_text()
    assert first.why in card.inner_text()
    assert card.locator(".side").count() == 2
    assert card.locator(".side .tile").count() >= 2
    width = page.evaluate(
        """async () => {
          const image = new Image();
          const tile = document.querySelector("#card .tile");
          image.src = getComputedStyle(tile).backgroundImage.slice(5, -2);
          await image.decode();
          return image.naturalWidth;
        }"""
    )
    assert width == 40 * 2  # forty exemplars of 2 × 2 pixels side by side
    counts = page.evaluate("unsplitPage.review.pairs[0].border")
    assert sum(counts["left"]) == first.size_left  # all observations are held out
    assert sum(counts["right"]) == first.size_right
    assert card.locator("svg rect").count() == len(counts["left"]) + len(counts["right"])


def test_answers_are_kept_in_the_browser(forty, opened, tmp_path):
    page = opened(forty[2])
    page.evaluate("unsplitPage.review.open(0)")
    page.keyboard.press("d")
    page.keyboard.press("s")
    given = answers_on(page)
    page.reload()
    assert answers_on(page) == given
    assert page.locator("#answers li").count() == 2
    page.locator("#answers li button").first.click()
    assert answers_on(page) == given[1:]
    page.locator("#clear").click()
    page.reload()
    assert answers_on(page) == []


def test_a_contradiction_is_refused_and_named(forty, opened):
    page = opened(forty[2])
    # The two sides of a pair, and a later pair whose sides contain them.
    inside = page.evaluate(
        """() => {
          const { tree, review } = unsplitPage;
          const both = review.pairs.map((p) => [p.left, p.right].flatMap((n) => tree.members[n]));
          for (let i = 0; i < both.length; i += 1) {
            const j = both.findIndex((all, j) => i !== j && both[i].every((l) => all.includes(l)));
            if (j >= 0) return [i, j];
          }
          return null;
        }"""
    )
    small, large = inside
    page.evaluate("index => unsplitPage.review.open(index)", small)
    page.keyboard.press("d")
    page.evaluate("index => unsplitPage.review.open(index)", large)
    page.keyboard.press("s")
    assert answers_on(page) == [[small, "different"]]
    assert "contradicts your answer" in page.locator("#review-message").inner_text()


def test_the_cut_with_answers_is_that_of_the_slow_twin(forty, opened):
    _, tree, report = forty
    page = opened(report)
    pairs = page.evaluate("unsplitPage.review.pairs.map(p => [p.left, p.right])")
    rng = np.random.default_rng(0)
    for count in rng.integers(1, 41, size=25).tolist():
        chosen = rng.permutation(len(pairs))[:6].tolist()
        wanted = [(i, ["same", "different"][int(rng.integers(2))]) for i in chosen]
        answers, groups = page.evaluate(
            """([count, wanted]) => {
              const { tree, review } = unsplitPage;
              const answers = [];
              for (const [pair, answer] of wanted) {
                const one = review.answer(pair, answer);
                if (contradictions(tree, answers, one).length === 0) answers.push(one);
              }
              const cut = constrainedCut(tree, cutAt(tree, count), answers);
              return [answers.map((a) => [a.left, a.right, a.answer]), Array.from(cut.group)];
            }""",
            [count, wanted],
        )
        taken = [step < 40 - count for step in range(39)]
        assert partition_of(groups) == allowed_groups(tree, taken, answers)


def test_five_answers_are_exported_and_obeyed_by_merge(forty, opened, tmp_path):
    result, tree, report = forty
    page = opened(report)
    pairs = tree.reviewed
    # Against what was done, so that obeying changes the result.
    for index in range(5):
        page.evaluate("index => unsplitPage.review.open(index)", index)
        page.keyboard.press("d" if pairs[index].step is not None else "s")
    path = exported(page, tmp_path / "answers.json")
    given = json.loads(path.read_text(encoding="utf-8"))["answers"]
    assert len(given) == 5
    again = unsplit.merge(result, max_tvd=0.5, constraints=path)
    assert not np.array_equal(again.groups, tree.groups)
    obeyed(again.mapping, given)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert unsplit.merge(result, max_tvd=0.5, constraints=content).mapping == again.mapping


def obeyed(new, answers):
    for one in answers:
        left, right = ({new[name] for name in one[side]} for side in ("left", "right"))
        if one["answer"] == "same":
            assert len(left | right) == 1
        else:
            assert not left & right


def test_the_whole_way_from_the_command_line(opened, tmp_path, monkeypatch):
    """merge --report, review five pairs, export, merge --constraints: the labels obey."""
    monkeypatch.chdir(tmp_path)
    means = np.repeat([[0, 0], [7, 0], [0, 7], [7, 7]], 3, axis=0)
    X, labels = unsplit.datasets.gaussians(means, 30, random_state=0)
    names = [f"leiden {label}" for label in labels]
    np.savez("cells.npz", X=X, leiden=np.array(names))
    where = ("cells.npz", "--labels", "leiden", "--seed", 1, *QUICK)
    succeeds(command("merge", *where, "--out", "first", "--report"))
    page = opened(tmp_path / "first" / "report.html")
    assert "unsplit merge cells.npz --labels leiden" in page.locator("#about pre").inner_text()
    assert page.evaluate("unsplitPage.picture.shown")
    for index in range(5):
        page.evaluate("index => unsplitPage.review.open(index)", index)
        done = page.evaluate("index => unsplitPage.review.pairs[index].done", index)
        page.keyboard.press("d" if done == "merged" else "s")
    given = json.loads(exported(page, tmp_path / "answers.json").read_text("utf-8"))["answers"]
    assert len(given) == 5
    succeeds(
        command("merge", *where, "--out", "again", "--constraints", "answers.json", "--report")
    )
    table = read_csv("again/labels.csv")
    obeyed(dict(zip(table["old"], table["new"], strict=True)), given)
    assert read_csv("first/labels.csv")["new"] != table["new"]
    again = opened(tmp_path / "again" / "report.html")
    assert "--constraints answers.json" in again.locator("#about pre").inner_text()


def test_a_second_round_starts_with_the_answers_of_the_first(opened, tmp_path):
    result, tree, report = scored_page()
    page = opened(report)
    # One answer of each kind, against what was done.
    done = [row.step is not None for row in tree.reviewed]
    for index, key in ((done.index(True), "d"), (done.index(False), "s")):
        page.evaluate("index => unsplitPage.review.open(index)", index)
        page.keyboard.press(key)
    first = exported(page, tmp_path / "first.json")
    given = json.loads(first.read_text("utf-8"))["answers"]
    assert {one["answer"] for one in given} == {"same", "different"}

    again = unsplit.merge(result, max_tvd=0.5, constraints=first)
    again.save(tmp_path / "tree.npz")  # as a result folder keeps it
    loaded = unsplit.MergeTree.load(tmp_path / "tree.npz")
    assert loaded.answers == again.answers
    page = opened(loaded.report(result))
    assert groups_on(page) == again.groups.tolist()
    assert page.locator("#answers li").count() == 2
    assert "2 answers given before: this result obeys them" in page.locator("#effect").inner_text()
    second = exported(page, tmp_path / "second.json")
    assert json.loads(second.read_text("utf-8"))["answers"] == given

    # A new answer is added to them, and survives a reload with them.
    pairs = page.evaluate("unsplitPage.review.pairs.map(p => [p.done, p.why])")
    free = next(i for i, (what, why) in enumerate(pairs) if what == "merged" and "link" not in why)
    page.evaluate("index => unsplitPage.review.open(index)", free)
    page.keyboard.press("d")
    page.reload()
    assert page.locator("#answers li").count() == 3
    third = exported(page, tmp_path / "third.json")
    wanted = json.loads(third.read_text("utf-8"))["answers"]
    assert wanted[:2] == given
    obeyed(unsplit.merge(result, max_tvd=0.5, constraints=third).mapping, wanted)

    # Undo takes back the new one, then the earlier ones; "same" then joins no longer.
    for left in (2, 1, 0):
        page.keyboard.press("u")
        assert page.locator("#answers li").count() == left
    new = dict(zip(loaded.cluster_ids.tolist(), groups_on(page), strict=True))
    same = next(one for one in given if one["answer"] == "same")
    assert len({new[name] for name in (*same["left"], *same["right"])}) > 1
    page.reload()
    assert answers_on(page) == []
    page.locator("#clear").click()
    assert page.locator("#clear").inner_text() == "Forget all answers"
    assert groups_on(page) == again.groups.tolist()


def test_page_and_merging_again_mostly_agree(forty, opened):
    """A hundred answers against what was done: the page shows what merging again finds."""
    result, tree, report = forty
    page = opened(report)
    rng = np.random.default_rng(0)
    same_number = same_clusters = 0
    for index in rng.integers(len(tree.reviewed), size=100).tolist():
        groups, content = page.evaluate(
            """(index) => {
              const { tree, review } = unsplitPage;
              const wanted = review.pairs[index].done === "merged" ? "different" : "same";
              const answers = [review.answer(index, wanted)];
              const cut = constrainedCut(tree, tree.taken, answers);
              return [Array.from(cut.group), exported(tree, answers)];
            }""",
            index,
        )
        again = unsplit.merge(result, max_tvd=0.5, constraints=content).groups
        same_number += again.max() == max(groups)
        same_clusters += partition_of(again) == partition_of(groups)
    # A cluster that was taken out may find another one to join, which only merging again knows.
    assert same_number >= 90
    assert same_clusters >= 80
