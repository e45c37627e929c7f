"""What a page holds, how it is written, and which folders it refuses."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import unsplit
from tests.browser.cases import HOSTILE, large_page, linked_tree, scored_page
from tests.checks import exactly, run_without_torch
from tests.cli_cases import merge, snapshot, succeeds, write_data
from tests.cli_cases import unsplit as command
from tests.merging_cases import gaussian_estimate
from unsplit.data.array_files import save_arrays
from unsplit.data.rows.sequences import Ragged
from unsplit.errors import InputError
from unsplit.report import sections
from unsplit.report.api import Content, make_page
from unsplit.report.collect import FORMAT, Kept, Source, collect, grid_of, png
from unsplit.report.sections import View

ROOT = Path(__file__).parents[1]
D = [[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]]


@pytest.fixture(scope="module")
def scored():
    return scored_page(n_groups=3, pieces=2)


def data_of(report):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', report.html)
    return json.loads(text)


def numbers(text, kind="<u2"):
    return np.frombuffer(base64.b64decode(text), kind)


def test_a_tree_alone_makes_a_page():
    tree = unsplit.merge(D, n_clusters=2)
    data = data_of(tree.report())
    assert data["answer"]["headline"] == "3 clusters merge into 2"
    assert data["tree"]["taken"] == [True, False]
    assert data["matrix"] is data["picture"] is data["exemplars"] is None
    assert "nothing says how sure" in data["answer"]["sentences"][0]


def test_distances_are_within_a_hundredth_of_a_percent(scored):
    result, _, report = scored
    data = data_of(report)["matrix"]
    upper = np.triu_indices(result.n_clusters, 1)
    np.testing.assert_allclose(numbers(data["tvd"]) / 65_534, result.tvd[upper], atol=1e-5)
    low, _ = result.confidence_interval()
    np.testing.assert_allclose(numbers(data["low"]) / 65_534, low[upper], atol=1e-5)


def test_the_review_has_the_rows_of_the_tree_in_order(scored):
    _, tree, report = scored
    found = data_of(report)["review"]["pairs"]
    assert [(p["left"], p["right"], p["done"], p["verdict"]) for p in found] == [
        (row.pair.left, row.pair.right, row.done, row.pair.verdict) for row in tree.reviewed
    ]


def test_the_border_counts_score_differences(scored):
    result, _, _ = scored
    found = sections.border(result, [0], [5])
    left, right = found["left"], found["right"]
    assert found["reach"] > 0
    middle = len(left) // 2
    assert sum(left) == sum(right) == 12
    assert sum(left[middle + 1 :]) == 12  # their own score is higher
    assert sum(right[:middle]) == 12


def test_the_same_input_gives_the_same_page(scored):
    _, tree, report = scored
    again = scored_page(n_groups=3, pieces=2)[2]
    assert again.html == report.html
    assert tree.report().html == tree.report().html


def test_a_page_refers_to_nothing_outside(scored):
    page = scored[2].html
    assert not re.findall(r"""(?:src|href)=["']?(?!#|data:)[^"' >]+""", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/)", page)
    assert "default-src 'none'" in page


def test_names_cannot_leave_their_text():
    page = scored_page(n_groups=2, pieces=5, names=HOSTILE)[2].html
    assert not [name for name in HOSTILE if "<" in name and name in page]
    assert page.count("</script>") == 2
    assert "<!-- <script>" not in page


def test_the_command_of_a_page_is_escaped_too():
    tree = unsplit.merge(D, n_clusters=2)
    page = make_page(Content(tree, about={"command": HOSTILE[1]})).html
    assert "&lt;img src=x" in page.split('<script type="application/json"')[0]
    assert HOSTILE[1] not in page


def test_a_large_tree_is_folded_by_its_first_merges():
    tree = linked_tree(np.random.default_rng(0).normal(size=(60, 2)), 10)
    view = View(tree, most=20)
    assert len(view.leaves) == 20
    assert sorted(i for members in view.members for i in members) == list(range(60))
    cut = tree.cut(n_clusters=20).groups
    assert all(len(set(cut[members].tolist())) == 1 for members in view.members)
    assert view.sizes.sum() == tree.sizes.sum()
    undone = View(tree.undo(3), most=20)
    assert 3 in undone.steps  # an undone merge is not folded
    matrix = np.random.default_rng(1).uniform(size=(60, 60))
    matrix = (matrix + matrix.T) / 2
    a, b = view.members[0], view.members[1]
    assert view.averaged(matrix)[0, 1] == pytest.approx(matrix[np.ix_(a, b)].mean())


def test_a_page_of_many_clusters_stays_small():
    _, report = large_page(500, 50)
    assert len(report.html) < 10e6


def test_features_that_differ_most_come_first():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 5))
    labels = np.repeat([0, 1, 2], 30)
    X[:, 3] += 8 * labels
    kept = collect(Source(X, labels, 3, list("abcde")))
    assert kept.feature_names[0] == "d"
    np.testing.assert_allclose(np.diff(kept.means[:, 0]), 8, atol=1)
    assert kept.picture_method == "t-SNE"
    counts = collect(Source(scipy.sparse.csr_array(rng.poisson(2.0, (90, 7))), labels, 3))
    assert len(counts.feature_names) == 7


