import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import containing
from unsplit.errors import InputError
from unsplit.networks.augmentation import PointAugmentation, thinned

quick = settings(deadline=None, max_examples=25, derandomize=True)

ALL = {"jitter": 0.02, "dropout": 0.5}


def rms(points):
    """Size of each cloud (b,): root of the mean squared distance from its centre."""
    return (points - points.mean(dim=1, keepdim=True)).square().sum(dim=2).mean(dim=1).sqrt()


# The slow twins, written from the definitions


def naive_thinned(cloud, keep):
    kept = [point for point, stays in zip(cloud, keep, strict=True) if stays]
    first = kept[0] if kept else cloud[0]
    return [point if stays else first for point, stays in zip(cloud, keep, strict=True)]


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
    assert not torch.equal(PointAugmentation(**ALL)(x), x)
    assert torch.equal(x, before)


def test_by_default_points_stay_near_their_places():
    augmentation = PointAugmentation.for_points()
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


def test_jitter_is_gaussian_and_cut_in_units_of_the_cloud():
    x = torch.randn(4, 2000, 3) * torch.tensor([1e-3, 1.0, 1.0, 1e3])[:, None, None]
    moved = (PointAugmentation(jitter=0.05)(x) - x) / rms(x)[:, None, None]
    assert moved.abs().max() < 0.05 * 3.01
    torch.testing.assert_close(moved.std(dim=(1, 2)), torch.full((4,), 0.05), rtol=0.05, atol=0)
    assert moved.mean().abs() < 0.002


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
    changed = PointAugmentation(jitter=0.1)(x)
    assert torch.equal(changed[..., 3:], x[..., 3:])
    assert not torch.allclose(changed[..., :3], x[..., :3])


# What is refused


@pytest.mark.parametrize("name", ["jitter", "dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_shares_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=containing(name, "at least 0", "1", f"got {value}")):
        PointAugmentation(**{name: value})
