"""Networks from other libraries."""

from typing import Any

from torch import nn

# Names of the classifier in networks of torchvision and timm.
CLASSIFIERS = ("fc", "classifier", "head", "heads")


def without_classifier(network: nn.Module) -> nn.Module:
    """Remove the last layer of a network of torchvision or timm; leave any other unchanged.

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
    """Keep the layers before the last linear one; an identity if there are none."""
    if not isinstance(classifier, nn.Sequential):
        return nn.Identity()
    linear = [i for i, layer in enumerate(classifier) if isinstance(layer, nn.Linear)]
    # Without a linear layer, as in SqueezeNet, the layers turn a feature map into a vector.
    return classifier[: linear[-1]] if linear else classifier
