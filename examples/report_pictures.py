"""The pictures of the page in the documentation: digits, photos, cells and 500 simulated clusters.

    unsplit demo --report --out demo-output
    python examples/report_pictures.py demo-output/report.html docs/images
    python examples/report_pictures.py demo-output/report.html docs/images --film
    cp demo-output/report.html docs/digits.html
    python examples/report_pictures.py --make photos clothes
    python examples/report_pictures.py --make cells cells.h5ad
    python examples/report_pictures.py --make many many.npz
    unsplit merge clothes --out photos --seed 0 --report
    unsplit merge cells.h5ad --labels leiden --out cells --seed 0 --report
    unsplit merge many.npz --labels cluster --out many --seed 0 --epochs 40 --cv 3 --report
    python examples/report_pictures.py photos/report.html docs/images --name report-photos
    python examples/report_pictures.py cells/report.html docs/images --name report-cells
    python examples/report_pictures.py many/report.html docs/images --name report-500

Needs playwright and Debian's chromium (`apt-get install chromium`); the photos are Fashion-MNIST
(Zalando SE, MIT licence), which Debian has as dataset-fashion-mnist.
"""

import argparse
import gzip
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np

# What is shown, at which width and height, in which colours, and the part of the page.
PICTURES = {
    "": (1280, 1130, "light", None),
    "-tree": (1280, 900, "light", "#tree"),
    "-review": (1280, 900, "light", "#review"),
    "-dark": (1280, 1130, "dark", None),
    "-phone": (390, 1000, "light", None),
}
# The right answers to the first pairs: eights and ones, nines and ones, nines and threes, eights.
ANSWERS = "ddds"
FILM = {"width": 900, "height": 760}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FASHION = Path("/usr/share/datasets/fashion-mnist")
CLOTHES = {"t-shirt": 0, "trousers": 1, "dress": 3, "sneaker": 7, "bag": 8, "boot": 9}


def many(place: Path, n_groups: int = 60, k: int = 500, size: int = 30) -> None:
    """Groups in ten dimensions, each split at random into about eight clusters of one size."""
    rng = np.random.default_rng(0)
    group = np.sort(np.arange(k) % n_groups)
    centres = 2.2 * rng.normal(size=(n_groups, 10))
    labels = np.repeat(np.arange(k), size)
    X = centres[group[labels]] + rng.normal(size=(len(labels), 10))
    np.savez(place, X=X, cluster=labels)


def photos(place: Path, parts: int = 4, size: int = 40) -> None:
    """Photos of six kinds of clothes, each split at random into folders of one size."""
    from PIL import Image

    images, kinds = (
        np.frombuffer(gzip.decompress((FASHION / name).read_bytes()), np.uint8, offset=offset)
        for name, offset in (("t10k-images-idx3-ubyte.gz", 16), ("t10k-labels-idx1-ubyte.gz", 8))
    )
    for name, kind in CLOTHES.items():
        rows = np.flatnonzero(kinds == kind)[: parts * size]
        for i, row in enumerate(rows.tolist()):
            folder = place / f"{name} {i // size + 1}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = 255 - images.reshape(-1, 28, 28)[row]
            Image.fromarray(pixels).save(folder / f"{row}.png")


def cells(place: Path) -> None:
    """The blood cells that scanpy carries, cut by Leiden into many clusters."""
    import scanpy as sc

    adata = sc.datasets.pbmc68k_reduced()
    sc.tl.leiden(adata, 3, flavor="igraph", n_iterations=2)
    adata.write_h5ad(place)


def take(browser: Any, page_file: Path, folder: Path, name: str) -> None:
    """Take all pictures of one page."""
    for what, (width, height, scheme, part) in PICTURES.items():
        if part is not None and name != "report":
            continue
        size = {"width": width, "height": height}
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.goto(page_file.resolve().as_uri())
        place = folder / f"{name}{what}.png"
        if part is None:
            page.screenshot(path=place)
        else:
            page.add_style_tag(content="header, #cut { display: none !important }")
            page.locator(part).screenshot(path=place)
        page.close()
        smaller(place)
        print(place, f"{place.stat().st_size / 1000:.0f} kB")


def film(browser: Any, page_file: Path, folder: Path, name: str) -> None:
    """Film the page: the slider goes from all clusters to the result, then D and S answer pairs."""
    from PIL import Image

    frames: list[Image.Image] = []
    milliseconds: list[int] = []
    page = browser.new_page(viewport=FILM, reduced_motion="reduce")
    page.goto(page_file.resolve().as_uri())

    def show(seconds: float) -> None:
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        milliseconds.append(int(1000 * seconds))

    def scroll_to(part: str) -> None:
        page.locator(part).evaluate("part => part.scrollIntoView()")

    show(2)
    slider = page.locator("#slider")
    found, most = int(slider.input_value()), int(slider.get_attribute("max"))
    scroll_to("#cut")
    for n_clusters in range(most, found - 1, -1):
        slider.fill(str(n_clusters))
        show(0.8 if n_clusters == most else 0.15)
    show(2)
    scroll_to("#review")
    page.locator("#card").evaluate("card => card.focus({ preventScroll: true })")
    for key in ANSWERS:
        show(2)
        page.keyboard.press(key)
    show(3)
    page.close()
    # One palette for all frames: then only what changes takes space.
    shown = (frames[0], frames[1], frames[-1])
    palette = Image.fromarray(np.concatenate([np.asarray(frame) for frame in shown]))
    palette = palette.quantize(256, Image.Quantize.MAXCOVERAGE)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    place = folder / f"{name}.gif"
    few[0].save(place, save_all=True, append_images=few[1:], duration=milliseconds, loop=0)
    print(place, f"{place.stat().st_size / 1000:.0f} kB")


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
    parser.add_argument("page", type=Path, nargs="?", help="the report.html of a result")
    parser.add_argument("folder", type=Path, nargs="?", help="where the pictures are written")
    parser.add_argument("--name", default="report", help="how their names begin")
    parser.add_argument("--make", nargs=2, metavar=("KIND", "PLACE"), help="write data to merge")
    parser.add_argument("--film", action="store_true", help="a moving picture instead")
    given = parser.parse_args()
    if given.make is None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=ARGUMENTS
            )
            (film if given.film else take)(browser, given.page, given.folder, given.name)
            browser.close()
        return
    kind, place = given.make
    makers: dict[str, Any] = {"many": many, "photos": photos, "cells": cells}
    makers[kind](Path(place))


if __name__ == "__main__":
    main()
