"""Spike sorting: which units are one neuron that the sorter split?

A sorter splits a neuron if its spikes change, because the probe drifts or the amplitude varies.
The example simulates a recording with SpikeInterface, splits half of the units with its own tools,
merges them with Unsplit, and runs all presets of `compute_merge_unit_groups` on the same units.

    pip install "unsplit[spikes,figures,tables]" numba
    python examples/spikes.py                      # units split in time; a minute
    python examples/spikes.py --split amplitudes   # or random
    python examples/spikes.py --drift 40           # a probe that moves by 40 µm: much harder
    python examples/spikes.py --drift 40 --correct-motion   # its motion estimated and undone first

Two lines are all it takes with an analyzer of your own (`units_to_merge` is below):

    groups = units_to_merge(analyzer)
    merged = analyzer.merge_units(merge_unit_groups=groups)

The example writes spikes.json and spikes.png; docs/spikes.md explains the results.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import spikeinterface as si
from numpy.typing import NDArray
from scipy.stats import poisson
from spikeinterface.core.generate import inject_some_split_units
from spikeinterface.curation import compute_merge_unit_groups
from spikeinterface.generation import (
    generate_drifting_recording,
    split_sorting_by_amplitudes,
    split_sorting_by_times,
)
from spikeinterface.preprocessing import correct_motion

import unsplit

Groups = list[list[Any]]

SPLITS = ("times", "amplitudes", "random")
PRESETS = (
    "similarity_correlograms",
    "temporal_splits",
    "x_contaminations",
    "feature_neighbors",
    "slay",
)

# Sorters detect spikes above five times the noise, so no sorter finds weaker units.
MIN_SNR = 5.0

# A preset needs 100 spikes and "temporal_splits" more than 215 seconds.
SECONDS = 240.0


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    chosen = options().parse_args(arguments)
    si.set_global_job_kwargs(n_jobs=1, progress_bar=False)
    case = split_recording(chosen.seed, chosen.split, chosen.drift, chosen.seconds, chosen.units)
    print(
        f"{case.n_true} units; {case.n_split} of them split ({chosen.split}), "
        f"drift of {chosen.drift:g} µm over {chosen.seconds:g} s: {len(case.truth)} units."
    )
    if chosen.correct_motion:
        case = motion_corrected(case)
    analyzer = dense_analyzer(case)
    found = {"Unsplit": timed(units_to_merge, analyzer)}
    groups = found["Unsplit"][0]
    merged = analyzer.merge_units(merge_unit_groups=groups) if groups else analyzer
    print(f"\nmerge_unit_groups={[[str(unit) for unit in group] for group in groups]}")
    print(f"After analyzer.merge_units: {len(merged.unit_ids)} units.\n")
    found |= preset_merges(case)
    verdict = {name: judged(case, made, seconds) for name, (made, seconds) in found.items()}
    report(verdict, case.n_split)
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "spikes.json").write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
    draw(out / "spikes.png", case, groups)
    print(f"\nWrote {out / 'spikes.json'} and {out / 'spikes.png'}.")
    return verdict


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--split", choices=SPLITS, default="times", help="how units are split")
    parser.add_argument("--drift", type=float, default=0, help="µm over the recording")
    parser.add_argument("--correct-motion", action="store_true", help="undo the drift first")
    parser.add_argument("--units", type=int, default=16, help="neurons, the inaudible included")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--out", default="spikes-output", help="folder for the results")
    parser.add_argument("--seed", type=int, default=0)
    return parser


# What you need for a recording of your own.


def units_to_merge(analyzer: si.SortingAnalyzer, **options: Any) -> Groups:
    """Units that Unsplit takes for one, as `analyzer.merge_units(merge_unit_groups=...)` wants.

    Parameters
    ----------
    analyzer : SortingAnalyzer
        Made with ``sparse=False``, so that all spikes are described by the same channels.
    **options
        For :class:`unsplit.ClusterMerger`.

    Returns
    -------
    list of lists of unit ids
        An empty list if nothing is merged, which `merge_units` refuses.
    """
    X, units = spike_features(analyzer)
    merger = unsplit.ClusterMerger(
        random_state=0, constraints={"cannot_link": different_neurons(analyzer.sorting)}
    )
    return merger.set_params(**options).fit(X, initial_labels=units).tree_.merged_groups()


def different_neurons(sorting: si.BaseSorting) -> list[tuple[Any, Any]]:
    """Pairs of units that often fire within 1.5 ms of each other, as one neuron cannot.

    The number of such coincidences is compared with what the spikes 10 to 60 ms apart make us
    expect by chance.  Spikes less than 0.3 ms apart may be one spike that was found twice.
    """
    ms = sorting.sampling_frequency / 1000
    pairs = []
    for a, b in combinations(sorting.unit_ids, 2):
        within = {lag: n_close(sorting, a, b, lag * ms) for lag in (0.3, 1.5, 10, 60)}
        by_chance = (within[60] - within[10]) * (1.5 - 0.3) / (60 - 10)
        # Up to a fifth of a unit's spikes may be another neuron's, as SpikeInterface allows.
        p = poisson.sf(within[1.5] - within[0.3] - 1, 0.2 * max(by_chance, 1.0))
        if p < 0.01:
            pairs.append((a, b))
    return pairs


def n_close(sorting: si.BaseSorting, a: Any, b: Any, most: float) -> int:
    """How many pairs of spikes of two units are at most so many samples apart."""
    total = 0
    for segment in range(sorting.get_num_segments()):
        first, second = (sorting.get_unit_spike_train(u, segment_index=segment) for u in (a, b))
        ends = second.searchsorted(first + most, "right") - second.searchsorted(first - most)
        total += int(ends.sum())
    return total


def spike_features(
    analyzer: si.SortingAnalyzer, n_components: int = 20, max_spikes_per_unit: int = 150
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Principal components of the waveforms on all channels, and the unit of every spike.

    Channels that a sparse analyzer leaves out would be zeros, different ones for every unit:
    a network tells units apart by that, whatever their spikes look like.  Whitening would make
    the noise in the last component as large as the spikes in the first.
    """
    if analyzer.is_sparse():
        raise SystemExit(
            "The analyzer is sparse; make it with create_sorting_analyzer(sparse=False)."
        )
    if not analyzer.has_extension("random_spikes"):
        analyzer.compute("random_spikes", max_spikes_per_unit=max_spikes_per_unit, seed=0)
    if not analyzer.has_extension("waveforms"):
        analyzer.compute("waveforms", ms_before=1.0, ms_after=2.0)
    analyzer.compute(
        "principal_components", n_components=n_components, mode="concatenated", whiten=False
    )
    X, unit = analyzer.get_extension("principal_components").get_some_projections()
    return X, analyzer.unit_ids[unit]


