import csv

import numpy as np
import pytest
import scipy.sparse

from examples import topics as example


@pytest.fixture(scope="module")
def corpus():
    return example.docstrings()


def test_the_corpus_is_that_of_scipy(corpus):
    texts, truth = corpus
    assert len(texts) == len(truth) > 900
    assert set(truth) == set(example.SUBPACKAGES)
    assert not any("scipy" in text for text in texts)


def test_prose_has_no_signature_and_no_examples():
    text = "jv(v, z, out=None)\n\nBessel function of scipy.special.\n\nExamples\n--------\n>>> 1\n"
    assert example.prose(text).split() == ["Bessel", "function", "of", "."]


def test_lines_of_many_texts_are_left_out():
    texts = [f"own {number}\nthe same" for number in range(3)]
    assert example.without_boilerplate(texts, most=2) == ["own 0", "own 1", "own 2"]
    assert example.without_boilerplate(texts, most=3) == texts


def test_words_that_tell_two_groups_apart():
    counts = scipy.sparse.csr_array([[3, 1, 0, 0], [2, 0, 1, 0], [0, 1, 0, 4], [0, 1, 0, 1]])
    words = np.array(["wave", "all", "once", "matrix"])
    here, there = np.array([True, True, False, False]), np.array([False, False, True, True])
    assert example.typical_words(counts, here, there, words)[0] == "wave"
    told = example.telling_words(counts, here, there, words, n_words=1)
    assert told == "wave  |  matrix"
    labels = np.array([0, 0, 1, 1])
    assert example.topic_names(counts, labels, words, n_words=1) == ["wave", "matrix"]


def test_merged_topics_are_closer_to_the_subpackages(tmp_path, capsys):
    verdict = example.main(["--counts", "--topics", "24", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    before = float(next(line for line in said.splitlines() if line[:8] == "k-means ").split()[2])
    assert verdict["topics"] < 24
    assert verdict["ARI"] > before + 0.1
    assert verdict["purity"] > 0.7
    with (tmp_path / "topics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["topic"]) for row in rows] == list(range(24))
    assert {int(row["merged into"]) for row in rows} == set(range(int(verdict["topics"])))
    assert (tmp_path / "topics.png").read_bytes().startswith(b"\x89PNG")
