"""Untrained networks for vectors, and what can be asked of trained ones."""

import copy

import torch
from torch import nn

from unsplit.backbones import MLP, Blur, Standardize
from unsplit.data import VectorRows
from unsplit.ensemble import Network
from unsplit.errors import InputError
from unsplit.heads import ScoreHead
from unsplit.sampling import Fold, Index


def build_network(
    rows: VectorRows,
    fold: Fold,
    backbone: str | nn.Module,
    n_clusters: int,
    loss: str,
    smooth: bool = False,
) -> Network:
    """An untrained network that standardises by the fold's training rows."""
    parts: list[nn.Module] = [Standardize(*rows.moments(fold.train))]
    if smooth:
        parts.append(Blur())
    if isinstance(backbone, nn.Module):
        parts.append(copy.deepcopy(backbone))
    elif backbone in ("auto", "mlp"):
        # Blurred densities are simple, and a narrow network learns them three times sooner.
        width = 128 if smooth else 256
        parts.append(MLP(rows.n_features, width, normalize=not smooth))
    else:
        raise InputError(f'backbone must be "auto", "mlp" or a torch.nn.Module, got {backbone!r}.')
    body = nn.Sequential(*parts).to(rows.device)
    head = ScoreHead(n_features_out(body, rows), n_clusters, loss)
    return Network(body, head).to(rows.device)


@torch.no_grad()
def n_features_out(body: nn.Module, rows: VectorRows) -> int:
    """Width of the features, found by trying two rows."""
    training = body.training
    try:
        probe = body.eval()(rows.take(torch.zeros(2, dtype=torch.long, device=rows.device)))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"backbone cannot take a batch of shape (2, {rows.n_features}): {reason}"
        ) from None
    body.train(training)
    if probe.ndim != 2 or len(probe) != 2:
        raise InputError(
            "backbone must turn a batch (b, d) into features (b, h), but turned (2, "
            f"{rows.n_features}) into {tuple(probe.shape)}; flatten its output."
        )
    return int(probe.shape[1])


@torch.no_grad()
def with_merged_outputs(network: Network, groups: Index, sizes: Index) -> Network:
    """A copy whose outputs are groups of the network's clusters, to be trained on from there.

    A group's output starts at the size-weighted mean of its members' weights: the first term of
    the composed score, which itself is no linear function of the features.
    """
    merged, old = copy.deepcopy(network), network.head
    assert isinstance(old, ScoreHead)
    device = old.weight.device
    share = torch.zeros(int(groups.max()) + 1, len(groups), device=device)
    share[groups, range(len(groups))] = torch.from_numpy(sizes).float().to(device)
    share /= share.sum(dim=1, keepdim=True)
    head = ScoreHead(old.in_features, len(share), old.loss_name).to(device)
    head.weight.copy_(share @ old.weight)
    head.bias.copy_(share @ old.bias)
    merged.head = head
    return merged
