"""Fixtures of many tests: a folder of their own."""

from importlib import import_module

import pytest

from tests.cli_cases import write_data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a new folder, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again three times instead of twenty; files that look at stability have their own."""
    place = import_module("unsplit.merging.api")
    if not hasattr(place, "N_REMERGES"):
        place = import_module("unsplit.merging.remerge")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "N_REMERGES", 3)
        yield


@pytest.fixture
def folder_with_data(folder):
    """Work in a new folder with data.csv in it."""
    write_data()
    return folder
