import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks import containing
from unsplit.errors import InputError
from unsplit.networks.backbones.sequences import (
    FLOOR,
    AudioNet,
    Block,
    LogMel,
    MaskedNorm,
    ResNet1d,
    coarse_mask,
    first_stride,
    masked_standard,
    mel_edges,
    mel_filters,
    pooled,
)

quick = settings(deadline=None, max_examples=25, derandomize=True)


def sequences(lengths, channels, seed=0):
    """Random sequences, each of shape (channels, length)."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(channels, length, generator=generator) for length in lengths]


def padded(parts, length, before=0, filling=0.0):
    """A batch with its mask, every part ``before`` positions late, padding filled."""
    batch = torch.zeros(len(parts), parts[0].shape[0] + 1, length)
    batch[:, :-1] = filling
    for row, part in zip(batch, parts, strict=True):
        row[:-1, before : before + part.shape[1]] = part
        row[-1, before : before + part.shape[1]] = 1.0
    return batch


def seeded(make):
    """A network whose norms are not what they start as, or biases would be zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make()
        for parameter in network.parameters():
            if parameter.ndim == 2 and parameter.shape[1] == 1:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return network


def small_resnet(length=100):
    return seeded(lambda: ResNet1d(2, length, width=8))


def small_audionet():
    return seeded(lambda: AudioNet(1000, bands=8, width=8))


@pytest.mark.parametrize("length", [100, 4000], ids=["stride 1", "stride 4"])
def test_features_do_not_depend_on_padding_nor_on_the_rest_of_the_batch(length):
    network, parts = small_resnet(length), sequences([1, 2, 7, 40, 64], channels=2)
    alone = torch.cat([network(padded([part], part.shape[1])) for part in parts])
    for total in (64, 65, 90, 203):
        torch.testing.assert_close(network(padded(parts, total)), alone, rtol=1e-4, atol=1e-5)


def test_features_of_sound_do_not_depend_on_padding():
    network, parts = small_audionet(), sequences([1, 9, 10, 11, 500, 1203], channels=1)
    alone = torch.cat([network(padded([part], part.shape[1])) for part in parts])
    for total in (1203, 1210, 2000):
        torch.testing.assert_close(network(padded(parts, total)), alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("network", "channels"), [(small_resnet(4000), 2), (small_audionet(), 1)], ids=["raw", "sound"]
)
def test_whatever_stands_in_the_padding_is_not_seen(network, channels):
    parts = sequences([30, 55], channels)
    clean, filled = padded(parts, 80), padded(parts, 80, filling=3.0)
    torch.testing.assert_close(network(filled), network(clean), rtol=0, atol=0)


def test_features_differ_between_sequences_and_between_zero_and_nothing():
    network = small_resnet()
    features = network(padded(sequences([20, 20], 2), 20))
    assert not torch.allclose(features[0], features[1], atol=1e-2)
    zeros = [torch.zeros(2, 12), torch.zeros(2, 15)]
    features = network(padded(zeros, 15))
    assert not torch.allclose(features[0], features[1], atol=1e-3)


def test_moving_a_sequence_by_a_whole_number_of_steps_keeps_its_features():
    # All strides together: 2 · 2 · 2.
    network, parts = small_resnet(), sequences([33, 8], channels=2)
    here, later = network(padded(parts, 48)), network(padded(parts, 48, before=8))
    torch.testing.assert_close(later, here, rtol=1e-4, atol=1e-5)


@quick
@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from([1, 600, 3000]))
def test_any_length_gives_finite_features_and_gradients(length, padding, usual):
    network = small_resnet(usual)
    features = network(padded(sequences([length, 1], 2), max(length, padding)))
    assert features.shape == (2, network.out_features)
    features.square().sum().backward()
    for parameter in network.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_a_sequence_of_padding_alone_has_finite_features():
    batch = padded(sequences([5, 5], 2), 9)
    batch[1] = 0.0
    assert torch.isfinite(small_resnet()(batch)).all()


def test_channels_out_and_their_number():
    assert ResNet1d(3).out_features == 256
    assert ResNet1d(3, width=16)(torch.ones(2, 4, 10)).shape == (2, 64)
    assert AudioNet(8000, width=16).out_features == 64


def test_a_network_can_be_copied_and_its_state_is_complete():
    for make, channels in [(small_resnet, 2), (small_audionet, 1)]:
        network, batch = make(), padded(sequences([50, 30], channels), 60)
        expected = network(batch)
        torch.testing.assert_close(copy.deepcopy(network)(batch), expected, rtol=0, atol=0)
        other = make()
        for tensor in other.state_dict().values():
            tensor.zero_()
        other.load_state_dict(network.state_dict())
        torch.testing.assert_close(other(batch), expected, rtol=0, atol=0)


