"""AdamW that keeps fewer numbers for very large heads."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unsplit.networks.chunked_kernel import move_rows, usable

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
        self.large, self.kernel = large, usable(device)

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
        done = float(state["step"])
        of_first, of_second = options["betas"]
        corrections = 1 - of_first**done, 1 - of_second**done
        shrink = 1 - options["lr"] * options["weight_decay"]
        first, second = state["exp_avg"], state["row_avg_sq"]
        numbers = options["betas"], corrections, options["lr"], shrink, options["eps"]
        if self.kernel:
            move_rows(weight, gradient.contiguous(), first, second, *numbers)
            return
        n = max(1, AT_ONCE // weight.shape[1])
        parts = (x.split(n) for x in (weight, gradient, first, second))
        for w, g, m, v in zip(*parts, strict=True):
            _move_rows(w, g, m, v, *numbers)


def _move_rows(
    weight: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    betas: tuple[float, float],
    corrections: tuple[float, float],
    rate: float,
    shrink: float,
    eps: float,
) -> None:
    """What the kernel :func:`move_rows` does, in plain torch."""
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    second.lerp_(norms.square_() / gradient.shape[1], 1 - betas[1])
    mean = first.to(weight.dtype).lerp_(gradient, 1 - betas[0])
    first.copy_(mean)
    scale = (second / corrections[1]).sqrt_().add_(eps)
    weight.mul_(shrink).sub_(mean.mul_(rate / corrections[0] / scale))
