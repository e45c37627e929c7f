"""The paper's experiments, each from one command: ``python -m experiments NAME``."""
