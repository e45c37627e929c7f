"""The fast loss against the paper's triple sum."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests import reference
from unsplit.networks.network import ScoreHead, balanced, pairwise_logistic_loss, softmax_loss


def problem(k, seed=0, scale=1.0):
    """Scores for clusters of unequal sizes, the last of one observation."""
    rng = np.random.default_rng(seed)
    sizes = [*rng.integers(2, 9, k - 1), 1]
    clusters = rng.permutation(np.repeat(np.arange(k), sizes))
    scores = scale * rng.standard_normal((len(clusters), k))
    return torch.from_numpy(scores), torch.from_numpy(clusters), torch.tensor(sizes)


def total(loss, scores, clusters, sizes):
    """The paper's total loss, in which all clusters have the same weight."""
    return balanced(loss(scores, clusters), clusters, sizes)


@pytest.mark.parametrize("k", [2, 3, 17])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_equals_the_papers_triple_sum(k, scale):
    scores, clusters, sizes = problem(k, scale=scale)
    scores.requires_grad_()
    loss = total(pairwise_logistic_loss, scores, clusters, sizes)
    loss.backward()
    expected = reference.total_loss_of_scores(scores.detach().numpy(), clusters.tolist())
    slope = reference.total_loss_gradient(scores.detach().numpy(), clusters.tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(scores.grad.numpy(), slope, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss", [pairwise_logistic_loss, softmax_loss])
def test_gradcheck(loss):
    scores, clusters, sizes = problem(4)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: total(loss, z, clusters, sizes), scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("loss", [pairwise_logistic_loss, softmax_loss])
def test_large_scores_stay_finite_and_right(loss, dtype):
    scores = torch.tensor([[3e4, -3e4, 0.0], [3e4, -3e4, 0.0]], dtype=dtype, requires_grad=True)
    clusters, sizes = torch.tensor([0, 1]), torch.tensor([1, 1, 1])
    value = total(loss, scores, clusters, sizes)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(scores.grad).all()
    exact = total(loss, scores.detach().double(), clusters, sizes)
    assert value.item() == pytest.approx(exact.item(), rel=1e-2)


def test_bfloat16_errs_no_more_than_its_inputs_do():
    scores, clusters, sizes = problem(17)
    coarse = scores.bfloat16()
    value = total(pairwise_logistic_loss, coarse, clusters, sizes)
    same_inputs = total(pairwise_logistic_loss, coarse.double(), clusters, sizes)
    assert value.item() == pytest.approx(same_inputs.item(), rel=1e-5)


def test_softmax_loss_is_the_mean_over_clusters_of_cross_entropy():
    scores, clusters, sizes = problem(4)
    by_cluster = [F.cross_entropy(scores[clusters == c], clusters[clusters == c]) for c in range(4)]
    torch.testing.assert_close(total(softmax_loss, scores, clusters, sizes), sum(by_cluster) / 4)


@pytest.mark.parametrize("loss", [pairwise_logistic_loss, softmax_loss])
def test_without_sizes_equals_with_sizes_for_even_clusters(loss):
    scores = torch.randn(12, 3, dtype=torch.float64)
    clusters = torch.arange(3).repeat(4)
    torch.testing.assert_close(
        loss(scores, clusters).mean(), total(loss, scores, clusters, torch.full((3,), 4))
    )


@pytest.mark.parametrize("loss", [pairwise_logistic_loss, softmax_loss])
def test_folds_share_one_call(loss):
    scores = torch.randn(3, 7, 4, dtype=torch.float64)
    clusters = torch.randint(4, (3, 7))
    together = loss(scores, clusters)
    torch.testing.assert_close(
        together, torch.stack([loss(z, c) for z, c in zip(scores, clusters, strict=True)])
    )


def test_an_unrelated_shift_of_all_scores_changes_nothing():
    scores, clusters, sizes = problem(5)
    moved = scores + torch.randn(len(scores), 1, dtype=torch.float64)
    torch.testing.assert_close(
        total(pairwise_logistic_loss, scores, clusters, sizes),
        total(pairwise_logistic_loss, moved, clusters, sizes),
    )


def test_head_starts_undecided():
    features, clusters = torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    head = ScoreHead(8, 3)
    assert (head.margins(head(features), clusters) == 0).all()
