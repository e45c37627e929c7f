"""Backbone for counts: sparse rows, of words in texts or of molecules in cells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from unsplit.errors import InputError

# Rows looked at together when moments are taken.
CHUNK_ROWS = 4096

# What rows are brought to if there are none to ask: the custom for single cells.
USUAL_TOTAL = 1e4

TINY = 1e-30


@dataclass(frozen=True, eq=False)
class CountScaling:
    """How rows of counts become comparable: log(1 + value · total / row sum), less the mean.

    Parameters
    ----------
    total : float
        The sum every row is brought to; 0 if values are taken as they are.
    mean, scale : Tensor of shape (d,)
        What is then subtracted from each feature, and what it is multiplied by after that.
    """

    total: float
    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, X: Any) -> "CountScaling":
        """Measure the rows of a CSR matrix (n, d) without repeated entries: those trained on.

        The total is the median of the rows' own, so that a count of one stays about one.  The
        logarithm has levelled counts already: dividing by their deviations as well would only
        make the noise of rare features loud.  With any negative value the rows are no counts, so
        they are standardised like other vectors.  A feature that does not vary among these rows
        is left out (scale 0), as nothing can be learned about it.

        Examples
        --------
        >>> import scipy.sparse
        >>> scaling = CountScaling.of(scipy.sparse.csr_array([[4.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
        >>> scaling.total, scaling.mean
        (3.0, tensor([0.4621, 0.4621]))
        """
        sums = np.asarray(abs(X).sum(axis=1)).ravel()
        counts = sums.any() and X.data.min() >= 0
        total = float(np.median(sums[sums > 0])) if counts else 0.0
        first, second = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for start in range(0, X.shape[0], CHUNK_ROWS):
            chunk = X[start : start + CHUNK_ROWS]
            values = _logged(chunk, sums[start : start + CHUNK_ROWS], total)
            first += np.bincount(chunk.indices, values, X.shape[1])
            second += np.bincount(chunk.indices, values**2, X.shape[1])
        mean, square = first / X.shape[0], second / X.shape[0]
        varies = square - mean**2 > 1e-9 * square  # the rest is rounding
        variance = np.where(varies, square - mean**2, 1.0)
        scale = varies if counts else varies / np.sqrt(variance)
        mean_, scale_ = (torch.from_numpy(v.astype(np.float32)) for v in (mean, scale))
        return cls(total, mean_, scale_)


class BagOfWords(nn.Module):
    """Sparse rows (b, d) to features (b, width): an :class:`MLP` on counts.

    Its first layer reads the present entries only, so that no batch is ever dense, and gives
    exactly what a dense layer would give for rows that are scaled, logged and centred.

    Parameters
    ----------
    in_features : int
        d.
    width : int
        Units of both layers.
    scaling : CountScaling, optional
        From the rows trained on.  Without, rows are brought to :data:`USUAL_TOTAL` and logged;
        that learns more slowly, as features common to everything first outweigh the others.

    Examples
    --------
    >>> import warnings
    >>> import scipy.sparse
    >>> X = scipy.sparse.csr_array([[4.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    >>> backbone = BagOfWords(3, scaling=CountScaling.of(X))
    >>> with warnings.catch_warnings(action="ignore"):  # torch calls such tensors a beta feature
    ...     rows = torch.tensor(X.toarray()).float().to_sparse_csr()
    >>> backbone(rows).shape
    torch.Size([2, 256])
    """

    total: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(
        self, in_features: int, width: int = 256, scaling: CountScaling | None = None
    ) -> None:
        super().__init__()
        if scaling is None:
            scaling = CountScaling(USUAL_TOTAL, torch.zeros(in_features), torch.ones(in_features))
        if len(scaling.mean) != in_features:
            raise InputError(
                f"scaling was measured on {len(scaling.mean)} features, but there are "
                f"{in_features}; measure the rows that are trained on."
            )
        self.register_buffer("total", torch.tensor(scaling.total))
        self.register_buffer("mean", scaling.mean.clone())
        self.register_buffer("scale", scaling.scale.clone())
        self.out_features = width
        first = nn.Linear(in_features, width)
        self.weight = nn.Parameter(first.weight.detach().T.contiguous())
        self.bias = first.bias
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of x, a sparse CSR tensor."""
        # Where each row's entries start; the last one ends where the entries do.
        starts, features = x.crow_indices(), x.col_indices()
        values = self._logged(x.values(), starts) * self.scale[features]
        summed = _row_sums(features, self.weight, starts, values)
        # In bfloat16 a large mean would leave too little of what differs from it.
        with torch.autocast(x.device.type, enabled=False):
            centre = (self.mean * self.scale) @ self.weight
        return self.layers(summed - centre + self.bias)

    def _logged(self, values: Tensor, starts: Tensor) -> Tensor:
        """Present values with rows brought to the total, and logged; or as they are."""
        same = torch.zeros(len(values), dtype=starts.dtype, device=starts.device)
        sums = _row_sums(same, values.new_ones(1, 1), starts, values.abs())[:, 0]
        # Zeros may be stored, and then make a sum of zero.
        sums = sums.clamp(min=TINY).repeat_interleave(starts.diff(), output_size=len(values))
        # A total of zero is tried here and not in Python, which would have to wait for the device.
        logged = values.sign() * torch.log1p(values.abs() * self.total / sums)
        return torch.where(self.total > 0, logged, values)


def _row_sums(places: Tensor, table: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """For every row, the sum of the lines of a table its entries point at, times their weights."""
    return F.embedding_bag(places, table, starts[:-1], mode="sum", per_sample_weights=weights)


def _logged(X: Any, sums: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Present values of a CSR matrix with rows brought to the total, and logged; or as they are."""
    values = X.data.astype(np.float64)
    sums = np.repeat(np.maximum(sums, TINY), np.diff(X.indptr))
    return np.log1p(values * total / sums) if total else values
