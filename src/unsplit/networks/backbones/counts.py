"""Backbone for counts in sparse rows, such as words in texts or molecules in cells."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

# Number of rows at a time when means and variances are measured.
CHUNK_ROWS = 4096

TINY = 1e-30


class CountScaling(NamedTuple):
    """Scaling that makes rows of counts comparable: log(1 + value · total / row sum) − mean.

    Parameters
    ----------
    total : float
        The sum to which every row is scaled; 0 to use values unchanged.
    mean, scale : Tensor of shape (d,)
        Subtracted from each feature, and then multiplied with it.
    """

    total: float
    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, X: Any) -> "CountScaling":
        """Measure the scaling on the training rows.

        The total is the median sum of the rows, so that a count of one stays about one.  Counts
        are not divided by their standard deviations: the logarithm makes them comparable already,
        and dividing would only amplify the noise of rare features.  If any value is negative, the
        rows are not counts and are standardised like other vectors.  A feature that does not vary
        in these rows is left out (scale 0), because nothing can be learned from it.

        Parameters
        ----------
        X : CSR matrix of shape (n, d)
            Without repeated entries.

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
    """Turns sparse rows (b, d) of counts into features (b, width) with two hidden layers.

    The first layer reads only the stored entries, so that no batch becomes dense.  Its result is
    exactly that of a dense layer on rows that are scaled, log-transformed and centred.

    Parameters
    ----------
    scaling : CountScaling
        Measured on the training rows.
    width : int
        Units of both layers.

    Examples
    --------
    >>> import warnings
    >>> import scipy.sparse
    >>> X = scipy.sparse.csr_array([[4.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    >>> backbone = BagOfWords(CountScaling.of(X))
    >>> with warnings.catch_warnings(action="ignore"):  # torch calls such tensors a beta feature
    ...     rows = torch.tensor(X.toarray()).float().to_sparse_csr()
    >>> backbone(rows).shape
    torch.Size([2, 256])
    """

    total: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, scaling: CountScaling, width: int = 256) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor(scaling.total))
        self.register_buffer("mean", scaling.mean.clone())
        self.register_buffer("scale", scaling.scale.clone())
        self.out_features = width
        first = nn.Linear(len(scaling.mean), width)
        self.weight = nn.Parameter(first.weight.detach().T.contiguous())
        self.bias = first.bias
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x, a sparse CSR tensor."""
        # Where the entries of each row start; the last number is where all entries end.
        starts, features = x.crow_indices(), x.col_indices()
        values = self._logged(x.values(), starts) * self.scale[features]
        summed = _row_sums(features, self.weight, starts, values)
        # In bfloat16, small differences from a large mean would be lost.
        with torch.autocast(x.device.type, enabled=False):
            centre = (self.mean * self.scale) @ self.weight
        return self.layers(summed - centre + self.bias)

    def _logged(self, values: Tensor, starts: Tensor) -> Tensor:
        """Scale rows to the total and take logarithms, unless the total is zero."""
        same = torch.zeros(len(values), dtype=starts.dtype, device=starts.device)
        sums = _row_sums(same, values.new_ones(1, 1), starts, values.abs())[:, 0]
        # If only zeros are stored, the sum is zero.
        sums = sums.clamp(min=TINY).repeat_interleave(starts.diff(), output_size=len(values))
        # Tested on the device, because a test in Python would have to wait for it.
        logged = values.sign() * torch.log1p(values.abs() * self.total / sums)
        return torch.where(self.total > 0, logged, values)


def _row_sums(places: Tensor, table: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Sum the table rows that the entries of each row point to, with weights."""
    return F.embedding_bag(places, table, starts[:-1], mode="sum", per_sample_weights=weights)


def _logged(X: Any, sums: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Scale the rows of a CSR matrix to the total and take logarithms, unless it is zero."""
    values = X.data.astype(np.float64)
    sums = np.repeat(np.maximum(sums, TINY), np.diff(X.indptr))
    return np.log1p(values * total / sums) if total else values
