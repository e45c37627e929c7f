"""Fixtures of many tests: a folder of their own."""

import pytest

from tests.cli_cases import write_data
from unsplit.merging import remerge


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a new folder, so that sentences hold short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def few_remerges():
    """Merge again three times instead of twenty; files that look at stability have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remerge, "N_REMERGES", 3)
        yield


@pytest.fixture
def folder_with_data(folder):
    """Work in a new folder with data.csv in it."""
    write_data()
    return folder
