"""Every public function, class and method says what it takes and returns, and has an example."""

import doctest
import inspect
import re
from dataclasses import is_dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType

import pytest

import unsplit
from unsplit.old_names import MOVED

SECTIONS = (
    "Parameters",
    "Returns",
    "Yields",
    "Raises",
    "Attributes",
    "Notes",
    "Examples",
    "See Also",
)


def public_names():
    """Yield all functions and classes that the pages of the API show, by name."""
    for name in unsplit.__all__:
        value = getattr(unsplit, name)
        if isinstance(value, ModuleType):
            yield from (
                (f"{name}.{inner}", entry)
                for inner, entry in vars(value).items()
                if not inner.startswith("_") and is_ours(entry, value)
            )
        else:
            yield name, value
    for name, module in MOVED.items():
        if module != "unsplit.errors":
            yield name, getattr(import_module(module), name)


def is_ours(entry, module):
    """Whether a module defines a function or class, or lists it as public."""
    if not (inspect.isfunction(entry) or inspect.isclass(entry)):
        return False
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return entry.__name__ in listed
    return entry.__module__ == module.__name__


def entries_of(cls):
    """Yield what a class and the classes of ours that it builds on define, each name once."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("unsplit")]
    yield from {name: entry for base in ours for name, entry in vars(base).items()}.items()


def methods_of(cls):
    """Yield the public functions of a class."""
    for name, entry in entries_of(cls):
        entry = entry.__func__ if isinstance(entry, (classmethod, staticmethod)) else entry
        if not name.startswith("_") and inspect.isfunction(entry):
            yield name, entry


def properties_of(cls):
    for name, entry in entries_of(cls):
        if not name.startswith("_") and isinstance(entry, (property, cached_property)):
            yield name, entry


PUBLIC = dict(public_names())
CLASSES = {name: entry for name, entry in PUBLIC.items() if inspect.isclass(entry)}
# The methods of a class that users fill in themselves: its own example shows how.
FILLED_IN = {"Reporter"}
METHODS = {
    f"{name}.{method}": entry
    for name, cls in CLASSES.items()
    if name not in FILLED_IN
    for method, entry in methods_of(cls)
}
FUNCTIONS = {name: entry for name, entry in PUBLIC.items() if inspect.isfunction(entry)} | METHODS
PROPERTIES = {
    f"{name}.{entry}": value for name, cls in CLASSES.items() for entry, value in properties_of(cls)
}
# Classes that are made by calling them; warnings and errors are only caught.
MADE = {name: cls for name, cls in CLASSES.items() if not issubclass(cls, BaseException)}


def sections(text):
    """The sections of a numpydoc docstring by name."""
    parts = re.split(r"^(\w[\w ]+)\n-{3,}\n", inspect.cleandoc(text or ""), flags=re.MULTILINE)
    names = parts[1::2]
    assert set(names) <= set(SECTIONS), names
    assert len(set(names)) == len(names), names
    assert names == sorted(names, key=SECTIONS.index), names
    return {"": parts[0], **dict(zip(names, parts[2::2], strict=True))}


def documented(section):
    """The names in a section of parameters: lines without indentation, several with commas."""
    lines = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [
        name.strip().lstrip("*") for line in lines for name in line.partition(" : ")[0].split(",")
    ]


def arguments(function):
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls")]


def test_the_list_is_that_of_the_package():
    assert {"merge", "MergeTree", "plots.dendrogram", "datasets.gaussians"} <= PUBLIC.keys()
    assert len(FUNCTIONS) > 50
    assert {"ClusterMerger.fit", "MergeTree.cut", "PairwiseTVD.save"} <= METHODS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_signature(name):
    function = FUNCTIONS[name]
    found = sections(function.__doc__)
    expected = arguments(function)
    if expected:
        assert documented(found.get("Parameters", "")) == expected
    else:
        assert "Parameters" not in found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_returned_is_said(name):
    function = FUNCTIONS[name]
    returns = inspect.signature(function).return_annotation
    found = sections(function.__doc__)
    if returns in (None, "None"):
        assert "Returns" not in found
    else:
        assert found.get("Returns", found.get("Yields", "")).strip()


@pytest.mark.parametrize("name", FUNCTIONS | MADE)
def test_there_is_an_example_that_runs(name):
    text = sections((FUNCTIONS | MADE)[name].__doc__).get("Examples", "")
    examples = doctest.DocTestParser().get_examples(text)
    assert examples
    assert not all(doctest.SKIP in example.options for example in examples)


@pytest.mark.parametrize("name", MADE)
def test_classes_document_what_they_are_made_of(name):
    cls = MADE[name]
    made = inspect.signature(cls).parameters  # none if it takes nothing
    fields = list(cls.__dataclass_fields__) if is_dataclass(cls) else list(made)
    # In any order: what belongs together may stand together.
    found = documented(sections(cls.__doc__).get("Parameters", ""))
    assert sorted(found) == sorted(fields)


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_are_described(name):
    entry = PROPERTIES[name]
    text = (entry.fget if isinstance(entry, property) else entry.func).__doc__
    assert text
    assert text.strip()
