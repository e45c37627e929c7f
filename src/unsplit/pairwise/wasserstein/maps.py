"""Many maps side by side, none of which lengthens a distance."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

# Number of directions that narrow and wide folding maps fold (even numbers), and their layers.
WIDTHS = 2, 16
DEPTH = 4

# Length of Adam's usual step: of a matrix, in the Frobenius norm; of a bias or a coordinate of a
# centre, relative to the data's.  With the betas below no step is longer than 2.35 times that, and
# Newton's iteration converges from every start within 0.73.
MATRIX_STEP = 0.2
SHIFT_STEP = 0.05

# This many steps take singular values from 1 ± MATRIX_STEP to 1 within single precision.
NEWTON_STEPS = 4


class LipschitzMaps(nn.Module):
    """B maps of three kinds, none of which lengthens a distance, for each of M models.

    The kinds are narrow and wide :class:`FoldingMaps`, and :class:`RadialMaps`.  How a map changes
    the difference δ of two observations follows from δ itself and the output of :meth:`forward`:

        |map(x) − map(y)|² = keeps · |δ|² + Σ signs · (forward(x) − forward(y))².

    Parameters
    ----------
    n_models, n_maps : int
        Number of models, such as one for each fold of cross-fitting, and of maps of each kind.
    n_features : int
        Features of x.  Rows should have mean zero and E|x|² = 1, because folds and centres are
        drawn for such data.

    ``signs`` has shape (B, h), ``keeps`` and ``kind`` (numbers from 1 on) have shape (B,).
    """

    signs: Tensor
    keeps: Tensor
    kind: Tensor

    def __init__(self, n_models: int, n_maps: int, n_features: int) -> None:
        super().__init__()
        self.folding = [FoldingMaps(n_models, n_maps, n_features, width) for width in WIDTHS]
        self.radial = RadialMaps(n_models, n_maps, n_features)
        self.kinds = nn.ModuleList([*self.folding, self.radial])  # so torch finds their parameters
        self.n_columns = [*(2 * width for width in WIDTHS), 1]
        signs = torch.zeros(len(self.kinds), max(self.n_columns))
        for row, width in zip(signs, WIDTHS, strict=False):
            row[:width], row[width : 2 * width] = 1.0, -1.0
        signs[-1, 0] = 1.0
        keeps = torch.tensor([1.0] * len(WIDTHS) + [0.0])
        kind = torch.arange(1, len(self.kinds) + 1)
        for name, values in (("signs", signs), ("keeps", keeps), ("kind", kind)):
            self.register_buffer(name, values.repeat_interleave(n_maps, dim=0))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the maps for x (M, b, n_features), shape (M, B, b, h), padded with zeros."""
        h = self.signs.shape[1]
        found = self.by_kind(x)
        return torch.cat([nn.functional.pad(f, (0, h - f.shape[-1])) for f in found], dim=1)

    def by_kind(self, x: Tensor) -> list[Tensor]:
        """The outputs for each kind of map, without padding."""
        return [maps(x) for maps in self.kinds]

    def split(self, values: Tensor) -> list[Tensor]:
        """Split values of the shape of :meth:`forward` by kind of map, without padding."""
        parts = zip(values.chunk(len(self.kinds), dim=1), self.n_columns, strict=True)
        return [part[..., :n].clone() for part, n in parts]

    def optimizer(self) -> torch.optim.Adam:
        """Adam with steps small enough for :meth:`make_orthonormal`."""
        groups = [{"params": [self.radial.centres], "lr": SHIFT_STEP * self.radial.typical}]
        for maps in self.folding:
            groups.append({"params": list(maps.biases), "lr": SHIFT_STEP * maps.typical})
            for w in maps.weights:
                rate = MATRIX_STEP / math.sqrt(w.shape[-1] * w.shape[-2])
                groups.append({"params": [w], "lr": rate})
        return torch.optim.Adam(groups, betas=(0.9, 0.99))

    @torch.no_grad()
    def make_orthonormal(self) -> None:
        """Make all matrices orthonormal again after a training step."""
        for maps in self.folding:
            for weight in maps.weights:
                weight.copy_(nearest_orthonormal(weight))


