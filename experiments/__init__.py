"""The paper's experiments, each from one command: ``unsplit experiment NAME``."""
