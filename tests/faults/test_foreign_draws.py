"""Modules of the user draw from torch's global generator, which is put back afterwards."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import unsplit
from benchmarks.common import as_options
from unsplit.devices import Generators, private_randomness

CPU = torch.device("cpu")


@contextmanager
def untouched() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before), "torch's global generator has moved"


def test_lent_numbers_are_those_of_the_generators() -> None:
    expected = torch.rand(6, generator=torch.Generator().manual_seed(3))
    generators = Generators(3)
    with untouched():
        with generators.lent(CPU):
            found = [torch.rand(1), torch.rand(1, generator=generators.of(CPU))]
        found.append(torch.rand(1, generator=generators.of(CPU)))
        with generators.lent(CPU):
            with Generators(4).lent(CPU):
                torch.rand(5)
            found.append(torch.rand(1))
        states = generators.states()
        found.append(torch.rand(1, generator=generators.of(CPU)))
        generators.continue_from(states)
        with generators.lent(CPU):
            found += [torch.rand(1)]
    assert torch.equal(torch.cat(found[:5]), expected[:5])
    assert torch.equal(found[4], found[5])


def test_the_global_generator_is_put_back_after_an_error() -> None:
    def fail() -> None:
        with private_randomness(3, CPU):
            raise ZeroDivisionError(torch.rand(1))

    with untouched(), pytest.raises(ZeroDivisionError):
        fail()


def test_only_one_thread_at_a_time_is_lent_the_global_generator() -> None:
    inside, most = [], []

    def draw(seed: int) -> torch.Tensor:
        with Generators(seed).lent(CPU):
            inside.append(seed)
            most.append(len(inside))
            found = torch.cat([torch.rand(1) for _ in range(200)])
            inside.remove(seed)
        return found

    with untouched(), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(draw, range(8)))
    assert max(most) == 1
    for seed, drawn in enumerate(found):
        expected = torch.rand(200, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(drawn, expected)


# Whole runs.


class Noisy(nn.Module):
    """An augmentation of a user."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.rand(x.shape, device=x.device) + 0.1 * torch.randn_like(x)


class Items(torch.utils.data.Dataset[torch.Tensor]):
    """A dataset of a user, whose items are changed at random."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = torch.from_numpy(X)

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.X[index] + 0.1 * torch.rand(3)


class Attending(nn.Module):
    """A network of a user, with attention, dropout and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.bring = nn.Linear(3, 32)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(self.bring(x).unflatten(1, (4, 8))).flatten(1))


class Forgetting(nn.Linear):
    """A network of a user that computes a part again for the gradients."""

    def __init__(self) -> None:
        super().__init__(3, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def part(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(super(Forgetting, self).forward(x), 0.3, self.training)

        return checkpoint(part, x, use_reentrant=False) if torch.is_grad_enabled() else part(x)


class Remembering(Forgetting):
    """The same, computed once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(nn.Linear.forward(self, x), 0.3, self.training)


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.3))


def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((30, 3)) + shift for shift in (0.0, 0.5, 3.0)])
    return X.astype(np.float32), np.repeat([0, 1, 2], 30)


def tvd(X: object, y: np.ndarray, **options: object) -> np.ndarray:
    return unsplit.pairwise_tvd(X, y, cv=2, random_state=0, **as_options(epochs=2, **options)).tvd


def selected(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    trials = unsplit.select(
        X, y, [with_dropout, Attending], training=unsplit.TrainConfig(epochs=2), random_state=0
    ).trials
    return np.array([trial.mean_accuracy for trial in trials])


def predicted(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    merger = unsplit.ClusterMerger(
        backbone=AlwaysDropping, training=unsplit.TrainConfig(epochs=2), cv=2, random_state=0
    )
    return merger.fit(X, initial_labels=y).predict_proba(X)


class AlwaysDropping(nn.Linear):
    """A network of a user that draws also when it is evaluated."""

    def __init__(self) -> None:
        super().__init__(3, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), 0.3, training=True)


RUNS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "dropout": lambda X, y: tvd(X, y, backbone=with_dropout),
    "transformer": lambda X, y: tvd(X, y, backbone=Attending),
    "augmentation": lambda X, y: tvd(X, y, augment=Noisy()),
    "dataset": lambda X, y: tvd(Items(X), y),
    "select": selected,
    "predict": predicted,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_the_global_generator_alone(name: str) -> None:
    X, y = points()
    call, found = RUNS[name], []
    for _ in range(2):
        with untouched():
            found.append(call(X, y))
        torch.rand(1)  # what others draw in between changes nothing
    np.testing.assert_array_equal(*found)


def test_features_leave_the_global_generator_alone() -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    with torch.random.fork_rng():
        network = AlwaysDropping()
    with untouched():
        found = [unsplit.features(network, X, device="cpu") for _ in range(2)]
    assert (found[0] == 0).any()


def test_a_part_that_is_computed_again_draws_the_same_numbers_again() -> None:
    X, y = points()
    options = {"training": unsplit.TrainConfig(batch_folds=False)}
    found = [tvd(X, y, backbone=kind, **options) for kind in (Forgetting, Remembering)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", RUNS)
def test_four_threads_get_what_one_gets(name: str) -> None:
    call, (X, y) = RUNS[name], points()
    alone = call(X, y)
    with untouched(), ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda _: call(X, y), range(4)))
    for found in beside:
        np.testing.assert_array_equal(found, alone)


def test_our_own_networks_beside_a_thread_that_draws_all_the_time() -> None:
    (X, y), ended, drawn = points(), threading.Event(), []
    alone = tvd(X, y)

    def draw() -> None:
        while not ended.is_set():
            drawn.append(torch.rand(3))

    state = torch.get_rng_state()
    drawing = threading.Thread(target=draw)
    drawing.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            beside = list(pool.map(lambda _: tvd(X, y), range(4)))
    finally:
        ended.set()
        drawing.join()
    for found in beside:
        np.testing.assert_array_equal(found, alone)
    # The other thread got the numbers that it would have got alone.
    expected = torch.Generator()
    expected.set_state(state)
    assert torch.equal(
        torch.stack(drawn), torch.stack([torch.rand(3, generator=expected) for _ in drawn])
    )


def test_a_run_on_a_gpu_leaves_its_global_generator_alone() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    (X, y), before = points(), torch.cuda.get_rng_state()
    found = [tvd(X, y, backbone=with_dropout, device="cuda") for _ in range(2)]
    assert torch.equal(torch.cuda.get_rng_state(), before)
    np.testing.assert_allclose(*found, atol=1e-3)
