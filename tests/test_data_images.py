import hashlib
import os
import pickle
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.checks import about, exactly
from unsplit.data.pixels import open_image, square_pixels
from unsplit.data.readers.folders import FileList, find_files
from unsplit.data.readers.media import ImageFiles, read_images
from unsplit.errors import InputError

COLOURS = np.random.default_rng(0).integers(256, size=(13, 9, 3), dtype=np.uint8)


# Every test works in a folder of its own.
pytestmark = pytest.mark.usefixtures("folder")


def inspected(found, size=None):
    return read_images(found, size=size)[0]


def save(image, name, **options):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    image.save(name, **options)
    return name


def smooth(width, height):
    """Without edges, so that every good way to scale it gives about the same."""
    x, y = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 2, height))
    waves = [np.sin(x), np.cos(y), np.sin(x + y)]
    return Image.fromarray((np.stack(waves, axis=2) * 100 + 120).astype(np.uint8))


def one(name, size, **options):
    return ImageFiles([name], size, **options)[0].numpy()


def refuses(sentence, call, *args, **options):
    with pytest.raises(InputError, match=about(sentence)):
        call(*args, **options)


# Pixels


def slowly(name, size):
    """Short side scaled, middle cut out, colour by colour and from all the pixels."""
    image = ImageOps.exif_transpose(Image.open(name)).convert("RGB")
    scale = size / min(image.size)
    image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BILINEAR)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    pixels = np.array(image)[top : top + size, left : left + size]
    return np.stack([pixels[..., c] for c in range(3)])


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (257, 256), (64, 64), (30, 64), (9, 5)])
@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_pixels_are_those_of_the_obvious_way(shape, kind):
    name = save(smooth(*shape), f"a.{kind}")
    pixels = one(name, 32)
    assert pixels.shape == (3, 32, 32)
    assert pixels.dtype == np.uint8
    # The obvious way rounds the long side, and JPEG is decoded at a lower resolution.
    assert np.abs(pixels.astype(int) - slowly(name, 32)).max() <= 6


