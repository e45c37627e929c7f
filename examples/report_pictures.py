"""The pictures of the page in the documentation: digits, and 500 simulated clusters.

    unsplit demo --report --out demo-output
    python examples/report_pictures.py demo-output/report.html docs/images
    python examples/report_pictures.py --data many.npz
    unsplit merge many.npz --labels cluster --out many --seed 0 --epochs 40 --cv 3 --report
    python examples/report_pictures.py many/report.html docs/images --name report-500

Needs playwright and Debian's chromium (`apt-get install chromium`).
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np

# What is shown, at which width and height, in which colours, and the part of the page.
PICTURES = {
    "report": (1280, 1130, "light", None),
    "report-tree": (1280, 900, "light", "#tree"),
    "report-review": (1280, 900, "light", "#review"),
    "report-dark": (1280, 1130, "dark", None),
    "report-phone": (390, 1000, "light", None),
}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def simulated(n_groups: int = 60, k: int = 500, size: int = 30) -> tuple[Any, Any]:
    """Groups in ten dimensions, each split at random into about eight clusters of one size."""
    rng = np.random.default_rng(0)
    group = np.sort(np.arange(k) % n_groups)
    centres = 2.2 * rng.normal(size=(n_groups, 10))
    labels = np.repeat(np.arange(k), size)
    return centres[group[labels]] + rng.normal(size=(len(labels), 10)), labels


def take(page_file: Path, folder: Path, name: str | None = None) -> None:
    """Take all pictures of one page, or only the first one under another name."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        wanted = PICTURES if name is None else {name: PICTURES["report"]}
        for called, (width, height, scheme, part) in wanted.items():
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(page_file.resolve().as_uri())
            place = folder / f"{called}.png"
            if part is None:
                page.screenshot(path=place)
            else:
                page.add_style_tag(content="header { display: none !important }")
                page.locator(part).screenshot(path=place)
            page.close()
            smaller(place)
            print(place, f"{place.stat().st_size / 1000:.0f} kB")
        browser.close()


def smaller(place: Path) -> None:
    """Keep 200 colours, which nobody can tell from all of them, in a third of the size."""
    from PIL import Image

    with Image.open(place) as image:
        few = image.convert("RGB").quantize(200)
    few.save(place, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--name")
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.data is not None:
        X, labels = simulated()
        np.savez(given.data, X=X, cluster=labels)
    else:
        take(given.page, given.folder, given.name)


if __name__ == "__main__":
    main()
