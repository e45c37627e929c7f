"""Files that are damaged, hostile or no files at all: one sentence, no traceback, no waiting."""

import contextlib
import gzip
import io
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from PIL import Image
from scipy.io import wavfile

import unsplit as package
from tests.cell_cases import small
from tests.cli_cases import QUICK, merge, unsplit, write_data
from tests.faults import many
from unsplit import read
from unsplit.data.readers.isolated import Broken, parse_all
from unsplit.data.readers.observations import read_observations
from unsplit.data.readers.tables import listing, shortened
from unsplit.data.rows.datasets import Decoder
from unsplit.data.saving import write_csv
from unsplit.errors import InputError, SkippedWarning

# The tested package, whichever one is installed.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(package.__file__).resolve().parents[1])}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
OFF = "OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True)
def no_waiting():
    """End a test that waits instead of letting it wait forever."""

    def stop(*_):
        raise AssertionError("waited too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(many(600))  # seconds
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def write_wav(path, rate=8000, n=200):
    wavfile.write(path, rate, RNG.integers(-999, 999, n).astype(np.int16))


def write_png(path):
    Image.fromarray(RNG.integers(0, 255, (12, 12, 3), np.uint8)).save(path)


def write_cloud(path):
    np.save(path, RNG.normal(size=(20, 3)))


GOOD = {"png": write_png, "wav": write_wav, "npy": write_cloud}
every_kind = pytest.mark.parametrize("kind", GOOD)


def good_folder(kind, n=12):
    """A folder of two clusters with n good files each."""
    for name in ("a", "b"):
        os.makedirs(f"d/{name}")
        for i in range(n):
            GOOD[kind](f"d/{name}/{i}.{kind}")


def refused(*parts, data="d", **more):
    with pytest.raises(InputError) as caught:
        read(data, **more)
    sentence = str(caught.value)
    assert all(part in sentence for part in parts), sentence
    assert len(sentence) < 2_000
    assert "\n" not in sentence
    return sentence


def skipped(*parts, n=24):
    """The folder is read, and a warning names what is skipped."""
    with pytest.warns(SkippedWarning) as caught:
        found = read("d")
    told = " ".join(str(warning.message) for warning in caught)
    assert all(part in told for part in parts), told
    assert len(found.row_ids) == n
    return found


# Files that would wait, or lead nowhere


def make_empty(path):
    Path(path).touch()


def make_socket(path):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)


ODD = {
    "pipe": (os.mkfifo, "not a regular file"),
    "socket": (make_socket, "not a regular file"),
    "device": (lambda path: os.symlink("/dev/zero", path), "not a regular file"),
    "circle": (lambda path: os.symlink(os.path.basename(path), path), "symbolic links"),
    "nowhere": (lambda path: os.symlink("nowhere", path), "no such file"),
    "empty": (make_empty, ""),
}


@every_kind
@pytest.mark.parametrize("odd", ODD)
def test_one_odd_file_among_good_ones_is_named_and_skipped(kind, odd):
    make, why = ODD[odd]
    good_folder(kind)
    make(f"d/a/odd.{kind}")
    skipped(f"a/odd.{kind}", why)


@pytest.mark.parametrize("ending", ["csv", "npy", "npz", "parquet", "h5", "tsv.gz", "png", ""])
def test_pipes_and_devices_are_no_data(ending):
    name = f"d.{ending}"
    os.mkfifo(name)
    refused(name, data=name)
    os.remove(name)
    os.symlink("/dev/zero", name)
    refused(name, data=name)


def test_pipes_and_folders_are_no_labels():
    np.save("d.npy", X)
    os.mkfifo("l.csv")
    os.mkdir("m.csv")
    for name in ("l.csv", "m.csv"):
        refused(name, data="d.npy", labels=name)


