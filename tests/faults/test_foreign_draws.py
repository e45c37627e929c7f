"""Modules that are not ours draw from generators of the run, and never from torch's global one."""

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import distributions, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import unsplit
from unsplit.devices import Generators
from unsplit.randomness import redirected

X = torch.linspace(-2, 2, 8 * 6 * 16).reshape(8, 6, 16)
CHANCE = X.sigmoid()
PACKED = nn.utils.rnn.pack_sequence([X[0], X[1, :3]])

with redirected(Generators(0)):  # a test file draws from nobody's generator either
    ENCODER = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
    HEADS = nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True)
    LSTM = nn.LSTM(16, 8, 3, dropout=0.5, batch_first=True, bidirectional=True)
    PROJECTED = nn.LSTM(16, 8, 2, dropout=0.5, proj_size=4)
    UNBIASED = nn.LSTM(16, 8, 3, dropout=0.5, bias=False)
    GRU, RNN = nn.GRU(16, 8, 2, dropout=0.5), nn.RNN(16, 8, 2, dropout=0.5)
    LAYERS = nn.Sequential(
        nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 3)
    )

RECURRENT = {"LSTM": LSTM, "GRU": GRU, "RNN": RNN, "projected": PROJECTED, "unbiased": UNBIASED}


def attention(**options: object) -> torch.Tensor:
    return F.scaled_dot_product_attention(X, X, X, dropout_p=0.5, **options)


def jagged() -> torch.Tensor:
    values = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
    return F.dropout(values).values()


def padded() -> torch.Tensor:
    values = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)])
    return F.dropout(values).to_padded_tensor(0.0)


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return F.dropout(torch.ones(50)).clone()


def scripted() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(LAYERS)(X)


DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(3),
    "rand, out": lambda: torch.rand(3, out=torch.empty(3)),
    "randn": lambda: torch.randn(3, dtype=torch.complex64),
    "randn, out": lambda: torch.randn(3, out=torch.empty(3)),
    "randint": lambda: torch.randint(900, (3,)),
    "randint, low": lambda: torch.randint(2, 900, (3,)),
    "randint, out": lambda: torch.randint(2, 900, (3,), out=torch.empty(3)),
    "randperm": lambda: torch.randperm(50),
    "randperm, out": lambda: torch.randperm(50, out=torch.empty(0, dtype=torch.long)),
    "rand_like": lambda: torch.rand_like(X, dtype=torch.float64),
    "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 40),
    "randint_like, low": lambda: torch.randint_like(X, 2, 50),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal of tensors": lambda: torch.normal(X, CHANCE),
    "normal of means": lambda: torch.normal(X, 2.0),
    "normal of deviations": lambda: torch.normal(1.0, CHANCE),
    "bernoulli": lambda: torch.bernoulli(CHANCE),
    "bernoulli, p": lambda: torch.bernoulli(X, 0.5),
    "multinomial": lambda: torch.multinomial(CHANCE[0], 3),
    "poisson": lambda: torch.poisson(9 * CHANCE),
    "binomial": lambda: torch.binomial(torch.full((9,), 20.0), torch.full((9,), 0.5)),
    "normal_": lambda: torch.empty(5).normal_(),
    "uniform_": lambda: torch.empty(5).uniform_(),
    "exponential_": lambda: torch.empty(5).exponential_(),
    "cauchy_": lambda: torch.empty(5).cauchy_(),
    "geometric_": lambda: torch.empty(50).geometric_(0.2),
    "log_normal_": lambda: torch.empty(5).log_normal_(),
    "random_": lambda: torch.empty(5).random_(),
    "random_, bounds": lambda: torch.empty(5).random_(3, 90),
    "bernoulli_": lambda: torch.empty_like(X).bernoulli_(CHANCE),
    "gamma": lambda: distributions.Gamma(torch.tensor([2.0]), 1.0).rsample(),
    "dirichlet": lambda: distributions.Dirichlet(torch.ones(4)).rsample(),
    "categorical": lambda: distributions.Categorical(torch.ones(90)).sample((5,)),
    "dropout": lambda: F.dropout(X),
    "dropout in place": lambda: F.dropout(X.clone(), inplace=True),
    "dropout of half precision": lambda: F.dropout(X.bfloat16()),
    "dropout of channels": lambda: nn.Dropout1d()(X),
    "alpha dropout": lambda: nn.AlphaDropout()(X),
    "alpha dropout of channels": lambda: nn.FeatureAlphaDropout()(X[None]),
    "native dropout": lambda: torch.native_dropout(X, 0.5, True)[0],
    "dropout in inference mode": in_inference_mode,
    "dropout of nested tensors": padded,
    "dropout of jagged tensors": jagged,
    "random slopes": lambda: nn.RReLU()(X),
    "fractional pooling": lambda: nn.FractionalMaxPool2d(2, output_size=(12, 17))(
        torch.arange(900.0).reshape(1, 1, 30, 30)
    ),
    "gumbel": lambda: F.gumbel_softmax(X),
    "low rank": lambda: torch.svd_lowrank(X[0], q=2)[0],
    "initialisation": lambda: nn.Linear(3, 4).weight.detach(),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "truncated": lambda: nn.init.trunc_normal_(torch.empty(4)),
    "transformer": lambda: ENCODER(X),
    "heads": lambda: HEADS(X, X, X, need_weights=False)[0],
    "heads with weights": lambda: HEADS(X, X, X)[0],
    "attention": attention,
    "causal attention": lambda: attention(is_causal=True),
    "attention with a mask": lambda: attention(attn_mask=X[0] @ X[0].T, scale=0.3),
    "LSTM": lambda: LSTM(X)[0],
    "LSTM of packed sequences": lambda: LSTM(PACKED)[0].data,
    "LSTM with projection": lambda: PROJECTED(X)[0],
    "GRU": lambda: GRU(X)[0],
    "RNN": lambda: RNN(X)[0],
    "scripted": scripted,
    "vmap": lambda: torch.vmap(F.dropout, randomness="different")(X),
    "gradient": lambda: torch.func.grad(lambda x: F.dropout(x).sum())(X),
}


