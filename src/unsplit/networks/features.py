"""Features of observations from a network that somebody has trained."""

import copy
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from unsplit.data.readers.api import read
from unsplit.data.readers.observations import Observations
from unsplit.data.rows.kinds import observations
from unsplit.devices import Generators, choose_device, usual_settings
from unsplit.errors import InputError, check_choice, check_flag, check_type, check_whole, shown
from unsplit.networks.backbones.images import without_classifier
from unsplit.networks.network import refuse_gaps
from unsplit.networks.registry import features_of

Transform = Callable[[Tensor], Tensor]
KINDS = ("images", "vectors", "points", "sequences")


@usual_settings()
@torch.no_grad()
def features(
    network: nn.Module,
    X: Any,
    *,
    transform: Transform | None = None,
    kind: str | None = None,
    batch_size: int = 64,
    device: str | torch.device = "auto",
    progress: bool = False,
) -> NDArray[np.float32]:
    """Compute the features of observations with any torch module, without training it.

    Use it if you have a network that knows your kind of data, such as one trained on a million
    photographs.  Pass the result to :class:`unsplit.ClusterMerger` instead of the observations, or
    save it with ``numpy.save`` for ``unsplit merge --vectors``.

    Parameters
    ----------
    network : torch.nn.Module
        Turns a batch of observations into features (b, h).  A copy of it is used, in evaluation
        mode; networks of torchvision and timm lose their classifier.
    X : str, path, Observations, array-like or torch Dataset
        A folder or file as for :func:`unsplit.read`, what that function returns, or observations
        as for :func:`unsplit.pairwise_tvd`.  The network gets images as (b, c, h, w); bytes are
        divided by 255.
    transform : callable, optional
        Changes every batch before the network gets it: resizes images, or subtracts the mean that
        the network expects.
    kind : str, optional
        "images", "vectors", "points" or "sequences", if the shape of an array leaves it open.
    batch_size : int
        Number of observations at a time.
    device : str or torch.device
        "auto" uses CUDA if available, else MPS, else the CPU.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    ndarray of float32 of shape (n, h)
        One row for each observation, in the same order.

    Examples
    --------
    >>> import unsplit
    >>> images = np.zeros((5, 8, 8, 3), np.uint8)
    >>> unsplit.features(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()), images).shape
    (5, 12)
    """
    advice = "pass the network first and the observations second"
    check_type("network", network, nn.Module, advice)
    if transform is not None and not callable(transform):
        raise InputError(f"transform must be a function or None, got {shown(transform)}.")
    if kind is not None:
        check_choice("kind", kind, KINDS)
    check_whole("batch_size", batch_size, 1, "64 is usual")
    check_flag("progress", progress)
    if isinstance(X, (str, os.PathLike)):
        X = read(X)
    where = choose_device(device)
    rows = observations(X.X if isinstance(X, Observations) else X, where, kind)
    ready = without_classifier(copy.deepcopy(network)).to(where).eval()
    batches = list(torch.arange(len(rows), device=where).split(batch_size))
    parts: list[NDArray[np.float32]] = []
    generators = Generators(0)  # the network may draw
    with tqdm(total=len(rows), desc="features", unit=" rows", disable=not progress) as bar:
        for index, batch in zip(batches, rows.stream(batches), strict=True):
            with generators.lent(where):
                values = features_of(ready, _prepared(batch, transform), "the network")
            if values.is_complex():
                raise InputError("the network returned complex numbers; return real features.")
            refuse_gaps(values.float(), index)
            parts.append(values.float().cpu().numpy())
            bar.update(len(index))
    return np.concatenate(parts)


def _prepared(batch: Tensor, transform: Transform | None) -> Tensor:
    batch = batch.float() / 255 if batch.dtype == torch.uint8 else batch.float()
    if transform is None:
        return batch
    try:
        return transform(batch)
    except Exception as error:  # a user's function may raise anything
        raise InputError(
            f"transform cannot take a batch of shape {tuple(batch.shape)}: {error}"
        ) from error
