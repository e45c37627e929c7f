import pytest
import torch

from unsplit.devices import choose_device
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
    assert message.startswith('device="nonsense" cannot be used here (')
    assert message.endswith('; use "auto" or "cpu".')
    assert "\n" not in message


@pytest.mark.parametrize("device", NOT_HERE)
def test_device_that_is_not_here_is_refused(device):
    with pytest.raises(InputError, match=rf'^device="{device}" cannot be used here'):
        choose_device(device)
