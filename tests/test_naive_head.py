"""The naive head of the benchmarks against the head of the library."""

import numpy as np
import pytest
import torch

from tests import reference
from tests.test_losses import problem, total
from tests.test_training import networks_for, small_problem
from unsplit import TrainConfig
from unsplit.networks.network import (
    Network,
    PairMatrixHead,
    ScoreHead,
    margins,
    pair_matrix_loss,
    pairwise_logistic_loss,
)
from unsplit.networks.training.loop import Training


@pytest.mark.parametrize("k", [2, 3, 17])
def test_naive_head_with_the_same_scores_gives_the_same_loss(k):
    scores, clusters, sizes = problem(k)
    logits = scores[:, None, :] - scores[:, :, None]  # logit of f_ij is z_j − z_i
    naive = total(pair_matrix_loss, logits, clusters, sizes)
    torch.testing.assert_close(naive, total(pairwise_logistic_loss, scores, clusters, sizes))
    expected = reference.total_loss(lambda x, i, j: float(logits[x, i, j]), clusters.tolist(), k)
    assert naive.item() == pytest.approx(expected, rel=1e-10)


def test_naive_head_ignores_every_output_outside_the_own_row_and_column():
    _, clusters, sizes = problem(5)
    logits = torch.randn(len(clusters), 5, 5, dtype=torch.float64, requires_grad=True)
    total(pair_matrix_loss, logits, clusters, sizes).backward()
    for x, own in enumerate(clusters.tolist()):
        used = torch.zeros(5, 5, dtype=torch.bool)
        used[own], used[:, own] = True, True
        used[own, own] = False
        assert torch.equal(logits.grad[x] != 0, used)


def test_gradcheck_of_the_naive_loss():
    _, clusters, sizes = problem(3)
    logits = torch.randn(len(clusters), 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: total(pair_matrix_loss, z, clusters, sizes), logits)


def test_heads_start_undecided_and_agree_on_margins():
    features, clusters = torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    for head in (ScoreHead(8, 3), PairMatrixHead(8, 3)):
        assert (head.margins(head(features), clusters) == 0).all()
    scores = torch.randn(6, 3)
    matrix = scores[:, None, :] - scores[:, :, None]
    torch.testing.assert_close(
        PairMatrixHead(8, 3).margins(matrix, clusters), margins(scores, clusters)
    )


def test_naive_head_can_be_trained_by_the_same_loop():
    rows, y, folds = small_problem()
    networks = [
        Network(n.backbone, PairMatrixHead(n.head.in_features, 4))
        for n in networks_for(rows, folds)
    ]
    history = Training(
        networks, rows, torch.from_numpy(y), folds, TrainConfig(), np.random.default_rng(0)
    ).run()
    assert history.accuracy.max() > 0.85