@pytest.mark.parametrize("name", ["d.csv", "d.npy", "d.h5", "d"])
def test_a_null_character_in_a_path_is_refused(name):
    np.save("d.npy", X)
    refused("null byte", data=f"x\0{name}")
    refused(data="d.npy", labels=f"x\0{name}")


def test_a_null_character_in_a_list_of_images_costs_only_that_image():
    good_folder("png")
    names = [f"d/{cluster}/{i}.png,{cluster}" for cluster in "ab" for i in range(12)]
    Path("list.csv").write_text("\n".join(["path,cluster", "d/a/\0x.png,a", *names]))
    with pytest.warns(SkippedWarning, match="1 of 25 images cannot be read"):
        assert len(read("list.csv").row_ids) == 24


@pytest.mark.parametrize(("kind", "name"), [("png", "e"), ("npy", "e"), ("wav", "long" * 20)])
def test_deeply_nested_folders_are_read_or_refused(kind, name):
    good_folder(kind)
    here = os.getcwd()
    os.chdir("d/a")
    for _ in range(1_200):
        os.mkdir(name)
        os.chdir(name)
    GOOD[kind](f"deep.{kind}")
    os.chdir(here)
    try:
        if name == "e":
            assert len(read("d").row_ids) == 25
        else:
            refused("cannot be opened (file name too long)")
    finally:
        subprocess.run(["rm", "-rf", "d"], check=True)


# Names that are not UTF-8


def test_names_that_are_not_utf8_are_refused():
    good_folder("wav", 12)
    os.rename(b"d/a", b"d/caf\xe9")
    refused("d has 12 paths that are not valid UTF-8, such as 'caf\\udce9/")


# Arrays and sounds whose headers lie


def npy(shape, n=24):
    file = io.BytesIO()
    np.save(file, np.zeros(n))
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117) + b"\n" + bytes(8 * n)


SHAPES = ["(-1,)", "(-1, 24, -1)", f"({2**40}, 3)", f"({2**62}, {2**62}, 4)", f"({10**30},)",
          "(4, 6, 2)", "(2**9,)", "3", "(1.5, 2)"]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_the_file_does_not_hold_are_refused(shape):
    Path("d.npy").write_bytes(npy(shape))
    refused("d.npy", data="d.npy")
    with zipfile.ZipFile("d.npz", "w") as archive:
        archive.writestr("X.npy", npy(shape))
    refused("d.npz", data="d.npz")
    good_folder("npy")
    Path("d/a/odd.npy").write_bytes(npy(shape))
    skipped("a/odd.npy")


@pytest.mark.parametrize("member", ["notes.txt", "X.npy", "sub/", "../X"])
def test_members_that_are_no_arrays_are_refused(member):
    np.savez("d.npz", Y=X)
    with zipfile.ZipFile("d.npz", "a") as archive:
        archive.writestr(member, "hello")
    refused("d.npz", data="d.npz")
    np.save("x.npy", X)
    refused("d.npz", data="x.npy", labels="d.npz")


def wav(rate=8000, channels=1, length=None, n=200, align=None):
    data = RNG.integers(-999, 999, n).astype("<i2").tobytes()
    align = 2 * channels % 2**16 if align is None else align
    head = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 % 2**32, align, 16)
    length = len(data) if length is None else length
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", length) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


WAVS = {
    "1 Hz": wav(1, n=50_000),
    "0 Hz": wav(0),
    "rates without a common factor": wav(7_999_993),
    "no channels": wav(channels=0),
    "65535 channels": wav(channels=65535, align=65534),
}


@pytest.mark.parametrize("what", WAVS)
def test_sounds_with_absurd_headers_are_skipped(what):
    good_folder("wav")
    Path("d/a/odd.wav").write_bytes(WAVS[what])
    start = time.monotonic()
    skipped("a/odd.wav")
    assert time.monotonic() - start < 5


def test_a_sound_of_unknown_length_is_read_to_its_end():
    good_folder("wav")
    Path("d/a/stream.wav").write_bytes(wav(length=2**32 - 1))
    assert len(read("d").row_ids) == 25


