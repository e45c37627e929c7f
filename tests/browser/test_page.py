"""The page in a real browser: the cut, hover, zoom, keyboard, downloads, names and sizes."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from tests.browser.cases import HOSTILE, large_page, scored_page

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
BOX = ("x", "y", "wide", "high")
SLIDE = """count => {
  const slider = document.getElementById("slider");
  slider.value = count;
  slider.dispatchEvent(new Event("input"));
}"""
# Calls a function after everything has been drawn.
SETTLED = """then => new Promise(
  done => requestAnimationFrame(() => setTimeout(() => done(then()), 0))
)"""
TIMED_SLIDE = f"""count => {{
  const start = performance.now();
  ({SLIDE})(count);
  return ({SETTLED})(() => performance.now() - start);
}}"""


@pytest.fixture(scope="module")
def forty():
    """Forty clusters with scores, edges, exemplars and a picture."""
    return scored_page()


def groups_on(page):
    return page.evaluate("Array.from(unsplitPage.cut.group)")


def pixels(page, canvas):
    return page.evaluate("id => document.getElementById(id).toDataURL()", canvas)


def downloaded(page, button):
    with page.expect_download() as download:
        page.locator(f"[data-download='{button}']").click()
    return Path(download.value.path()).read_bytes()


def test_it_opens_with_the_result(forty, opened):
    _, tree, report = forty
    page = opened(report)
    assert page.title() == f"40 clusters merge into {tree.n_clusters} – Unsplit"
    assert page.locator("h1").inner_text() == f"40 clusters merge into {tree.n_clusters}"
    assert tree.stopped in page.locator("#answer .words").inner_text()
    assert groups_on(page) == tree.groups.tolist()
    assert page.locator("#count").inner_text() == str(tree.n_clusters)
    assert page.locator("#new-clusters tbody tr").count() == tree.n_clusters


def test_the_slider_moves_the_cut_and_everything_follows(forty, opened):
    _, tree, report = forty
    page = opened(report)
    page.locator("#merge-list summary").click()
    seen = [pixels(page, "after")]
    for count in (20, 5, 1, 40):
        page.evaluate(SLIDE, count)
        assert groups_on(page) == tree.cut(n_clusters=count).groups.tolist()
        assert page.locator("#count").inner_text() == str(count)
        assert page.locator("#after-title").inner_text().startswith(f"After: {count} cluster")
        assert page.locator("#new-clusters tbody tr").count() == min(count, 40)
        assert page.locator("#merge-list td:text-is('merged')").count() == 40 - count
        assert page.locator("#dendrogram path.undone").count() == count - 1
        seen.append(pixels(page, "after"))
    assert len(set(seen)) == len(seen)  # the picture changed each time
    page.locator("#reset").click()
    assert groups_on(page) == tree.groups.tolist()
    assert not page.locator("#reset").is_visible()
    page.locator("#more").click()
    assert groups_on(page) == tree.cut(n_clusters=tree.n_clusters + 1).groups.tolist()


def test_the_table_has_old_and_new_with_sizes(forty, opened):
    _, tree, report = forty
    page = opened(report)
    page.locator("#old-new summary").click()
    rows = page.locator("#old-new tbody tr").all_inner_texts()
    found = [row.split("\t") for row in rows]
    wanted = zip(tree.cluster_ids, tree.sizes, tree.groups, strict=True)
    assert found == [[str(n), str(s), tree.names[g]] for n, s, g in wanted]


def test_pointing_at_a_pair_reads_it(forty, opened):
    result, _, report = forty
    page = opened(report)
    page.locator("#matrix").scroll_into_view_if_needed()
    i, j = page.evaluate("[unsplitPage.tree.order[3], unsplitPage.tree.order[30]]")
    place = page.evaluate(
        """([row, column]) => {
          const { left, width, height } = unsplitPage.matrix.area;
          return { x: left + (column + 0.5) * width / 40, y: (row + 0.5) * height / 40 };
        }""",
        [3, 30],
    )
    page.locator("#matrix").hover(position=place)
    text = page.locator("#tip").inner_text().replace("\u2068", "").replace("\u2069", "")
    low, _ = result.confidence_interval()
    assert f"c{i} (12 observations) and c{j} (12 observations)" in text
    assert f"TVD {result.tvd[i, j]:.2f}, at least {low[i, j]:.2f} (95% sure)." in text
    assert "verdict: " in text
    assert page.locator("#readout").inner_text() == page.locator("#tip").inner_text()


def test_pointing_at_a_merge_and_at_a_point_reads_them(forty, opened):
    _, tree, report = forty
    page = opened(report)
    box = page.locator("#dendrogram").bounding_box()
    step = 30
    node = page.evaluate("step => unsplitPage.dendrogram.node[40 + step]", step)
    page.locator("#dendrogram").hover(
        position={"x": node["x"] * box["width"] / 101, "y": node["y"] * box["height"] / 40}
    )
    text = page.locator("#tip").inner_text()
    assert text.startswith(f"Step {step}: ")
    assert tree.merges[step].why in text
    assert f"Verdict: {tree.merges[step].verdict}" in text
    assert page.locator("#dendrogram path.pointed").count() == 1
    spot = page.evaluate(
        """() => {
          const { clientWidth, clientHeight } = document.getElementById("after");
          const place = unsplitPage.picture.places(clientWidth, clientHeight);
          return { x: place.x(0), y: place.y(0) };
        }"""
    )
    page.locator("#after").hover(position=spot)
    assert re.match(
        r"Cluster .*12 observations, in new cluster .*c\d+", page.locator("#tip").inner_text()
    )


def test_wheel_buttons_and_keys_zoom_and_drag_moves(forty, opened):
    page = opened(forty[2])
    shown = lambda: page.evaluate("unsplitPage.zoom")  # noqa: E731
    page.locator("#matrix").hover(position={"x": 300, "y": 200})
    page.mouse.wheel(0, -100)  # scrolls the page
    page.locator("#matrix").hover(position={"x": 300, "y": 200})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.evaluate(SETTLED.replace("then()", "0"))
    page.keyboard.up("Control")
    zoomed = shown()
    assert zoomed["end"] - zoomed["start"] == pytest.approx(40 * np.exp(-0.4))
    page.mouse.down()
    page.mouse.move(*(value + 60 for value in page_place(page, "#matrix", 300, 200)), steps=4)
    page.mouse.up()
    assert shown()["start"] < zoomed["start"]
    page.locator("#zoom-all").click()
    assert shown() == {"start": 0, "left": 0, "end": 40}
    page.locator("#zoom-in").click()
    assert shown()["end"] - shown()["start"] == pytest.approx(24)
    page.locator("#dendrogram").press("-")
    assert shown()["end"] - shown()["start"] == pytest.approx(40)
    page.locator("#matrix").press("+")
    assert shown()["end"] - shown()["start"] == pytest.approx(24)
    page.locator("#matrix").press("0")
    assert shown()["end"] == 40


def page_place(page, selector, x, y):
    box = page.locator(selector).bounding_box()
    return box["x"] + x, box["y"] + y


def test_everything_works_with_the_keyboard(forty, opened):
    _, tree, report = forty
    page = opened(report)
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    assert groups_on(page) == tree.cut(n_clusters=tree.n_clusters + 1).groups.tolist()
    page.locator("#dendrogram").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.locator("#readout").inner_text().startswith("Step 2: ")
    page.locator("#matrix").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    order = page.evaluate("unsplitPage.tree.order")
    text = page.locator("#readout").inner_text()
    assert f"c{order[0]}\u2069 (12" in text
    assert f"c{order[2]}\u2069 (12" in text
    # The tab key reaches every control, and each of them has a name.
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "slider", "before", "dendrogram", "matrix", "zoom-in", "export"} - reached == {
        "export"  # disabled while there is no answer
    }


def test_labels_of_the_cut_are_downloaded(forty, opened):
    result, tree, report = forty
    page = opened(report)
    page.evaluate(SLIDE, 11)
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "labels").decode("utf-8"))))
    assert len(rows) == int(result.sizes.sum())
    cut = tree.cut(n_clusters=11)
    assert all(row["new"] == cut.names[cut.mapping[row["old"]]] for row in rows)
    assert rows[0]["id"].startswith("row ")


def test_figures_are_downloaded_as_svg_and_png(forty, opened):
    page = opened(forty[2])
    for figure, part in (("picture", b"<circle"), ("tree", b"<path"), ("distances", b"<image")):
        svg = downloaded(page, f"{figure}.svg")
        assert svg.startswith(b"<svg")
        assert svg.count(part) >= 1
        assert b"40 clusters" in svg  # the title
        png = downloaded(page, f"{figure}.png")
        assert png.startswith(b"\x89PNG")
        assert len(png) > 5_000  # not an empty sheet


@pytest.mark.parametrize("width", [1280, 390])
def test_numbers_in_the_picture_do_not_overlap(width, opened):
    page = opened(large_page(500, n_clusters=60)[1], width=width)
    for count in (8, 60, 300):
        page.evaluate(SLIDE, count)
        numbers = page.evaluate(
            """() => {
              const { clientWidth, clientHeight } = document.getElementById("after");
              const { picture, cut } = unsplitPage;
              return picture.numbers(clientWidth, clientHeight, cut.group).numbers;
            }"""
        )
        assert 4 <= len(numbers) <= count
        x, y, wide, high = (np.array([one[key] for one in numbers]) for key in BOX)
        covers = (2 * np.abs(np.subtract.outer(x, x)) < np.add.outer(wide, wide) - 1e-9) & (
            2 * np.abs(np.subtract.outer(y, y)) < np.add.outer(high, high) - 1e-9
        )
        assert covers.sum() == len(numbers)  # each covers only itself
        assert len({one["text"] for one in numbers}) == len(numbers)


def test_hostile_names_stay_text(opened):
    _, tree, report = scored_page(n_groups=2, pieces=5, names=HOSTILE)
    page = opened(report)
    page.locator("#old-new summary").click()
    page.locator("#merge-list summary").click()
    page.locator("#matrix").hover(position={"x": 300, "y": 100})
    page.keyboard.press("s")
    shown = page.locator("#old-new tbody th").all_text_contents()
    assert shown == [str(name) for name in tree.cluster_ids]
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main b").count() == 0
    text = downloaded(page, "labels").decode("utf-8")
    assert {row["old"] for row in csv.DictReader(io.StringIO(text))} == set(shown)
    assert page.evaluate("window.hacked") is None
    # Right-to-left names are isolated, so that the words around them stay in order.
    assert "\u2068שלום עולם\u2069" in page.locator("#merge-list").inner_text()


@pytest.mark.parametrize("k", [2, 500])
def test_few_and_many_clusters(k, opened, measured):
    tree, report = large_page(k, n_clusters=max(1, k // 10))
    assert len(report.html) < 10e6
    page = opened(report)
    ready = page.evaluate(
        "new Promise(done => requestAnimationFrame(() => done(performance.now())))"
    )
    assert groups_on(page) == tree.groups.tolist()
    times = []
    for count in np.linspace(1, k, 6).astype(int).tolist():
        times.append(page.evaluate(TIMED_SLIDE, count))
        assert groups_on(page) == tree.cut(n_clusters=count).groups.tolist()
    if k == 500:
        measured("500 clusters open", ready, 2000)
        measured("500 clusters, the slider answers (median of six)", np.median(times), 100)


def test_thousands_of_clusters_are_folded_and_the_page_says_so(opened):
    tree, report = large_page(5_000, n_clusters=60)
    assert len(report.html) < 10e6
    page = opened(report)
    assert (
        "This page shows the 5,000 clusters as 500 groups" in page.locator("#answer").inner_text()
    )
    assert page.locator("#slider").get_attribute("max") == "500"
    members = page.evaluate("unsplitPage.tree.names.map(names => names.map(Number))")
    assert sorted(name for names in members for name in names) == list(range(5_000))
    for count in (60, 300):
        page.evaluate(SLIDE, count)
        wanted = tree.cut(n_clusters=count).groups
        found = np.empty(5_000, int)
        for names, group in zip(members, groups_on(page), strict=True):
            found[names] = group
        pairs = set(zip(wanted.tolist(), found.tolist(), strict=True))
        assert len(pairs) == count  # the same groups, whatever their numbers
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "labels").decode("utf-8"))))
    assert len(rows) == 35_000
    assert {row["old"] for row in rows} == set(map(str, range(5_000)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_fault(scheme, width, forty, opened):
    page = opened(forty[2], width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    for details in ("#old-new summary", "#merge-list summary"):
        page.locator(details).click()
    page.locator("[data-answer='different']").click()
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    faults = [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found["violations"]]
    assert faults == []
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0


def test_the_colours_can_be_switched(forty, opened):
    page = opened(forty[2], scheme="dark")
    dark = pixels(page, "matrix")
    colour = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    before = colour()
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert colour() != before
    assert pixels(page, "matrix") != dark


def test_a_notebook_shows_the_page_in_a_frame(forty, opened, tmp_path):
    _, tree, report = forty
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><body>{report._repr_html_()}", encoding="utf-8")
    page = opened(notebook)
    frame = page.frame_locator("iframe")
    assert frame.locator("h1").inner_text() == f"40 clusters merge into {tree.n_clusters}"
    frame.locator("#more").click()
    assert frame.locator("#count").inner_text() == str(tree.n_clusters + 1)


def test_a_pair_a_merge_and_a_point_lead_to_the_review(forty, opened):
    _, tree, report = forty
    page = opened(report)
    shown = lambda: page.evaluate("unsplitPage.review.pairs[unsplitPage.review.index]")  # noqa: E731
    leaves = lambda side: set(page.evaluate("node => unsplitPage.tree.members[node]", side))  # noqa: E731
    reviewed = page.evaluate("unsplitPage.review.pairs.map(p => [p.left, p.right])")
    box = page.locator("#dendrogram").bounding_box()
    step = next(i for i, m in enumerate(tree.merges) if [m.left, m.right] in reviewed[3:])
    node = page.evaluate("step => unsplitPage.dendrogram.node[40 + step]", step)
    place = {"x": node["x"] * box["width"] / 101, "y": node["y"] * box["height"] / 40}
    page.locator("#dendrogram").click(position=place)
    assert [shown()["left"], shown()["right"]] == [tree.merges[step].left, tree.merges[step].right]
    assert page.locator("#card").evaluate("card => card === document.activeElement")

    row, column = page.evaluate(
        """() => {
          const { tree, review } = unsplitPage;
          const { left, right } = review.pairs[1];
          return [left, right].map((side) => tree.place[tree.members[side][0]]);
        }"""
    )
    page.locator("#matrix").scroll_into_view_if_needed()
    page.locator("#matrix").click(
        position=page.evaluate(
            """([row, column]) => {
              const { left, width, height } = unsplitPage.matrix.area;
              return { x: left + (column + 0.5) * width / 40, y: (row + 0.5) * height / 40 };
            }""",
            [row, column],
        )
    )
    order = page.evaluate("unsplitPage.tree.order")
    sides = leaves(shown()["left"]), leaves(shown()["right"])
    assert {order[row] in sides[0], order[column] in sides[0]} == {True, False}
    assert {order[row] in sides[1], order[column] in sides[1]} == {True, False}

    spot, leaf = page.evaluate(
        """() => {
          const { clientWidth, clientHeight } = document.getElementById("after");
          const place = unsplitPage.picture.places(clientWidth, clientHeight);
          return [{ x: place.x(0), y: place.y(0) }, unsplitPage.picture.leaf[0]];
        }"""
    )
    page.locator("#after").scroll_into_view_if_needed()
    page.locator("#after").click(position=spot)
    assert leaf in leaves(shown()["left"]) | leaves(shown()["right"])
    # The map in the card shows both sides in their colours.
    page.evaluate(SETTLED.replace("then()", "0"))
    colours = page.evaluate(
        """() => {
          const map = document.querySelector("#card .map");
          const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 4).join());
          return [...seen];
        }"""
    )
    assert {"51,34,136,255", "204,102,119,255"} <= set(colours)


def test_the_line_of_the_cut_is_dragged(opened):
    tree, report = large_page(40, n_clusters=12)
    page = opened(report)
    page.locator("#dendrogram").scroll_into_view_if_needed()
    box = page.locator("#dendrogram").bounding_box()
    across = lambda x: box["x"] + x * box["width"] / 101  # noqa: E731
    y = box["y"] + box["height"] / 2
    heights = np.array([merge.height for merge in tree.merges])
    step = 30 + int(np.diff(heights)[30:].argmax())  # the widest gap above the cut
    start, end = page.evaluate(
        "h => [unsplitPage.dendrogram.cutPlace(), unsplitPage.dendrogram.x(h)]",
        (heights[step] + heights[step + 1]) / 2,
    )
    count = str(tree.n_initial - step - 1)
    assert page.locator("#count").inner_text() != count
    page.mouse.move(across(start), y)
    page.mouse.down()
    page.mouse.move(across(end), y, steps=5)
    page.mouse.up()
    assert page.locator("#count").inner_text() == count
    assert page.evaluate("unsplitPage.zoom") == {"start": 0, "left": 0, "end": 40}
    page.mouse.move(across(end) + 60, y)  # the button is up: nothing moves any more
    assert page.locator("#count").inner_text() == count


def test_twelve_clusters_have_colours_of_their_own(forty, opened):
    page = opened(forty[2])
    for count in (2, 6, 12):
        page.evaluate(SLIDE, count)
        assert len(set(page.evaluate("unsplitPage.colours.map(colour)"))) == count


def test_the_choice_of_colours_is_remembered(forty, opened):
    page = opened(forty[2])
    page.locator("#theme").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_curve_shows_which_numbers_agree_with_re_merges(opened):
    _, tree, report = scored_page(stopping={"max_tvd": None})
    page = opened(report)
    curve = page.evaluate("unsplitPage.tree.agreement")
    assert len(curve) == tree.n_initial
    expected = [
        np.mean(
            [
                adjusted_rand_score(
                    np.repeat(tree.cut(n_clusters=count).groups, tree.sizes),
                    np.repeat(groups, tree.sizes),
                )
                for groups in tree.stability.groups
            ]
        )
        for count in range(1, tree.n_initial + 1)
    ]
    np.testing.assert_allclose(curve, expected, atol=1e-4)
    assert page.locator("#agreement path").is_visible()
    best = 1 + int(np.argmax(curve))
    assert str(best) in page.locator("#agreement-note").inner_text()
