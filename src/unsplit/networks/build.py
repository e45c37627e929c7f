"""Build untrained networks, and networks for merged clusters from trained ones."""

from typing import Any

import torch
from torch import Tensor, nn

from unsplit.data.rows.base import Rows
from unsplit.errors import InputError
from unsplit.networks.backbones import Blur, Shrink, Standardize, StandardizeSequences
from unsplit.networks.heads import ScoreHead
from unsplit.networks.registry import Augment, Recipe, augmentation_for
from unsplit.networks.training.group import Network
from unsplit.networks.training.sampling import Fold

# Number of observations that small networks are given at a time.
BIG_BATCH = 4096


def build_network(
    rows: Rows,
    fold: Fold,
    recipe: Recipe,
    n_clusters: int,
    loss: str,
    blurred: bool = False,
    augment: Augment = "auto",
) -> Network:
    """Build an untrained network that standardises its input by the training rows of the fold.

    Parameters
    ----------
    rows : Rows
    fold : Fold
    recipe : Recipe
        The backbone and how to build it.
    n_clusters : int
        Number of outputs.
    loss : str
        One of :data:`unsplit.networks.heads.LOSSES`.
    blurred : bool
        Blur the observations; for vectors only.
    augment : "auto", False or torch.nn.Module
        Random changes to observations in training.
    """
    parts: list[nn.Module] = []
    if recipe.image_side is not None:
        parts.append(Shrink(recipe.image_side))
    if rows.kind == "sequences":
        parts.append(StandardizeSequences(*rows.moments(fold.train)))
    elif rows.kind != "counts":
        parts.append(Standardize(*rows.moments(fold.train)))
    if blurred:
        _refuse_blur(rows)
        parts.append(Blur())
    augmentation = augmentation_for(augment, rows)
    if augmentation is not None:
        parts.append(augmentation)
    parts.append(recipe.build(rows, fold.train, blurred))
    body = nn.Sequential(*parts).to(rows.device)
    head = ScoreHead(n_features_out(body, rows), n_clusters, loss)
    most = BIG_BATCH if rows.kind in ("vectors", "counts") else 2 * recipe.training.batch_size
    return Network(body, head, most).to(rows.device)


def _refuse_blur(rows: Rows) -> None:
    if rows.kind != "vectors":
        raise InputError(f"blurred=True needs vectors, but X holds {rows.kind}; leave blurred out.")


@torch.no_grad()
def n_features_out(body: nn.Sequential, rows: Rows) -> int:
    """Find the number of features of a backbone by passing two rows through it."""
    training = body.training
    two = rows.take(torch.zeros(2, dtype=torch.long, device=rows.device))
    shape = tuple(two.shape)
    try:
        probe = body.eval()(two)
    except Exception as error:  # a user's network may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"backbone cannot take a batch of shape {shape}: {reason}") from error
    body.train(training)
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 2 or not probe.numel():
        got = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
        raise InputError(
            f"backbone must turn a batch (b, ...) into features (b, h), but turned {shape} into "
            f"{got}; flatten its output."
        )
    if not torch.isfinite(probe).all():
        raise InputError(
            f"backbone returned NaN or infinite features for a batch of shape {shape}; the first "
            f"layer to do so {_first_bad_layer(body, two)}; its output must be finite."
        )
    return int(probe.shape[1])


def _first_bad_layer(body: nn.Sequential, batch: Tensor) -> str:
    """Name the first submodule whose output is not finite: "is NAME (TYPE)"."""
    found: list[str] = []

    def look(name: str, module: nn.Module) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(f"{name!r} ({type(module).__name__})")

        return module.register_forward_hook(hook)

    hooks = [look(name or "the backbone", module) for name, module in body[-1].named_modules()]
    body.eval()(batch)
    for hook in hooks:
        hook.remove()
    return f"is {found[0]}" if found else "differs from call to call"
