"""Kernels of Triton for very many clusters: one pass over memory instead of many.

They turn scores into slopes, where the products before and after stay with the libraries of the
GPU, and move the weights of a large head.  Without Triton, which is part of torch for CUDA on
Linux, :mod:`unsplit.networks.chunked` does the same in plain torch.

Every program of a kernel has sums of its own in memory, which are added up at the end: adding to
one place from many programs would make the last digits depend on which comes first.

A program takes some clusters of one observation after the other, and loads the scores of the next
while it computes; so sums over observations stay with the threads, and only those over clusters
are exchanged between them.  The clusters have two axes: threads, and the clusters of one thread.
One logarithm serves all clusters of a thread: Σ log(1 + e) = log Π (1 + e).  Logarithms and
divisions for every score took longer than the three products around them (docs/scale.md).
"""

import functools
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    from triton import language as tl
except ImportError:
    triton = None

# Observations of one program, threads side by side, clusters of a thread, and warps.
ROWS, LANES, EACH, WARPS = 64, 128, 16, 4
COLUMNS = LANES * EACH

# Clusters of a head that one program moves.
MOVED_ROWS = 4


def usable(device: torch.device) -> bool:
    """Whether the kernels can run on a device.

    Examples
    --------
    >>> usable(torch.device("cpu"))
    False
    """
    return reason_against(device) is None


@functools.cache
def reason_against(device: torch.device) -> str | None:
    """Why the kernels cannot run on a device; None if they can, which is tried once.

    Examples
    --------
    >>> reason_against(torch.device("cpu"))
    'kernels are for CUDA'
    """
    if device.type != "cuda":
        return "kernels are for CUDA"
    if triton is None:
        return "Triton is not installed"
    try:
        _try_out(device)
    except Exception as error:  # an old GPU, no compiler, or anything else that Triton needs
        return f"{type(error).__name__}: {error}"
    return None


def _try_out(device: torch.device) -> None:
    columns, ones = torch.zeros(2, dtype=torch.long, device=device), torch.ones(4, device=device)
    sums = KernelSums(columns, ones[:2], "pairwise", 2)
    sums.turn(torch.ones(2, 2, device=device), ones[:2], 0, ones[2:])
    if not torch.allclose(sums.slopes, torch.full_like(sums.slopes, 0.7310586)):
        raise RuntimeError(f"a kernel computed {sums.slopes.tolist()} instead of 0.731")


class KernelSums:
    """Turns scores into slopes in place, and sums them by observation.

    Parameters
    ----------
    columns : integer Tensor of shape (b,)
        Own cluster of each observation, −1 if it is not in this process.
    shift : Tensor of shape (b,)
    loss : {"softmax", "pairwise"}
    size : int
        The most clusters in a block.
    """

    def __init__(self, columns: Tensor, shift: Tensor, loss: str, size: int) -> None:
        self.columns, self.shift, self.pairwise = columns, shift.float(), loss == "pairwise"
        self.grid = _grid(len(columns), size)
        shape = self.grid[1], len(columns)
        self._values = torch.zeros(shape, dtype=torch.float32, device=shift.device)
        self._slopes = torch.zeros_like(self._values)
        self._of_bias = torch.empty((self.grid[0], size), dtype=torch.float32, device=shift.device)

    @property
    def values(self) -> Tensor:
        """Sum of softplus over the blocks so far, for every observation."""
        return self._values.sum(0)

    @property
    def slopes(self) -> Tensor:
        """Sum of the slopes so far, for every observation."""
        return self._slopes.sum(0)

    def turn(self, scores: Tensor, bias: Tensor, start: int, of_bias: Tensor) -> None:
        """Replace scores by slopes, and write the sum of the slopes of every cluster."""
        n_rows, n_columns = scores.shape
        parts = self._of_bias[:, :n_columns]
        tensors = scores, bias, self.shift, self.columns, self._values, self._slopes, parts
        numbers = start, n_rows, n_columns, parts.stride(0)
        even = n_columns % COLUMNS == 0
        _kernel("slopes")[_grid(n_rows, n_columns)](
            *tensors, *numbers, self.pairwise, even, ROWS, LANES, EACH, num_warps=WARPS
        )
        torch.sum(parts, 0, out=of_bias)


