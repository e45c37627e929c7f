"""AdamW that keeps fewer numbers for very large heads."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# Numbers of a matrix that are updated at a time.
AT_ONCE = 2**24


class LargeHeadAdamW(torch.optim.AdamW):
    """AdamW that keeps 2 bytes instead of 8 for each weight of the matrices in ``large``.

    The first moment is stored in bfloat16, whose steps are much finer than what one batch changes
    of it.  Of the second moment only the mean of each row is stored: all weights of a cluster have
    one scale, and a cluster that is seldom drawn another than one that is drawn often.

    Parameters
    ----------
    params : sequence of Tensor
        All parameters.
    large : sequence of Tensor
        Those of them with two axes that are treated so.
    learning_rate, weight_decay : float
    device : torch.device

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(3, 2))
    >>> optimizer = LargeHeadAdamW([weight], [weight], 0.1, 0.0, torch.device("cpu"))
    >>> weight.grad = torch.tensor([[1.0, 1.0], [-2.0, 2.0], [0.0, 0.0]])
    >>> optimizer.step()
    >>> weight.detach()  # the first step has the length of the learning rate
    tensor([[-0.1000, -0.1000],
            [ 0.1000, -0.1000],
            [ 0.0000,  0.0000]])
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        large: Sequence[Tensor],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        fused = device.type in ("cpu", "cuda")
        super().__init__(params, lr=learning_rate, weight_decay=weight_decay, fused=fused)
        self.large = large

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move all parameters by one step."""
        gradients = [weight.grad for weight in self.large]
        for weight in self.large:
            weight.grad = None  # AdamW leaves out what has no gradient
        super().step(closure)
        for weight, gradient in zip(self.large, gradients, strict=True):
            weight.grad = gradient
            if gradient is not None:
                self._move(weight, gradient)

    def _move(self, weight: Tensor, gradient: Tensor) -> None:
        options, state = self.param_groups[0], self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight, dtype=torch.bfloat16)
            state["row_avg_sq"] = weight.new_zeros((len(weight), 1))
        state["step"] += 1
        (of_first, of_second), done = options["betas"], float(state["step"])
        rate = options["lr"] / (1 - of_first**done)
        shrink = 1 - options["lr"] * options["weight_decay"]
        n = max(1, AT_ONCE // weight.shape[1])
        parts = (x.split(n) for x in (weight, gradient, state["exp_avg"], state["row_avg_sq"]))
        for w, g, first, second in zip(*parts, strict=True):
            squares = torch.linalg.vector_norm(g, dim=1, keepdim=True).square_() / g.shape[1]
            second.lerp_(squares, 1 - of_second)
            mean = first.to(w.dtype).lerp_(g, 1 - of_first)
            first.copy_(mean)
            scale = (second / (1 - of_second**done)).sqrt_().add_(options["eps"])
            w.mul_(shrink).sub_(mean.mul_(rate / scale))