# Messages


def test_long_names_are_shortened():
    assert len(listing(["x" * 10**6] * 100)) < 2_000
    assert shortened("y" * 201).count("y") == 199
    name = "n" * 100_000
    Path("d.csv").write_text(f"{name},b\n1,u\n2,v\n")
    assert "nnn" in refused("d.csv", data="d.csv", labels="missing")
    Path("d.csv").write_text(f"{name}\n" * 2)
    refused("d.csv", data="d.csv")
    Path("d.csv").write_text(f"{name},{name}\n1,2\n")
    refused("d.csv", data="d.csv")
    Path("d.csv").write_text(f"a|{name};\n1;2;3\n")
    refused("d.csv", data="d.csv")
    Path("d.csv").write_text("a,b\n1,u\n2,v\n")
    assert len(refused("d.csv", data="d.csv", labels=name)) < 500


def test_a_full_disk_is_told_with_the_folder(monkeypatch):
    write_data()

    def full(path, *_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("unsplit.cli.outputs.write_csv", full)
    result = merge()
    assert result.exit_code == 2
    assert result.stderr.endswith("labels.csv: no space left on device\n")


@pytest.mark.parametrize("out", ["/dev/null/out", "/proc/none/out", "data.csv", "data.csv/out"])
def test_an_out_that_cannot_be_written_is_noticed_before_training(out, monkeypatch):
    write_data()
    monkeypatch.setattr("unsplit.estimator.fit", None)
    result = merge(out=out)
    assert result.exit_code == 2
    assert f"cannot write to {out}" in result.stderr


@pytest.mark.parametrize("command", ["merge", "distances"])
def test_an_observation_is_named_with_its_file(command):
    points = RNG.normal(size=(40, 9, 3))
    points[7, 2, 1] = np.nan
    np.savez("gaps.npz", points=points, cluster=np.arange(40) % 2)
    result = unsplit(command, "gaps.npz", "--labels", "cluster", "--out", "out", *QUICK)
    assert result.exit_code == 2
    assert "observation 7 of gaps.npz has values" in result.stderr


def test_a_value_that_is_too_large_is_named_with_its_file_and_row():
    write_data()
    lines = Path("data.csv").read_text().splitlines()
    lines[4] = "r3,1e300,0,0"
    Path("data.csv").write_text("\n".join(lines))
    result = merge()
    assert result.exit_code == 2
    assert "observation 'r3' of data.csv has values that are NaN, infinite or" in result.stderr


def test_text_that_is_not_utf8_is_written_with_backslashes():
    write_csv("t.csv", {"id": ["caf\udce9"]})
    assert Path("t.csv").read_text(encoding="utf-8") == "id\ncaf\\udce9\n"


@pytest.mark.parametrize("wait", [0.0, 0.4])
def test_an_interrupt_while_loading_is_one_line(wait):
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "print('ready', flush=True)\nfrom unsplit.__main__ import start\nstart()"
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", program, "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    while "click" not in process.stderr.readline():  # now our own modules are loading
        assert process.poll() is None
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    if process.returncode == 0:  # it was faster
        assert printed.startswith("unsplit ")
    else:
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert errors.splitlines()[-1] == "unsplit: interrupted"


def test_an_interrupt_between_loading_and_running_is_one_line():
    program = """
import os, signal
real = signal.signal
real(signal.SIGINT, signal.default_int_handler)
def interrupted(number, handler):
    real(number, handler)
    if handler is signal.default_int_handler:
        os.kill(os.getpid(), signal.SIGINT)
signal.signal = interrupted
from unsplit.__main__ import start
start()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        capture_output=True,
        env=ENVIRONMENT,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "unsplit: interrupted\n")


def test_little_is_loaded_before_an_interrupt_can_be_told_in_one_line():
    program = "import sys, unsplit.__main__; print({'typing', 're', 'click'} & {*sys.modules})"
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert found.stdout == "set()\n", found.stderr


# Parsers that crash, hang or take all memory

MISCHIEF = {
    "crash": "crashed",
    "leave": "crashed",
    "bomb": "memory",
    "hang": "did not finish within 1 seconds",
    "error": "it is cut short",
}


def test_a_parser_that_misbehaves_costs_only_its_file(monkeypatch):
    monkeypatch.setattr("unsplit.data.readers.isolated.SECONDS_PER_FILE", 1)
    requests = [1, "crash", 2, "leave", "print", "error", *range(40), "bomb", 3, "hang", 4]
    results = dict(parse_all("tests.faults.parsers:parse", requests, 2))
    assert sorted(results) == list(range(len(requests)))
    for index, request in enumerate(requests):
        if request in MISCHIEF:
            assert MISCHIEF[request] in results[index].why
        else:
            assert results[index] == ("printed" if request == "print" else 2 * request)


def test_workers_end_with_the_results_even_early():
    results = parse_all("tests.faults.parsers:parse", [1, *["hang"] * 100], 1)
    assert next(results) == (0, 2)
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 5
    assert threading.active_count() < 10


def test_a_parser_that_cannot_be_imported_is_an_error():
    with pytest.raises(EOFError):
        list(parse_all("nowhere:parse", [1]))


def test_an_image_that_crashes_its_decoder_is_named(monkeypatch):
    good_folder("png")
    Path("d/a/bad.png").write_bytes(b"crash")
    Path("PIL").mkdir()
    # Stands before the real package in the workers only, because this process has it already.
    Path("PIL/__init__.py").write_text("")
    Path("PIL/Image.py").write_text(
        "import os\nclass Image:\n    mode, size, width, height = 'L', (4, 4), 4, 4\n"
        "def open(file, formats):\n    file.read() == b'crash' and os.abort()\n    return Image()\n"
    )
    monkeypatch.setattr(
        "unsplit.data.readers.isolated._START",
        "import sys; sys.path[:] = {path!r}; import {module} as m\n"
        "import unsplit.data.readers.parsers as p\np.square_pixels = lambda *_, **__: None\n"
        "import sys; sys.path.insert(0, '.')\nm.serve({parser!r}, {seconds})",
    )
    skipped("a/bad.png", "its decoder crashed")


def in_workers(monkeypatch, *lines):
    """Let workers run some lines before they begin."""
    program = "; ".join(["import sys; sys.path[:] = {path!r}", "import os, time", *lines])
    monkeypatch.setattr(
        "unsplit.data.readers.isolated._START",
        program + "; import {module} as m; m.serve({parser!r}, {seconds})",
    )


def changed(module, name, does):
    """Lines that let a function do something else if the path has "bad" in it."""
    return (
        f"import unsplit.data.readers.{module} as p; old = p.{name}",
        f"p.{name} = lambda path: {does} if 'bad' in str(path) else old(path)",
    )


FAULTS = {
    "crashes": ("os.abort()", "its decoder crashed"),
    "hangs": ("time.sleep(600)", "its decoder did not finish within 2 seconds"),
    "bombs": ("bytearray(2**50)", "it needs too much memory"),
}


@pytest.mark.parametrize(
    ("kind", "fault"), [("wav", "crashes"), ("wav", "hangs"), ("png", "bombs")]
)
def test_a_decoder_that_misbehaves_costs_one_file(kind, fault, monkeypatch):
    does, told = FAULTS[fault]
    good_folder(kind)
    GOOD[kind](f"d/a/bad.{kind}")
    module, name = {"wav": ("parsers", "read_wav"), "png": ("parsers", "look_at")}[kind]
    in_workers(monkeypatch, *changed(module, name, does))
    monkeypatch.setattr("unsplit.data.readers.isolated.SECONDS_PER_FILE", 2)
    skipped(f"a/bad.{kind}", told)


# Files that unpack to far more than they are


def png_of(width, height):
    """A small file whose header says that the image is large."""

    def part(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = part(b"IDAT", zlib.compress(bytes(10**6)))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + content + part(b"IEND", b"")


def test_an_image_with_billions_of_pixels_is_named_before_it_is_decoded():
    good_folder("png")
    Path("d/a/bomb.png").write_bytes(png_of(60_000, 60_000))
    skipped("a/bomb.png", "pixels")


@pytest.mark.parametrize("content", ["bomb", "other", "damaged"])
def test_an_image_that_changes_after_the_start_is_not_decoded(content, monkeypatch):
    good_folder("png", 3)
    found = read("d")
    bad = {"bomb": png_of(60_000, 60_000), "other": picture("png"), "damaged": b"x"}[content]
    Path("d/a/1.png").write_bytes(bad)

    def never(*_):
        raise AssertionError("it was decoded")

    assert found.X[0].shape == (3, 12, 12)
    monkeypatch.setattr("unsplit.data.readers.media.open_image", never)
    with pytest.raises(
        InputError, match=r"a/1\.png cannot be read \(it has changed since the start"
    ):
        found.X[1]


@pytest.mark.parametrize("place", ["X", "obsm/X_pca", "layers/counts/data", "obs/leiden/codes"])
def test_cells_that_claim_more_than_the_memory_are_refused(place, monkeypatch):
    import h5py

    # So little that the system would give the memory if it were asked.
    monkeypatch.setattr("unsplit.data.readers.h5ad.available_memory", lambda: 10**6)

    h5ad("cells.h5ad")
    with h5py.File("cells.h5ad", "r+") as file:
        said = dict(file[place].attrs)
        del file[place]
        file.create_dataset(place, (160, 10**4), np.int8, chunks=(1, 100)).attrs.update(said)
    matrix = {"X": {"use_rep": "X"}, "layers/counts/data": {"use_rep": "layers/counts"}}
    with pytest.raises(InputError, match=r"cells\.h5ad does not fit into memory"):
        read("cells.h5ad", "leiden", **matrix.get(place, {}))


def compressed_zip(text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d.csv", text)
    return file.getvalue()


ZEROS = b"x,c\n" + b"0,1\n" * 2**20
UNPACKED = {
    "csv": lambda: ZEROS,
    "csv.gz": lambda: gzip.compress(ZEROS),
    "tsv.gz": lambda: gzip.compress(ZEROS.replace(b",", b"\t")),
    "npz": lambda: saved(lambda path: np.savez_compressed(path, X=np.zeros((2**20, 2))), "npz"),
}


@pytest.mark.parametrize("ending", UNPACKED)
def test_a_file_that_unpacks_to_more_than_memory_is_refused_before(ending, monkeypatch):
    Path(f"d.{ending}").write_bytes(UNPACKED[ending]())
    for module in ("observations", "tables"):
        monkeypatch.setattr(f"unsplit.data.readers.{module}.available_memory", lambda: 2**23)
    tracemalloc.start()
    refused(f"d.{ending} would need", "GiB", "use fewer rows", data=f"d.{ending}", labels="c")
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 2**23


def test_repeated_values_that_fill_the_memory_are_refused_before(monkeypatch):
    Path("d.h5").write_bytes(TABLES["h5"]())
    monkeypatch.setattr("unsplit.data.readers.tables.available_memory", lambda: 100)
    refused("the content of d.h5 would need about", data="d.h5")


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrow"])
def test_tables_that_fill_the_memory_are_refused_before(ending, monkeypatch):
    Path(f"d.{ending}").write_bytes(TABLES[ending]())
    monkeypatch.setattr("unsplit.data.readers.tables.available_memory", lambda: 10)
    refused(f"the content of d.{ending} would need about", data=f"d.{ending}", labels="c")


def test_a_sparse_matrix_of_billions_of_rows_is_refused_before(monkeypatch):
    tall = scipy.sparse.coo_array(([1.0], ([0], [0])), (10**9, 2))
    scipy.sparse.save_npz("d.npz", tall)
    monkeypatch.setattr("unsplit.data.readers.observations.available_memory", lambda: 2**32)
    refused("d.npz does not fit into memory", data="d.npz")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
    ids=["Python", "torch"],
)
@pytest.mark.parametrize("place", ["outputs.write_merge", "merge.read_clustered"])
def test_memory_used_up_anywhere_in_a_command_is_one_sentence(place, error, monkeypatch):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(f"unsplit.cli.{place}", fails)
    write_data()
    result = merge()
    assert result.exit_code == 2
    assert "needs more memory than is available" in result.stderr
    assert not Path("out").exists()


class Aborts:
    """A dataset whose item 5 ends the process that reads it."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            os._exit(1)
        return np.zeros(2)


@pytest.mark.filterwarnings("ignore:This DataLoader", "ignore:.*fork:DeprecationWarning")
def test_a_worker_that_dies_while_training_is_told_in_one_sentence():
    with pytest.raises(InputError, match="ended unexpectedly"):
        list(Decoder(Aborts(), workers=1).stream([np.arange(4), np.arange(4, 8)]))


PARENT = """
import sys, torch
from unsplit.data.readers import isolated
from unsplit.data.rows.datasets import Decoder
isolated.SECONDS_PER_FILE = 3
if sys.argv[1] == "isolated":
    work = isolated.parse_all("tests.faults.parsers:parse", [1, "hang", 3], 1)
    next(work)
else:
    from unsplit.data.readers.media import ImageFiles
    import numpy as np
    decoder = Decoder(ImageFiles(["d/a/0.png"], 4), workers=2)
    work = decoder.stream([np.array([0])] * 10**6)
    next(work)
print("ready", flush=True)
import time; time.sleep(600)
"""


def descendants(pid):
    """Ids of all processes below one, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found, fresh = set(), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["isolated", pytest.param("decoder", marks=pytest.mark.slow)])
def test_nothing_stays_after_the_program_is_killed(kind):
    good_folder("png", 1)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], root])
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, kind],
        stdout=subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHONPATH": path},
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    below = descendants(process.pid)
    assert below
    process.kill()
    process.communicate()
    limit = time.monotonic() + 10
    while any(map(is_running, below)) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not any(map(is_running, below))


# Random damage


def picture(ending):
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 255, (16, 16, 3), np.uint8)).save(file, ending)
    return file.getvalue()


def saved(write, ending):
    """The bytes that a function writes to a file."""
    path = f"made.{ending}"
    write(path)
    content = Path(path).read_bytes()
    os.remove(path)
    return content


def h5(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["points"] = RNG.normal(size=(4, 9, 3))
        file["label"] = [0, 0, 1, 1]


def h5ad(path):
    small().write_h5ad(path)


def mesh(ending):
    import trimesh

    return trimesh.creation.box().export(file_type=ending)


def stream(path):
    content = pa.Table.from_pandas(FRAME)
    with pa.ipc.new_file(path, content.schema) as writer:
        writer.write_table(content, max_chunksize=4)


FRAME = pd.DataFrame(X, columns=["x", "y", "z"]).assign(c=list("aabbcc"))
TEXT = FRAME.to_csv(index=False)
TABLES = {
    "csv": lambda: TEXT.encode(),
    "tsv.gz": lambda: gzip.compress(TEXT.replace(",", "\t").encode()),
    "npy": lambda: saved(lambda path: np.save(path, X), "npy"),
    "npz": lambda: saved(lambda path: np.savez_compressed(path, X=X, c=np.arange(6)), "npz"),
    "parquet": lambda: saved(FRAME.to_parquet, "parquet"),
    "feather": lambda: saved(FRAME.to_feather, "feather"),
    "arrow": lambda: saved(stream, "arrow"),
    "h5": lambda: saved(h5, "h5"),
    "h5ad": lambda: saved(h5ad, "h5ad"),
}
IN_FOLDERS = {
    "wav": wav,
    "png": lambda: picture("png"),
    "jpg": lambda: picture("jpeg"),
    "off": OFF.encode,
    "ply": lambda: mesh("ply"),
    "stl": lambda: mesh("stl"),
}
COLUMN = {"h5": "label", "h5ad": "leiden"}


def damaged(whole, rng):
    """A copy that is cut short, or has a few other bytes, or both."""
    data = bytearray(whole)
    if rng.random() < 0.5:
        del data[rng.integers(len(data)) :]
    for _ in range(rng.integers(1, 9)):
        if data:
            data[rng.integers(len(data))] = rng.integers(256)
    return bytes(data)


# Parsed here in processes of their own, as a few damaged ones hang the HDF5 library.
ALONE = ("h5", "h5ad")


def read_damaged_table(ending, n, seed):
    whole, rng, name = TABLES[ending](), np.random.default_rng(seed), f"d.{ending}"
    if ending in ALONE:
        # One worker for all, as a new one for each takes a second.
        names = [f"{i}.{ending}" for i in range(n)]
        for one in names:
            Path(one).write_bytes(damaged(whole, rng))
        with mock.patch("unsplit.data.readers.isolated.SECONDS_PER_FILE", 10):
            found = dict(parse_all("unsplit:read", names, 1))
        broken = [index for index in found if isinstance(found[index], Broken)]
        assert len(found) == n > len(broken)
        assert all(found[index].why for index in broken)
        return
    for _ in range(n):
        Path(name).write_bytes(damaged(whole, rng))
        with contextlib.suppress(InputError):
            found = read(name, COLUMN.get(ending, "c"))
            assert len(found.labels) == len(found.row_ids)
        with contextlib.suppress(InputError):
            read_observations(name)


def read_damaged_folder(ending, n, seed):
    whole, rng = IN_FOLDERS[ending](), np.random.default_rng(seed)
    for name in ("a", "b"):
        os.makedirs(f"d/{name}", exist_ok=True)
        Path(f"d/{name}/good.{ending}").write_bytes(whole)
    for i in range(n):
        Path(f"d/a/{i}.{ending}").write_bytes(damaged(whole, rng))
    with warnings.catch_warnings(), mock.patch("unsplit.data.readers.broken.MOST_BROKEN", 1):
        warnings.simplefilter("ignore", SkippedWarning)
        n_read = len(read("d").row_ids)
    assert 2 <= n_read < n + 2


@pytest.mark.filterwarnings("ignore::unsplit.errors.SkippedWarning")
@pytest.mark.filterwarnings("ignore::unsplit.errors.InputWarning")
@pytest.mark.parametrize("ending", TABLES)
def test_damaged_tables_and_arrays(ending):
    read_damaged_table(ending, 8, seed=0)


@pytest.mark.parametrize("ending", IN_FOLDERS)
def test_damaged_files_in_folders(ending):
    read_damaged_folder(ending, 8, seed=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unsplit.errors.SkippedWarning")
@pytest.mark.filterwarnings("ignore::unsplit.errors.InputWarning")
@pytest.mark.parametrize("ending", TABLES)
def test_a_thousand_damaged_tables_and_arrays(ending):
    read_damaged_table(ending, many(1_000), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("ending", IN_FOLDERS)
def test_a_thousand_damaged_files_in_folders(ending):
    read_damaged_folder(ending, many(1_000), seed=1)


# A picture that is none


@pytest.mark.parametrize("name", ["d", "d/a/0.wav"])
def test_sounds_are_no_picture(name):
    write_data()
    good_folder("wav")
    result = merge("--report", "--picture", name)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert not Path("out").exists()
