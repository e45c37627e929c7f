import csv
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example():
    """The two modules of the example; it is run from its own folder, so they are not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        import track_films
        import tracks

        yield tracks, track_films
        del sys.modules["tracks"], sys.modules["track_films"]


@pytest.fixture(scope="module")
def quick(example, tmp_path_factory):
    """What the quick form says, and the folder that it writes."""
    out = tmp_path_factory.mktemp("tracks") / "new"
    return example[0].main(["--quick", "--out", str(out)]), out


@pytest.mark.slow
def test_distances_rank_pairs_of_tracks(quick):
    verdict, _ = quick
    assert verdict["Q lecam"] > 0.8  # 0.89, and 0.87 or more with other seeds; chance is 0.5
    assert verdict["Q overlap"] > 0.8
    assert verdict["Q lecam"] > verdict["Q pixels"] + 0.05


@pytest.mark.slow
def test_most_merges_are_right(quick):
    verdict, _ = quick
    assert verdict["merges"] >= 30  # a track has twelve frames, so many pairs stay undecided
    assert verdict["right"] > 0.6 * verdict["merges"]  # 31 of 38
    assert verdict["ARI"] > 0.25  # 0.40; chance is 0


@pytest.mark.slow
def test_the_files_tell_the_merges(quick):
    verdict, out = quick
    with (out / "tracks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["track"] for row in rows] == [f"track {t:03}" for t in range(70)]
    groups = {int(row["group"]) for row in rows}
    assert groups == set(range(70 - verdict["merges"]))
    assert (out / "tracks.png").read_bytes().startswith(b"\x89PNG")


def test_no_still_image_is_in_two_tracks(example):
    stills, categories = np.arange(100, 147), np.arange(47) % 4
    hands = list(example[1].dealt(stills, categories, 5, 2, np.random.default_rng(0)))
    assert [category for category, _ in hands] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(np.unique(np.concatenate([hand for _, hand in hands]))) == 8 * 5
    for category, hand in hands:
        assert set(categories[hand - 100]) == {category}


def test_a_category_with_too_few_stills_gets_fewer_tracks(example):
    categories = np.array([0] * 9 + [1] * 4)
    hands = example[1].dealt(np.arange(13), categories, 5, 2, np.random.default_rng(0))
    assert [category for category, _ in hands] == [0]


def test_frames_change_smoothly(example):
    data = example[1].digit_tracks(2, 20, 5, np.random.default_rng(0))
    assert data.frames.shape == (20 * 20, 24, 24, 1)
    films = data.frames.reshape(20, 20, -1).astype(float)
    step = np.abs(films[:, 1:] - films[:, :-1]).mean()
    leap = np.abs(films[:, 10:] - films[:, :10]).mean()
    assert step < 0.6 * leap


def test_levelling_takes_light_away(example):
    rng = np.random.default_rng(0)
    frames = rng.uniform(0, 255, (3, 12, 12, 1))
    y, x = np.mgrid[:12, :12][..., None]
    other_light = 0.5 * frames + 20 + 3 * x - 2 * y
    levelled = example[0].levelled
    np.testing.assert_allclose(levelled(other_light), levelled(frames), atol=1e-4)


def colour_folder(folder, n_images):
    """Twelve-by-ten photographs of nothing but red, green or blue."""
    from PIL import Image

    for name, colour in (("r", (200, 0, 0)), ("g", (0, 200, 0)), ("b", (0, 0, 200))):
        (folder / name).mkdir()
        for number in range(n_images):
            dimmer = tuple(int(value * (1 - number / 20)) for value in colour)
            Image.new("RGB", (12, 10), dimmer).save(folder / name / f"{number}.png")


def test_photographs_become_tracks_of_their_category(example, tmp_path):
    colour_folder(tmp_path, 7)
    data = example[1].photo_tracks(str(tmp_path), 10, 4, 7, 3, np.random.default_rng(0))
    assert data.categories.tolist() == ["b", "b", "g", "g", "r", "r"]
    assert data.frames.shape == (6 * 7, 32, 32, 3)
    assert data.track.tolist() == [f"track {t:03}" for t in range(6) for _ in range(7)]
    brightest = data.frames.reshape(6, -1, 3).mean(axis=1).argmax(axis=1)
    assert brightest.tolist() == [2, 2, 1, 1, 0, 0]


def test_a_folder_with_too_few_photographs_is_refused(example, tmp_path):
    colour_folder(tmp_path, 2)
    with pytest.raises(SystemExit, match="at least 3 images"):
        example[1].photo_tracks(str(tmp_path), 10, 4, 6, 3, np.random.default_rng(0))
