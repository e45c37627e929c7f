import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import unsplit
from tests.checks import about, parsed_here
from unsplit.data.readers.media import resampled
from unsplit.data.readers.parsers import read_wav
from unsplit.errors import InputError, SkippedWarning

SHAPE = np.array([0.0, 0.5, -1.0, 0.25, -0.125])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(folder, monkeypatch):
    monkeypatch.setattr("unsplit.data.readers.isolated.parse_all", parsed_here)


def write(name, samples=SHAPE, rate=8000):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if np.asarray(samples).dtype == np.float64:
        samples = (np.asarray(samples) * 2**15).astype(np.int16)
    wavfile.write(path, rate, samples)
    return path


def two_clusters(n=2, folder="sounds"):
    for cluster in ("no", "yes"):
        for i in range(n):
            write(f"{folder}/{cluster}/{i}.wav", np.full(10 + i, 0.01))
    return Path(folder)


def wav_of_24_bits(name, samples):
    """A file of 24-bit samples, byte by byte; SciPy does not write these."""
    data = b"".join(int(sample * 2**23).to_bytes(3, "little", signed=True) for sample in samples)
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 24_000, 3, 24)
    body = b"WAVE" + fmt + struct.pack("<4sI", b"data", len(data)) + data + b"\0" * (len(data) % 2)
    Path(name).write_bytes(struct.pack("<4sI", b"RIFF", len(body)) + body)
    return Path(name)


def refuses(sentence, *args, **kwargs):
    with pytest.raises(InputError, match=about(sentence)):
        unsplit.read(*args, **kwargs)


def test_subfolders_are_clusters_and_paths_are_ids():
    write("sounds/b/1.wav", SHAPE)
    write("sounds/a/deep/er/2.WAV", SHAPE[:3])
    write("sounds/a/10.wav", SHAPE[:2])
    audio = unsplit.read("sounds")
    assert audio.row_ids.tolist() == ["a/10.wav", "a/deep/er/2.WAV", "b/1.wav"]
    assert audio.labels.tolist() == ["a", "a", "b"]
    assert audio.X.lengths.tolist() == [2, 3, 5]
    assert audio.X.rate == 8000
    assert audio.X.flat.dtype == np.int16
    assert audio.X.flat[-5:, 0].tolist() == [0, 16384, -32768, 8192, -4096]


def test_a_folder_called_like_a_file_is_no_sound():
    folder = two_clusters()
    expected = unsplit.read(folder).row_ids.tolist()
    Path("sounds/yes/folder.wav").mkdir()
    assert unsplit.read(folder).row_ids.tolist() == expected


def test_both_endings_are_read_in_any_letter_case():
    names = ["a/1.WAV", "a/2.wave", "b/1.Wave", "b/2.wav"]
    for name in names:
        write(f"sounds/{name}")
    assert unsplit.read("sounds").row_ids.tolist() == names


def test_only_the_training_part_is_read():
    two_clusters(folder="sounds/train")
    two_clusters(folder="sounds/val")
    with pytest.warns(SkippedWarning, match="beside train: 'val'"):
        assert unsplit.read("sounds").labels.tolist() == ["no", "no", "yes", "yes"]


WIDTHS = {
    "8 bit": lambda path: write(path, (SHAPE * 128 + 128).astype(np.uint8)),
    "16 bit": lambda path: write(path, SHAPE),
    "24 bit": lambda path: wav_of_24_bits(path, SHAPE),
    "32 bit": lambda path: write(path, (SHAPE * 2**31).astype(np.int32)),
    "64 bit": lambda path: write(path, (SHAPE * 2**63).astype(np.int64)),
    "float": lambda path: write(path, SHAPE.astype(np.float32)),
}


@pytest.mark.parametrize("make", WIDTHS.values(), ids=WIDTHS.keys())
def test_all_widths_of_samples_mean_the_same(make):
    rate, sound = read_wav(make("1.wav"))
    assert rate == 8000
    assert sound.dtype in (np.int16, np.float32)
    np.testing.assert_array_equal(sound, SHAPE * 2**15)


def test_files_of_64_bit_floats_are_read():
    wavfile.write("1.wav", 8000, SHAPE)
    np.testing.assert_array_equal(read_wav(Path("1.wav"))[1], SHAPE * 2**15)


def test_channels_are_averaged():
    stereo = np.stack([SHAPE, -SHAPE, SHAPE + 0.25], axis=1)
    _, sound = read_wav(write("1.wav", (stereo * 2**14).astype(np.int16)))
    assert sound.shape == (5,)
    np.testing.assert_allclose(sound, (SHAPE + 0.25) / 3 * 2**14, rtol=1e-6)


def test_two_loud_channels_do_not_overflow():
    _, sound = read_wav(write("1.wav", np.full((3, 2), 32_767, np.int16)))
    assert sound.tolist() == [32_767.0] * 3


