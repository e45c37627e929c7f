"""Finds nearest neighbours: exactly where that is fast, otherwise within nearby regions."""

import numpy as np
import torch
from torch import Tensor

from unsplit._typing import Index, Matrix
from unsplit.devices import usual_settings

# Otherwise each observation is compared with the members of its nearest regions, which together
# hold this many observations.
COMPARED = 10_000

# Regions are made by k-means on a sample: REGIONS_PER_ROOT · √n regions in STEPS iterations.
REGIONS_PER_ROOT = 2
SAMPLED_PER_REGION = 32
STEPS = 5

# Largest number of distances, which should fit into the processor cache, and of nearest regions in
# memory at a time.
MOST_DISTANCES = 2**22
MOST_NEAR = 2**25
# Numbers in the differences of points that are measured at a time.
MOST_MEASURED = 2**18


@usual_settings()
def by_regions(
    X: Matrix, n_neighbours: int, device: torch.device | None = None, compared: int = COMPARED
) -> tuple[Index, Matrix]:
    """Neighbours among at least ``compared`` observations in the nearest regions (inverted file).

    The regions are not the over-clustering, because that may have been split at random, and because
    the edges across its borders are to be counted.
    """
    if device is None or device.type == "mps":  # which has no float64
        device = torch.device("cpu")
    centred = X - X.mean(axis=0)
    # Not the standard deviation of X, which would copy X once more.
    scale = float(np.einsum("ij,ij->", centred, centred) / X.size) ** 0.5 or 1.0
    centred /= scale
    points = torch.from_numpy(centred)
    centres = _centres(points, min(round(REGIONS_PER_ROOT * len(X) ** 0.5), len(X)))
    search = _Search(points.to(device), centres.to(device), n_neighbours)
    rows, distances = search.neighbours(max(compared, n_neighbours + 1))
    return rows.cpu().numpy(), scale * distances.cpu().numpy()


class _Search:
    """Points (n, d), sorted by region, and the nearest neighbours found so far."""

    def __init__(self, points: Tensor, centres: Tensor, n_neighbours: int) -> None:
        used, centre_of, self.sizes = _nearest_centres(points, centres).unique(
            return_inverse=True, return_counts=True
        )
        self.order = centre_of.argsort(stable=True)
        self.points, self.centres = points[self.order], centres[used]
        self.ends = [0, *self.sizes.cumsum(0).tolist()]
        shape = (len(points), n_neighbours)
        self.found = torch.zeros(shape, dtype=torch.int64, device=points.device)
        self.squares = torch.full(shape, torch.inf, device=points.device)  # nearest first

    def neighbours(self, compared: int) -> tuple[Tensor, Tensor]:
        """Rows and distances of the nearest points in regions that hold ``compared`` points."""
        # Twice as many regions as are needed on average, and enough to hold all neighbours even if
        # they are the smallest regions.
        n_near = 2 * -(-compared * len(self.sizes) // len(self.points))
        fewest = self.sizes.sort().values.cumsum(0)
        n_near = max(n_near, int((fewest <= self.found.shape[1]).sum()) + 1)
        n_near = min(n_near, len(self.sizes))
        rows = torch.arange(len(self.points), device=self.points.device)
        for some in rows.split(max(1, MOST_NEAR // n_near)):
            near = self._near(self.points[some], n_near)
            sizes = self.sizes.int()[near]
            visited = sizes.cumsum(dim=1, dtype=torch.int32) - sizes < compared
            del sizes
            # The nearest region comes first, because few of the others then hold nearer points.
            for columns in (slice(1), slice(1, None)):
                self._visit(some, near[:, columns], visited[:, columns])
        return self._sorted()

    def _near(self, points: Tensor, n_near: int) -> Tensor:
        """The nearest regions of each point, nearest first."""
        blocks = (_squares(some, self.centres) for some in _blocks(points, len(self.centres)))
        # Small numbers in half the memory, of which this takes the most.
        return torch.cat([b.topk(n_near, dim=1, largest=False).indices.int() for b in blocks])

    def _visit(self, rows: Tensor, near: Tensor, visited: Tensor) -> None:
        """Compare rows with the members of their nearby regions that are marked as visited."""
        regions, order = near[visited].sort(stable=True)
        visitors = rows[visited.nonzero()[order, 0]]
        counts = regions.bincount(minlength=len(self.sizes)).tolist()
        for region, here in enumerate(visitors.split(counts)):
            if len(here):
                for some in _blocks(here, self.ends[region + 1] - self.ends[region]):
                    self._compare(some, region)

    def _compare(self, rows: Tensor, region: int) -> None:
        start, stop = self.ends[region : region + 2]
        members = torch.arange(start, stop, device=rows.device)
        # Relative to the centre, because float32 would lose digits otherwise.
        left, right = (
            (self.points[some] - self.centres[region]).float() for some in (rows, members)
        )
        squares = _squares(left, right)
        squares += left.square().sum(dim=1, keepdim=True)
        itself = ((rows >= start) & (rows < stop)).nonzero().squeeze(1)
        squares[itself, rows[itself] - start] = torch.inf
        nearer = (squares.amin(dim=1) < self.squares[rows, -1]).nonzero().squeeze(1)
        rows, squares = rows[nearer], squares[nearer]
        squares = torch.cat([self.squares[rows], squares], dim=1)
        found = torch.cat([self.found[rows], members.expand(len(rows), -1)], dim=1)
        self.squares[rows], best = squares.topk(self.found.shape[1], dim=1, largest=False)
        self.found[rows] = found.gather(1, best)

    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The neighbours in the order of the data, sorted by exact distances."""
        lengths = torch.empty(self.found.shape, dtype=self.points.dtype, device=self.found.device)
        # Small parts, because freed large ones were not reused for the next.
        step = max(1, MOST_MEASURED // (self.found.shape[1] * self.points.shape[1]))
        for start in range(0, len(lengths), step):
            some = slice(start, start + step)
            apart = self.points[self.found[some]] - self.points[some, None]
            lengths[some] = apart.norm(dim=2)
        distances, best = lengths.sort(dim=1, stable=True)
        back = self.order.argsort()
        return self.order[self.found.gather(1, best)][back], distances[back]


def _centres(points: Tensor, n_regions: int) -> Tensor:
    """Centres of regions by a few steps of k-means; the same on every device."""
    n_sampled = min(len(points), SAMPLED_PER_REGION * n_regions)
    sample = points[np.random.default_rng(0).choice(len(points), n_sampled, replace=False)]
    centres = sample[:n_regions]
    for _ in range(STEPS):
        centre_of = _nearest_centres(sample, centres)
        counts = centre_of.bincount(minlength=n_regions)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, centre_of, sample)
        centres = torch.where(counts > 0, sums / counts, centres)
    return centres


def _nearest_centres(points: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre of each point."""
    blocks = _blocks(points, len(centres))
    return torch.cat([_squares(some, centres).argmin(dim=1) for some in blocks])


def _blocks(points: Tensor, width: int) -> tuple[Tensor, ...]:
    return points.split(max(1, MOST_DISTANCES // width))


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """Squared distances minus the squared lengths of the left vectors."""
    return torch.addmm(right.square().sum(dim=1), left, right.T, alpha=-2)