class KernelLogSumExp:
    """Logarithm of the sum of exp(score) over all blocks, for every observation.

    Parameters
    ----------
    columns : integer Tensor of shape (b,)
    size : int
        The most clusters in a block.
    """

    def __init__(self, columns: Tensor, size: int) -> None:
        self.columns = columns
        shape = _grid(len(columns), size)[1], len(columns)
        self._most = torch.full(shape, -torch.inf, dtype=torch.float32, device=columns.device)
        self._sums = torch.zeros_like(self._most)

    def add(self, scores: Tensor, bias: Tensor, start: int) -> None:
        """Add a block of scores."""
        n_rows, n_columns = scores.shape
        _kernel("log_sum_exp")[_grid(n_rows, n_columns)](
            *(scores, bias, self.columns, self._most, self._sums),
            *(start, n_rows, n_columns, n_columns % COLUMNS == 0, ROWS, LANES, EACH),
            num_warps=WARPS,
        )

    @property
    def value(self) -> Tensor:
        """The result of the blocks so far."""
        return (self._most + self._sums.log()).logsumexp(0)


def move_rows(
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
    """Move weights (k, h) by one step of :class:`LargeHeadAdamW`; all tensors are contiguous.

    ``corrections`` divide the moments, which start at zero.
    """
    n_rows, width = weight.shape
    _kernel("move")[(-(-n_rows // MOVED_ROWS),)](
        *(weight, gradient, first, second),
        *(*betas, *corrections, rate, shrink, eps),
        *(n_rows, width, MOVED_ROWS, 1 << (width - 1).bit_length()),
        num_warps=WARPS,
    )


def _grid(n_rows: int, n_columns: int) -> tuple[int, int]:
    return -(-n_rows // ROWS), -(-n_columns // COLUMNS)


def _kernel(name: str) -> Any:
    kernels = {
        "slopes": _slopes_kernel,
        "log_sum_exp": _log_sum_exp_kernel,
        "move": _move_kernel,
    }
    return kernels[name]


if triton is not None:

    @triton.jit
    def _multiply(one, other):
        return one * other

    # Division, exp and log of Triton also serve numbers that do not come here, and are slower.

    @triton.jit
    def _inverse(x):
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _exp(x):
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f,f",
            [x * 1.4426950408889634],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )

    @triton.jit
    def _log(x):
        return 0.6931471805599453 * tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _add_both(one, other, more_of_one, more_of_other):
        return one + more_of_one, other + more_of_other

    @triton.jit
    def _join(most, total, other_most, other_total):
        """The largest score and Σ exp(score − largest) of two parts together."""
        largest = tl.maximum(most, other_most)
        safe = tl.where(largest == float("-inf"), 0.0, largest)
        sums = total * tl.exp(most - safe) + other_total * tl.exp(other_most - safe)
        return largest, sums

    @triton.jit
    def _loaded(at, wanted, EVEN: tl.constexpr):
        if EVEN:
            return tl.load(at)
        else:
            return tl.load(at, mask=wanted, other=float("-inf"))

    @triton.jit
    def _without_own(scores, columns, first, place, N: tl.constexpr):
        """Scores of one observation; its own cluster adds nothing, if it is here at all."""
        if (place >= first) & (place < first + N):
            scores = tl.where(columns == place, float("-inf"), scores)
        return scores

    @triton.jit
    def _slopes_kernel(
        scores,
        bias,
        shift,
        own,
        values,
        slopes,
        of_bias,
        start,
        n_rows,
        n_columns,
        stride,
        PAIRWISE: tl.constexpr,
        EVEN: tl.constexpr,
        N_ROWS: tl.constexpr,
        N_LANES: tl.constexpr,
        N_EACH: tl.constexpr,
    ):
        row_tile, column_tile = tl.program_id(0), tl.program_id(1)
        first = column_tile * (N_LANES * N_EACH)
        columns = first + tl.arange(0, N_LANES)[:, None] * N_EACH + tl.arange(0, N_EACH)[None, :]
        wanted = columns < n_columns
        added = tl.load(bias + columns, mask=wanted, other=0.0).to(tl.float32)
        of_columns = tl.zeros((N_LANES, N_EACH), tl.float32)
        first_row = row_tile * N_ROWS
        last_row = tl.minimum(first_row + N_ROWS, n_rows)
        at = scores + first_row.to(tl.int64) * n_columns + columns
        coming = _loaded(at, wanted, EVEN)
        for row in range(first_row, last_row):
            margins = coming.to(tl.float32) + added - tl.load(shift + row)
            if row + 1 < last_row:
                coming = _loaded(at + n_columns, wanted, EVEN)
            place = (tl.load(own + row) - start).to(tl.int32)
            margins = _without_own(margins, columns, first, place, N_LANES * N_EACH)
            sums = column_tile * n_rows + row
            if PAIRWISE:
                small = _exp(-tl.abs(margins))
                above = 1.0 + small
                slope = tl.where(margins > 0, 1.0, small) * _inverse(above)
                value = tl.sum(tl.maximum(margins, 0.0), axis=1)
                value += _log(tl.reduce(above, 1, _multiply))
                value, total = tl.reduce((value, tl.sum(slope, axis=1)), 0, _add_both)
                tl.store(values + sums, tl.load(values + sums) + value)
            else:
                slope = _exp(margins)
                total = tl.sum(tl.sum(slope, axis=1), axis=0)
            tl.store(slopes + sums, tl.load(slopes + sums) + total)
            of_columns += slope
            if EVEN:
                tl.store(at, slope.to(scores.dtype.element_ty))
            else:
                tl.store(at, slope.to(scores.dtype.element_ty), mask=wanted)
            at += n_columns
        tl.store(of_bias + row_tile * stride + columns, of_columns, mask=wanted)

    @triton.jit
    def _log_sum_exp_kernel(
        scores,
        bias,
        own,
        most,
        sums,
        start,
        n_rows,
        n_columns,
        EVEN: tl.constexpr,
        N_ROWS: tl.constexpr,
        N_LANES: tl.constexpr,
        N_EACH: tl.constexpr,
    ):
        column_tile = tl.program_id(1)
        first = column_tile * (N_LANES * N_EACH)
        columns = first + tl.arange(0, N_LANES)[:, None] * N_EACH + tl.arange(0, N_EACH)[None, :]
        wanted = columns < n_columns
        added = tl.load(bias + columns, mask=wanted, other=0.0).to(tl.float32)
        first_row = tl.program_id(0) * N_ROWS
        last_row = tl.minimum(first_row + N_ROWS, n_rows)
        at = scores + first_row.to(tl.int64) * n_columns + columns
        coming = _loaded(at, wanted, EVEN)
        for row in range(first_row, last_row):
            found = coming.to(tl.float32) + added
            at += n_columns
            if row + 1 < last_row:
                coming = _loaded(at, wanted, EVEN)
            place = (tl.load(own + row) - start).to(tl.int32)
            found = _without_own(found, columns, first, place, N_LANES * N_EACH)
            of_lane = tl.max(found, axis=1)
            safe = tl.where(of_lane == float("-inf"), 0.0, of_lane)
            total = tl.sum(_exp(found - safe[:, None]), axis=1)
            here, total = tl.reduce((of_lane, total), 0, _join)
            place = column_tile * n_rows + row
            here, total = _join(tl.load(most + place), tl.load(sums + place), here, total)
            tl.store(most + place, here)
            tl.store(sums + place, total)

    @triton.jit
    def _move_kernel(
        weight,
        gradient,
        first,
        second,
        of_first,
        of_second,
        first_correction,
        second_correction,
        rate,
        shrink,
        eps,
        n_rows,
        width,
        N_ROWS: tl.constexpr,
        N_COLUMNS: tl.constexpr,
    ):
        rows = tl.program_id(0) * N_ROWS + tl.arange(0, N_ROWS)
        columns = tl.arange(0, N_COLUMNS)
        there = rows < n_rows
        inside = there[:, None] & (columns < width)[None, :]
        at = rows[:, None].to(tl.int64) * width + columns[None, :]
        slope = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        square = tl.sum(slope * slope, axis=1) / width
        before = tl.load(second + rows, mask=there, other=0.0)
        mean_square = of_second * before + (1.0 - of_second) * square
        tl.store(second + rows, mean_square, mask=there)
        mean = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        mean = of_first * mean + (1.0 - of_first) * slope
        tl.store(first + at, mean.to(first.dtype.element_ty), mask=inside)
        scale = tl.sqrt(mean_square / second_correction) + eps
        step = (rate / first_correction) * mean / scale[:, None]
        moved = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32) * shrink - step
        tl.store(weight + at, moved.to(weight.dtype.element_ty), mask=inside)
