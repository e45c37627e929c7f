"""Options that are gone say what to write now."""

import pytest

import unsplit
from unsplit import InputError
from unsplit.old_names import PYTHON_OPTIONS

X, LABELS = unsplit.datasets.gaussians([[0, 0], [9, 0]], 10, random_state=0)
FUNCTIONS = {
    "ClusterMerger": lambda **options: unsplit.ClusterMerger(**options),
    "merge": lambda **options: unsplit.merge([[0, 0.5], [0.5, 0]], **options),
    "pairwise_tvd": lambda **options: unsplit.pairwise_tvd(X, LABELS, **options),
    "paper": lambda **options: unsplit.paper(X, LABELS, n_clusters=1, **options),
    "select": lambda **options: unsplit.select(X, LABELS, **options),
}


@pytest.mark.parametrize("name", sorted(PYTHON_OPTIONS))
def test_an_option_that_is_gone_says_what_to_write(name):
    with pytest.raises(InputError) as refusal:
        unsplit.ClusterMerger(**{name: 1})
    assert str(refusal.value) == f"{name} is no option here; {PYTHON_OPTIONS[name]}."


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_every_function_says_so_and_other_unknown_options_are_as_ever(function):
    with pytest.raises(InputError, match=r"holdout is no option here; write cv=0\.2"):
        FUNCTIONS[function](holdout=0.3)
    with pytest.raises(TypeError, match="hold_out"):
        FUNCTIONS[function](hold_out=0.3)


def test_a_rule_is_still_an_option_of_merge():
    with pytest.raises(InputError, match="rule must be an object with a method judge"):
        FUNCTIONS["merge"](rule=3)
