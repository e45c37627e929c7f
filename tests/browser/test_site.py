"""The documentation in a real browser: what axe-core finds, widths, and the film of a page."""

import pytest
from PIL import Image

from examples.report_pictures import ANSWERS, FILM, film
from tests.browser.cases import scored_page
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


def test_wide_tables_of_the_evidence_fit_a_desktop(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    for name in ("benchmark", "scale", "paper", "measurements", "photos", "spikes"):
        page.goto((site / f"{name}.html").as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        page.wait_for_selector(".md-typeset__scrollwrap", state="attached")
        wide = "all => all.map(one => one.scrollWidth - one.clientWidth)"
        assert max(page.locator(".md-typeset__scrollwrap").evaluate_all(wide)) <= 0, name
    page.close()


def test_the_film_of_a_page_shows_every_cut_and_every_answer(browser, tmp_path):
    _, tree, report = scored_page()
    report.save(tmp_path / "report.html")
    film(browser, tmp_path / "report.html", tmp_path, "film")
    with Image.open(tmp_path / "film.gif") as image:
        assert image.size == (FILM["width"], FILM["height"])
        # Frames that equal the one before may be joined to it.
        most = tree.n_initial - tree.n_clusters + len(ANSWERS) + 4
        assert most - 3 <= image.n_frames <= most