# The simulation, of which the truth is known.


@dataclass(frozen=True, eq=False)
class Case:
    """A recording, a sorting with split units, and the true unit of each of its units."""

    recording: Any
    sorting: Any
    truth: dict[Any, Any]
    seed: int

    @property
    def n_true(self) -> int:
        """Number of true units."""
        return len(set(self.truth.values()))

    @property
    def n_split(self) -> int:
        """Number of right merges that are possible."""
        return len(self.truth) - self.n_true


def split_recording(
    seed: int, split: str, drift: float, seconds: float = SECONDS, n_units: int = 16
) -> Case:
    """A recording of which half of the units are split in two."""
    recording, sorting = simulated(seed, drift, seconds, n_units)
    return split_case(recording, sorting, split, seed)


def simulated(seed: int, drift: float, seconds: float, n_units: int) -> tuple[Any, Any]:
    """A recording in memory, and the spikes of all units that a sorter could find."""
    still, drifting, sorting = generate_drifting_recording(
        num_units=n_units,
        duration=seconds,
        sampling_frequency=25_000.0,
        generate_probe_kwargs={
            "num_columns": 2,
            "num_contact_per_column": 8,
            "xpitch": 30,
            "ypitch": 30,
            "contact_shapes": "circle",
            "contact_shape_params": {"radius": 6},
        },
        generate_displacement_vector_kwargs={
            "displacement_sampling_frequency": 5.0,
            "drift_start_um": [0, max(drift, 1)],
            "drift_stop_um": [0, -max(drift, 1)],
            "drift_step_um": 1,
            # A quarter of a zigzag is the whole recording: the probe moves on and on.
            "motion_list": [{"drift_mode": "zigzag", "period_s": 4 * seconds}],
        },
        amplitude_std=0.1,
        seed=seed,
    )
    recording = (drifting if drift else still).save(format="memory")
    analyzer = with_templates(sorting, recording, seed, sparse=False)
    analyzer.compute("quality_metrics", metric_names=["snr"])
    snr = analyzer.get_extension("quality_metrics").get_data()["snr"].to_numpy()
    found = sorting.select_units(sorting.unit_ids[snr >= MIN_SNR])
    # SpikeInterface's tools for splitting expect units named by their number.
    return recording, found.rename_units([str(unit) for unit in range(len(found.unit_ids))])


