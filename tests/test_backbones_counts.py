import copy
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from unsplit.networks.backbones import counts
from unsplit.networks.backbones.counts import BagOfWords, CountScaling

quick = settings(deadline=None, max_examples=30, derandomize=True)

tables = numpy_arrays(
    np.float64,
    st.tuples(st.integers(1, 9), st.integers(1, 6)),
    elements=st.one_of(st.just(0.0), st.integers(0, 30).map(float), st.floats(1e-3, 1e3)),
)


def some_counts(n=30, d=12, seed=0):
    """Counts with empty rows, rows of very different sums and a feature nobody has."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.gamma(0.3, 3.0, d) * rng.gamma(1.0, 2.0, (n, 1))).astype(float)
    table[[3, n - 1]] = 0.0
    table[:, 5] = 0.0
    return table


def some_centred(n=30, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3) * np.arange(1, d + 1)


def batch(table, index_type=torch.int64, dtype=torch.float32):
    rows = scipy.sparse.csr_array(table)
    places = [torch.from_numpy(part).to(index_type) for part in (rows.indptr, rows.indices)]
    with warnings.catch_warnings(action="ignore"):  # torch calls such tensors a beta feature
        return torch.sparse_csr_tensor(*places, torch.from_numpy(rows.data).to(dtype), rows.shape)


def scaling_of(table):
    return CountScaling.of(scipy.sparse.csr_array(table))


def slow_scaled(table, total):
    """Row by row from the definition."""
    scaled = np.zeros_like(table)
    for i, row in enumerate(table):
        if total == 0:
            scaled[i] = row
        elif row.any():
            scaled[i] = [np.log(1 + value * total / row.sum()) for value in row]
    return scaled


def dense_twin(backbone):
    """The network with the same weights, for rows made dense, scaled and centred."""
    first = torch.nn.Linear(len(backbone.mean), backbone.out_features)
    with torch.no_grad():
        first.weight.copy_(backbone.weight.T)
        first.bias.copy_(backbone.bias)
    return torch.nn.Sequential(first, copy.deepcopy(backbone.layers))


def dense_input(backbone, table):
    scaled = torch.from_numpy(slow_scaled(table, float(backbone.total)))
    return ((scaled - backbone.mean) * backbone.scale).to(backbone.weight.dtype)


def unscaled(d):
    """The usual total of single cells, and no centring."""
    return CountScaling(1e4, torch.zeros(d), torch.ones(d))


@pytest.fixture(params=["counts", "centred", "no scaling"])
def case(request):
    table = some_centred() if request.param == "centred" else some_counts()
    scaling = unscaled(table.shape[1]) if request.param == "no scaling" else scaling_of(table)
    torch.manual_seed(0)
    return table, BagOfWords(scaling, width=16)


@pytest.mark.parametrize("index_type", [torch.int64, torch.int32])
def test_features_are_those_of_a_dense_network(case, index_type):
    table, backbone = case
    expected = dense_twin(backbone)(dense_input(backbone, table))
    found = backbone(batch(table, index_type))
    assert found.shape == (len(table), 16)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_a_dense_network(case):
    table, backbone = case
    backbone = backbone.double()
    twin = dense_twin(backbone).double()
    weights = torch.randn(len(table), 16, dtype=torch.float64)
    (backbone(batch(table, dtype=torch.float64)) * weights).sum().backward()
    (twin(dense_input(backbone, table)) * weights).sum().backward()
    torch.testing.assert_close(backbone.weight.grad, twin[0].weight.grad.T)
    torch.testing.assert_close(backbone.bias.grad, twin[0].bias.grad)
    for ours, theirs in zip(backbone.layers.parameters(), twin[1].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_rows_that_differ_in_their_sum_alone_have_the_same_features():
    table = some_counts()
    backbone = BagOfWords(scaling_of(table))
    found = backbone(batch(np.stack([table[0], 7 * table[0]])))
    torch.testing.assert_close(found[0], found[1])


def test_features_do_not_depend_on_the_rest_of_the_batch(case):
    table, backbone = case
    together = backbone(batch(table))
    for i in (0, 3, len(table) - 1):
        torch.testing.assert_close(backbone(batch(table[i : i + 1]))[0], together[i])


@pytest.mark.parametrize("n", [1, 4])
def test_a_batch_of_empty_rows_has_features_and_gradients(n):
    backbone = BagOfWords(scaling_of(some_counts()), width=8)
    features = backbone(batch(np.zeros((n, 12))))
    features.sum().backward()
    assert features.shape == (n, 8)
    assert torch.isfinite(features).all()
    assert torch.isfinite(backbone.weight.grad).all()


def test_zeros_that_are_stored_count_as_nothing():
    table = some_counts()
    backbone = BagOfWords(scaling_of(table))
    stored = scipy.sparse.csr_array(([0.0, 0.0, 3.0], [1, 4, 2], [0, 2, 3]), shape=(2, 12))
    with warnings.catch_warnings(action="ignore"):
        rows = torch.sparse_csr_tensor(
            torch.tensor([0, 2, 3]), torch.tensor([1, 4, 2]), torch.tensor([0.0, 0.0, 3.0]), (2, 12)
        )
    torch.testing.assert_close(backbone(rows), backbone(batch(stored.toarray())))
    assert torch.isfinite(CountScaling.of(stored).mean).all()


@quick
@given(tables)
def test_scaling_against_a_loop(table):
    scaling = scaling_of(table)
    sums = [row.sum() for row in table if row.any()]
    assert scaling.total == pytest.approx(np.median(sums) if sums else 0.0)
    scaled = slow_scaled(table, scaling.total)
    np.testing.assert_allclose(scaling.mean, scaled.mean(axis=0), rtol=1e-5, atol=1e-7)
    clearly = scaled.std(axis=0) > 1e-3 * np.sqrt((scaled**2).mean(axis=0))
    assert (scaling.scale.numpy()[clearly] == 1).all()
    assert (scaling.scale.numpy()[scaled.std(axis=0) == 0] == 0).all()


def test_negative_values_are_standardised_and_not_logged():
    table = some_centred()
    scaling = scaling_of(table)
    assert scaling.total == 0.0
    np.testing.assert_allclose(scaling.mean, table.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(scaling.scale, 1 / table.std(axis=0), rtol=1e-5)


def test_a_feature_never_seen_in_training_changes_nothing():
    table = some_counts()
    backbone = BagOfWords(scaling_of(table))
    # Empty but for the unknown feature, or the row's sum would change.
    unknown, empty = np.zeros((1, 12)), np.zeros((1, 12))
    unknown[0, 5] = 9.0
    torch.testing.assert_close(backbone(batch(unknown)), backbone(batch(empty)), rtol=0, atol=0)


def test_a_constant_feature_is_left_out_whatever_its_size():
    for constant in (0.1, 7.3, 1e6):
        table = some_centred()
        table[:, 2] = constant
        assert scaling_of(table).scale[2] == 0.0


@pytest.mark.parametrize("table", [some_counts(), some_centred()], ids=["counts", "centred"])
def test_scaling_does_not_depend_on_the_chunks(table, monkeypatch):
    whole = scaling_of(table)
    monkeypatch.setattr(counts, "CHUNK_ROWS", 7)
    chunked = scaling_of(table)
    assert chunked.total == whole.total
    torch.testing.assert_close(chunked.mean, whole.mean)
    torch.testing.assert_close(chunked.scale, whole.scale)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
def test_scaling_of_other_number_types_and_old_matrices(dtype):
    table = np.minimum(some_counts(), 200)
    expected = scaling_of(table)
    found = CountScaling.of(scipy.sparse.csr_matrix(table.astype(dtype)))
    assert found.total == expected.total
    torch.testing.assert_close(found.mean, expected.mean)


def test_a_negative_value_in_new_rows_gives_finite_features_of_its_own():
    backbone = BagOfWords(scaling_of(some_counts()))
    rows = np.zeros((2, 12))
    rows[:, 1], rows[:, 2] = 4.0, (2.0, -2.0)
    features = backbone(batch(rows))
    assert torch.isfinite(features).all()
    assert not torch.allclose(features[0], features[1])


def test_reduced_precision_changes_little(case):
    table, backbone = case
    expected = backbone(batch(table))
    with torch.autocast("cpu", torch.bfloat16):
        found = backbone(batch(table)).float()
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_a_network_can_be_copied_and_its_state_is_complete(case):
    table, backbone = case
    expected = backbone(batch(table))
    torch.testing.assert_close(copy.deepcopy(backbone)(batch(table)), expected, rtol=0, atol=0)
    other = BagOfWords(unscaled(table.shape[1]), width=16)
    other.load_state_dict(backbone.state_dict())
    torch.testing.assert_close(other(batch(table)), expected, rtol=0, atol=0)


def test_networks_share_no_memory_with_the_scaling_they_were_given():
    scaling = scaling_of(some_counts())
    mean = scaling.mean.clone()
    BagOfWords(scaling).mean.zero_()
    torch.testing.assert_close(scaling.mean, mean, rtol=0, atol=0)


def test_the_batch_is_never_made_dense():
    backbone = BagOfWords(unscaled(3_000_000), width=1)
    with warnings.catch_warnings(action="ignore"):
        # A dense batch of this shape would take 240 GB.
        rows = torch.sparse_csr_tensor(
            torch.arange(20_001),
            torch.arange(20_000) * 100,
            torch.ones(20_000),
            (20_000, 3_000_000),
        )
    assert backbone(rows).shape == (20_000, 1)


def test_it_learns_which_words_go_together():
    rng = np.random.default_rng(0)
    topics = np.full((2, 40), 1.0)
    topics[0, :10] = topics[1, 10:20] = 4.0
    clusters = np.arange(400) % 2
    table = np.stack([rng.multinomial(60, topics[c] / topics[c].sum()) for c in clusters])
    train, test = table[:200], table[200:]
    network = torch.nn.Sequential(
        BagOfWords(scaling_of(train.astype(float)), width=32), torch.nn.Linear(32, 2)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    target = torch.from_numpy(clusters)
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(network(batch(train)), target[:200])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (network(batch(test)).argmax(1) == target[200:]).float().mean() > 0.95
