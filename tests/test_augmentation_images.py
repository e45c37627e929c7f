import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import containing
from unsplit.errors import InputError
from unsplit.networks.augmentation import ImageAugmentation, shifted, tinted, zoomed

quick = settings(deadline=None, max_examples=40, derandomize=True)

ALL = ImageAugmentation(crop=0.125, zoom=0.3, flip=True, colour=0.2)
EVERY_KIND = [
    ImageAugmentation(),
    ImageAugmentation(crop=0, flip=True),
    ImageAugmentation(crop=0, zoom=0.5),
    ImageAugmentation(crop=0, colour=0.3),
    ImageAugmentation.for_images(1),
    ImageAugmentation.for_images(3),
    ALL,
]
NAMES = ["crop", "flip", "zoom", "colour", "grey", "photograph", "all"]
every_kind = pytest.mark.parametrize("augmentation", EVERY_KIND, ids=NAMES)
FORMATS = [torch.contiguous_format, torch.channels_last]
both_formats = pytest.mark.parametrize("memory_format", FORMATS, ids=["first", "last"])


def images(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(augmentation, x, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return augmentation(x)


def shifted_twin(x, down, right, mirror):
    """Each image padded by its reflection, cut out, and turned round."""
    out = []
    for image, dy, dx, turn in zip(x.numpy(), down, right, mirror, strict=True):
        _, height, width = image.shape
        padded = np.pad(image, [(0, 0), (height, height), (width, width)], mode="symmetric")
        top, left = height - int(dy), width - int(dx)
        cut = padded[:, top : top + height, left : left + width]
        out.append(cut[:, :, ::-1] if turn else cut)
    return np.stack(out)


@quick
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from(FORMATS),
    st.data(),
)
def test_a_shift_is_a_translation_of_the_reflected_image(b, c, height, width, memory_format, data):
    x = images(b, c, height, width).to(memory_format=memory_format)
    down, right = (
        torch.tensor(data.draw(st.lists(st.integers(-side, side), min_size=b, max_size=b)))
        for side in (height, width)
    )
    mirror = torch.tensor(data.draw(st.lists(st.booleans(), min_size=b, max_size=b)))
    found = shifted(x, down, right, mirror)
    np.testing.assert_array_equal(found, shifted_twin(x, down, right, mirror))


@both_formats
def test_a_zoom_by_nothing_is_a_shift(memory_format):
    x = images(6, 3, 8, 12).to(memory_format=memory_format)
    down, right = torch.tensor([0, 1, -2, 3, 8, -8]), torch.tensor([0, -4, 5, 1, -12, 12])
    mirror = torch.tensor([False, False, True, True, False, True])
    found = zoomed(x, torch.ones(6), down, right, mirror)
    torch.testing.assert_close(found, shifted(x, down, right, mirror), atol=1e-4, rtol=0)


def zoomed_twin(image, scale, dy, dx):
    """Bilinear interpolation of (H, W) where the part's pixels lie, one by one."""
    height, width = image.shape
    out = np.empty_like(image)
    for i in range(height):
        for j in range(width):
            y = scale * (i + 0.5 - height / 2) + height / 2 - 0.5 - dy
            x = scale * (j + 0.5 - width / 2) + width / 2 - 0.5 - dx
            top, left = int(np.floor(y)), int(np.floor(x))
            a, b = y - top, x - left
            upper = (1 - b) * image[top, left] + b * image[top, left + 1]
            lower = (1 - b) * image[top + 1, left] + b * image[top + 1, left + 1]
            out[i, j] = (1 - a) * upper + a * lower
    return out


@pytest.mark.parametrize(("scale", "down", "right"), [(0.5, 0, 0), (0.7, 0.5, -0.8), (0.6, -1, 1)])
def test_a_zoom_is_interpolation_in_a_part_of_the_image(scale, down, right):
    x = images(2, 1, 9, 12)
    moves = [torch.full((2,), float(value)) for value in (scale, down, right)]
    found = zoomed(x, *moves, torch.tensor([False, True]))
    expected = [zoomed_twin(image[0].numpy(), scale, down, right) for image in x]
    np.testing.assert_allclose(found[0, 0], expected[0], atol=1e-5)
    mirrored = zoomed_twin(x[1, 0].numpy()[:, ::-1], scale, down, -right)
    np.testing.assert_allclose(found[1, 0], mirrored, atol=1e-5)


def tinted_twin(image, brightness, contrast, saturation):
    """One change after the other, as (C, H, W)."""
    grey = image.mean(axis=0, keepdims=True)
    image = grey + (1 + saturation) * (image - grey)
    image = image.mean() + (1 + contrast) * (image - image.mean())
    return image + brightness


@pytest.mark.parametrize("n_channels", [1, 2, 3])
def test_a_tint_is_saturation_then_contrast_then_brightness(n_channels):
    x = images(5, n_channels, 4, 6)
    changes = [0.5 * images(5, seed=seed) for seed in (1, 2, 3)]
    expected = [tinted_twin(x[i].numpy(), *(float(c[i]) for c in changes)) for i in range(5)]
    np.testing.assert_allclose(tinted(x, *changes), np.stack(expected), atol=1e-5)


def test_saturation_leaves_grey_images_alone():
    x, none = images(4, 1, 5, 5), torch.zeros(4)
    torch.testing.assert_close(tinted(x, none, none, torch.full((4,), 0.5)), x)


@every_kind
@both_formats
@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (3, 3, 17, 9), (1, 5, 8, 8), (2, 3, 1, 1)])
def test_shape_and_type_are_kept(augmentation, shape, memory_format):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = images(*shape).to(dtype).to(memory_format=memory_format)
        with torch.autocast("cpu", torch.bfloat16):
            found = augmentation(x)
        assert found.shape == x.shape
        assert found.dtype == dtype
        assert torch.isfinite(found).all()


