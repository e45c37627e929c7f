"""The documentation in a real browser: what axe-core finds on its main pages, and their width."""

import pytest

from tests.browser.test_page import AXE
from tests.docs_cases import built_site

pytestmark = pytest.mark.slow

MAIN = ("index", "how-it-works", "gallery", "report", "photos", "api/index", "api/merging")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as by `make docs`."""
    pytest.importorskip("mkdocstrings")
    return built_site(tmp_path_factory.mktemp("site") / "site")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_no_fault_in_the_documentation(width, scheme, site, browser):
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    page = context.new_page()
    for name in MAIN:
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_function("document.querySelector('[data-md-component=container]') !== null")
        page.evaluate(AXE)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        faults = [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found["violations"]]
        assert faults == [], name
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
    context.close()