@contextmanager
def untouched() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before), "torch's global generator has moved"


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*nested tensors.*prototype:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
@pytest.mark.parametrize("name", DRAWS)
def test_whatever_draws_follows_the_generators_of_the_run(name: str) -> None:
    found = []
    for seed in (3, 3, 4):
        with untouched(), redirected(Generators(seed)):
            found.append(DRAWS[name]())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_generator_that_is_given_is_used() -> None:
    with redirected(Generators(3)):
        found = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(5)))


@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_attention_in_steps_is_attention(mask: str | None) -> None:
    allowed = X[0] @ X[0].T > -1
    options = {
        None: {},
        "bool": {"attn_mask": allowed},
        "float": {"attn_mask": X[0] @ X[0].T, "scale": 0.3},
        "causal": {"is_causal": True},
    }[mask]
    with redirected(Generators(3)):
        # So little dropout that none is dropped.
        found = F.scaled_dot_product_attention(X, X, X, dropout_p=1e-9, **options)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(X, X, X, **options))


def check_recurrent(layer: nn.RNNBase, device: torch.device, tolerance: float) -> None:
    chance, layer.dropout = layer.dropout, 1e-9
    layer.to(device)
    try:
        with redirected(Generators(3)):
            found, state = layer(X.to(device))
        layer.dropout = 0.0
        expected, expected_state = layer(X.to(device))
    finally:
        layer.dropout = chance
        layer.to("cpu")
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(state, expected_state, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_recurrent_layers_in_steps_are_these_layers(layer: nn.RNNBase) -> None:
    check_recurrent(layer, torch.device("cpu"), 1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("how", ["one", "two", "nested"])
def test_a_checkpoint_draws_the_same_numbers_again(how: str, reentrant: bool) -> None:
    def again(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return checkpoint(function, x, use_reentrant=reentrant)

    first, last = LAYERS[:3], LAYERS[3:]
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "one": lambda x: again(LAYERS, x),
        "two": lambda x: again(last, again(first, x)),
        "nested": lambda x: again(lambda inner: last(again(first, inner)), x),
    }

    def gradients(network: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        x = X.clone().requires_grad_()
        LAYERS.zero_grad()
        with untouched(), redirected(Generators(3)):
            (network(x) ** 2).sum().backward()
            drawn = torch.rand(2)
        return [value.grad.clone() for value in (x, *LAYERS.parameters())] + [drawn]

    for found, expected in zip(gradients(ways[how]), gradients(LAYERS), strict=True):
        assert torch.equal(found, expected)


def test_what_takes_no_generator_is_refused_in_a_sentence() -> None:
    operation = torch.ops.aten._scaled_dot_product_flash_attention.default
    with redirected(Generators(3)), pytest.raises(unsplit.InputError, match="takes no generator"):
        operation(X[None], X[None], X[None], 0.5)


# On a GPU, where dropout, attention and recurrent layers are operations of their own.

ON_GPU: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: torch.rand(9, device=x.device),
    "randperm": lambda x: torch.randperm(99, device=x.device),
    "multinomial": lambda x: torch.multinomial(x[0].sigmoid(), 3),
    "poisson": lambda x: torch.poisson(9 * x.sigmoid()),
    "dropout": F.dropout,
    "dropout of channels": nn.Dropout1d(),
    "vmap": torch.vmap(F.dropout, randomness="different"),
    "random slopes": nn.RReLU(),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "heads": lambda x: HEADS.to(x.device)(x, x, x, need_weights=False)[0],
    "transformer": lambda x: ENCODER.to(x.device)(x),
    "LSTM": lambda x: LSTM.to(x.device)(x)[0],
    "GRU": lambda x: GRU.to(x.device)(x)[0],
    "checkpoint": lambda x: gradient(lambda y: checkpoint(LAYERS, y, use_reentrant=False), x),
    "checkpoint, reentrant": lambda x: gradient(
        lambda y: checkpoint(LAYERS, y, use_reentrant=True), x
    ),
}


def gradient(network: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    LAYERS.to(x.device)
    x = x.clone().requires_grad_()
    (network(x) ** 2).sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    yield torch.device("cuda")
    for module in (HEADS, ENCODER, LSTM, GRU, LAYERS):
        module.to("cpu")


@pytest.mark.parametrize("name", ON_GPU)
def test_whatever_draws_on_a_gpu_follows_the_generators_of_the_run(
    name: str, gpu: torch.device
) -> None:
    before, found = torch.cuda.get_rng_state(), []
    for seed in (3, 3, 4):
        with untouched(), redirected(Generators(seed)):
            found.append(ON_GPU[name](X.to(gpu)))
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_recurrent_layers_in_steps_on_a_gpu(layer: nn.RNNBase, gpu: torch.device) -> None:
    check_recurrent(layer, gpu, 1e-3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_on_a_gpu_draws_the_same_numbers_again(
    reentrant: bool, gpu: torch.device
) -> None:
    ways = LAYERS, lambda x: checkpoint(LAYERS, x, use_reentrant=reentrant)
    found = []
    for way in ways:
        with redirected(Generators(3)):
            found.append(gradient(way, X.to(gpu)))
    assert torch.equal(*found)


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


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.3))


def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((30, 3)) + shift for shift in (0.0, 0.5, 3.0)])
    return X.astype(np.float32), np.repeat([0, 1, 2], 30)


def tvd(X: object, y: np.ndarray, **options: object) -> np.ndarray:
    return unsplit.pairwise_tvd(X, y, epochs=2, cv=2, random_state=0, **options).tvd


def selected(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    trials = unsplit.select(X, y, [with_dropout, Attending], epochs=2, random_state=0).trials
    return np.array([trial.mean_accuracy for trial in trials])


def predicted(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    merger = unsplit.ClusterMerger(backbone=AlwaysDropping, epochs=2, cv=2, random_state=0)
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
    network = LAYERS.train()

    class Dropping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(network(x))

    with untouched():
        found = [unsplit.features(Dropping(), X[0].numpy(), device="cpu") for _ in range(2)]
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_four_threads_beside_one_that_draws_all_the_time(name: str) -> None:
    call, (X, y) = RUNS[name], points()
    alone, ended, drawn = call(X, y), threading.Event(), []

    def draw() -> None:
        while not ended.is_set():
            drawn.append(torch.rand(3))

    state = torch.get_rng_state()
    drawing = threading.Thread(target=draw)
    drawing.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            beside = list(pool.map(lambda _: call(X, y), range(4)))
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
