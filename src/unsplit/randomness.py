"""Random numbers of modules that are not ours, without torch's global generator.

A user's network or augmentation calls functions that draw from torch's global generator, and many,
dropout among them, take no other.  Inside :func:`redirected` every operation of torch that draws is
given a generator of the run instead, also in the threads that compute gradients.  Other threads are
not touched: nothing is locked, and the global generator is neither read nor moved.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from unsplit.devices import Generators
from unsplit.errors import InputError

Arguments = Sequence[Any]
Named = Mapping[str, Any]


@contextmanager
def redirected(generators: Generators) -> Iterator[None]:
    """Let all of torch's random numbers in this block come from these generators.

    Parameters
    ----------
    generators : Generators

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with redirected(Generators(3)):
    ...     drawn = torch.nn.functional.dropout(torch.ones(5))
    >>> torch.equal(before, torch.get_rng_state())
    True
    """
    with _InSteps(), _OwnDraws(generators):
        yield


class _OwnDraws(TorchDispatchMode):
    """Gives a generator to every operation that draws.

    Operations are seen below autograd, whoever calls them: a layer, a compiled or scripted module,
    or ``torch.func``.
    """

    def __init__(self, generators: Generators) -> None:
        super().__init__()
        self.generators = generators

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Arguments = (), kwargs: Named | None = None
    ) -> Any:
        """Call an operation, with a generator if it draws and has none."""
        given = kwargs or {}
        if not _draws(func):
            return func(*args, **given)
        if func.has_kernel_for_dispatch_key("CompositeImplicitAutograd"):
            with self:  # it is made of other operations, which are seen in their turn
                return func.decompose(*args, **given)
        if any(kind not in (Tensor, nn.Parameter) for kind in types):
            return NotImplemented  # such a tensor does it with plain ones, which are seen then
        device = _device_of(args, given)
        if device.type == "meta" or _chance_is_zero(func, args, given):
            return func(*args, **given)
        generator = _replayed(self.generators).of(device)
        if func is torch.ops.aten.native_dropout.default:
            return _dropout(generator, *args, **given)
        return _with_generator(func, args, given, generator)


@cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _device_of(args: Arguments, given: Named) -> torch.device:
    for value in (*args, *given.values()):
        if isinstance(value, Tensor):
            return value.device
    return torch.device(given.get("device") or "cpu")


@cache
def _places(func: Any) -> dict[str, int]:
    return {argument.name: place for place, argument in enumerate(func._schema.arguments)}


def _value_of(name: str, func: Any, args: Arguments, given: Named) -> Any:
    place = _places(func)[name]
    return args[place] if place < len(args) else given.get(name)


# Operations that have a chance of dropout and draw only if it is positive.
_CHANCES = ("dropout_p", "dropout")
# Operations with the mark of those that draw, which do not or take their seed as an argument.
_HARMLESS = {
    "aten::_fused_sdp_choice", "aten::_nested_tensor_softmax_with_shape",
    "aten::_cudnn_init_dropout_state", "aten::_fill_mem_eff_dropout_mask_",
    "aten::_flash_attention_forward_no_dropout_inplace",
}  # fmt: skip


def _chance_is_zero(func: Any, args: Arguments, given: Named) -> bool:
    if func._schema.name in _HARMLESS:
        return True
    for name in _CHANCES:
        if name in _places(func):
            training = "train" not in _places(func) or _value_of("train", func, args, given)
            return not (training and _value_of(name, func, args, given))
    return False


def _dropout(
    generator: torch.Generator, x: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    """What dropout on a GPU returns: the values that are left, and where they are."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if x.is_nested:
        parts = [_dropout(generator, part, p, train) for part in x.unbind()]
        left, where = zip(*parts, strict=True)
        return torch.nested.as_nested_tensor(list(left)), torch.nested.as_nested_tensor(list(where))
    kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def _with_generator(func: Any, args: Arguments, given: Named, generator: torch.Generator) -> Any:
    """Call an operation, or its twin that takes a generator."""
    if "generator" not in _places(func):
        return _twin(func)(*args, **given, generator=generator)
    if _value_of("generator", func, args, given) is not None:
        return func(*args, **given)
    place = _places(func)["generator"]
    if place < len(args):
        return func(*args[:place], generator, *args[place + 1 :], **given)
    return func(*args, **{**given, "generator": generator})


@cache
def _twin(func: Any) -> Any:
    """Return the same operation with a generator: ``rand.generator`` for ``rand``."""
    packet, wanted = func.overloadpacket, _signature(func)
    for name in packet.overloads():
        other = getattr(packet, name)
        if "generator" in _places(other) and _signature(other) == wanted:
            return other
    raise InputError(
        f"the network draws random numbers in {func._schema.name}, which takes no generator, so "
        "that a seed would not hold; leave out dropout there, or draw with another function."
    )


