"""The same seed gives the same result, also beside other threads, and bad seeds are refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
import torch

import unsplit
from unsplit.devices import generator_of, own_generator, private_randomness

CPU = torch.device("cpu")


def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((30, 3)) + shift for shift in (0.0, 0.5, 3.0)])
    return X, np.repeat([0, 1, 2], 30)


def network_with_dropout() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3))


CALLS = {
    "pairwise_tvd": lambda X, y: (
        unsplit.pairwise_tvd(X, y, training=unsplit.TrainConfig(epochs=2), random_state=0).tvd
    ),
    "dropout": lambda X, y: (
        unsplit.pairwise_tvd(
            X,
            y,
            backbone=network_with_dropout,
            training=unsplit.TrainConfig(epochs=2),
            random_state=0,
        ).tvd
    ),
    "sequences": lambda X, y: (
        unsplit.pairwise_tvd(
            np.repeat(X, 8, axis=0).reshape(90, 8, 3)[..., :2],
            y,
            training=unsplit.TrainConfig(epochs=1),
            cv=2,
            random_state=0,
        ).tvd
    ),
    "wasserstein": lambda X, y: (
        unsplit.pairwise_wasserstein(X, y, epochs=2, random_state=0).distance
    ),
    "select": lambda X, y: np.array(
        [
            trial.mean_accuracy
            for trial in unsplit.select(
                X,
                y,
                ["mlp", "single-layer"],
                training=unsplit.TrainConfig(epochs=2),
                random_state=0,
            ).trials
        ]
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_four_threads_get_what_one_gets(name: str) -> None:
    call, (X, y) = CALLS[name], points()
    alone = call(X, y)
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda _: call(X, y), range(4)))
    for found in beside:
        np.testing.assert_array_equal(found, alone)


def test_global_generator_is_unchanged_after_threads() -> None:
    before = torch.get_rng_state()
    X, y = points()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: CALLS["pairwise_tvd"](X, y), range(4)))
    assert torch.equal(torch.get_rng_state(), before)


def pictures(X: np.ndarray) -> np.ndarray:
    return np.repeat(X, 4 * 12, axis=0).reshape(90, 12, 12, 1).astype(np.float32)


def clouds(X: np.ndarray) -> np.ndarray:
    return X[:, None] + np.random.default_rng(1).standard_normal((90, 16, 3))


KINDS = {
    "vectors": lambda X: X,
    "counts": lambda X: scipy.sparse.csr_array(np.abs(X).round()),
    "sequences": lambda X: np.repeat(X, 8, axis=0).reshape(90, 8, 3)[..., :2],
    "images": pictures,
    "clouds": clouds,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_network_of_ours_draws_from_the_global_generator(kind: str) -> None:
    X, y = points()
    before = torch.get_rng_state()
    used = []
    few = slice(None, None, 5)  # enough for networks of images and clouds

    def look(_: object) -> None:
        used.append(not torch.equal(torch.get_rng_state(), before))

    unsplit.pairwise_tvd(
        KINDS[kind](X)[few],
        y[few],
        training=unsplit.TrainConfig(epochs=1),
        cv=2,
        random_state=0,
        progress=look,
    )
    assert used == [False]


@pytest.mark.parametrize("lent_on", [None, CPU])
def test_blocks_of_private_randomness_can_be_nested(lent_on: torch.device | None) -> None:
    def drawn(n: int) -> torch.Tensor:
        return torch.rand(n, generator=own_generator(CPU))

    with private_randomness(1, lent_on):
        first = drawn(1)
        with private_randomness(2, lent_on):
            drawn(5)
        with private_randomness(3, CPU if lent_on is None else None):
            drawn(5)
        rest = drawn(1)
    with private_randomness(1, lent_on):
        assert torch.equal(torch.cat([first, rest]), drawn(2))
    assert own_generator(CPU) is None


@pytest.mark.parametrize("seed", [-1, 1.5, "0", np.int64(-3), [1, 2]])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(unsplit.InputError, match=r"random_state must be .*at least 0"):
        generator_of(seed)
