"""Fixtures of many tests: a folder of their own."""

import pytest

from tests.cli_cases import write_data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a new folder, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder_with_data(folder):
    """Work in a new folder with data.csv in it."""
    write_data()
    return folder
