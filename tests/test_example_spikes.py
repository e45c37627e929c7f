import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import markdown, results_file

pytest.importorskip("spikeinterface")
# Old names within SpikeInterface and what it uses; nothing that the example could change.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:spikeinterface"),
]

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example():
    """The example, which is run from its own folder and is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        import spikes

        yield spikes
        del sys.modules["spikes"]


@pytest.fixture(scope="module")
def case(example):
    """Five loud units and fewer, one half of them split at random."""
    return example.split_recording(seed=1, split="random", drift=0, seconds=20, n_units=6)


def test_units_split_at_random_are_merged_and_no_others(example, case):
    analyzer = example.dense_analyzer(case)
    groups = example.units_to_merge(analyzer)
    verdict = example.judged(case, groups, 0.0)
    assert case.n_split >= 2
    assert (verdict["right"], verdict["wrong"]) == (case.n_split, 0)
    merged = analyzer.merge_units(merge_unit_groups=groups)  # the form that SpikeInterface takes
    assert len(merged.unit_ids) == case.n_true


def test_units_that_fire_together_are_different_neurons_and_parts_of_one_are_not(example):
    import spikeinterface as si

    rng = np.random.default_rng(0)
    drawn = (np.sort(rng.choice(600_000, 2400, replace=False)) * 10 for _ in range(2))
    # A neuron does not fire twice within 4 ms; 25 samples are a millisecond.
    first, second = (train[np.diff(train, append=10**9) > 100] for train in drawn)
    half = rng.random(len(first)) < 0.5
    trains = {"a": first[half], "b": first[~half], "c": second, "c again": second + 2}
    sorting = si.NumpySorting.from_unit_dict([trains], 25_000)
    found = {frozenset(pair) for pair in example.different_neurons(sorting)}
    assert found == {frozenset((x, y)) for x in "ab" for y in ("c", "c again")}


def test_the_same_seed_gives_the_same_units_channels_templates_and_noise(example):
    cases = [example.split_recording(2, "amplitudes", 0, seconds=20, n_units=6) for _ in range(2)]
    trains = [[c.sorting.get_unit_spike_train(u).tolist() for u in c.truth] for c in cases]
    assert trains[0] == trains[1]
    analyzers = [example.with_templates(c.sorting, c.recording, c.seed) for c in cases]
    np.testing.assert_array_equal(*(analyzer.sparsity.mask for analyzer in analyzers))
    for name in ("templates", "noise_levels"):
        first, second = (analyzer.get_extension(name).get_data() for analyzer in analyzers)
        np.testing.assert_array_equal(first, second)


def test_every_spike_has_the_same_channels(example, case):
    X, units = example.spike_features(example.dense_analyzer(case), n_components=4)
    assert X.shape == (len(units), 4)
    assert set(units) == set(case.sorting.unit_ids)
    assert np.isfinite(X).all()
    assert (X.var(axis=0)[:-1] >= X.var(axis=0)[1:]).all()  # not whitened


def test_a_sparse_analyzer_is_refused(example, case):
    import spikeinterface as si

    sparse = si.create_sorting_analyzer(case.sorting, case.recording, format="memory")
    with pytest.raises(SystemExit, match="sparse=False"):
        example.spike_features(sparse)


@pytest.mark.parametrize("split", ["times", "amplitudes"])
def test_parts_belong_to_the_unit_that_was_split(example, case, split):
    units = sorted(set(case.truth.values()), key=int)
    whole = case.sorting.select_units([u for u in units if u in case.sorting.unit_ids])
    whole = whole.rename_units([str(number) for number in range(len(whole.unit_ids))])
    parts = example.split_case(case.recording, whole, split, seed=0)
    assert parts.n_true == len(whole.unit_ids)
    assert parts.n_split == len(whole.unit_ids) // 2
    for unit in whole.unit_ids:
        mine = [part for part, true in parts.truth.items() if true == unit]
        trains = [parts.sorting.get_unit_spike_train(part) for part in mine]
        np.testing.assert_array_equal(
            np.sort(np.concatenate(trains)), whole.get_unit_spike_train(unit)
        )


def test_motion_correction_changes_the_recording_and_not_the_units(example, case, monkeypatch):
    from spikeinterface.preprocessing import scale

    monkeypatch.setattr(example, "correct_motion", lambda recording: scale(recording, gain=2.0))
    corrected = example.motion_corrected(case)
    assert (corrected.sorting, corrected.truth) == (case.sorting, case.truth)
    before, after = (c.recording.get_traces(end_frame=100) for c in (case, corrected))
    np.testing.assert_allclose(after, 2.0 * before, rtol=1e-5)


def test_a_group_of_two_units_is_a_wrong_merge(example):
    truth = {"0": "0", "1": "1", "2": "0", "3": "1", "4": "4"}
    case = example.Case(None, None, truth, 0)
    assert (case.n_true, case.n_split) == (3, 2)
    assert example.judged(case, [["0", "2"]], 1.0) == {"right": 1, "wrong": 0, "seconds": 1.0}
    everything = example.judged(case, [list("01234")], 1.0)
    assert (everything["right"], everything["wrong"]) == (2, 2)


def test_the_table_adds_up_the_seeds(example):
    from benchmarks import spikes as benchmark

    answer = {name: {"right": 2, "wrong": 1, "seconds": 3.0} for name in benchmark.METHODS}
    records = [
        {"seed": seed, "motion": "still", "split": "times", "possible": 4} | answer
        for seed in range(2)
    ]
    lines = benchmark.tables(records).splitlines()
    rows = [["recordings", 2, ""], ["possible", 8, ""], ["Unsplit", "4 / 2", "3.0"]]
    expected = markdown.table(["", "still, in time", "seconds"], rows)
    assert lines[:5] == expected.splitlines()
    assert len(lines) == 4 + len(benchmark.METHODS)


def test_lines_that_are_there_are_not_computed_again(example, tmp_path, monkeypatch):
    from benchmarks import spikes as benchmark

    asked = []

    def compared(seed, motion, splits):
        asked.append((seed, motion, tuple(splits)))
        yield from ({"seed": seed, "motion": motion, "split": split} for split in splits)

    monkeypatch.setattr(benchmark, "compared", compared)
    path = tmp_path / "spikes.jsonl.gz"
    benchmark.run([3], path)
    assert asked == [(3, motion, benchmark.SPLITS) for motion in benchmark.MOTIONS]
    lines = results_file.read(path)
    results_file.write(path, lines[1:])
    asked.clear()
    benchmark.run([3], path)
    assert asked == [(3, "still", benchmark.SPLITS[:1])]
    assert len(results_file.read(path)) == len(lines)
