"""The documentation: its site is built without warnings, its code runs, and nothing is left out."""

import re
import sys

import pytest
from sklearn.datasets import load_digits

import unsplit
from tests.docs_cases import (
    PAGES,
    PAGES_WITH_CODE,
    ROOT,
    Block,
    built_site,
    check_command,
    commands,
    run_page,
    small_torchvision,
    write_files,
)
from unsplit.networks.training.loop import Training

COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the files that pages mention; one thread, no display, short training."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchvision", small_torchvision())
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


@pytest.fixture
def few_epochs(monkeypatch):
    """Train for one epoch on the first digits: whether code runs does not depend on either."""
    create = Training.__init__

    def shortened(self, *arguments, **options):
        create(self, *arguments, **options)
        self.max_epochs = 1

    def first_digits(**_):
        return tuple(array[:400] for array in load_digits(return_X_y=True))

    monkeypatch.setattr(Training, "__init__", shortened)
    monkeypatch.setattr("sklearn.datasets.load_digits", first_digits)
    monkeypatch.setattr("unsplit.report.collect.FEWEST_FOR_NEIGHBOURS", 10**6)  # PCA is quick


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PAGES_WITH_CODE, ids=lambda path: path.name)
def test_every_block_of_code_runs(path, workplace, few_epochs):
    opened = re.findall(r"^ *```+ *(python|sh|console)\b", path.read_text("utf-8"), re.MULTILINE)
    assert run_page(path)[1] == opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "expression", "value"),
    [
        ("index.md", "merger.n_clusters_", 12),
        ("how-it-works.md", "tree.n_clusters", 2),
    ],
)
def test_numbers_in_comments_of_code(page, expression, value, workplace, monkeypatch):
    monkeypatch.setattr("tests.docs_cases.run_commands", lambda block: None)
    assert eval(expression, run_page(ROOT / "docs" / page)[0]) == value


def test_commands_of_a_block_and_what_they_answer():
    block = Block("page.md", "console", "$ unsplit merge a\nMerged.\n\n$ ls\nfile\n")
    assert commands(block) == [("unsplit merge a", ["Merged.", ""]), ("ls", ["file"])]
    block = Block("page.md", "sh", "# first\nmake demo   # shows it\n\nls\n")
    assert [line for line, _ in commands(block)] == ["make demo   # shows it", "ls"]


@pytest.mark.parametrize(
    "line",
    ["make coffee", "python -m benchmarks.nothing", "python examples/nothing.py", "sudo ls"],
)
def test_a_command_that_does_not_exist_is_noticed(line):
    program, *arguments = line.split()
    with pytest.raises(AssertionError):
        check_command(program, arguments)


def test_every_public_name_has_a_place_in_the_api():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md")]
    shown = {name for text in pages for name in re.findall(r"^::: unsplit\.(\S+)", text, re.M)}
    shown |= {name.partition(".")[0] for name in shown}  # anndata, where anndata.merge is
    # The members of unsplit.errors and other modules are shown with the module.
    assert {name for name in unsplit.__all__ if not shown & {name, module_of(name)}} == set()


def module_of(name):
    return getattr(getattr(unsplit, name), "__module__", "").removeprefix("unsplit.")


def test_every_example_is_in_the_gallery():
    gallery = COMMENTS.sub("", (ROOT / "docs" / "gallery.md").read_text("utf-8"))
    for path in EXAMPLES:
        assert f"](../examples/{path.name})" in gallery, path.name


def test_every_picture_is_on_a_page():
    shown = "".join(path.read_text("utf-8") for path in PAGES)
    for path in (ROOT / "docs" / "images").rglob("*.???"):
        assert f"images/{path.relative_to(ROOT / 'docs' / 'images')}" in shown, path.name


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as by `make docs`."""
    pytest.importorskip("mkdocstrings")
    return built_site(tmp_path_factory.mktemp("site") / "site")


def test_the_site_is_built_without_warnings_and_loads_nothing(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        html = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*?src=\"?([^\s\">]+)", html)
        loaded += re.findall(r"<link[^>]*?href=\"?([^\s\">]+)", html)
        assert loaded
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], page


def test_the_site_has_the_code_of_the_examples_and_links_to_the_api(site):
    for path in EXAMPLES:
        assert "import" in (site / "examples" / f"{path.stem}.html").read_text("utf-8")
    merging = (site / "api" / "merging.html").read_text("utf-8")
    assert 'href="pairwise.html#unsplit.pairwise_tvd"' in merging
    assert not re.findall(r":(?:func|class|meth):", merging)