def test_images_of_the_right_size_are_not_touched():
    Image.fromarray(COLOURS).save("a.png")
    np.testing.assert_array_equal(one("a.png", 9), COLOURS[2:11].transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_stand_upright(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    name = save(smooth(24, 20), f"a.{kind}", exif=exif)
    assert np.abs(one(name, 20).astype(int) - slowly(name, 20)).max() <= 1


def test_damaged_metadata_turn_nothing(monkeypatch):
    image = smooth(8, 8)
    monkeypatch.setattr(image, "getexif", lambda: 1 / 0, raising=False)
    np.testing.assert_array_equal(
        square_pixels(image, 8, 3), np.asarray(smooth(8, 8)).transpose(2, 0, 1)
    )


def test_grey_has_one_channel_or_three_that_are_equal():
    Image.fromarray(COLOURS[:9, :, 0]).save("a.png")
    np.testing.assert_array_equal(one("a.png", 9, channels=1)[0], COLOURS[:9, :, 0])
    np.testing.assert_array_equal(one("a.png", 9), np.stack([COLOURS[:9, :, 0]] * 3))


def test_black_and_white_are_the_ends_of_the_scale():
    Image.fromarray(np.eye(4, dtype=bool)).save("a.png")
    np.testing.assert_array_equal(one("a.png", 4, channels=1)[0], np.eye(4) * 255)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_becomes_white(mode):
    alpha = np.array([[0, 255], [51, 204]], np.uint8)
    shade = np.array([[7, 7], [100, 40]], np.uint8)
    layers = [shade] * (3 if mode == "RGBA" else 1) + [alpha]
    Image.fromarray(np.stack(layers, axis=2)).save("a.png")
    share = alpha / 255
    expected = np.rint(shade * share + 255 * (1 - share))
    assert np.abs(one("a.png", 2) - expected).max() <= 1
    assert np.abs(one("a.png", 2, channels=1)[0] - expected).max() <= 1


def test_palettes_become_colours_and_their_transparent_entry_white():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image = image.resize((2, 2), Image.Resampling.NEAREST)
    image.save("opaque.png")
    image.save("hole.png", transparency=0)
    assert one("opaque.png", 2)[:, 0].T.tolist() == [[10, 20, 30], [40, 50, 60]]
    assert one("hole.png", 2)[:, 0].T.tolist() == [[255, 255, 255], [40, 50, 60]]


def test_a_transparent_shade_of_grey_becomes_white():
    Image.fromarray(np.array([[9, 8], [8, 9]], np.uint8)).save("a.png", transparency=9)
    assert one("a.png", 2, channels=1)[0].tolist() == [[255, 8], [8, 255]]


def test_printing_colours_become_those_of_a_screen():
    save(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "a.jpg", quality=95)
    red, green, blue = one("a.jpg", 8).reshape(3, -1).T[0]
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("kind", ["png", "tif"])
@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_the_upper_bits_of_deep_images_are_kept(kind, order):
    values = np.array([[0, 256], [2**12 - 1, 2**16 - 1]], order)
    name = save(Image.fromarray(values), f"a.{kind}")
    assert one(name, 2, channels=1)[0].tolist() == [[0, 1], [15, 255]]
    assert one(name, 2, channels=1, depth=12)[0].tolist() == [[0, 16], [255, 255]]


def test_files_pickle_and_hold_no_object_for_each_path():
    Image.fromarray(COLOURS).save("a.png")
    files = ImageFiles(["a.png"] * 1000, 4, channels=1, depth=12)
    again = pickle.loads(pickle.dumps(files))
    assert (len(again), again.size, again.channels, again.depth) == (1000, 4, 1, 12)
    np.testing.assert_array_equal(again[999], files[0])
    assert files.paths.dtype.kind == "S"


def test_names_of_files_may_be_any_bytes():
    name = os.fsdecode(b"not utf-8 \xff.png")
    Image.new("L", (4, 4)).save(name)
    assert one(name, 4).shape == (3, 4, 4)


def test_what_pillow_cannot_read_is_named():
    with open("a.png", "w") as file:
        file.write("nothing")
    advice = "restore it, …"
    refuses(f"a.png cannot be read (not an image); {advice}", one, "a.png", 8)
    sentence = f"b.png cannot be read (no such file or directory); {advice}"
    refuses(sentence, one, "b.png", 8)
    Image.fromarray(np.ones((2, 2), np.float32)).save("c.tif")
    why = "floating-point pixels have no known range; save 8- or 16-bit pixels"
    refuses(f"c.tif cannot be read ({why}); {advice}", one, "c.tif", 8)


def test_files_that_run_other_programs_are_not_opened():
    Image.fromarray(COLOURS).save("a.eps")
    with open("a.eps", "rb") as file, pytest.raises(Image.UnidentifiedImageError):
        open_image(file.read())


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        ImportError, match=exactly("reading images needs Pillow: pip install unsplit[images]")
    ):
        ImageFiles(["a.png"], 8)


# Inspection


def some_images(n=6, kind="png", mode="RGB"):
    sides = [(10 + i, 30) for i in range(n)]
    for i, side in enumerate(sides):
        save(smooth(*side).convert(mode), f"{'ab'[i % 2]}/{i}.{kind}")
    return find_files(".")[0]


def truncate(name):
    with open(name, "rb+") as file:
        file.truncate(os.path.getsize(name) - 30)


def test_size_is_the_median_short_side_but_not_above_224():
    found = some_images(5)
    assert inspected(found).size == 12
    assert inspected(found, size=40).size == 40
    save(Image.new("L", (500, 300)), "big/a/1.png")
    save(Image.new("L", (500, 300)), "big/b/1.png")
    assert inspected(find_files("big")[0]).size == 224


def test_there_is_one_channel_if_all_are_grey():
    save(Image.new("L", (8, 8)), "a/1.jpg")
    save(Image.new("1", (8, 8)), "a/2.png")
    save(Image.new("LA", (8, 8)), "a/3.png")
    save(Image.fromarray(np.ones((8, 8), np.uint16)), "b/4.png")
    assert inspected(find_files(".")[0]).channels == 1
    save(Image.new("RGB", (8, 8)), "b/5.png")
    assert inspected(find_files(".")[0]).channels == 3


def test_depth_is_that_of_the_brightest_pixel():
    save(Image.new("L", (8, 8), 3), "a/1.png")
    save(Image.fromarray(np.full((8, 8), 3, np.uint16)), "b/1.png")
    assert inspected(find_files(".")[0]).depth == 8
    for order, bits in (("<u2", 12), (">u2", 13)):
        save(Image.fromarray(np.full((8, 8), 2**bits - 1, order)), "b/2.tif")
        assert inspected(find_files(".")[0]).depth == bits


def test_keys_are_hashes_of_content_and_of_nothing_else():
    found = some_images()
    keys = inspected(found).keys
    assert keys.dtype == np.uint64
    for path, key in zip(found.paths, keys, strict=True):
        with open(path, "rb") as file:
            digest = hashlib.blake2b(file.read(), digest_size=8).digest()
        assert int(key) == int.from_bytes(digest, "big")
    assert len(set(keys.tolist())) == len(keys)
    os.rename("a", "z")
    assert sorted(inspected(find_files(".")[0]).keys) == sorted(keys)
    np.testing.assert_array_equal(
        inspected(find_files(".")[0].only(np.arange(6) < 3)).keys, keys[3:]
    )


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_broken_images_are_named_and_left_out(kind, monkeypatch):
    monkeypatch.setattr("unsplit.data.readers.broken.MOST_BROKEN", 0.5)
    found = some_images(8, kind)
    keys = inspected(found).keys
    for name in (f"a/0.{kind}", f"a/4.{kind}"):
        truncate(name)
    with open(f"b/1.{kind}", "w") as file:
        file.write("nothing")
    os.remove(f"b/7.{kind}")
    with pytest.warns(UserWarning, match="^4 of 8 images cannot be read") as told:
        seen, kept = read_images(found)
    (sentence,) = [str(warning.message) for warning in told]
    assert f" and are left out: 'a/0.{kind}' (" in sentence
    assert "truncated" in sentence
    assert sentence.endswith(f"), 'b/1.{kind}' (not an image) and 1 more.")
    assert kept.row_ids.tolist() == [
        f"a/2.{kind}", f"a/6.{kind}", f"b/3.{kind}", f"b/5.{kind}"
    ]  # fmt: skip
    np.testing.assert_array_equal(seen.keys, keys[np.isin(found.row_ids, kept.row_ids)])
    assert seen.size == 14  # of 12, 16, 13 and 15
    assert len(list(seen)) == len(kept.labels) == 4


def test_too_many_broken_images_are_an_error():
    found = some_images(8)
    os.remove("a/2.png")
    with pytest.raises(InputError) as caught:
        read_images(found)
    for part in ("1 of 8 images", "5%", "'a/2.png' (no such file or directory)", "repair"):
        assert part in str(caught.value)


def test_progress_is_told():
    save(Image.new("L", (2, 2)), "a.png")
    found = FileList(".", np.array(["a.png"] * 150), np.array(["x"] * 150))
    told = []
    read_images(found, progress=lambda done, n: told.append((done, n)))
    assert told == [(i, 150) for i in range(1, 151)]
