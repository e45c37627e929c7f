import pytest
import torch

from tests.checks import containing
from unsplit.devices import available_memory, choose_device, require_memory
from unsplit.errors import InputError

CPU = torch.device("cpu")
# No machine has both, so that one is always left.
HERE = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
NOT_HERE = [device for device, here in HERE.items() if not here]


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_prefers_cuda_then_mps_then_cpu(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto") == torch.device(chosen)


def test_auto_works_on_this_machine():
    values = torch.ones(2, device=choose_device("auto"))
    assert values.sum().item() == 2.0


@pytest.mark.parametrize("device", ["cpu", CPU])
def test_device_can_be_named_or_given(device):
    assert choose_device(device) == CPU


def test_unknown_device_is_refused_with_its_name_and_what_to_use():
    with pytest.raises(InputError) as caught:
        choose_device("nonsense")
    message = str(caught.value)
    for part in ("device", "'nonsense'", '"auto"', '"cpu"'):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("device", NOT_HERE)
def test_device_that_is_not_here_is_refused(device):
    with pytest.raises(InputError, match=containing("device", f"'{device}'")):
        choose_device(device)


def test_available_memory_is_a_whole_number_of_bytes():
    assert isinstance(available_memory(), int)
    # Less would not have got as far as this test; more than a pebibyte is a unit mistaken.
    assert 2**20 < available_memory() < 2**50


def test_memory_is_refused_only_beyond_what_there_is():
    require_memory(100, 100, "this", "that")
    with pytest.raises(InputError, match="this"):
        require_memory(101, 100, "this", "that")


def test_memory_error_says_what_is_needed_what_is_there_and_what_to_do():
    parts = ("5 clusters", "2,500.0 GiB", "1.5 GiB", "use fewer")
    with pytest.raises(InputError, match=containing(*parts)):
        require_memory(2500 * 2**30, 3 * 2**29, "5 clusters", "use fewer")
