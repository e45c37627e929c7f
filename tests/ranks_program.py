"""Runs commands in several processes that train together, for tests/test_ranks.py.

The processes are forked from one that has loaded all they need.  What torchrun would tell them is
in their environment, and as there, another process holds the messages between them.  Reads a list
of cases in JSON: the arguments of a command, the number of processes, and perhaps which of them is
killed, and at which step, or where memory runs out in one of them.
"""

import importlib
import json
import os
import signal
import socket
import sys
import traceback

import numpy as np
import torch
import torch.distributed as dist

import unsplit
from unsplit.cli import main
from unsplit.networks.training import checkpoint
from unsplit.networks.training.ranks import Sharded
from unsplit.pairwise.api import Settings


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(case, rank, port):
    """Be one of the processes of a case."""
    signal.alarm(100)  # whatever happens, no test hangs
    name = case["name"]
    with open(f"{name}-{rank}.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if case["size"] > 1:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ.update(where, RANK=str(rank), WORLD_SIZE=str(case["size"]))
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    if "form" in case:
        Settings.is_sparse = lambda *_, **__: case["form"] == "sparse"
    if "kill" in case:
        checkpoint.EVERY = checkpoint.AT_MOST_ONE_IN = 0
        victim, left = case["kill"]
        gradients = Sharded.gradients

        def counted(self, *batch):
            nonlocal left
            left -= 1
            if rank == victim and left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return gradients(self, *batch)

        Sharded.gradients = counted
    if "starve" in case and case["starve"][0] == rank:
        starve(case["starve"][1])
    main(case["typed"], prog_name="unsplit")


def starve(most):
    """Let memory run out for more than so many observations, in a layer of every step."""
    forward = torch.nn.LayerNorm.forward

    def starved(self, x):
        if torch.is_grad_enabled() and len(x) > most:
            raise MemoryError("no more memory")
        return forward(self, x)

    torch.nn.LayerNorm.forward = starved


def forked(case, rank, port):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run(case, rank, port)
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def agent(port):
    """Hold the messages until the cases are done."""
    child = os.fork()
    if child:
        return child
    signal.alarm(300)
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    signal.pause()
    os._exit(store is None)


def codes(case):
    port = free_port()
    messages = agent(port)
    children = [forked(case, rank, port) for rank in range(case["size"])]
    found = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.kill(messages, signal.SIGKILL)
    os.waitpid(messages, 0)
    return found


def load_everything():
    """Do once what loads modules, so that no child has to."""
    importlib.import_module("unsplit.cli.merge")
    X = np.random.default_rng(0).standard_normal((20, 2))
    unsplit.ClusterMerger(training=unsplit.TrainConfig(epochs=1), cv=2, device="cpu").fit(
        X, initial_labels=np.arange(20) % 2
    )


if __name__ == "__main__":
    load_everything()
    sys.stdout.write(json.dumps({case["name"]: codes(case) for case in json.load(sys.stdin)}))
