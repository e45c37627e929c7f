import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

import unsplit
from tests.checks import exactly
from unsplit.errors import InputError
from unsplit.networks.backbones import points
from unsplit.networks.backbones.points import PointNet, PointNet2, SetAbstraction, SingleLayer

quick = settings(deadline=None, max_examples=25, derandomize=True)


def small(**more):
    return PointNet2(**{"n_centroids": (16, 4), "n_neighbors": 6, "out_features": 8} | more)


def shuffled(x):
    """Each cloud's points in an order of its own."""
    order = torch.rand(x.shape[:2]).argsort(dim=1)
    return x.gather(1, order.unsqueeze(-1).expand_as(x))


def grid_clouds(n_clouds, n_points, seed, n_values=4):
    """Clouds on whole numbers: many points coincide, and sums of squares are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(n_values, (n_clouds, n_points, 3), generator=generator).float()


def squared_distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True))


def all_new(x):
    return torch.ones(x.shape[:2], dtype=torch.bool)


# The slow twins, written from the definitions


def naive_farthest(cloud, n):
    origin = torch.zeros(3)
    chosen = [max(range(len(cloud)), key=lambda i: squared_distance(cloud[i], origin))]
    while len(chosen) < min(n, len(cloud)):
        gaps = [min(squared_distance(p, cloud[c]) for c in chosen) for p in cloud]
        chosen.append(max(range(len(cloud)), key=gaps.__getitem__))
    return chosen


def naive_neighbors(cloud, centroid, radius, n):
    order = sorted(range(len(cloud)), key=lambda i: squared_distance(cloud[i], centroid))
    near = [i for i in order if squared_distance(cloud[i], centroid) <= radius**2][:n]
    near = near or order[:1]
    return near + [near[0]] * (min(n, len(cloud)) - len(near))


def naive_abstraction(level, cloud, features, centroid):
    """Largest responses of the layers over one centroid's neighbours, one after the other."""
    weight = torch.cat([level.of_place.weight, level.of_features.weight], dim=1)
    responses = []
    for i in naive_neighbors(cloud, centroid, level.radius, level.n_neighbors):
        seen = torch.cat([(cloud[i] - centroid) / level.radius, features[i]])
        responses.append(level.of_neighbor(weight @ seen + level.of_place.bias).relu())
    return torch.stack(responses).amax(dim=0)


@quick
@given(st.integers(1, 25), st.integers(1, 12), st.integers(0, 10**6))
def test_farthest_points_against_loops(n_points, n, seed):
    clouds = grid_clouds(3, n_points, seed) - 1.0
    found, _ = points.farthest_points(clouds, n)
    assert found.tolist() == [naive_farthest(cloud, n) for cloud in clouds]


@quick
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from([0.5, 1.0, 2.0, 2.5]),
    st.integers(0, 99),
)
def test_neighbors_against_loops(n_points, n, radius, seed):
    clouds = grid_clouds(3, n_points, seed)
    centroids = grid_clouds(3, 5, seed + 1, n_values=7)
    found = points.neighbors(clouds, centroids, radius, n, all_new(clouds))
    assert found.shape == (3, 5, min(n, n_points))
    for cloud, centres, index in zip(clouds, centroids, found, strict=True):
        for centroid, near in zip(centres, index.tolist(), strict=True):
            # Which of several at one distance is chosen does not matter.
            expected = naive_neighbors(cloud, centroid, radius, n)
            assert [squared_distance(cloud[i], centroid) for i in near] == [
                squared_distance(cloud[i], centroid) for i in expected
            ]


def test_an_empty_ball_takes_the_nearest_point():
    cloud = torch.tensor([[[5.0, 0, 0], [9, 0, 0], [4, 0, 0]]])
    found = points.neighbors(cloud, torch.zeros(1, 1, 3), 1.0, 2, all_new(cloud))
    assert found.tolist() == [[[2, 2]]]


def test_set_abstraction_against_loops():
    level = SetAbstraction(in_features=5, out_features=12, radius=0.8, n_neighbors=4)
    cloud, features = torch.randn(2, 20, 3), torch.randn(2, 20, 5)
    found = level(cloud, features, all_new(cloud), cloud[:, :6])
    assert found.shape == (2, 6, 12)
    for b in range(2):
        expected = [naive_abstraction(level, cloud[b], features[b], cloud[b, i]) for i in range(6)]
        torch.testing.assert_close(found[b], torch.stack(expected))


def test_the_first_farthest_points_are_the_farthest_of_those_chosen():
    clouds = torch.randn(4, 100, 3)
    order, _ = points.farthest_points(clouds, 30)
    again, _ = points.farthest_points(points.take(clouds, order), 10)
    assert again.tolist() == [list(range(10))] * 4


def test_points_that_occur_again_are_never_chosen():
    cloud = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 0, 0], [2, 0, 0]]])
    new = points.is_new(cloud)
    assert new.tolist() == [[True, False, True, False, False]]
    order, is_far = points.farthest_points(cloud, 5)
    assert order.tolist() == [[2, 0, 0, 0, 0]]
    assert is_far.tolist() == [[True, True, False, False, False]]
    near = points.neighbors(cloud, cloud[:, :1], 3.0, 4, new)
    assert near.tolist() == [[[0, 2, 0, 0]]]