def test_pictures_for_few_dimensions_and_for_a_given_one():
    labels = np.repeat([0, 1], 5)
    X = np.random.default_rng(0).normal(size=(10, 6))
    assert collect(Source(X[:, :1], labels, 2)).picture_method.startswith("the only feature")
    assert collect(Source(X[:, :2], labels, 2)).picture_method == "the two features"
    assert "PCA" in collect(Source(X, labels, 2)).picture_method
    given = collect(Source(X, labels, 2, picture=X[:, 2:4]))
    assert given.picture_method == "the picture that was passed"
    with pytest.raises(unsplit.InputError, match=r"picture must have two finite .* \(10, 2\)"):
        collect(Source(X, labels, 2, picture=X))


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8), "images"),
        (np.random.default_rng(0).normal(size=(20, 64, 3)), "point clouds"),
        (Ragged.of([np.sin(np.arange(50 + i)) for i in range(20)]), "waveforms"),
        (
            Ragged.of([np.sin(np.arange(50 + i)) for i in range(20)], rate=8000),
            "waveforms above spectrograms",
        ),
    ],
)
def test_exemplars_of_other_data_are_drawn(X, kind):
    # Arranged by scores, because pixels and samples have no meaningful distances.
    result, _ = gaussian_estimate([[0], [3]], 10)
    clusters = np.empty(20, np.int64)
    clusters[result.scores.rows] = result.scores.clusters
    kept = collect(Source(X, clusters, 2), result)
    assert kept.tile_kind == kind
    assert len(kept.picture_xy) == 20
    assert "of the probabilities that the networks give" in kept.picture_method
    assert np.bincount(kept.tile_clusters).tolist() == [6, 6]
    assert all(tile.std() > 0 for tile in kept.tiles)


def test_pixels_are_found_by_the_names_of_features():
    names = [f"pixel_{r}_{c}" for r in range(3) for c in range(4)]
    assert grid_of(names) == (3, 4)
    assert grid_of(names[::-1]) is None
    assert grid_of([*names[:-1], "age"]) is None


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_vectors_of_pixels_are_drawn_as_images_of_a_shape(kind):
    X, labels = np.arange(24.0).reshape(4, 6), [0, 0, 1, 1]
    tree = unsplit.merge([[0, 0.9], [0.9, 0]], n_clusters=2)
    shape = lambda shape: tree.report(X=kind(X), labels=labels, image_shape=shape)  # noqa: E731
    drawn = data_of(shape((2, 3)))["exemplars"]
    assert (drawn["height"], drawn["width"], drawn["kind"]) == (2, 3, "images")
    named = [f"p_{i}_{j}" for i in range(2) for j in range(3)]
    by_name = data_of(tree.report(X=X, labels=labels, feature_names=named))["exemplars"]
    assert kind is not np.asarray or drawn == by_name  # sparse counts are compared by shares
    frame = pd.DataFrame(X, columns=named)
    assert data_of(tree.report(X=frame, labels=labels))["exemplars"] == by_name
    for wrong in ((2, 2), 6, (6,), (1, 2, 3), (-2, -3), "23", (2.0, 3)):
        with pytest.raises(InputError, match=r"^image_shape must be .*6 features"):
            shape(wrong)
    with pytest.raises(InputError, match="no vectors"):
        tree.report(X=np.zeros((4, 2, 3, 1)), labels=labels, image_shape=(2, 3))
    with pytest.raises(InputError, match="are about X, which is missing"):
        tree.report(image_shape=(2, 3))


