"""Random changes to sequences that do not change what they mean."""

import torch
from torch import Tensor, nn

from unsplit.errors import InputError
from unsplit.networks.network import normal_like, uniform_like


class SequenceAugmentation(nn.Module):
    """Shift sequences in time, hide a part of them and add noise in training.

    Input and output are standardised channels with their mask, shape (b, C + 1, L).  The mask is
    changed too: what moves out of the array is lost, and what is hidden or moves in is padding.

    Parameters
    ----------
    shift : float
        Largest shift, earlier or later, as a share of the length of the sequence.
    hide : float
        Longest hidden part, as a share of the length of the sequence.
    noise : float
        Largest standard deviation of the noise, in standard deviations of the channels.  It is
        drawn for every sequence, so that some stay as clean as those that are scored later.

    Examples
    --------
    >>> augmentation = for_sequences()
    >>> x = torch.ones(2, 3, 100)
    >>> augmentation(x).shape, augmentation.eval()(x) is x
    (torch.Size([2, 3, 100]), True)
    """

    def __init__(self, shift: float = 0.1, hide: float = 0.1, noise: float = 0.02) -> None:
        super().__init__()
        for name, share in {"shift": shift, "hide": hide}.items():
            if not 0 <= share < 0.5:
                raise InputError(
                    f"{name} must be a share of the length from 0 to less than 0.5, got {share!r}."
                )
        if not noise >= 0:
            raise InputError(f"noise must not be negative, got {noise!r}.")
        self.shift, self.hide, self.noise = shift, hide, noise

    def forward(self, x: Tensor) -> Tensor:
        """Return a changed copy of x in training, otherwise x itself."""
        if not self.training:
            return x
        if self.shift:
            x = shifted(x, self._moves(x))
        if self.hide:
            x = x * self._seen(x)
        if self.noise:
            x = self._noisy(x)
        return x

    def _moves(self, x: Tensor) -> Tensor:
        """Draw the shift of each sequence, shape (b, 1); negative means earlier."""
        length = x[:, -1].sum(-1, keepdim=True)
        return ((2 * uniform_like(length) - 1) * self.shift * length).trunc().long()

    def _seen(self, x: Tensor) -> Tensor:
        """Draw the part to hide: 0 there, 1 elsewhere, shape (b, 1, L)."""
        mask = x[:, -1]
        length = mask.sum(-1, keepdim=True)
        hidden = (uniform_like(length) * self.hide * length).trunc()
        start = (uniform_like(length) * (length - hidden + 1)).trunc()
        place = mask.cumsum(-1) - 1  # counts positions that are not padding
        seen = (place < start) | (place >= start + hidden)
        return seen.unsqueeze(1).to(x.dtype)

    def _noisy(self, x: Tensor) -> Tensor:
        values, mask = x[:, :-1], x[:, -1:]
        width = self.noise * uniform_like(mask[..., :1])
        return torch.cat([values + width * normal_like(values) * mask, mask], dim=1)


def for_sequences() -> SequenceAugmentation:
    """Choose changes that suit most sequences.

    Shifts and hidden parts are up to a tenth of the length.  There is little noise, because
    loudness spans orders of magnitude: noise that is hardly heard in a loud recording drowns a
    quiet one.

    Examples
    --------
    >>> for_sequences().shift
    0.1
    """
    return SequenceAugmentation()


def shifted(x: Tensor, moves: Tensor) -> Tensor:
    """Shift every sequence by a number of positions; zeros move in, also into the mask.

    Parameters
    ----------
    x : Tensor of shape (b, C, L)
    moves : integer Tensor of shape (b, 1)
        Positive means later.

    Examples
    --------
    >>> shifted(torch.tensor([[[1, 2, 3]], [[4, 5, 6]]]), torch.tensor([[1], [-2]]))
    tensor([[[0, 1, 2]],
            [[6, 0, 0]]])
    """
    length = x.shape[-1]
    source = torch.arange(length, device=x.device) - moves
    inside = ((source >= 0) & (source < length)).unsqueeze(1)
    source = source.clamp(0, length - 1).unsqueeze(1).expand(x.shape)
    return x.gather(-1, source) * inside