def test_reduced_precision_changes_little():
    for network, channels in [(small_resnet(), 2), (small_audionet(), 1)]:
        batch = padded(sequences([400, 300], channels), 400)
        expected = network(batch)
        with torch.autocast("cpu", torch.bfloat16):
            found = network(batch).float()
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def slow_standard(x, mask):
    """Per sequence: all real values of all channels, mean and variance by NumPy."""
    out = np.zeros_like(x)
    for i in range(len(x)):
        real = mask[i, 0] > 0
        values = x[i][:, real]
        out[i][:, real] = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
    return out


def test_masked_standard_against_a_loop():
    batch = padded(sequences([1, 6, 9], 3), 11, filling=5.0)
    found = masked_standard(batch[:, :-1], batch[:, -1:])
    expected = slow_standard(batch[:, :-1].double().numpy(), batch[:, -1:].numpy())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_masked_norm_shifts_and_scales_channels_where_they_are_real():
    norm, batch = MaskedNorm(3), padded(sequences([4, 6], 3), 8)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
        norm.bias.copy_(torch.tensor([[0.5], [0.0], [-1.0]]))
    mask = batch[:, -1:]
    expected = slow_standard(batch[:, :-1].double().numpy(), mask.numpy())
    expected = expected * np.array([[1.0], [2.0], [3.0]]) + np.array([[0.5], [0.0], [-1.0]])
    found = norm(batch[:, :-1], mask).detach().numpy()
    np.testing.assert_allclose(found, expected * mask.numpy(), atol=1e-5)


def test_norm_of_a_full_batch_is_torchs_group_norm():
    x = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.group_norm(x, 1)
    torch.testing.assert_close(MaskedNorm(6)(x, torch.ones(4, 1, 10)), expected)


def test_pooled_against_a_loop():
    batch = padded([part.relu() for part in sequences([1, 5, 8], 4)], 10)
    found = pooled(batch[:, :-1], batch[:, -1:])
    for row, features in zip(batch, found, strict=True):
        real = row[:-1, row[-1] > 0]
        torch.testing.assert_close(features, torch.cat([real.mean(1), real.max(1).values]))


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 9))
def test_coarse_mask_against_a_loop(bits, stride):
    mask = torch.tensor(bits).float().reshape(1, 1, -1)
    cells = [bits[start : start + stride] for start in range(0, len(bits), stride)]
    assert coarse_mask(mask, stride).flatten().tolist() == [float(any(cell)) for cell in cells]


@quick
@given(st.integers(1, 300), st.sampled_from([1, 2]))
def test_a_block_and_its_mask_agree_on_the_length(length, stride):
    block = Block(2, 3, stride)
    out, mask = block(torch.ones(1, 2, length), torch.ones(1, 1, length))
    assert out.shape[-1] == mask.shape[-1] == math.ceil(length / stride)


def test_first_stride_grows_with_the_length_up_to_its_limit():
    strides = [first_stride(length) for length in range(1, 40_000, 7)]
    assert sorted(set(strides)) == [2**i for i in range(len(set(strides)))]
    assert strides == sorted(strides)
    assert first_stride(10**7) == strides[-1]


def slow_edges(bands, highest):
    """By the formula of a mel and its inverse."""
    top = 2595 * math.log10(1 + highest / 700)
    mels = [i * top / (bands + 1) for i in range(bands + 2)]
    return [700 * (10 ** (mel / 2595) - 1) for mel in mels]


