"""AdamW as torch computes it, and AdamW that keeps fewer numbers for very large heads."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from unsplit.networks.chunked_kernel import move_rows, usable

# Numbers of a matrix that are updated at a time.
AT_ONCE = 2**24

BETAS, EPS = (0.9, 0.999), 1e-8


class AdamW:
    """AdamW by torch's own function, fused into one kernel if the device supports that.

    ``torch.optim.AdamW`` does the same, but loads torch's compiler when it is made, which nothing
    here uses: two seconds and 75 MiB in every program.

    Parameters
    ----------
    params : iterable of Tensor
    learning_rate, weight_decay : float
    device : torch.device

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = AdamW([weight], 0.1, 0.0, torch.device("cpu"))
    >>> weight.grad = torch.tensor([1.0, -2.0])
    >>> optimizer.step()
    >>> weight.detach()  # the first step has the length of the learning rate
    tensor([0.9000, 1.1000])
    """

    # Whether a GPU can repeat a step by itself: nothing of it is computed by the processor.
    can_be_recorded = True

    def __init__(
        self,
        params: Iterable[Tensor],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        self.params = list(params)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.fused = device.type in ("cpu", "cuda")
        # Of each parameter that was moved: the number of steps, and both moments.
        self.state: dict[Tensor, dict[str, Any]] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self.params:
            param.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        moved = [param for param in self.params if param.grad is not None]
        if not moved:
            return
        states = [self._state_of(param) for param in moved]
        names = "exp_avg", "exp_avg_sq", "step"
        first, second, steps = ([state[name] for state in states] for name in names)
        adamw(
            moved,
            [param.grad for param in moved if param.grad is not None],
            first,
            second,
            [],
            steps,
            fused=self.fused,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            eps=EPS,
            maximize=False,
        )

    def _state_of(self, param: Tensor) -> dict[str, Any]:
        if param not in self.state:
            device = param.device if self.fused else None  # where the kernel looks for it
            self.state[param] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(param),
                "exp_avg_sq": torch.zeros_like(param),
            }
        return self.state[param]


class LargeHeadAdamW(AdamW):
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

    can_be_recorded = False  # the corrections for the number of steps are the processor's

    def __init__(
        self,
        params: Sequence[Tensor],
        large: Sequence[Tensor],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, device)
        self.large, self.kernel = large, usable(device)

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient by one step."""
        gradients = [weight.grad for weight in self.large]
        for weight in self.large:
            weight.grad = None  # AdamW leaves out what has no gradient
        super().step()
        for weight, gradient in zip(self.large, gradients, strict=True):
            weight.grad = gradient
            if gradient is not None:
                self._move(weight, gradient)

    def _move(self, weight: Tensor, gradient: Tensor) -> None:
        if weight not in self.state:
            self.state[weight] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(weight, dtype=torch.bfloat16),
                "row_avg_sq": weight.new_zeros((len(weight), 1)),
            }
        state = self.state[weight]
        state["step"] += 1
        done = float(state["step"])
        corrections = 1 - BETAS[0] ** done, 1 - BETAS[1] ** done
        shrink = 1 - self.learning_rate * self.weight_decay
        first, second = state["exp_avg"], state["row_avg_sq"]
        numbers = BETAS, corrections, self.learning_rate, shrink, EPS
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
