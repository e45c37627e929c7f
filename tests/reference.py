"""Slow, obvious twins of the fast code, written from the paper's formulas with plain loops."""

import math

import numpy as np


def logistic(y, logit):
    """ℓ(y, σ(logit)), the cross-entropy of a sigmoid output."""
    signed = -logit if y == 1 else logit
    return max(signed, 0.0) + math.log1p(math.exp(-abs(signed)))


def total_loss(pair_logit, clusters, k):
    """The paper's total loss, sum by sum.

    ``pair_logit(x, i, j)`` is the pre-activation of the output f(x)_ij.
    """
    sizes = [sum(1 for c in clusters if c == i) for i in range(k)]
    total = 0.0
    for i in range(k):
        for x in [n for n, c in enumerate(clusters) if c == i]:
            for j in range(k):
                if j == i:
                    continue
                both = sizes[i] + sizes[j]
                s_i = sizes[i] / both
                # ℓ_bal^ij(0, f_ij): class 0 is cluster i, weight 1/(2 s_i).
                row = logistic(0, pair_logit(x, i, j)) / (2 * s_i)
                # ℓ_bal^ji(1, f_ji): class 1 is cluster i again, weight 1/(2 s_i).
                column = logistic(1, pair_logit(x, j, i)) / (2 * s_i)
                total += (row + column) / both
    return total / (k * k - k)


def total_loss_of_scores(scores, clusters):
    """With f_ij = σ(z_j − z_i)."""
    return total_loss(
        lambda x, i, j: float(scores[x][j] - scores[x][i]), list(clusters), scores.shape[1]
    )


def total_loss_gradient(scores, clusters):
    """∂L/∂z by hand: σ(z_j − z_i) pushes z_j down and z_i up, weight 1/(k(k−1)|S_i|)."""
    k = scores.shape[1]
    gradient = np.zeros(scores.shape)
    for x, i in enumerate(clusters):
        weight = 1 / (k * (k - 1) * sum(1 for c in clusters if c == i))
        for j in range(k):
            if j != i:
                slope = weight / (1 + math.exp(-(scores[x][j] - scores[x][i])))
                gradient[x][j] += slope
                gradient[x][i] -= slope
    return gradient


def hit_rates(scores, clusters, k):
    """H_ij, ties one half."""
    rates = np.full((k, k), 0.5)
    for i in range(k):
        members = [x for x, c in enumerate(clusters) if c == i]
        for j in range(k):
            if members and i != j:
                won = [
                    1.0 if scores[x][i] > scores[x][j] else 0.5 * (scores[x][i] == scores[x][j])
                    for x in members
                ]
                rates[i, j] = sum(won) / len(won)
    return rates


def rank_sum(scores, clusters, folds, i, j):
    """Mann–Whitney U of z_i − z_j, pairs counted one by one within each fold."""
    total = 0.0
    for a, ca in enumerate(clusters):
        for b, cb in enumerate(clusters):
            if ca == i and cb == j and folds[a] == folds[b]:
                above, below = scores[a][i] - scores[a][j], scores[b][i] - scores[b][j]
                total += 1.0 if above > below else 0.5 * (above == below)
    return total
