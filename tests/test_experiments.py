"""The paper's experiments: each runs quickly on made-up data, and goes on where it was."""

import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import results_file
from experiments import core
from experiments.__main__ import main
from experiments.artificial import some_of_each
from experiments.images import images
from unsplit import InputError


def experiment(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


# The others take up to a minute.
QUICKEST = ("imagenet-artificial", "modelnet40")
QUICK = [
    pytest.param(name, marks=() if name in QUICKEST else pytest.mark.slow) for name in core.NAMES
]


@pytest.mark.parametrize("name", QUICK)
def test_quick_form_leaves_every_trial_and_its_figures(name, tmp_path):
    done = experiment(name, "--quick", "--out", tmp_path, "--device", "cpu")
    assert done.exit_code == 0, done.output
    chosen = core.load(name)
    trials = chosen.trials(quick=True)
    results = core.results_in(tmp_path)
    assert [result["name"] for result in results] == sorted(map(core.name_of, trials))
    for result in results:
        assert result["seconds"] >= 0
        assert "torch" in result["made with"]
    text = (tmp_path / "table.md").read_text("utf-8")
    assert "| the paper | here | verdict |" in text
    assert text in done.output
    assert list(tmp_path.glob("*.png"))
    assert core.still_to_do(chosen, tmp_path, quick=True) == []


class Counting:
    """An experiment of three trials that counts how often each was run."""

    def __init__(self, breaks_at=None):
        self.ran, self.breaks_at = [], breaks_at

    def trials(self, quick):
        return [{"n": n} for n in range(3)]

    def minutes(self, trial):
        return 1.0 + trial["n"]

    def run(self, trial, setting):
        if trial["n"] == self.breaks_at:
            raise RuntimeError("no power")
        self.ran.append(trial["n"])
        return {"square": trial["n"] ** 2}


def work(chosen, folder, minutes=float("inf")):
    told = []
    setting = core.Setting(None, "cpu", quick=True)
    return [r["square"] for r in core.work_off(chosen, folder, setting, minutes, told.append)], told


def test_an_interrupted_run_loses_one_trial(tmp_path):
    with pytest.raises(RuntimeError, match="no power"):
        work(Counting(breaks_at=1), tmp_path)
    again = Counting()
    assert work(again, tmp_path)[0] == [1, 4]
    assert again.ran == [1, 2]
    assert [r["square"] for r in core.results_in(tmp_path)] == [0, 1, 4]


def test_what_would_take_too_long_is_left_and_said_so(tmp_path):
    found, told = work(Counting(), tmp_path, minutes=2.5)
    assert found == [0, 1]
    assert told[0] == "3 trials to do, about 6.0 minutes"
    assert told[-1] == "left for another time: n=2"


@pytest.mark.slow
def test_several_at_a_time_do_the_same(tmp_path):
    done = experiment("modelnet40", "--quick", "--out", tmp_path, "--device", "cpu", "--jobs", "2")
    assert done.exit_code == 0, done.output
    trials = core.load("modelnet40").trials(quick=True)
    results = core.results_in(tmp_path)
    assert all(any(trial.items() <= result.items() for result in results) for trial in trials)
    assert [result["at once"] for result in results] == [2] * len(trials)


def test_full_trials_have_files_of_their_own():
    for name in core.NAMES:
        files = [core.name_of(trial) for trial in core.load(name).trials(quick=False)]
        assert len(set(files)) == len(files) > 0


def test_some_of_each_category():
    categories = np.repeat(["a", "b", "c"], [5, 9, 2])
    rows = some_of_each(categories, 3, 4, 0)
    assert dict(zip(*np.unique(categories[rows], return_counts=True), strict=True)) == {
        "a": 4,
        "b": 4,
        "c": 2,
    }


def test_photographs_from_a_zip_and_from_a_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for category, colour in (("n01", 40), ("n02", 200)):
            path = tmp_path / "train" / category / "x.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(np.full((4, 4, 3), colour, np.uint8)).save(path)
            file.write(path, f"train/{category}/x.png")
    X, categories = images(archive)
    assert (X.shape, X[:, 0, 0, 0].tolist(), categories.tolist()) == (
        (2, 4, 4, 3),
        [40, 200],
        ["n01", "n02"],
    )
    _, categories = images(tmp_path)
    assert categories.tolist() == ["n01", "n02"]


def test_bad_wishes_are_sentences(tmp_path):
    unknown = experiment("mnist")
    assert unknown.exit_code == 2
    assert unknown.output.startswith("experiments: ")
    assert "'mnist'" in unknown.output
    assert all(name in unknown.output for name in core.NAMES)
    for name, needed in (
        ("imagenet-artificial", "photographs"),
        ("modelnet40", "modelnet40.train"),
    ):
        refused = experiment(name, "--out", tmp_path, "--device", "cpu")
        assert refused.exit_code == 2
        assert needed in refused.output.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_zip_without_images_is_refused(tmp_path):
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    with pytest.raises(InputError, match="there are no images in"):
        images(tmp_path / "empty.zip")


def test_numbers_are_written_whole_or_not_at_all(tmp_path):
    work(Counting(), tmp_path)
    first = core.results_in(tmp_path)[0]
    assert first["n"] == first["square"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["trials.jsonl.gz"]
    work(Counting(), tmp_path / "again")
    files = [folder / "trials.jsonl.gz" for folder in (tmp_path, tmp_path / "again")]
    for path in files:
        results_file.write(path, ({**line, "seconds": 0} for line in results_file.read(path)))
    assert files[0].read_bytes() == files[1].read_bytes()
