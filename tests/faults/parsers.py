"""Parsers that misbehave; worker processes import them from here."""

import os
import time

import numpy as np


def parse(request):
    """Return twice a number, or do what the request names."""
    if request == "crash":
        os.abort()
    if request == "hang":
        time.sleep(600)
    if request == "bomb":
        held = []
        while True:
            held.append(np.empty(2**30, np.uint8))
    if request == "error":
        raise ValueError("it is cut short\nsomewhere")
    if request == "print":
        os.write(1, b"noise")
        return "printed"
    if request == "leave":
        os._exit(0)
    return 2 * request