@every_kind
@both_formats
def test_images_are_not_changed_in_place(augmentation, memory_format):
    x = images(4, 3, 16, 16).to(memory_format=memory_format)
    before = x.clone()
    augmentation(x)
    assert torch.equal(x, before)


@every_kind
def test_nothing_happens_outside_training(augmentation):
    x = images(4, 3, 16, 16)
    state = torch.get_rng_state()
    assert copy.deepcopy(augmentation).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_nothing_happens_with_everything_off():
    x = images(2, 3, 8, 8)
    assert ImageAugmentation(crop=0)(x) is x


@pytest.mark.parametrize("augmentation", EVERY_KIND[:4], ids=NAMES[:4])
def test_each_image_has_its_own_draw(augmentation):
    x = images(1, 3, 32, 32).expand(40, -1, -1, -1).contiguous()
    found = torch.unique(seeded(augmentation, x), dim=0)
    # 81 shifts, 2 sides, or as many as there are real numbers.
    expected = {"crop": (25, 40), "flip": (2, 2), "zoom": (40, 40), "colour": (40, 40)}
    low, high = expected[NAMES[EVERY_KIND.index(augmentation)]]
    assert low <= len(found) <= high


@every_kind
def test_the_seed_decides(augmentation):
    x = images(16, 3, 16, 16)
    first, again, other = (seeded(augmentation, x, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@both_formats
def test_the_order_in_memory_does_not_change_the_result(memory_format):
    x = images(8, 3, 16, 16)
    found = seeded(ALL, x.to(memory_format=memory_format))
    torch.testing.assert_close(found, seeded(ALL, x))


def test_shifts_are_even_and_as_far_as_an_eighth_of_each_side():
    # The value of a pixel is its place.
    height, width, n = 16, 32, 5000
    place = torch.arange(height * width, dtype=torch.float32).view(1, 1, height, width)
    centre = seeded(ImageAugmentation(), place.expand(n, -1, -1, -1))[:, 0, 8, 16].long()
    down, right = 8 - centre // width, 16 - centre % width
    for shift, most in ((down, 2), (right, 4)):
        share = torch.bincount(shift + most, minlength=2 * most + 1) / n
        assert len(share) == 2 * most + 1
        np.testing.assert_allclose(share, 1 / (2 * most + 1), atol=0.02)
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.05


def test_half_of_the_images_are_mirrored():
    x = images(1, 3, 4, 5)
    found = seeded(ImageAugmentation(crop=0, flip=True), x.expand(4000, -1, -1, -1))
    same, mirrored = ((found == way).flatten(1).all(dim=1) for way in (x, x.flip(3)))
    assert (same ^ mirrored).all()
    assert float(mirrored.float().mean()) == pytest.approx(0.5, abs=0.03)


def test_a_zoom_shows_parts_within_the_image():
    # A ramp stays a ramp: its slope is the scale, its ends are where the part begins and ends.
    width = 40
    ramp = torch.arange(width, dtype=torch.float32).expand(3000, 1, 4, -1)
    row = seeded(ImageAugmentation(crop=0, zoom=0.5), ramp)[:, 0, 2]
    inner = row[:, 10:30]
    slope = inner.diff(dim=1).mean(dim=1)
    torch.testing.assert_close(inner.diff(dim=1), slope[:, None].expand(-1, 19), atol=1e-3, rtol=0)
    assert 0.5 - 1e-3 <= slope.min() < 0.52
    assert 0.98 < slope.max() <= 1 + 1e-3
    middle = (row[:, 19] + row[:, 20]) / 2 + 0.5
    left, right = middle - slope * width / 2, middle + slope * width / 2
    assert left.min() > -1e-2
    assert right.max() < width + 1e-2
    # Both ends are reached.
    assert (left < 0.5).any()
    assert (right > width - 0.5).any()


def test_colours_change_by_no_more_than_asked():
    x = images(1, 3, 16, 16)
    found = seeded(ImageAugmentation(crop=0, colour=0.2), x.expand(2000, -1, -1, -1))
    brightness = found.mean(dim=(1, 2, 3)) - x.mean()
    contrast = found.mean(dim=1).std(dim=(1, 2)) / x.mean(dim=1).std()
    both = (found - found.mean(dim=1, keepdim=True)).std(dim=(1, 2, 3))
    saturation = both / (x - x.mean(dim=1, keepdim=True)).std() / contrast
    for value, middle in ((brightness, 0), (contrast, 1), (saturation, 1)):
        assert middle - 0.2 - 1e-3 <= value.min() < middle - 0.19
        assert middle + 0.19 < value.max() <= middle + 0.2 + 1e-3
        assert float(value.mean()) == pytest.approx(middle, abs=0.01)


def test_only_photographs_are_mirrored_and_tinted():
    for n_channels in (1, 2, 4):
        augmentation = ImageAugmentation.for_images(n_channels)
        assert not augmentation.flip
        assert augmentation.colour == 0
    photograph = ImageAugmentation.for_images(3)
    assert photograph.flip
    assert 0 < photograph.colour <= 0.2
    assert {ImageAugmentation.for_images(n).crop for n in (1, 2, 3, 4)} == {0.125}


def test_more_is_for_photographs_alone():
    photograph, more = (ImageAugmentation.for_images(3, more) for more in (False, True))
    assert more.zoom > photograph.zoom == 0
    assert more.colour > photograph.colour
    assert ImageAugmentation.for_images(1, more=True).zoom == 0


@pytest.mark.parametrize("name", ["crop", "zoom", "colour"])
@pytest.mark.parametrize("value", [-0.1, 1, float("nan")])
def test_refused_settings(name, value):
    with pytest.raises(InputError, match=containing(name, "at least 0", "1", f"got {value}")):
        ImageAugmentation(**{name: value})