def test_files_of_different_widths_are_joined_in_one_unit():
    write("sounds/a/1.wav", SHAPE)
    write("sounds/b/1.wav", SHAPE.astype(np.float32))
    flat = unsplit.read("sounds").X.flat.ravel()
    np.testing.assert_array_equal(flat[:5], flat[5:])


def test_other_rates_are_resampled_to_that_of_most():
    time = np.arange(4000) / 16_000
    write("sounds/a/fast.wav", np.sin(2 * np.pi * 300 * time) / 2, rate=16_000)
    for i in range(2):
        write(f"sounds/b/{i}.wav", np.sin(2 * np.pi * 300 * time[::2]) / 2)
    audio = unsplit.read("sounds")
    assert audio.X.rate == 8000
    assert audio.X.lengths.tolist() == [2000, 2000, 2000]
    fast, slow = audio.X.batch(np.array([0, 1]))[:, 0, 50:-50].numpy() / 2**15
    np.testing.assert_allclose(fast, slow, atol=0.01)


def test_resampling_keeps_what_both_rates_can_hold():
    time = np.arange(2205) / 22_050
    found = resampled(np.sin(2 * np.pi * 440 * time), 22_050, 48_000)
    expected = np.sin(2 * np.pi * 440 * np.arange(4800) / 48_000)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[200:-200], expected[200:-200], atol=0.01)


def test_a_sound_of_one_sample_survives():
    write("sounds/a/1.wav", [0.5])
    write("sounds/b/1.wav", [0.5], rate=44_100)
    write("sounds/b/2.wav", [0.5])
    assert unsplit.read("sounds").X.lengths.tolist() == [1, 1, 1]


def cut(path, n_bytes):
    path.write_bytes(path.read_bytes()[:-n_bytes])


def infinite(path):
    write(path, np.array([0.0, np.inf, 1.0], np.float32))


BROKEN = {
    "empty": (lambda path: path.write_bytes(b""), "it is empty"),
    "text": (lambda path: path.write_text("sound"), "File format b'soun' not understood"),
    "cut": (lambda path: cut(path, 10), "Reached EOF prematurely"),
    "cut header": (lambda path: path.write_bytes(path.read_bytes()[:30]), ""),
    "no data": (lambda path: path.write_bytes(path.read_bytes()[:36]), "Unexpected end of file"),
    "no samples": (lambda path: write(path, np.zeros(0, np.int16)), "it holds no sound"),
    "infinite": (infinite, "it has values that are NaN or infinite"),
}


@pytest.mark.parametrize(("damage", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_left_out_and_named_with_the_reason(damage, why):
    folder = two_clusters(n=10)
    damage(folder / "yes/3.wav")
    with pytest.warns(UserWarning, match=r"^1 of 20 \.wav files in sounds cannot be read and") as w:
        audio = unsplit.read(folder)
    assert f"'yes/3.wav' ({why}" in str(w[0].message)
    assert len(audio.X) == len(audio.labels) == len(audio.row_ids) == 19
    assert "yes/3.wav" not in audio.row_ids
    expected = [10 + int(Path(name).stem) for name in audio.row_ids]
    assert audio.X.lengths.tolist() == expected


def test_too_many_broken_files_are_an_error_that_names_three(monkeypatch):
    folder = two_clusters(n=5)
    for i in range(4):
        write(f"sounds/yes/{i}.wav", np.zeros(0, np.int16))
    named = ", ".join(f"'yes/{i}.wav' (it holds no sound)" for i in range(3))
    with pytest.raises(InputError) as caught:
        unsplit.read(folder)
    for part in ("4 of 10 .wav files in sounds", "5%", f"{named} and 1 more", "repair"):
        assert part in str(caught.value)
    monkeypatch.setattr("unsplit.data.readers.broken.MOST_BROKEN", 0.4)
    with pytest.warns(SkippedWarning, match=r"cannot be read and are left out: .* and 1 more\.$"):
        assert len(unsplit.read(folder).X) == 6


def test_remarks_beside_the_sound_are_no_damage():
    path = write("1.wav")
    data = path.read_bytes()
    remark = struct.pack("<4sI", b"note", 4) + b"loud"
    body = data[8:] + remark
    path.write_bytes(struct.pack("<4sI", b"RIFF", len(body)) + body)
    with warnings.catch_warnings(record=True) as heard:
        assert len(read_wav(path)[1]) == 5
    assert heard == []


def test_a_path_that_leads_nowhere_or_to_one_sound_is_refused():
    refuses("there is no file sounds; check its name and folder.", "sounds")
    refuses("one.wav has an unsupported file type; …", write("one.wav"))


def test_damaged_npz_is_refused():
    Path("sounds.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(InputError, match=r"^sounds\.npz cannot be read \(.*\); it may be damaged"):
        unsplit.read("sounds.npz")
