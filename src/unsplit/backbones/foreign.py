"""Networks that others have made."""

from typing import Any

from torch import nn

# Where torchvision and timm keep what turns features into classes.
CLASSIFIERS = ("fc", "classifier", "head", "heads")


def without_classifier(network: nn.Module) -> nn.Module:
    """A network of torchvision or timm without its last layer; any other as it is.

    Examples
    --------
    >>> without_classifier(nn.Linear(3, 2))
    Linear(in_features=3, out_features=2, bias=True)
    """
    reset: Any = getattr(network, "reset_classifier", None)
    if callable(reset):
        reset(0)
    elif type(network).__module__.startswith("torchvision."):
        for name in CLASSIFIERS:
            if isinstance(getattr(network, name, None), nn.Module):
                setattr(network, name, _without_last_linear(getattr(network, name)))
                break
    return network


def _without_last_linear(classifier: nn.Module) -> nn.Module:
    """Nothing in place of a linear layer; of several layers, all but the last linear one."""
    if isinstance(classifier, nn.Sequential):
        kept = list(classifier.named_children())
        while kept and not isinstance(kept[-1][1], nn.Linear):
            kept.pop()
        return nn.Sequential(*(module for _, module in kept[:-1]))
    return nn.Identity()