class FoldingMaps(nn.Module):
    """Maps x → (x − UUᵀx, ψ(Uᵀx)) that fold a few directions and leave the others unchanged.

    U has ``width`` orthonormal columns (or rows, where there are fewer features), and ψ alternates
    rotations with :func:`fold_coordinates`.  Without the folds such a map would be an isometry, so
    differences of means are seen from the start, and training can only add to them.
    """

    def __init__(self, n_models: int, n_maps: int, n_features: int, width: int) -> None:
        super().__init__()
        sizes, stack = [n_features] + [width] * DEPTH, (n_models, n_maps)
        self.typical = 1 / math.sqrt(max(n_features, width))
        self.weights = nn.ParameterList([_orthonormal(*stack, a, b) for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList(
            [self.typical * torch.randn(*stack, 1, width // 2) for _ in range(DEPTH)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """ψ(Uᵀx) and Uᵀx, shape (M, n_maps, b, 2 · width)."""
        inside = x[:, None] @ self.weights[0]
        folded = fold_coordinates(inside, self.biases[0])
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            folded = fold_coordinates(folded @ weight, bias)
        return torch.cat([folded, inside], dim=-1)


class RadialMaps(nn.Module):
    """Maps x → |x − c|, the distance from a point.

    They are needed where one cluster is a stretched copy of another, in any number of dimensions.
    """

    def __init__(self, n_models: int, n_maps: int, n_features: int) -> None:
        super().__init__()
        self.typical = 1 / math.sqrt(n_features)
        self.centres = nn.Parameter(self.typical * torch.randn(n_models, n_maps, n_features))

    def forward(self, x: Tensor) -> Tensor:
        """Distances, shape (M, n_maps, b, 1)."""
        # Matrix products would lose digits between close points.
        exactly = "donot_use_mm_for_euclid_dist"
        return torch.cdist(self.centres, x, compute_mode=exactly)[..., None]


def fold_coordinates(z: Tensor, bias: Tensor) -> Tensor:
    """Fold the first half of the coordinates, each at minus its bias; no distance grows.

    Between rotations this is equivalent to sorting coordinates in pairs (GroupSort), which is the
    same fold turned by 45 degrees, and it is faster.

    Examples
    --------
    >>> fold_coordinates(torch.tensor([-3.0, 1.0, -5.0, 7.0]), torch.tensor([1.0, 1.0]))
    tensor([ 2.,  2., -5.,  7.])
    """
    half = bias.shape[-1]
    return torch.cat([(z[..., :half] + bias).abs(), z[..., half:]], dim=-1)


def nearest_orthonormal(weight: Tensor) -> Tensor:
    """The orthonormal matrix (..., a, b) closest to one that is nearly orthonormal.

    Uses Newton's iteration for the polar factor, which needs only matrix products and is therefore
    fast on every device.

    Examples
    --------
    >>> nearest_orthonormal(torch.tensor([[0.9, 0.0], [0.0, 1.1]]))
    tensor([[1.0000, 0.0000],
            [0.0000, 1.0000]])
    """
    tall = weight.shape[-2] > weight.shape[-1]
    for _ in range(NEWTON_STEPS):
        cubed = weight @ (weight.mT @ weight) if tall else (weight @ weight.mT) @ weight
        weight = 1.5 * weight - 0.5 * cubed
    return weight


def _orthonormal(n_models: int, n_maps: int, a: int, b: int) -> Tensor:
    """Random matrices (M, B, a, b) with orthonormal columns, or rows if there are fewer of them."""
    drawn = torch.linalg.qr(torch.randn(n_models, n_maps, max(a, b), min(a, b))).Q
    return (drawn if a >= b else drawn.mT).contiguous()
