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
    """Nothing in place of a linear layer; of several layers, those before the last linear one."""
    if not isinstance(classifier, nn.Sequential):
        return nn.Identity()
    linear = [i for i, layer in enumerate(classifier) if isinstance(layer, nn.Linear)]
    # Where there is none, as in SqueezeNet, the layers also make one vector out of a map.
    return classifier[: linear[-1]] if linear else classifier
