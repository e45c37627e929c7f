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


def pair_loss_gradient(logits, clusters):
    """∂L/∂f for k² outputs: label 0 in the own row, label 1 in the own column, others nothing."""
    k = logits.shape[1]
    gradient = np.zeros(logits.shape)
    for x, i in enumerate(clusters):
        weight = 1 / (2 * k * (k - 1) * sum(1 for c in clusters if c == i))
        for j in range(k):
            if j != i:
                gradient[x][i][j] = weight / (1 + math.exp(-logits[x][i][j]))
                gradient[x][j][i] = -weight / (1 + math.exp(logits[x][j][i]))
    return gradient


def pair_hit_rates(logits, clusters, k):
    """H_ij if row and column of a pair are asked together, ties one half."""
    scores = np.zeros((len(clusters), k))
    for x, i in enumerate(clusters):
        for j in range(k):
            if j != i:
                scores[x][j] = (logits[x][i][j] - logits[x][j][i]) / 2
    return hit_rates(scores, clusters, k)


def adam_step(values, gradients, first, second, t, rate):
    """Kingma and Ba (2015), Algorithm 1, in place."""
    for value, gradient, m, v in zip(values, gradients, first, second, strict=True):
        m *= 0.9
        m += 0.1 * gradient
        v *= 0.999
        v += 0.001 * gradient * gradient
        value -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def trained_as_published(X, clusters, k, fold, weights, pairs, epochs, steps, rate, patience):
    """𝔻 of one network x → tanh(Wx + b) → outputs, trained on all of ``fold``'s rows in each step.

    After every epoch A is measured; the weights with the highest are used.
    """
    train, test = fold
    mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
    # In single precision, as all observations are given to networks.
    mean, scale = (v.astype(np.float32) for v in (mean, np.where(scale == 0, 1, scale)))
    X = ((X.astype(np.float32) - mean) / scale).astype(np.float64)
    own, theirs = clusters[train], clusters[test]
    n_outputs = k * k if pairs else k
    hidden = len(weights[1])
    values = [w.astype(np.float64) for w in weights]
    values += [np.zeros((n_outputs, hidden)), np.zeros(n_outputs)]
    first, second = ([np.zeros(v.shape) for v in values] for _ in range(2))

    def outputs(rows):
        features = np.tanh(X[rows] @ values[0].T + values[1])
        out = features @ values[2].T + values[3]
        return features, out.reshape(len(rows), k, k) if pairs else out

    best, kept, since, t = -math.inf, None, 0, 0
    for _ in range(epochs):
        for _ in range(steps):
            features, out = outputs(train)
            slope = (pair_loss_gradient if pairs else total_loss_gradient)(out, own)
            slope = slope.reshape(len(train), n_outputs)
            inner = (slope @ values[2]) * (1 - features**2)
            gradients = [inner.T @ X[train], inner.sum(0), slope.T @ features, slope.sum(0)]
            t += 1
            adam_step(values, gradients, first, second, t, rate)
        rates = (pair_hit_rates if pairs else hit_rates)(outputs(test)[1], theirs, k)
        balanced = (rates + rates.T) / 2
        A = sum(balanced[i][j] for i in range(k) for j in range(i + 1, k)) / (k * (k - 1) / 2)
        if best + 1e-4 < A:
            best, kept, since = A, balanced, 0
        else:
            since += 1
            if since == patience:
                break
    return kept


def merged_as_published(clusters, n_clusters, distances):
    """Merge the closest pair, then ask for new distances; pairs of sets of initial clusters.

    ``distances(clusters, k)`` is 𝔻 for clusters numbered from 0, of which the first members keep
    the order.
    """
    groups = [{c} for c in range(max(clusters) + 1)]
    merges = []
    while True:
        number = {c: g for g, members in enumerate(groups) for c in members}
        D = distances(np.array([number[c] for c in clusters]), len(groups))
        if len(groups) == n_clusters:
            return merges
        pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
        closest = min(pairs, key=lambda pair: D[pair])
        i, j = closest
        merges.append((groups[i], groups[j], D[closest]))
        groups[i] = groups[i] | groups[j]
        del groups[j]
        if len(groups) == n_clusters:
            return merges
