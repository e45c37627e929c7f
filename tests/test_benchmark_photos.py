"""The benchmark of photographs: its halves, and the table in the documentation."""

import numpy as np
import pytest

from benchmarks import markdown, photos


@pytest.mark.parametrize("n", [10, 59, 60, 659])
def test_categories_for_choosing_and_for_the_report_are_different(n):
    drawn = {"chosen": set(), "reported": set()}
    for half, found in drawn.items():
        for seed in range(20):
            case = photos.Case("tiny", 4, "random", seed)
            categories = photos.chosen_categories(n, case, half)
            assert len(np.unique(categories)) == 4
            found.update(categories.tolist())
    assert not drawn["chosen"] & drawn["reported"]
    assert max(drawn["reported"]) < n


def test_the_page_has_the_table_of_the_results():
    table = markdown.table(photos.HEADER, photos.rows("reported")) + "\n"
    assert table.count("\n") > 8
    page = photos.PAGE.read_text("utf-8")
    assert page.split(photos.BEGIN)[1].split(photos.END)[0] == table


def test_runs_with_another_number_of_epochs_are_kept_apart():
    case = photos.CASES[0]
    whole, short = (photos.name_of(case, "convnet", "cpu", "reported", n) for n in (200, 1))
    assert whole == "reported/tiny-6-random-0-convnet-cpu"
    assert short != whole
