"""What the kernels use of Triton, done with torch on a CPU: programs run one after the other."""

import functools
import importlib.util
import itertools
import sys
import threading
from types import ModuleType, SimpleNamespace

import torch


class Pointer:
    """Places in the memory of a tensor."""

    def __init__(self, tensor, places=0):
        self.tensor, self.places = tensor, places
        self.dtype = SimpleNamespace(element_ty=tensor.dtype)

    def __add__(self, places):
        return Pointer(self.tensor, self.places + places)

    def memory(self):
        """All numbers from the first of the tensor to the end of its memory."""
        here = self.tensor.storage_offset()
        size = self.tensor.untyped_storage().nbytes() // self.tensor.element_size() - here
        return self.tensor.as_strided((size,), (1,), here)


class Programs:
    """A kernel: called for every place of a grid; or a function of kernels, called as it is."""

    def __init__(self, function, place):
        self.function, self.place = function, place

    def __getitem__(self, grid):
        def run(*args, num_warps):
            args = [Pointer(a) if isinstance(a, torch.Tensor) else a for a in args]
            for self.place.now in itertools.product(*map(range, grid)):
                self.function(*args)

        return run

    def __call__(self, *args):
        return self.function(*args)


def load(pointer, mask=True, other=0.0):
    places, mask = torch.broadcast_tensors(*map(torch.as_tensor, (pointer.places, mask)))
    memory = pointer.memory()
    found = torch.full(places.shape, other, dtype=memory.dtype)
    found[mask] = memory[places[mask]]  # outside of the memory without the mask: an error
    return found


def store(pointer, values, mask=True):
    places, mask = torch.as_tensor(pointer.places), torch.as_tensor(mask)
    places, mask, values = torch.broadcast_tensors(places, mask, values)
    assert values.dtype == pointer.tensor.dtype
    pointer.memory()[places[mask]] = values[mask]


def reduce(x, axis, combine):
    if isinstance(x, tuple):
        parts = zip(*(one.unbind(axis) for one in x), strict=True)
        return functools.reduce(lambda one, other: combine(*one, *other), parts)
    return functools.reduce(combine, x.unbind(axis))


def inline_asm_elementwise(code, constraints, args, **options):
    instruction = code.split(".")[0]
    return {"rcp": torch.reciprocal, "ex2": torch.exp2, "lg2": torch.log2}[instruction](*args)


def modules():
    """The two modules of Triton, by name."""
    triton, language, place = ModuleType("triton"), ModuleType("triton.language"), threading.local()
    triton.jit = lambda function: Programs(function, place)
    triton.language = language
    vars(language).update(
        constexpr=object,
        int32=torch.int32,
        int64=torch.int64,
        float32=torch.float32,
        program_id=lambda axis: torch.tensor(place.now[axis]),
        arange=torch.arange,
        load=load,
        store=store,
        sqrt=torch.sqrt,
        abs=torch.abs,
        where=torch.where,
        maximum=lambda a, b: torch.maximum(a, torch.as_tensor(b)),
        sum=lambda x, axis: x.sum(axis),
        max=lambda x, axis: x.amax(axis),
        minimum=lambda a, b: torch.minimum(a, torch.as_tensor(b)),
        exp=torch.exp,
        zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        reduce=reduce,
        inline_asm_elementwise=inline_asm_elementwise,
    )
    return {"triton": triton, "triton.language": language}


def kernel_module(monkeypatch):
    """The module of the kernels, as it is where Triton is installed."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.find_spec("unsplit.networks.chunked_kernel")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
