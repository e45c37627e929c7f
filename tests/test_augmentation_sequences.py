import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import exactly
from unsplit.errors import InputError
from unsplit.networks.augmentation import SequenceAugmentation, later

quick = settings(deadline=None, max_examples=25, derandomize=True)


def numbered(lengths, total, channels=1):
    """Sequences of 1, 2, 3, … in every channel, and their mask."""
    place = torch.arange(1.0, total + 1)
    mask = (place <= torch.tensor(lengths)[:, None]).float()
    values = (place * mask)[:, None].repeat(1, channels, 1)
    return torch.cat([values, mask[:, None]], dim=1)


def slow_shifted(x, moves):
    out = torch.zeros_like(x)
    for i, move in enumerate(moves):
        for place in range(x.shape[-1]):
            if 0 <= place - move < x.shape[-1]:
                out[i, :, place] = x[i, :, place - move]
    return out


@quick
@given(st.lists(st.integers(-12, 12), min_size=1, max_size=6), st.integers(1, 10))
def test_shifted_against_a_loop(moves, total):
    x = numbered([total] * len(moves), total, channels=2)
    found = later(x, torch.tensor(moves)[:, None])
    torch.testing.assert_close(found, slow_shifted(x, moves), rtol=0, atol=0)


def test_sequences_move_by_different_amounts_and_the_mask_goes_along():
    x = numbered([100] * 400, 130)
    found = SequenceAugmentation(shift=0.1, hide=0, noise=0)(x)
    values, mask = found[:, 0], found[:, 1]
    torch.testing.assert_close((values > 0).float(), mask, rtol=0, atol=0)
    # What is left is a run of consecutive numbers.
    steps = values[:, 1:] - values[:, :-1]
    inside = (mask[:, 1:] * mask[:, :-1]).bool()
    assert (steps[inside] == 1).all()
    starts = mask.argmax(1) - (values.gather(1, mask.argmax(1, keepdim=True))[:, 0] - 1)
    assert starts.min() == -9
    assert starts.max() == 9
    assert len(starts.unique()) == 19
    # Later, into the padding, nothing is lost; earlier, at most what was moved out.
    assert (mask.sum(1) == 100 + starts.clamp(max=0)).all()


def test_moves_are_a_share_of_each_sequences_own_length():
    lengths = [10] * 200 + [200] * 200
    mask = SequenceAugmentation(shift=0.2, hide=0, noise=0)(numbered(lengths, 300))[:, 1]
    late = mask.argmax(1)
    assert late[:200].max() == 1
    assert 30 <= late[200:].max() <= 39


def test_a_full_batch_loses_what_moves_out_at_either_end():
    mask = SequenceAugmentation(shift=0.3, hide=0, noise=0)(numbered([50] * 300, 50))[:, 1]
    left = mask.sum(1)
    assert left.max() == 50
    assert left.min() == 36


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_sequences_keep_something(length):
    x = numbered([length] * 200, 20)
    found = SequenceAugmentation(shift=0.49, hide=0.49, noise=0.5)(x)
    assert (found[:, -1].sum(1) >= 1).all()


def test_hidden_stretches_are_one_gap_of_random_place_and_length():
    x = numbered([100] * 500, 120)
    found = SequenceAugmentation(shift=0, hide=0.2, noise=0)(x)
    gone = (x[:, -1] - found[:, -1]).bool()
    hidden = gone.sum(1)
    assert hidden.min() == 0
    assert hidden.max() == 19
    assert (found[:, 0][gone] == 0).all()
    torch.testing.assert_close(found[:, 0][~gone], x[:, 0][~gone], rtol=0, atol=0)
    for row in gone[hidden > 0]:
        places = row.nonzero().flatten()
        assert places[-1] - places[0] + 1 == len(places)
    seen_gone = gone.any(0)
    assert seen_gone[:100].all()
    assert not seen_gone[100:].any()


def test_gaps_lie_within_a_sequence_that_starts_late():
    x = later(numbered([60] * 300, 100), torch.full((300, 1), 30))
    found = SequenceAugmentation(shift=0, hide=0.4, noise=0)(x)
    gone = (x[:, -1] - found[:, -1]).bool().any(0)
    assert gone.nonzero().flatten().tolist() == list(range(30, 90))


def test_noise_is_on_what_is_real_and_of_a_width_of_its_own_for_every_sequence():
    x = numbered([400] * 200, 500, channels=3)
    found = SequenceAugmentation(shift=0, hide=0, noise=0.25)(x)
    added = (found - x)[:, :-1]
    assert (added[:, :, 400:] == 0).all()
    torch.testing.assert_close(found[:, -1], x[:, -1], rtol=0, atol=0)
    real = added[:, :, :400]
    widths = real.std((1, 2))
    assert widths.min() < 0.01
    assert 0.23 < widths.max() < 0.26
    assert widths.mean().item() == pytest.approx(0.125, abs=0.02)
    assert abs(real.mean().item()) < 0.01
    # Of its own for every channel.
    assert abs((real[:, 0] * real[:, 1]).mean()) < 0.005


def test_nothing_happens_when_not_training():
    x, augmentation = numbered([5, 3], 6), SequenceAugmentation().eval()
    assert augmentation(x) is x


def test_the_batch_given_is_left_as_it_was():
    x = numbered([50, 30], 60)
    before = x.clone()
    assert not torch.equal(SequenceAugmentation()(x), before)
    torch.testing.assert_close(x, before, rtol=0, atol=0)


def test_the_same_seed_gives_the_same_changes():
    x, augmentation = numbered([50, 30], 60), SequenceAugmentation()
    first, second = augmentation(x), augmentation(x)
    torch.manual_seed(0)
    torch.testing.assert_close(augmentation(x), first, rtol=0, atol=0)
    assert not torch.equal(first, second)


def test_it_works_for_several_networks_at_once():
    x = numbered([50, 30], 60).expand(4, 2, 2, 60)
    found = torch.func.vmap(SequenceAugmentation(), randomness="different")(x)
    assert found.shape == x.shape
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("name", ["shift", "hide"])
@pytest.mark.parametrize("value", [-0.1, 0.5, float("nan")])
def test_shares_outside_the_range_are_refused(name, value):
    sentence = f"{name} must be at least 0 and less than 0.5, got {value!r}."
    with pytest.raises(InputError, match=exactly(sentence)):
        SequenceAugmentation(**{name: value})


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_negative_noise_is_refused(value):
    with pytest.raises(InputError, match=f"noise must be at least 0 .*, got {value!r}"):
        SequenceAugmentation(noise=value)
