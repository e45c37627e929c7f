"""The paper's experiments: run ``python -m experiments NAME`` in the root of the repository."""
