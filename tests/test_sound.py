"""Sound as vectors: what they are, where they are used, and that all else works with them."""

import numpy as np
import pytest
import torch
from scipy.fft import dct

import unsplit
from tests.any_data_cases import CPU
from tests.test_checkpoints import Stopped, stop_after
from unsplit.data.rows.sequences import Ragged, RaggedRows
from unsplit.errors import InputError
from unsplit.networks import sound
from unsplit.networks.backbones import LogMel
from unsplit.networks.sound import SoundRows, cepstral_statistics
from unsplit.networks.training.checkpoint import Checkpoint
from unsplit.pairwise.api import rows_for

RATE = 8000
EACH = 12


def tones(pitches, each=EACH, seed=0):
    """Short sounds: noise around one of these pitches, of all lengths and as loud as may be."""
    rng = np.random.default_rng(seed)
    found = []
    for pitch in np.repeat(pitches, each):
        time = np.arange(rng.integers(800, 1600)) / RATE
        wave = np.sin(2 * np.pi * pitch * (1 + 0.02 * rng.standard_normal()) * time)
        found.append(rng.uniform(0.1, 9) * (wave + 0.3 * rng.standard_normal(len(time))))
    return found


# Twice two pitches.
SOUNDS = Ragged.of(tones([500, 500, 2000, 2000]), RATE)
LABELS = np.repeat(np.arange(4), EACH)


def merger(**settings):
    return unsplit.ClusterMerger(random_state=0, device="cpu", **settings)


def test_vectors_are_the_statistics_of_cepstral_coefficients():
    one = SOUNDS.flat[: SOUNDS.offsets[1], 0].astype(np.float64)
    one = (one - one.mean()) / one.std()
    mel = LogMel(RATE)
    bands = mel.bands_of(torch.from_numpy(one[None]))[0, :, : -(-len(one) // mel.hop)]
    cepstra = dct(bands.numpy(), axis=0, norm="ortho")[:20]
    steps = cepstra[:, 1:] - cepstra[:, :-1]
    parts = cepstra.mean(1), cepstra.std(1), steps.mean(1), steps.std(1)
    found = cepstral_statistics(SOUNDS)
    assert found.shape == (len(LABELS), 80)
    np.testing.assert_allclose(found[0], np.concatenate(parts), rtol=1e-4, atol=1e-4)


def test_loudness_and_the_other_sounds_do_not_matter():
    wave = tones([700], 1)[0]
    alone = cepstral_statistics(Ragged.of([wave], RATE))
    louder = cepstral_statistics(Ragged.of([1e6 * wave + 5e5, wave, np.zeros(40)], RATE))
    np.testing.assert_allclose(louder[:1], alone, rtol=1e-3, atol=1e-3)
    assert np.array_equal(louder[1:2], alone)


@pytest.mark.parametrize("length", [1, 79, 80, 81, 5000])
def test_any_length_gives_numbers(length):
    found = cepstral_statistics(Ragged.of([np.zeros(length), 1e20 * np.arange(length)], RATE))
    assert np.isfinite(found).all()


def test_a_long_sound_in_pieces_is_as_in_one(monkeypatch):
    long = Ragged.of([np.concatenate(tones([400, 900]))], RATE)
    whole = cepstral_statistics(long)
    monkeypatch.setattr(sound, "FRAMES", 50)
    # Frames where pieces meet see less.
    np.testing.assert_allclose(cepstral_statistics(long), whole, atol=0.3)


@pytest.mark.parametrize(
    ("backbone", "device", "kind"),
    [
        ("auto", "cpu", SoundRows),
        ("mlp", "cpu", SoundRows),
        ("lda", "cpu", SoundRows),
        ("auto", "cuda", RaggedRows),
        ("auto", "mps", RaggedRows),
        ("logmel", "cpu", RaggedRows),
        (torch.nn.Identity(), "cpu", RaggedRows),
    ],
)
def test_sound_becomes_vectors_for_what_reads_vectors_and_by_default_on_a_cpu(
    backbone, device, kind, monkeypatch
):
    monkeypatch.setattr(SoundRows, "_fits", lambda rows: False)  # nothing is copied to the device
    assert type(rows_for(SOUNDS, backbone, torch.device(device))) is kind


def test_sequences_without_a_rate_are_no_sound():
    silent = Ragged.of(tones([500]))
    assert type(rows_for(silent, "auto", CPU)) is RaggedRows


def test_sounds_are_merged_and_new_ones_predicted():
    found = merger().fit(SOUNDS, initial_labels=LABELS)
    assert found.backbone_ == "mlp"
    assert found.tree_.mapping == {0: 0, 1: 0, 2: 1, 3: 1}
    assert found.neighbours_.source == "observations"
    new = tones([500, 2000], seed=1)
    assert found.predict(new).tolist() == [0] * EACH + [1] * EACH
    assert np.array_equal(found.predict(Ragged.of(new, RATE)), found.predict(new))
    with pytest.raises(InputError, match=r"X has 16000 samples per second.*resample X"):
        found.predict(Ragged.of(new, 16_000))


def test_the_order_of_sounds_does_not_matter():
    order = np.random.default_rng(0).permutation(len(LABELS))
    parts = np.split(SOUNDS.flat, SOUNDS.offsets[1:-1])
    other = Ragged.of([parts[i] for i in order], RATE)
    one = unsplit.pairwise_tvd(SOUNDS, LABELS, random_state=0, device="cpu")
    two = unsplit.pairwise_tvd(other, LABELS[order], random_state=0, device="cpu")
    assert np.array_equal(one.tvd, two.tvd)


def test_a_saved_result_of_either_network_loads(tmp_path):
    few = unsplit.TrainConfig(epochs=1)
    for backbone in ("auto", "logmel"):
        path = tmp_path / f"{backbone}.npz"
        made = unsplit.pairwise_tvd(
            SOUNDS, LABELS, backbone=backbone, training=few, cv=2, random_state=0, device="cpu"
        )
        made.save(path, scores=True)
        loaded = unsplit.PairwiseTVD.load(path)
        assert np.array_equal(loaded.tvd, made.tvd)
        assert unsplit.merge(loaded, n_clusters=2).n_clusters == 2


def test_a_checkpoint_is_continued_but_not_by_another_network(monkeypatch, tmp_path):
    monkeypatch.setattr(Checkpoint, "due", lambda *_: True)
    few = {"training": unsplit.TrainConfig(epochs=3), "cv": 2}
    whole = merger(**few).fit(SOUNDS, initial_labels=LABELS)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            merger(**few, checkpoint=tmp_path / "kept").fit(SOUNDS, initial_labels=LABELS)
    with pytest.raises(InputError, match="a run with different settings"):
        merger(**few, backbone="logmel", checkpoint=tmp_path / "kept").fit(
            SOUNDS, initial_labels=LABELS
        )
    again = merger(**few, checkpoint=tmp_path / "kept").fit(SOUNDS, initial_labels=LABELS)
    assert np.array_equal(again.pairwise_.tvd, whole.pairwise_.tvd)
    assert again.tree_.table() == whole.tree_.table()
