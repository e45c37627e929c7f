import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import containing
from unsplit.errors import InputError
from unsplit.networks.augmentation import PointAugmentation, thinned, turned

quick = settings(deadline=None, max_examples=25, derandomize=True)

ALL = {"rotation": True, "scaling": 0.3, "jitter": 0.02, "dropout": 0.5}
AXES = {"x": 0, "y": 1, "z": 2}


def rms(points):
    """Size of each cloud (b,): root of the mean squared distance from its centre."""
    return (points - points.mean(dim=1, keepdim=True)).square().sum(dim=2).mean(dim=1).sqrt()


# The slow twins, written from the definitions


def rotation_matrix(angle, up):
    c, s = math.cos(angle), math.sin(angle)
    return {
        "x": torch.tensor([[1, 0, 0], [0, c, -s], [0, s, c]]),
        "y": torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]]),
        "z": torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]]),
    }[up]


def naive_thinned(cloud, keep):
    kept = [point for point, stays in zip(cloud, keep, strict=True) if stays]
    first = kept[0] if kept else cloud[0]
    return [point if stays else first for point, stays in zip(cloud, keep, strict=True)]


@pytest.mark.parametrize("up", AXES)
def test_turning_against_rotation_matrices(up):
    points, angles = torch.randn(4, 10, 3), torch.tensor([0.0, 0.3, -2.0, 5.0])
    expected = [
        cloud @ rotation_matrix(angle, up).T
        for cloud, angle in zip(points, angles.tolist(), strict=True)
    ]
    torch.testing.assert_close(turned(points, angles, up), torch.stack(expected))


@quick
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_thinning_against_loops(n_points, seed):
    generator = torch.Generator().manual_seed(seed)
    clouds = torch.randn(4, n_points, 4, generator=generator)
    keep = torch.rand(4, n_points, generator=generator) < 0.4
    expected = [naive_thinned(*pair) for pair in zip(clouds.tolist(), keep.tolist(), strict=True)]
    torch.testing.assert_close(thinned(clouds, keep), torch.tensor(expected))


# When, and for whom


def test_in_use_clouds_are_handed_on_as_they_are():
    x = torch.randn(3, 20, 3)
    assert PointAugmentation(**ALL).eval()(x) is x


def test_nothing_asked_for_changes_nothing():
    x = torch.randn(3, 20, 5)
    assert torch.equal(PointAugmentation()(x), x)


def test_the_input_is_left_alone():
    x = torch.randn(3, 20, 3)
    before = x.clone()
    assert not torch.allclose(PointAugmentation(**ALL)(x), x)
    assert torch.equal(x, before)


def test_by_default_clouds_are_neither_turned_nor_scaled():
    augmentation = PointAugmentation.for_points()
    assert (augmentation.rotation, augmentation.scaling) == (False, 0.0)
    x = torch.randn(3, 500, 3)
    changed = augmentation(x)
    same = (changed == changed[:, :1]).all(dim=2)
    # What is kept is near its place.
    assert ((changed - x).norm(dim=2)[~same] < 0.2).all()
    assert 0.05 < same.float().mean() < 0.5


@pytest.mark.parametrize("n_points", [1, 2, 100])
@pytest.mark.parametrize("n_features", [3, 6])
def test_shape_and_type_stay(n_points, n_features):
    x = torch.randn(5, n_points, n_features)
    changed = PointAugmentation(**ALL)(x)
    assert changed.shape == x.shape
    assert changed.dtype == x.dtype
    assert changed.isfinite().all()


def test_the_same_seed_gives_the_same_and_another_another():
    x, augmentation = torch.randn(3, 20, 3), PointAugmentation(**ALL)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(augmentation(x))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def test_nothing_waits_for_values():
    # Tensors without values can do everything but tell them.
    x = torch.empty(4, 50, 3, device="meta")
    assert PointAugmentation(**ALL)(x).shape == x.shape


# What is changed


@pytest.mark.parametrize("up", AXES)
def test_rotation_is_about_the_vertical_through_the_own_centre(up):
    x = torch.randn(6, 40, 3) + 10 * torch.randn(6, 1, 3)
    changed = PointAugmentation(rotation=True, up=up)(x)
    axis = AXES[up]
    torch.testing.assert_close(changed[..., axis], x[..., axis])
    torch.testing.assert_close(changed.mean(dim=1), x.mean(dim=1), rtol=0, atol=1e-4)
    before, after = (torch.pdist(clouds[2]) for clouds in (x, changed))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-4)
    assert (changed - x).abs().max() > 0.5


def test_every_cloud_is_turned_by_its_own_angle_and_any_is_as_likely():
    x = torch.tensor([[[1.0, 0, 0], [-1, 0, 0]]]).expand(4000, -1, -1)
    changed = PointAugmentation(rotation=True)(x)[:, 0]
    angle = torch.atan2(changed[:, 1], changed[:, 0])
    counts = torch.histc(angle, bins=4, min=-math.pi, max=math.pi)
    assert (counts - 1000).abs().max() < 150


def test_jitter_is_gaussian_and_cut_in_units_of_the_cloud():
    x = torch.randn(4, 2000, 3) * torch.tensor([1e-3, 1.0, 1.0, 1e3])[:, None, None]
    moved = (PointAugmentation(jitter=0.05)(x) - x) / rms(x)[:, None, None]
    assert moved.abs().max() < 0.05 * 3.01
    torch.testing.assert_close(moved.std(dim=(1, 2)), torch.full((4,), 0.05), rtol=0.05, atol=0)
    assert moved.mean().abs() < 0.002


def test_scaling_is_about_the_own_centre_and_within_its_limits():
    x = torch.randn(2000, 5, 3) + 3.0
    changed = PointAugmentation(scaling=0.5)(x)
    factor = rms(changed) / rms(x)
    assert 1 / 1.5 - 1e-3 < factor.min() < 0.7
    assert 1.45 < factor.max() < 1.5 + 1e-3
    assert ((factor > 1).float().mean() - 0.5).abs() < 0.05
    torch.testing.assert_close(changed.mean(dim=1), x.mean(dim=1))


def test_dropout_leaves_out_up_to_its_share_and_puts_kept_points_there():
    x = torch.randn(400, 200, 4)
    changed = PointAugmentation(dropout=0.6)(x)
    kept = (changed == x).all(dim=2)
    share = 1 - kept.float().mean(dim=1)
    assert share.max() < 0.75
    assert 0.25 < share.mean() < 0.35
    assert share.min() < 0.03
    first = kept.to(torch.uint8).argmax(dim=1)
    filled = x[torch.arange(400), first].unsqueeze(1).expand_as(x)
    torch.testing.assert_close(changed[~kept], filled[~kept])


def test_copies_of_a_point_are_equal_though_points_are_moved():
    changed = PointAugmentation(jitter=0.1, dropout=0.9)(torch.randn(1, 300, 3))
    assert len(changed[0].unique(dim=0)) < 300


def test_features_beside_the_coordinates_stay():
    x = torch.randn(3, 20, 5)
    changed = PointAugmentation(rotation=True, scaling=0.3, jitter=0.1)(x)
    assert torch.equal(changed[..., 3:], x[..., 3:])
    assert not torch.allclose(changed[..., :3], x[..., :3])


# What is refused


@pytest.mark.parametrize("name", ["scaling", "jitter", "dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_shares_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=containing(name, "at least 0", "1", f"got {value}")):
        PointAugmentation(**{name: value})


def test_an_unknown_axis_is_refused():
    with pytest.raises(InputError, match=containing("up", '"x"', '"y"', '"z"', "got 'Z'")):
        PointAugmentation(up="Z")