@quick
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 10**6))
def test_content_order_sorts_as_python_does(n_points, n_features, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, (2, n_points, n_features), generator=generator).float()
    found = points.take(x, points.content_order(x))
    assert found.tolist() == [sorted(cloud) for cloud in x.tolist()]


def test_take_gives_gradients_back_to_where_values_came_from():
    values = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[[0, 0], [3, 1]], [[2, 2], [2, 0]]])
    assert points.take(values, index).shape == (2, 2, 2, 3)
    assert torch.autograd.gradcheck(lambda v: points.take(v, index), values)


# What the network promises


@pytest.mark.parametrize("n_points", [1, 2, 3, 7, 100, 1024])
@pytest.mark.parametrize("in_features", [3, 6])
@pytest.mark.parametrize("make", [PointNet, PointNet2])
def test_the_order_of_points_does_not_matter(n_points, in_features, make):
    network = make(in_features)
    x = torch.randn(3, n_points, in_features)
    features = network(x)
    assert features.shape == (3, network.out_features)
    assert features.isfinite().all()
    torch.testing.assert_close(network(shuffled(x)), features, rtol=0, atol=1e-6)


@quick
@given(st.integers(1, 60), st.integers(0, 10**6))
def test_the_order_of_points_does_not_matter_where_many_coincide_and_are_as_far(n_points, seed):
    network = small()
    x = grid_clouds(2, n_points, seed)
    torch.testing.assert_close(network(shuffled(x)), network(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_points", [1, 3, 30, 200])
@pytest.mark.parametrize(
    "network",
    [PointNet2(4), PointNet2(4, radii=(2.0, 4.0)), PointNet(4)],
    ids=lambda n: type(n).__name__,
)
def test_points_written_twice_do_not_matter(n_points, network):
    x = torch.randn(2, n_points, 4)
    more = torch.cat([x, x[:, :1].expand(-1, 50, -1), x[:, : n_points // 2]], dim=1)
    torch.testing.assert_close(network(shuffled(more)), network(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "network",
    [small(in_features=4, n_neighbors=40, radii=(9.0, 9.0)), PointNet(4)],
    ids=lambda n: type(n).__name__,
)
def test_every_point_matters_and_so_do_its_features(network):
    x = torch.randn(1, 12, 4)
    for column in range(4):
        moved = x.clone()
        moved[0, 5, column] += 1.0
        assert not torch.allclose(network(moved), network(x))


def test_an_observation_does_not_depend_on_the_others():
    network, x = small(), torch.randn(5, 50, 3)
    alone = torch.cat([network(one) for one in x.split(1)])
    torch.testing.assert_close(network(x), alone)


def test_clouds_are_grouped_alike_at_any_size_and_place():
    x = torch.randn(2, 50, 3)
    frame, centre, size = points.own_frame(x, all_new(x))
    far, far_centre, far_size = points.own_frame(1000 * x + 300, all_new(x))
    torch.testing.assert_close(far, frame, rtol=0, atol=1e-3)
    torch.testing.assert_close(far_size, 1000 * size)
    torch.testing.assert_close(far_centre, 1000 * centre + 300)
    assert frame.mean(dim=1).abs().max() < 1e-6
    torch.testing.assert_close(frame.norm(dim=-1).mean(dim=1), torch.ones(2))


@pytest.mark.parametrize("make", [small, PointNet])
def test_size_and_place_are_seen_all_the_same(make):
    network = make()
    x = torch.randn(1, 50, 3)
    for other in (2 * x, x + torch.tensor([0.0, 0.0, 3.0])):
        assert (network(other) - network(x)).abs().max() > 0.01


@pytest.mark.parametrize("x", [torch.zeros(2, 1, 3), torch.full((2, 40, 3), 7.0)])
def test_a_cloud_of_one_place_gives_finite_features_and_gradients(x):
    network = small()
    features = network(x)
    features.sum().backward()
    assert features.isfinite().all()
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


def spied_on(monkeypatch, name, seen):
    """Note the type of the points and what is found at every call."""
    original = getattr(points, name)

    def spy(cloud, *args):
        found = original(cloud, *args)
        seen.append((cloud.dtype, found))
        return found

    monkeypatch.setattr(points, name, spy)


def test_distances_stay_in_single_precision_under_autocast(monkeypatch):
    seen = []
    spied_on(monkeypatch, "farthest_points", seen)
    spied_on(monkeypatch, "neighbors", seen)
    network, x = small(), torch.randn(2, 60, 3)
    exact = network(x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(x)
    assert torch.equal(network(x.double()), exact)
    assert [dtype for dtype, _ in seen] == [torch.float32] * 9
    for (_, found), (_, expected) in zip(seen[3:6], seen[:3], strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, rtol=0.1, atol=0.1)


def test_large_batches_are_worked_off_in_parts_where_no_gradient_is_needed(monkeypatch):
    network, x = small(), torch.randn(7, 30, 3)
    expected = network(x)
    monkeypatch.setattr(points, "CHUNK", 3)
    calls = []
    network.levels[0].register_forward_hook(lambda module, args, out: calls.append(len(out)))
    with torch.no_grad():
        torch.testing.assert_close(network(x), expected)
    assert calls == [3, 3, 1]
    network(x)
    assert calls[3:] == [7]


def test_every_weight_is_trained():
    network = small(in_features=5)
    network(torch.randn(8, 40, 5)).square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in network.parameters())


def test_copies_and_loaded_states_give_the_same():
    network, x = small(), torch.randn(2, 40, 3)
    fresh = small()
    assert not torch.equal(fresh(x), network(x))
    fresh.load_state_dict(network.state_dict())
    for other in (copy.deepcopy(network), fresh):
        assert torch.equal(other(x), network(x))


def test_networks_can_be_stacked():
    networks = [small() for _ in range(3)]
    params, buffers = stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0]).to("meta")

    def one(params, buffers, x):
        return functional_call(skeleton, (params, buffers), (x,))

    x = torch.randn(3, 4, 40, 3)
    stacked = vmap(one)(params, buffers, x)
    single = torch.stack([network(part) for network, part in zip(networks, x, strict=True)])
    torch.testing.assert_close(stacked, single)
    stacked.sum().backward()
    single.sum().backward()
    name = "levels.1.of_features.weight"
    expected = [network.get_parameter(name).grad for network in networks]
    torch.testing.assert_close(params[name].grad, torch.stack(expected))


# Learning


def on_sphere(n, p):
    return F.normalize(torch.randn(n, p, 3), dim=-1)


def on_cube(n, p):
    inside = 2 * torch.rand(n, p, 3) - 1
    face = torch.randint(3, (n, p, 1))
    side = 2.0 * torch.randint(2, (n, p, 1)) - 1
    return inside.scatter(2, face, side)


def on_cylinder(n, p):
    angle = 2 * math.pi * torch.rand(n, p)
    return torch.stack([angle.cos(), angle.sin(), 2 * torch.rand(n, p) - 1], dim=-1)


def shapes(n, p=64):
    """Shapes of one mean size, and which each is."""
    clouds = torch.cat([make(n, p) for make in (on_sphere, on_cube, on_cylinder)])
    clouds = clouds / clouds.norm(dim=-1, keepdim=True).mean(dim=1, keepdim=True)
    return clouds, torch.arange(3).repeat_interleave(n)


def accuracy_after(backbone, epochs):
    """Share of new shapes that are recognised after training."""
    network = nn.Sequential(backbone, nn.Linear(backbone.out_features, 3))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    (x, y), (x_new, y_new) = shapes(40), shapes(20)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(30):
            loss = F.cross_entropy(network(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (network(x_new).argmax(dim=1) == y_new).float().mean().item()


def test_shapes_are_learned_where_a_single_layer_cannot():
    backbone = PointNet2(n_centroids=(24, 8), radii=(0.8, 1.6), n_neighbors=8, out_features=64)
    assert accuracy_after(backbone, epochs=20) > 0.85
    assert accuracy_after(PointNet(), epochs=20) > 0.85
    assert accuracy_after(SingleLayer((64, 3), width=256), epochs=20) < 0.6


# The single layer


def test_single_layer_is_one_hidden_layer_on_all_numbers():
    layer, x = SingleLayer((4, 3), width=5), torch.randn(3, 4, 3)
    linear = layer.layers[1]
    expected = (x.reshape(3, 12) @ linear.weight.T + linear.bias).clamp(min=0)
    torch.testing.assert_close(layer(x), expected)
    assert layer.out_features == 5
    assert SingleLayer((12,)).out_features == 1024
    assert not torch.allclose(layer(x.flip(1)), layer(x))


# What is refused


def test_flat_clouds_are_refused():
    sentence = (
        "in_features must be at least 3, for x, y and z, got 2; add a column of zeros to flat "
        "clouds."
    )
    with pytest.raises(InputError, match=exactly(sentence)):
        PointNet2(2)


def test_noise_does_not_switch_the_features_off():
    """The first steps of many clusters are noise; without the last normalisation they kill."""
    x = torch.rand(128, 24, 3)
    net, head = small(out_features=64), nn.Linear(64, 1000)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(40):
        loss = F.cross_entropy(head(net(x[:64])), torch.randint(1000, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (net(x).std(dim=0) > 1e-3).float().mean() > 0.5


def test_forty_small_clouds_are_merged_right_with_default_settings():
    """On a CPU this took 48 seconds of processor time; with a small network it takes one."""
    clouds, shape = shapes(20, p=32)
    X, shape = clouds[shape < 2].numpy(), shape[shape < 2].numpy()
    X[shape == 1] *= [1, 1, 3]
    merger = unsplit.ClusterMerger(random_state=0, device="cpu")
    merger.fit(X, initial_labels=np.repeat(np.arange(4), 10))
    assert merger.backbone_ == "pointnet"
    assert merger.tree_.mapping == {0: 0, 1: 0, 2: 1, 3: 1}
    assert np.array_equal(merger.predict(X), shape)
