"""Whatever the caller has set in torch, the result is the same and the settings are left alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import unsplit
from unsplit.networks.training.progress import Reporter, StepRecord

X, LABELS = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0], [9, 1]], 40, random_state=0)
PICTURES = np.random.default_rng(0).integers(0, 200, (160, 12, 12, 3)).astype(np.uint8)
QUICK = {"training": unsplit.TrainConfig(epochs=2), "random_state": 0, "device": "cpu"}


@contextmanager
def default_dtype(kind: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(kind)
    try:
        yield
        assert torch.get_default_dtype() == kind
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
        assert torch.get_default_device().type == name
    finally:
        torch.set_default_device(None)


@contextmanager
def products(precision: str) -> Iterator[None]:
    torch.set_float32_matmul_precision(precision)
    try:
        yield
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "default device": lambda: default_device("meta"),
    "with a device": lambda: torch.device("meta"),
    "precision": lambda: products("medium"),
}


@contextmanager
def all_at_once() -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("inference_mode", "autocast", "float64", "default device", "precision"):
            stack.enter_context(SETTINGS[name]())
        yield


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU())


with torch.random.fork_rng():
    torch.manual_seed(0)
    NETWORK = network()

ESTIMATE = unsplit.pairwise_tvd(X, LABELS, **QUICK)
MERGER = unsplit.ClusterMerger(**QUICK).fit(X, initial_labels=LABELS)


def tvd(X: object = X, every: int = 1, **options: object) -> np.ndarray:
    return unsplit.pairwise_tvd(X, LABELS[::every], **QUICK, **options).tvd


def selected() -> np.ndarray:
    trials = unsplit.select(X, LABELS, ["mlp", "single-layer"], **QUICK).trials
    return np.array([trial.mean_accuracy for trial in trials])


def merged() -> np.ndarray:
    merger = unsplit.ClusterMerger(**QUICK)
    return merger.fit(X, initial_labels=LABELS).tree_.linkage


CALLS: dict[str, Callable[[], np.ndarray]] = {
    "vectors": tvd,
    "tensor": lambda: tvd(torch.from_numpy(X).clone()),
    "pictures": lambda: tvd(PICTURES[::4], 4, cv=2),
    "module": lambda: tvd(backbone=NETWORK),
    "function": lambda: tvd(backbone=network),
    "merge": merged,
    "merge of an estimate": lambda: unsplit.merge(ESTIMATE).linkage,
    "neighbours": lambda: unsplit.neighbour_graph(X, LABELS, device="cpu").adjacency.toarray(),
    "predict": lambda: MERGER.predict_proba(X),
    "features": lambda: unsplit.features(NETWORK, X, device="cpu"),
    "select": selected,
    "wasserstein": lambda: (
        unsplit.pairwise_wasserstein(X, LABELS, epochs=2, random_state=0, device="cpu").distance
    ),
}


def of_the_thread() -> list[object]:
    return [
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"), torch.get_default_device(),
    ]  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_setting_of_the_caller_changes_nothing(setting: str) -> None:
    with SETTINGS[setting]():
        before = of_the_thread()
        found = tvd(backbone=NETWORK)
        assert of_the_thread() == before
    np.testing.assert_array_equal(found, tvd(backbone=NETWORK))


@pytest.mark.parametrize("name", CALLS)
def test_all_settings_of_the_caller_change_nothing(name: str) -> None:
    with all_at_once():
        before = of_the_thread()
        found = CALLS[name]()
        assert of_the_thread() == before
    np.testing.assert_array_equal(found, CALLS[name]())


def test_data_and_networks_made_in_inference_mode_can_be_used() -> None:
    with torch.inference_mode():
        X_there, network_there = torch.from_numpy(X).clone(), nn.Identity()
        network_there.weight = nn.Parameter(torch.ones(2))
        found = tvd(X_there, backbone=network_there)
    np.testing.assert_array_equal(found, tvd(backbone=network_there))


CHANGES: dict[str, Callable[[], object]] = {
    "gradients": lambda: torch.set_grad_enabled(False),
    "type": lambda: torch.set_default_dtype(torch.float64),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_progress_function_cannot_change_the_settings_of_a_run(change: str) -> None:
    class Changing(Reporter):
        def on_step(self, step: StepRecord) -> None:
            CHANGES[change]()

    expected = tvd()
    for progress in (lambda _: CHANGES[change](), Changing()):
        np.testing.assert_array_equal(tvd(progress=progress), expected)
        assert torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float32
        assert torch.get_float32_matmul_precision() == "highest"
    trials = unsplit.select(
        X, LABELS, ["mlp"], **QUICK, progress=lambda *_: CHANGES[change]()
    ).trials
    assert trials[0].epochs == 2


# --- threads ---


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
        assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["vectors", "merge", "predict"])
def test_the_number_of_threads_changes_no_result_of_small_networks(name: str) -> None:
    expected = CALLS[name]()
    for number in (2, 16):
        with threads(number):
            np.testing.assert_array_equal(CALLS[name](), expected)


def test_small_networks_are_trained_with_one_thread() -> None:
    seen: list[int] = []

    def look(_: object) -> None:
        seen.append(torch.get_num_threads())
        torch.set_num_threads(7)

    with threads(3):
        tvd(progress=look)
    assert seen == [1, 1]


@pytest.mark.parametrize("data", [PICTURES[::10], np.eye(16, 3000)], ids=["pictures", "large"])
def test_other_networks_are_trained_with_the_number_of_the_caller(data: np.ndarray) -> None:
    class Looking(Reporter):
        def on_step(self, step: StepRecord) -> None:
            assert torch.get_num_threads() == 2
            raise KeyboardInterrupt

    with threads(2), pytest.raises(KeyboardInterrupt):
        tvd(data, 10, cv=2, progress=Looking())


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    def fail(_: object) -> None:
        torch.set_num_threads(5)
        raise KeyboardInterrupt

    with threads(3), pytest.raises(KeyboardInterrupt):
        tvd(progress=fail)


def test_other_threads_of_the_program_keep_their_number() -> None:
    """Each has a number of its own, and one that begins has what was set last anywhere."""
    found: list[list[int]] = []

    def run(number: int) -> list[int]:
        during: list[int] = []
        torch.get_num_threads()  # a thread that has not asked yet would forget what it sets
        torch.set_num_threads(number)
        tvd(progress=lambda _: during.append(torch.get_num_threads()))
        return [*during, torch.get_num_threads()]

    def begin(_: object) -> None:
        with ThreadPoolExecutor(1) as pool:
            found.append([pool.submit(torch.get_num_threads).result()])

    with threads(3):
        tvd(progress=begin)
        with ThreadPoolExecutor(2) as pool:
            found += pool.map(run, (2, 4))
    assert found == [[3], [3], [1, 1, 2], [1, 1, 4]]