def test_png_holds_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    raw = base64.b64decode(png(pixels))
    size = int.from_bytes(raw[33:37], "big")
    lines = np.frombuffer(zlib.decompress(raw[41 : 41 + size]), np.uint8).reshape(5, 22)
    np.testing.assert_array_equal(lines[:, 1:].reshape(5, 7, 3), pixels)


def test_labels_are_needed_and_must_be_known():
    tree = unsplit.merge(D, n_clusters=2)
    with pytest.raises(unsplit.InputError, match="labels is required with X"):
        tree.report(X=np.zeros((4, 2)))
    with pytest.raises(unsplit.InputError, match="cluster 9 is not in the tree"):
        tree.report(X=np.zeros((4, 2)), labels=[0, 1, 2, 9])
    with pytest.raises(unsplit.InputError, match="X has 5 observations but labels has 4; pass"):
        tree.report(X=np.zeros((5, 2)), labels=[0, 1, 2, 0])
    with pytest.raises(unsplit.InputError, match="feature_names must name the 2 features of X"):
        tree.report(X=np.zeros((4, 2)), labels=[0, 1, 2, 0], feature_names=["a"])


def test_what_is_kept_reads_back_and_damage_is_refused(tmp_path):
    X, labels = unsplit.datasets.gaussians([[0, 0], [9, 0]], 20, random_state=0)
    kept = collect(Source(X, labels, 2))
    path = tmp_path / "report.npz"
    kept.save(path)
    again = Kept.load(path, 2)
    for name, value in vars(kept).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    with pytest.raises(unsplit.InputError, match="picture_clusters must be from 0 to 0"):
        Kept.load(path, 1)
    save_arrays(path, "unsplit.Kept/0", {}, {})
    with pytest.raises(unsplit.InputError, match=f"this version reads '{FORMAT}'"):
        Kept.load(path, 2)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(unsplit.InputError, match="or it is damaged"):
        Kept.load(path, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data()
    succeeds(merge("--report"))
    return tmp_path / "out"


def test_the_page_of_a_folder_is_that_of_the_merge(folder):
    first = snapshot(folder)
    assert b"unsplit merge data.csv --labels cluster" in first["report.html"]
    (folder / "report.html").unlink()
    said = succeeds(command("report", "out"))
    assert said == "Open out/report.html in a browser.\n"
    page = data_of(unsplit.report.Report((folder / "report.html").read_text("utf-8")))
    before = data_of(unsplit.report.Report(first["report.html"].decode("utf-8")))
    assert page["tree"] == before["tree"]
    assert page["picture"] == before["picture"]
    assert before["review"]["pairs"][0]["border"]["left"]
    for pair in before["review"]["pairs"]:  # the folder has no scores
        pair["border"] = None
    assert page["review"] == before["review"]
    assert page["labels"] == before["labels"]
    succeeds(command("report", "out"))  # the manifest knows the new page


def test_a_picture_of_the_user_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data()
    xy = np.random.default_rng(0).normal(size=(160, 2))
    np.save("umap.npy", xy)
    said = succeeds(merge("--report", "--picture", "umap.npy"))
    assert "Open out/report.html in a browser." in said
    page = unsplit.report.Report((tmp_path / "out" / "report.html").read_text("utf-8"))
    drawn = data_of(page)["picture"]
    assert drawn["method"] == "the picture that was passed"
    scaled = (xy[:, 0] - xy[:, 0].min()) / np.ptp(xy[:, 0])
    np.testing.assert_allclose(numbers(drawn["x"]) / 65_534, scaled, atol=1e-4)
    assert "--report --picture umap.npy" in page.html
    np.save("umap.npy", xy[:9])
    result = merge("--report", "--picture", "umap.npy")
    assert result.exit_code == 2
    assert "--picture must have two finite coordinates for each of the 160" in result.stderr
    assert "--picture works only with --report" in merge("--picture", "umap.npy").stderr


def test_a_folder_without_the_data_has_a_page_without_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data()
    succeeds(merge())
    assert "The page has no picture of the data" in succeeds(command("report", "out"))


def test_the_page_of_a_folder_needs_no_torch(folder):
    program = f"""
from unsplit.report.api import make_page
from unsplit.report.api import content_of_folder
print(len(make_page(content_of_folder({str(folder)!r})[0]).html) > 10_000)
"""
    assert run_without_torch(program) == "True"


def refused(*arguments):
    result = command("report", *arguments)
    assert result.exit_code == 2
    return result.stderr


def test_folders_that_are_damaged_or_of_another_kind_are_refused(folder, tmp_path):
    before = snapshot(folder)
    assert refused("missing") == (
        "unsplit: missing is not a folder; name the --out of an earlier unsplit merge.\n"
    )
    (tmp_path / "empty").mkdir()
    assert "empty/ has no manifest.json: no run has finished there" in refused("empty")
    (folder / "tree.npz").write_bytes(b"damaged")
    assert "these files are missing or have changed: tree.npz" in refused("out")
    (folder / "tree.npz").write_bytes(before["tree.npz"])
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(
        manifest.replace("unsplit.manifest/1", "unsplit.manifest/9")
    )
    assert "was not written by this version of unsplit" in refused("out")
    (folder / "manifest.json").write_text(manifest)
    succeeds(command("report", "out"))
    succeeds(command("distances", "data.csv", "--labels", "cluster", "--out", "compared",
                     "--epochs", 2, "--cv", 2))  # fmt: skip
    assert "is not the result of unsplit merge: it has no tree.npz" in refused("compared")


def test_bad_constraints_leave_the_earlier_result(folder):
    before = snapshot(folder)
    for text, part in (
        ("{", "c.json is not valid JSON"),
        (constraints(["0"], ["nobody"]), "--constraints names 'nobody', which is not a cl"),
        (
            constraints(["0"], ["1"], ["1"]),
            "0 and 1 are to be kept apart (--cannot-link, or an answer), but",
        ),
    ):
        (folder.parent / "c.json").write_text(text)
        result = merge("--constraints", "c.json")
        assert result.exit_code == 2
        assert part in result.stderr
        assert snapshot(folder) == before


def constraints(left, right, different=None):
    answers = [{"answer": "same", "left": left, "right": right}]
    if different is not None:
        answers.append({"answer": "different", "left": left, "right": different})
    return json.dumps({"format": "unsplit.constraints/1", "answers": answers})


def test_a_report_in_a_notebook_is_a_frame():
    report = unsplit.merge(D, n_clusters=2).report()
    shown = report._repr_html_()
    assert shown.startswith('<iframe title="Unsplit report" srcdoc="&lt;!doctype html&gt;')
    assert shown.count("<") == 2
    assert re.match(exactly("Report: 0.1 MB of HTML; write it with save(path)"), repr(report))


def test_the_live_page_of_the_documentation_is_made_by_the_present_code():
    """If not, make it again: CONTRIBUTING.md, "Release", says how."""
    live = (ROOT / "docs" / "digits.html").read_text(encoding="utf-8")
    now = unsplit.merge(D, n_clusters=2).report().html
    for part in ("style", "script"):
        parts = [re.findall(rf"<{part}>(.*?)</{part}>", page, re.DOTALL) for page in (live, now)]
        assert len(parts[1]) == 1
        assert parts[0] == parts[1]
