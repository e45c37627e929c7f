"""The losses over blocks of clusters against those of all scores at once."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import triton_twin
from unsplit.devices import Ranks
from unsplit.networks import chunked
from unsplit.networks.chunked import Blocks, blocks_for, chunked_loss, product_type
from unsplit.networks.network import LOSSES

BOTH = pytest.mark.parametrize("loss", sorted(LOSSES))
quick = settings(deadline=None, max_examples=40, derandomize=True)

# b, h, k, clusters in a block, parts of a block
SHAPES = [
    (7, 5, 23, 4),
    (7, 5, 24, 8),
    (1, 3, 2, 1),
    (5, 1, 2, 256),
    (6, 4, 9, 9),
    (3, 2, 256, 256),
    (8, 3, 32, 16),
    (9, 2, 70, 64),
]


def problem(b, h, k, dtype=torch.float64, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    parts = draw(b, h), draw(k, h), draw(k)
    return [part.requires_grad_() for part in parts], torch.randint(k, (b,), generator=generator)


def naive(parts, clusters, loss):
    features, weight, bias = parts
    value = LOSSES[loss](features @ weight.T + bias, clusters).mean()
    return [value, *torch.autograd.grad(value, parts)]


def in_blocks(parts, clusters, loss, blocks, scale=1.0):
    value = scale * chunked_loss(*parts, clusters, loss, blocks)
    return [value, *torch.autograd.grad(value, parts)]


@BOTH
@pytest.mark.parametrize(("b", "h", "k", "size"), SHAPES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_value_and_gradients_are_those_of_all_scores_at_once(loss, b, h, k, size, scale):
    parts, clusters = problem(b, h, k, scale=scale)
    found = in_blocks(parts, clusters, loss, Blocks(size))
    torch.testing.assert_close(found, naive(parts, clusters, loss), rtol=1e-10, atol=1e-11)


@BOTH
@quick
@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(2, 40), st.integers(1, 45), st.integers(0, 99)
)
def test_any_shape_and_block(loss, b, h, k, size, seed):
    parts, clusters = problem(b, h, k, seed=seed)
    found = in_blocks(parts, clusters, loss, Blocks(size))
    torch.testing.assert_close(found, naive(parts, clusters, loss), rtol=1e-10, atol=1e-11)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_errs_no_more_than_all_scores_at_once_in_the_same_type(loss, dtype):
    parts, clusters = problem(9, 6, 50, dtype)
    exact = naive([p.detach().double().requires_grad_() for p in parts], clusters, loss)
    found = in_blocks(parts, clusters, loss, Blocks(16))
    plain = naive(parts, clusters, loss)
    assert [f.dtype for f in found] == [torch.float32, dtype, dtype, dtype]
    step = torch.finfo(dtype).eps
    for one, other, truth in zip(found, plain, exact, strict=True):
        error, usual = ((x.double() - truth).abs().max() for x in (one, other))
        assert error <= usual + 2 * step * truth.abs().max()


@BOTH
def test_a_cluster_may_come_several_times_in_a_batch(loss):
    parts, _ = problem(6, 3, 5)
    clusters = torch.tensor([4, 4, 4, 0, 0, 2])
    found = in_blocks(parts, clusters, loss, Blocks(2))
    torch.testing.assert_close(found, naive(parts, clusters, loss), rtol=1e-10, atol=1e-11)


@BOTH
def test_one_cluster_has_no_loss_and_no_gradient(loss):
    parts, clusters = problem(3, 2, 1)
    value, *gradients = in_blocks(parts, clusters, loss, Blocks(4))
    assert value == 0
    assert all((gradient == 0).all() for gradient in gradients)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_large_scores_stay_finite_and_right(loss, dtype):
    features = torch.tensor([[1.0], [1.0]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([[3e4], [-3e4], [0.0]], dtype=dtype, requires_grad=True)
    bias, clusters = torch.zeros(3, dtype=dtype, requires_grad=True), torch.tensor([0, 1])
    parts = [features, weight, bias]
    found = in_blocks(parts, clusters, loss, Blocks(2))
    exact = naive([p.detach().double().requires_grad_() for p in parts], clusters, loss)
    for one, truth in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), truth, rtol=1e-2, atol=1e-12)


@BOTH
def test_gradcheck(loss):
    parts, clusters = problem(4, 3, 7)

    def loss_of(*parts):
        return chunked_loss(*parts, clusters, loss, Blocks(3))

    assert torch.autograd.gradcheck(loss_of, parts)


def test_a_scaled_loss_has_scaled_gradients():
    parts, clusters = problem(4, 3, 7)
    plain = in_blocks(parts, clusters, "softmax", Blocks(3))
    scaled = in_blocks(parts, clusters, "softmax", Blocks(3), scale=-2.5)
    torch.testing.assert_close(scaled, [-2.5 * one for one in plain])


@BOTH
def test_weights_take_their_gradient_without_a_copy(loss, monkeypatch):
    parts, clusters = problem(4, 3, 7, torch.float32)
    compute, places = chunked.over_blocks, []

    def spy(*args):
        found = compute(*args)
        places.append(found[1].data_ptr())
        return found

    monkeypatch.setattr(chunked, "over_blocks", spy)
    chunked_loss(*parts, clusters, loss).backward()
    assert [parts[1].grad.data_ptr()] == places


@BOTH
def test_autocast_changes_nothing_inside(loss):
    parts, clusters = problem(4, 3, 7, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = in_blocks(parts, clusters, loss, Blocks(3))
    torch.testing.assert_close(mixed, in_blocks(parts, clusters, loss, Blocks(3)))


def test_features_in_half_precision_keep_full_weights():
    parts, clusters = problem(4, 3, 7, torch.float32)
    parts[0] = parts[0].detach().bfloat16().requires_grad_()
    found = in_blocks(parts, clusters, "softmax", Blocks(3))
    assert [f.dtype for f in found[1:]] == [torch.bfloat16, torch.float32, torch.float32]
    wide = [parts[0].detach().float().requires_grad_(), *parts[1:]]
    exact = naive(wide, clusters, "softmax")
    torch.testing.assert_close(found[2:], exact[2:])


class Threads(Ranks):
    """Shards in threads of one process, which wait for each other."""

    def __init__(self, n):
        super().__init__(size=n)
        self.barrier, self.here = threading.Barrier(n, timeout=20), [None] * n
        self.place = threading.local()

    def all(self, values):
        self.here[self.place.rank] = values
        self.barrier.wait()
        found = torch.stack(self.here)
        self.barrier.wait()
        return found

    def sum(self, values):
        return self.all(values).sum(0)

    def log_sum_exp(self, values):
        return self.all(values).logsumexp(0)


def in_shards(parts, clusters, loss, ends, kernel=False):
    """Loss and gradients of every shard; shard i has the clusters up to ends[i]."""
    features, weight, bias = parts
    ranks, found = Threads(len(ends)), [None] * len(ends)

    def work(rank, start, end):
        ranks.place.rank = rank
        own = [part.detach().requires_grad_() for part in (features, weight[start:end])]
        own.append(bias[start:end].detach().requires_grad_())
        here = (clusters >= start) & (clusters < end)
        columns = torch.where(here, clusters - start, -1)
        blocks = Blocks(3, kernel=kernel)
        value = chunked_loss(*own, columns, loss, blocks, len(weight), ranks)
        found[rank] = [value.detach(), *torch.autograd.grad(value, own)]

    starts = [0, *ends[:-1]]
    threads = [
        threading.Thread(target=work, args=(rank, *pair))
        for rank, pair in enumerate(zip(starts, ends, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@BOTH
@pytest.mark.parametrize("ends", [[11], [4, 11], [4, 4, 11], [1, 9, 11]])
def test_clusters_may_be_divided_between_processes(loss, ends):
    parts, clusters = problem(6, 3, 11)
    value, d_features, d_weight, d_bias = naive(parts, clusters, loss)
    found = in_shards(parts, clusters, loss, ends)
    for shard in found:
        torch.testing.assert_close(shard[0], value.detach())
        torch.testing.assert_close(shard[1], d_features)
    torch.testing.assert_close(torch.cat([shard[2] for shard in found]), d_weight)
    torch.testing.assert_close(torch.cat([shard[3] for shard in found]), d_bias)


def test_blocks_suit_the_device_and_the_batch():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert blocks_for(4096, torch.float32, cpu) == Blocks(256)
    assert blocks_for(10**6, torch.float32, cpu) == Blocks(256)
    assert blocks_for(4096, torch.bfloat16, gpu).size == 32768
    assert blocks_for(0, torch.float32, cpu).size % 256 == 0


def test_products_are_at_least_float32_on_a_cpu():
    half, full = torch.ones(1, 1, dtype=torch.float16), torch.ones(1, 1, dtype=torch.float64)
    assert product_type(half, half) == torch.float32
    assert product_type(half, full) == torch.float64


@pytest.fixture
def kernels(monkeypatch):
    """Kernels with tiles of 4 × 8 that run on a CPU."""
    module = triton_twin.kernel_module(monkeypatch)
    module.ROWS, module.LANES, module.EACH, module.COLUMNS = 4, 4, 2, 8
    monkeypatch.setattr(chunked, "KernelSums", module.KernelSums)
    monkeypatch.setattr(chunked, "KernelLogSumExp", module.KernelLogSumExp)


@BOTH
@pytest.mark.parametrize(("b", "h", "k", "size"), SHAPES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.usefixtures("kernels")
def test_kernels_do_what_plain_torch_does(loss, b, h, k, size, scale):
    parts, clusters = problem(b, h, k, torch.float32, scale)
    found = in_blocks(parts, clusters, loss, Blocks(size, kernel=True))
    expected = in_blocks(parts, clusters, loss, Blocks(size))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@BOTH
@pytest.mark.usefixtures("kernels")
def test_kernels_take_shards_without_the_own_cluster(loss):
    parts, clusters = problem(6, 3, 11, torch.float32)
    plain = in_shards(parts, clusters, loss, [1, 9, 11])
    torch.testing.assert_close(in_shards(parts, clusters, loss, [1, 9, 11], True), plain)


def test_kernels_are_for_cuda_only():
    assert not blocks_for(9, torch.float32, torch.device("cpu")).kernel


def test_kernels_are_tried_once_and_left_out_if_they_fail(monkeypatch):
    module = triton_twin.kernel_module(monkeypatch)
    module._try_out(torch.device("cpu"))  # the twin computes what it should
    nowhere = torch.device("cuda", 99)
    assert "Error" in module.reason_against(nowhere)
    assert not module.usable(nowhere)
    module.triton = None
    assert module.reason_against(torch.device("cuda", 98)) == "Triton is not installed"
