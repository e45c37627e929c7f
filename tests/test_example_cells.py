"""The worked example with cells."""

import pytest

from tests.cell_cases import small


@pytest.fixture(scope="module")
def cells():
    """The example, whose imports take seconds."""
    from examples import cells

    return cells


def test_markers_are_found_between_groups_and_not_within(cells):
    adata = small()
    adata.raw = None
    assert len(cells.markers(adata, "2 + 10", "3 + 4")) == 30  # all genes differ
    assert cells.markers(adata, "2", "10") == []


def test_without_the_second_file_a_sentence_says_so(cells, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("sys.argv", ["cells.py"])
    monkeypatch.setattr(cells, "show", lambda title, adata: shown.append((title, adata.n_obs)))
    cells.main()
    assert shown == [("blood", 700)]
    sentence = "The bladder is left out; name its file with --bladder FILE to see it.\n"
    assert capsys.readouterr().out == sentence
    monkeypatch.setattr("sys.argv", ["cells.py", "--bladder", "missing.h5"])
    with pytest.raises(SystemExit):
        cells.main()
    assert "there is no file missing.h5; leave --bladder out" in capsys.readouterr().err
