"""A real Chromium for the tests of the page; without one they are skipped, with the reason."""

import shutil
from pathlib import Path

import pytest

# Chromium as root in a container, without anything that would reach for the network by itself.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
MEASURED = []


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium; install it with: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


def is_local(address):
    return address.startswith(("file:", "data:", "blob:"))


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from disk, offline; any error or request of its script fails the test."""
    contexts, wrong = [], []

    def open_page(report, width=1280, height=900, scheme="light"):
        path = report if isinstance(report, Path) else tmp_path / "report.html"
        if not isinstance(report, Path):
            report.save(path)
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        page.on(
            "request",
            lambda asked: (
                asked.url.startswith(("file:", "data:", "blob:")) or wrong.append(asked.url)
            ),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def measured():
    """Remember a time for the summary; no test fails because a machine is busy."""

    def remember(what, milliseconds, goal):
        MEASURED.append(f"{what}: {milliseconds:.0f} ms (goal: under {goal} ms)")

    return remember


def pytest_terminal_summary(terminalreporter):
    for line in MEASURED:
        terminalreporter.write_line(f"the page in Chromium, {line}")