def _signature(func: Any) -> list[tuple[str, str]]:
    arguments = func._schema.arguments
    return [(one.name, str(one.type)) for one in arguments if one.name != "generator"]


class _InSteps(TorchFunctionMode):
    """Computes attention and recurrent layers with dropout from parts that can be redirected.

    On a GPU each is one operation that takes no generator.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Named | None = None,
    ) -> Any:
        """Call a function of torch, or do its work in steps."""
        in_steps = _STEPS.get(getattr(func, "__name__", ""))
        given = kwargs or {}
        return func(*args, **given) if in_steps is None else in_steps(func, *args, **given)


def _attention(
    func: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``scaled_dot_product_attention``, with dropout as its documentation describes it."""
    if not dropout_p:
        return func(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        logits = logits + attn_mask
    return torch.dropout(logits.softmax(-1), dropout_p, True) @ value


def _heads(func: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """``multi_head_attention_forward``: with weights, which are dropped by a layer of their own."""
    if not given.get("training", True) or given.get("need_weights", True):
        return func(*args, **given)
    return func(*args, **{**given, "need_weights": True})[0], None


def _recurrent(func: Callable[..., Any], *args: Any) -> Any:
    """Several recurrent layers with dropout between them, one layer after the other."""
    place = 1 if isinstance(args[3], bool) else 2  # packed sequences have their sizes before hx
    x, sizes, hx = args[0], args[1:place], args[place]
    weights, biases, n_layers, chance, training, both, *rest = args[place + 1 :]
    if not chance or not training or n_layers == 1:
        return func(*args)
    several, n_weights = isinstance(hx, (tuple, list)), len(weights) // n_layers
    states = []
    for layer in range(n_layers):
        if layer:
            x = torch.dropout(x, chance, True)
        here = slice(layer * (1 + both), (layer + 1) * (1 + both))
        begin = [h[here].contiguous() for h in hx] if several else hx[here].contiguous()
        own = _in_one_piece(weights[layer * n_weights : (layer + 1) * n_weights], biases, 1 + both)
        x, *state = func(x, *sizes, begin, own, True, 1, 0.0, True, both, *rest)
        states.append(state)
    return x, *(torch.cat(parts) for parts in zip(*states, strict=True))


def _in_one_piece(weights: Sequence[Tensor], biases: bool, directions: int) -> list[Tensor]:
    """Copy the weights of a layer into one piece of memory, matrices first, as cuDNN wants them.

    Without biases there are zeros: cuDNN would take a part of all layers' weights for the whole,
    and then compute something else.
    """
    each = len(weights) // directions
    full: list[Tensor] = []
    for first in range(0, len(weights), each):
        own = list(weights[first : first + each])
        none = [] if biases else 2 * [own[0].new_zeros(len(own[0]))]
        full += own[:2] + none + own[2:]
    order = sorted(range(len(full)), key=lambda i: full[i].ndim == 1)
    flat = torch.cat([full[i].flatten() for i in order])
    parts = dict(zip(order, flat.split([full[i].numel() for i in order]), strict=True))
    return [parts[i].view_as(one) for i, one in enumerate(full)]


_STEPS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _heads,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
}


# Checkpoints: what was forgotten is computed again for the gradients, with the same numbers.


def _replayed(generators: Generators) -> Generators:
    """Return the generators to draw from: in a checkpoint that is computed again, those of before.

    ``torch.utils.checkpoint`` restores only the global generator, so the state of ours is kept at
    the first draw of each checkpoint, as an attribute of what torch has for it.
    """
    for region, frame, again in reversed(list(_checkpoints())):
        if again:
            found = getattr(region, "_unsplit_again", None)
            if found is None or found[0] is not frame:
                # Without a draw before there is none now, except for one that is not repeated.
                before = getattr(region, "_unsplit_before", generators)
                found = region._unsplit_again = frame, before.copy()
            generators = found[1]
        elif not hasattr(region, "_unsplit_before"):
            region._unsplit_before = generators.copy()
    return generators


def _checkpoints() -> Iterator[tuple[Any, FrameType, bool]]:
    """Yield the checkpoints around this call, innermost first, and whether they are repeated."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == checkpoint.__file__:
            name, local = frame.f_code.co_name, frame.f_locals
            if name in ("forward", "backward"):
                yield local["ctx"], frame, name == "backward"
            elif name == "unpack_hook":
                yield local["frame"], frame, True
            elif name == "checkpoint" and "gen" in local:
                yield local["gen"].gi_frame.f_locals["new_frame"], frame, False
        frame = frame.f_back
