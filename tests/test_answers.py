"""Answers of a review as constraints of a merge."""

import json

import numpy as np
import pytest

import unsplit
from tests.checks import exactly
from unsplit.merging.saved_merges import ANSWERS, read_answers

LINE = np.abs(np.subtract.outer([0.0, 0.1, 0.5, 0.6, 1.0], [0.0, 0.1, 0.5, 0.6, 1.0]))


def content(*answers, kind=ANSWERS):
    entries = [{"answer": a, "left": left, "right": right} for a, left, right in answers]
    return {"format": kind, "result": "0" * 16, "answers": entries}


def test_merge_obeys_same_and_different():
    plain = unsplit.merge(LINE, max_tvd=0.2)
    assert plain.groups.tolist() == [0, 0, 1, 1, 2]
    answers = content(("different", ["0"], ["1"]), ("same", ["2", "3"], ["4"]))
    tree = unsplit.merge(LINE, max_tvd=0.2, constraints=answers)
    assert tree.groups.tolist() == [0, 1, 2, 2, 2]


def test_different_holds_for_every_cluster_of_both_sides():
    answers = content(("different", ["0", "1"], ["2", "3"]))
    tree = unsplit.merge(LINE, n_clusters=2, constraints=answers)
    for one in (0, 1):
        for other in (2, 3):
            assert tree.groups[one] != tree.groups[other]


def test_answers_are_added_to_other_links():
    answers = content(("same", ["0"], ["2"]))
    tree = unsplit.merge(
        LINE, max_tvd=0.05, constraints={"must_link": [(1, 4)], "answers": answers}
    )
    assert tree.groups.tolist() == [0, 1, 0, 2, 1]


def test_a_file_is_read_and_the_estimator_takes_it(tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(content(("different", ["0"], ["1"]))), encoding="utf-8")
    X, labels = unsplit.datasets.gaussians([[0, 0], [0, 0], [9, 0]], 40, random_state=0)
    settings = {
        "training": unsplit.TrainConfig(epochs=2),
        "cv": 2,
        "random_state": 0,
        "device": "cpu",
    }
    merger = unsplit.ClusterMerger(constraints=path, **settings).fit(X, initial_labels=labels)
    assert merger.tree_.groups[0] != merger.tree_.groups[1]


def test_a_name_of_other_data_is_refused():
    answers = content(("same", ["0", "B cells"], ["7"]), ("different", ["1"], ["B cells"]))
    sentence = (
        "constraints names 'B cells', which is not a cluster; the clusters are 0, 1, 2, 3, 4."
    )
    with pytest.raises(unsplit.InputError, match=exactly(sentence)):
        unsplit.merge(LINE, max_tvd=0.2, constraints=answers)


def test_a_contradiction_is_named():
    answers = content(("same", ["0"], ["1"]), ("same", ["1"], ["2"]), ("different", ["0"], ["2"]))
    sentence = (
        "0 and 2 are to be kept apart (cannot_link, or an answer), but must_link or other answers "
        "join them; drop one of these links."
    )
    with pytest.raises(unsplit.InputError, match=exactly(sentence)):
        unsplit.merge(LINE, max_tvd=0.2, constraints=answers)
    direct = content(("different", ["3"], ["4"]), ("same", ["3"], ["4"]))
    with pytest.raises(unsplit.InputError, match="3 and 4 are to be kept apart"):
        unsplit.merge(LINE, max_tvd=0.2, constraints=direct)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not valid JSON, or it is damaged; export it again"),
        ("[]", "does not hold answers from a review"),
        ('{"format": "unsplit.MergeTree/4"}', "does not hold answers from a review"),
        ('{"format": "unsplit.constraints/9"}', "its format is 'unsplit.constraints/9' instead of"),
        (json.dumps({"format": ANSWERS}), "must hold a list of answers"),
        (json.dumps(content(("maybe", ["1"], ["2"]))), "answer 1 must have"),
        (json.dumps(content(("same", ["1"], []))), "answer 1 must have"),
        (json.dumps(content(("same", "1", ["2"]))), "answer 1 must have"),
        (json.dumps(content(("same", ["1"], ["1"]))), "answer 1 has cluster '1' on both sides"),
    ],
)
def test_damaged_files_are_refused(text, part, tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(unsplit.InputError) as refused:
        read_answers(path)
    assert str(path) in str(refused.value)
    assert part in str(refused.value)


def test_a_missing_file_and_another_type_are_refused(tmp_path):
    with pytest.raises(unsplit.InputError, match="cannot be opened"):
        read_answers(tmp_path / "missing.json")
    with pytest.raises(unsplit.InputError, match="constraints must be a file or its content"):
        unsplit.merge(LINE, max_tvd=0.2, constraints=7)


def test_a_file_without_an_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("unsplit.merging.saved_merges.MOST_TEXT", 10**6)
    with pytest.raises(unsplit.InputError, match="/dev/zero is too large for the answers"):
        read_answers("/dev/zero")