def split_case(recording: Any, sorting: Any, split: str, seed: int) -> Case:
    """Split half of the units in two with SpikeInterface's own tools."""
    if split == "random":
        half = int(0.5 * len(sorting.unit_ids))
        chosen = np.random.default_rng(seed).choice(sorting.unit_ids, half, replace=False)
        new, parts = inject_some_split_units(sorting, list(chosen), output_ids=True, seed=seed)
        pairs = [(parts[unit][0], parts[unit][1]) for unit in chosen]
    else:
        tool = {"times": split_sorting_by_times, "amplitudes": split_sorting_by_amplitudes}[split]
        analyzer = with_templates(sorting, recording, seed, sparse=False)
        new, pairs = tool(analyzer, splitting_probability=0.5, seed=seed)
    truth = {str(unit): str(unit) for unit in new.unit_ids}
    truth |= {str(part): str(unit) for unit, part in pairs}
    return Case(recording, new, truth, seed)


def with_templates(
    sorting: Any, recording: Any, seed: int, sparse: bool = True
) -> si.SortingAnalyzer:
    """An analyzer whose channels, spikes, noise and templates are the same in every run."""
    analyzer = si.create_sorting_analyzer(
        sorting, recording, sparse=sparse, format="memory", seed=seed
    )
    analyzer.compute("random_spikes", seed=seed)
    analyzer.compute("noise_levels", random_slices_kwargs={"seed": seed})
    analyzer.compute("templates")
    return analyzer


def motion_corrected(case: Case) -> Case:
    """Estimate the motion of the probe and shift the recording back; the spikes stay as sorted."""
    # The noise, which motion is estimated from, is kept in the recording: drawn with a seed.
    slices = {"seed": case.seed}
    si.get_noise_levels(case.recording, return_in_uV=False, random_slices_kwargs=slices)
    return replace(case, recording=correct_motion(case.recording).save(format="memory"))


def dense_analyzer(case: Case) -> si.SortingAnalyzer:
    return si.create_sorting_analyzer(
        case.sorting, case.recording, sparse=False, format="memory", seed=case.seed
    )


def preset_merges(case: Case) -> dict[str, tuple[Groups, float]]:
    """What each preset merges, on an analyzer as SpikeInterface makes it by default."""
    analyzer = with_templates(case.sorting, case.recording, case.seed)
    return {preset: timed(compute_merge_unit_groups, analyzer, preset) for preset in PRESETS}


def timed(merges: Callable[..., Groups], *arguments: Any) -> tuple[Groups, float]:
    """The groups, and the seconds of the processor that they took."""
    start = time.process_time()
    groups = merges(*arguments)
    return [list(group) for group in groups], time.process_time() - start


def judged(case: Case, groups: Groups, seconds: float) -> dict[str, float]:
    """Right and wrong merges: a group of m parts of t units is m − t right and t − 1 wrong ones."""
    units = [len({case.truth[str(part)] for part in group}) for group in groups]
    right = sum(len(group) - n for group, n in zip(groups, units, strict=True))
    return {"right": right, "wrong": sum(n - 1 for n in units), "seconds": round(seconds, 2)}


def report(verdict: dict[str, dict[str, float]], n_split: int) -> None:
    print(f"{'':24} right (of {n_split})   wrong   seconds")
    for name, row in verdict.items():
        print(f"{name:24} {row['right']:8} {row['wrong']:12} {row['seconds']:9.1f}")


def draw(path: Path, case: Case, groups: Groups) -> None:
    """Draw the depth of every spike over time, coloured by unit before and after merging."""
    from matplotlib.figure import Figure

    analyzer = with_templates(case.sorting, case.recording, case.seed)
    analyzer.compute("spike_locations")
    spikes = case.sorting.to_spike_vector()
    seconds = spikes["sample_index"] / case.sorting.sampling_frequency
    depth = analyzer.get_extension("spike_locations").get_data()["y"]
    before = np.arange(len(case.sorting.unit_ids))
    after = before.copy()
    for group in groups:
        after[case.sorting.ids_to_indices(group)] = case.sorting.ids_to_indices(group).min()
    figure = Figure(figsize=(10, 4.5), dpi=100, layout="constrained")
    titles = (f"before: {len(before)} units", f"merged: {len(np.unique(after))} units")
    for axes, unit, title in zip(
        figure.subplots(1, 2, sharey=True), (before, after), titles, strict=True
    ):
        colour = unit[spikes["unit_index"]]
        axes.scatter(
            seconds, depth, c=colour * 7 % 20, cmap="tab20", vmin=0, vmax=19, s=1, linewidths=0
        )
        axes.set(title=title, xlabel="time (s)", xlim=(0, seconds.max()))
    figure.axes[0].set_ylabel("depth of the spike (µm)")
    figure.savefig(path)


if __name__ == "__main__":
    main()
