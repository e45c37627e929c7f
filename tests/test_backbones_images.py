import copy
from functools import cache

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from unsplit.networks.backbones import Shrink
from unsplit.networks.backbones.images import ConvNet, ResNet18, stem


@cache
def network_for(in_channels=3, image_size=224):
    """One for all tests that only look: making eleven million weights takes a while."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return ResNet18(in_channels, image_size).eval()


def table_of_the_paper():
    """Name to shape of all of ResNet-18, from Table 1 of He et al. (2016), classifier included.

    Stages of two blocks of two 3×3 convolutions with 64, 128, 256 and 512 channels; every
    convolution is normalised; where a stage begins with other channels the shortcut is projected.
    """
    shapes = {}

    def add(convolution, normalisation, n_out, n_in, kernel):
        shapes[f"{convolution}.weight"] = (n_out, n_in, kernel, kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{normalisation}.{part}"] = (n_out,)
        shapes[f"{normalisation}.num_batches_tracked"] = ()

    add("conv1", "bn1", 64, 3, 7)
    before = 64
    for stage, channels in enumerate([64, 128, 256, 512], start=1):
        for block in range(2):
            at = f"layer{stage}.{block}"
            add(f"{at}.conv1", f"{at}.bn1", channels, before, 3)
            add(f"{at}.conv2", f"{at}.bn2", channels, channels, 3)
            if before != channels:
                add(f"{at}.downsample.0", f"{at}.downsample.1", channels, before, 1)
            before = channels
    shapes["fc.weight"], shapes["fc.bias"] = (1000, 512), (1000,)
    return shapes


@cache
def checkpoint():
    """What torchvision would save: its 122 names, random numbers."""
    random = torch.Generator().manual_seed(2)
    state = {}
    for name, shape in table_of_the_paper().items():
        values = 0.05 * torch.randn(shape, generator=random)
        state[name] = values.abs() + 0.5 if name.endswith("running_var") else values
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
    return state


def test_names_and_shapes_are_those_of_the_paper_and_of_torchvision():
    expected = table_of_the_paper()
    assert len(expected) == 122
    found = {name: tuple(value.shape) for name, value in network_for().state_dict().items()}
    assert found == {name: s for name, s in expected.items() if not name.startswith("fc.")}


def test_number_of_parameters_is_the_known_one():
    # torchvision's 11,689,512 less the classifier's 513,000.
    assert sum(p.numel() for p in network_for().parameters()) == 11_176_512


def normalised(x, state, name):
    mean, variance, weight, bias = (
        state[f"{name}.{part}"][:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def twin_of_forward(x, state):
    """The standard network written out from the paper, by names in a checkpoint."""
    x = normalised(F.conv2d(x, state["conv1.weight"], stride=2, padding=3), state, "bn1").relu()
    x = F.max_pool2d(x, 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            inner = F.conv2d(x, state[f"{at}.conv1.weight"], stride=stride, padding=1)
            inner = normalised(inner, state, f"{at}.bn1").relu()
            inner = F.conv2d(inner, state[f"{at}.conv2.weight"], padding=1)
            inner = normalised(inner, state, f"{at}.bn2")
            if stride == 2:
                x = F.conv2d(x, state[f"{at}.downsample.0.weight"], stride=2)
                x = normalised(x, state, f"{at}.downsample.1")
            x = (inner + x).relu()
    return x.flatten(2).mean(dim=2)


@torch.no_grad()
def test_weights_of_torchvision_give_the_features_of_the_network_they_are_of():
    state = checkpoint()
    network = copy.deepcopy(network_for())
    network.load_state_dict({name: v for name, v in state.items() if not name.startswith("fc.")})
    x = torch.randn(2, 3, 33, 50)
    torch.testing.assert_close(network(x), twin_of_forward(x, state), rtol=1e-4, atol=1e-5)


def side_after(size, kernel, stride, pool):
    side = (size + 2 * (kernel // 2) - kernel) // stride + 1
    return (side - 1) // 2 + 1 if pool else side


def test_the_stem_leaves_16_to_32_pixels_of_small_images():
    for size in range(1, 96):
        assert min(size, 16) <= side_after(size, *stem(size)) <= 32
    # As much as the standard stem, at the size where the speed is compared.
    assert side_after(64, *stem(64)) == side_after(64, *stem(224)) == 16
    assert {stem(size) for size in (96, 224, 1000)} == {(7, 2, True)}


SMALL, MIDDLE, LARGE, STANDARD = (1, 28), (2, 48), (3, 64), (3, 224)
each_stem = pytest.mark.parametrize(("n_channels", "size"), [SMALL, MIDDLE, LARGE, STANDARD])


@torch.no_grad()
@each_stem
def test_the_first_stage_gets_what_the_stem_says(n_channels, size):
    network, shapes = network_for(n_channels, size), []
    handle = network.layer1.register_forward_hook(lambda *call: shapes.append(call[1][0].shape))
    network(torch.randn(1, n_channels, size, size - 3))
    handle.remove()
    assert shapes == [(1, 64, *(side_after(side, *stem(size)) for side in (size, size - 3)))]


@torch.no_grad()
@each_stem
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 30), (33, 12)])
def test_images_of_any_size_go_in(shape, n_channels, size):
    network = network_for(n_channels, size)
    features = network(torch.randn(2, n_channels, *shape))
    assert features.shape == (2, network.out_features) == (2, 512)
    assert torch.isfinite(features).all()


@torch.no_grad()
def test_features_of_an_image_do_not_depend_on_the_batch_or_the_time():
    network, x = network_for(), torch.randn(5, 3, 40, 40)
    together = network(x)
    assert torch.equal(network(x), together)
    alone = torch.cat([network(image[None]) for image in x])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_copy_and_a_restored_state_give_the_same():
    first, other, x = network_for(), ResNet18().eval(), torch.randn(2, 3, 33, 33)
    assert not torch.equal(other(x), first(x))
    other.load_state_dict(first.state_dict())
    for network in (other, copy.deepcopy(first)):
        assert torch.equal(network(x), first(x))


@torch.no_grad()
@each_stem
def test_the_order_in_memory_is_the_fast_one_whatever_comes_in(n_channels, size):
    network, last = network_for(n_channels, size), []
    handles = [
        layer.register_forward_hook(
            lambda *call: last.append(call[2].is_contiguous(memory_format=torch.channels_last))
        )
        for layer in (network.conv1, network.layer3)
    ]
    x = torch.randn(2, n_channels, 32, 32)
    first = network(x)
    torch.testing.assert_close(network(x.to(memory_format=torch.channels_last)), first)
    for handle in handles:
        handle.remove()
    assert last == [True] * 4


@torch.no_grad()
@each_stem
def test_features_in_bfloat16_are_nearly_those_in_float32(n_channels, size):
    network, x = network_for(n_channels, size), torch.randn(2, n_channels, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        features = network(x)
    assert features.dtype == torch.bfloat16
    exact = network(x)
    assert (features - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize(("n_channels", "size"), [SMALL, LARGE])
def test_every_weight_gets_a_finite_gradient(n_channels, size):
    network = copy.deepcopy(network_for(n_channels, size)).train()
    x = torch.randn(6, n_channels, 16, 16)
    before = x.clone()
    network(x).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name
    assert torch.equal(x, before)


def test_weights_start_as_wide_as_the_fan_out_asks():
    # He's initialisation: variance 2 / (channels out · area of the kernel), shifts of zero.
    for module in network_for().modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.detach().std().item() == pytest.approx(
                (2 / fan_out) ** 0.5, rel=0.1
            )
            assert module.bias is None
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


def test_three_digits_are_learned_in_eight_steps():
    X, y = load_digits(n_class=3, return_X_y=True)
    x, target = torch.tensor(X, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(y)
    x = (x - x.mean()) / x.std()
    network = nn.Sequential(ResNet18(1, 8), nn.Linear(512, 3))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5  # eight steps are too few for running means of ten
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=True)
    for _ in range(8):
        index = torch.randint(0, 400, (24,))
        optimizer.zero_grad()
        F.cross_entropy(network(x[index]), target[index]).backward()
        optimizer.step()
    with torch.no_grad():
        right = network.eval()(x[400:]).argmax(dim=1) == target[400:]
    assert float(right.float().mean()) > 0.8  # a guess has 1/3


# The small network


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (8, 8), (17, 16), (32, 48)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_small_network_takes_images_of_any_size(size, channels):
    x = torch.randn(2, channels, *size)
    network = ConvNet(channels, min(size)).eval()
    features = network(x)
    assert features.shape == (2, ConvNet.out_features)
    assert features.isfinite().all()
    torch.testing.assert_close(features[:1], network(x[:1]))


def test_the_small_network_has_a_hundredth_of_the_weights():
    small, large = (sum(p.numel() for p in n.parameters()) for n in (ConvNet(), network_for()))
    assert small * 100 < large


def test_shrinking_averages_and_keeps_the_shape_of_images():
    x = torch.arange(2 * 8 * 12, dtype=torch.uint8).reshape(2, 1, 8, 12)
    found = Shrink(4)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, F.avg_pool2d(x.float(), 2))
    assert Shrink(8)(x) is x
    assert Shrink(3)(torch.zeros(1, 3, 7, 21)).shape == (1, 3, 3, 9)