def slow_filters(bands, n_fft, rate):
    edges = slow_edges(bands, rate / 2)
    filters = np.zeros((bands, n_fft // 2 + 1))
    for band in range(bands):
        low, peak, high = edges[band : band + 3]
        for i in range(n_fft // 2 + 1):
            f = i * rate / n_fft
            if low < f <= peak:
                filters[band, i] = (f - low) / (peak - low)
            elif peak < f < high:
                filters[band, i] = (high - f) / (high - peak)
    return filters / filters.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("bands", "highest"), [(1, 500.0), (40, 4000.0), (80, 22_050.0)])
def test_mel_edges_against_the_formula(bands, highest):
    np.testing.assert_allclose(mel_edges(bands, highest), slow_edges(bands, highest), atol=1e-6)


@pytest.mark.parametrize(("bands", "n_fft", "rate"), [(8, 64, 1000), (40, 458, 8000)])
def test_mel_filters_against_a_loop(bands, n_fft, rate):
    expected = slow_filters(bands, n_fft, rate)
    np.testing.assert_allclose(mel_filters(bands, n_fft, rate), expected, atol=1e-6)


@pytest.mark.parametrize("rate", [1000, 8000, 11_025, 16_000, 44_100, 96_000])
@pytest.mark.parametrize("bands", [1, 40, 128])
def test_no_band_is_empty_at_any_rate(rate, bands):
    filters = LogMel(rate, bands).filters
    assert torch.isfinite(filters).all()
    torch.testing.assert_close(filters.sum(1), torch.ones(bands))


def slow_log_mel(sound, mel):
    """Frame by frame: window, transform, filter, logarithm; then standardised."""
    size, n_fft = len(mel.window), mel.n_fft
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    shape /= np.sqrt((shape**2).sum())
    filters = slow_filters(mel.bands, n_fft, RATE)
    frames = []
    for centre in range(0, len(sound), mel.hop):
        frame = np.zeros(n_fft)
        for i in range(size):
            where = centre + i - size // 2
            if 0 <= where < len(sound):
                frame[i] = sound[where] * shape[i]
        frames.append(np.log(filters @ np.abs(np.fft.rfft(frame)) ** 2 + FLOOR))
    bands = np.array(frames).T
    return (bands - bands.mean()) / np.sqrt(bands.var() + 1e-5)


RATE = 1000


@pytest.mark.parametrize("length", [1, 9, 10, 95, 300])
def test_log_mel_against_a_loop(length):
    mel, (sound,) = LogMel(RATE, bands=8), sequences([length], channels=1)
    found = mel(padded([sound], length + 23))
    expected = slow_log_mel(sound[0].double().numpy(), mel)
    frames = expected.shape[1]
    assert found.shape == (1, 9, math.ceil((length + 23) / mel.hop))
    np.testing.assert_allclose(found[0, :-1, :frames], expected, atol=1e-3)
    assert found[0, -1].tolist() == [1.0] * frames + [0.0] * (found.shape[-1] - frames)
    assert (found[0, :-1, frames:] == 0).all()


def test_log_mel_does_not_hear_loudness_but_pitch():
    time = torch.arange(4000) / 8000
    tones = [torch.sin(2 * math.pi * pitch * time)[None] for pitch in (500, 500, 1500)]
    quiet = [tones[0], 0.3 * tones[1], tones[2]]
    noise = 0.1 * torch.randn(1, 4000, generator=torch.Generator().manual_seed(0))
    mel = LogMel(8000)
    x = mel(padded([tone + noise * tone.std() for tone in quiet], 4000))[:, :-1]
    torch.testing.assert_close(x[0], x[1], atol=0.1, rtol=0)
    middle = x[:, :, 10:40].mean(-1)
    edges = mel_edges(40, 4000.0)
    for sound, pitch in [(0, 500), (2, 1500)]:
        band = int(middle[sound].argmax())
        assert edges[band] < pitch < edges[band + 2]


def test_noise_of_variance_one_has_power_one_in_every_band():
    mel = LogMel(8000)
    noise = torch.randn(1, 200_000, generator=torch.Generator().manual_seed(0))
    spectrum = torch.stft(
        noise, mel.n_fft, mel.hop, len(mel.window), mel.window, return_complex=True
    )
    power = (mel.filters @ spectrum.abs().square())[0].mean(1)
    torch.testing.assert_close(power, torch.ones(40), atol=0.1, rtol=0)


def test_silence_gives_zeros_and_no_nan():
    found = LogMel(8000)(padded([torch.zeros(1, 900)], 1000))
    assert (found[0, :-1] == 0).all()


def test_a_rate_without_hearing_is_refused():
    with pytest.raises(InputError, match=containing("rate", "1,000", "got 100", "ResNet1d")):
        LogMel(100)


def test_networks_of_several_folds_can_be_stacked():
    networks = [ResNet1d(2, 4000, width=4) for _ in range(2)]
    batch = torch.stack([padded(sequences([9, 30], 2, seed), 33) for seed in range(2)])
    params, buffers = torch.func.stack_module_state(networks)

    def one(params, buffers, x):
        return torch.func.functional_call(networks[0], (params, buffers), (x,))

    stacked = torch.func.vmap(one)(params, buffers, batch)
    for network, x, features in zip(networks, batch, stacked, strict=True):
        torch.testing.assert_close(features, network(x), rtol=1e-4, atol=1e-5)
