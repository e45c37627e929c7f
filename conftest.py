"""Tests compute with one thread.

Their tensors are small, and on a busy machine threads that wait for each other cost far more than
they save.
"""

import torch

torch.set_num_threads(1)
