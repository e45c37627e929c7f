"""The blocks of code in the documentation, and the files and names that they take for granted."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import types
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.model_selection import GridSearchCV
from torch import nn

import unsplit
from tests.cli_cases import unsplit as command

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^( *)```+ *(\w*)[^\n]*\n(.*?)^\1```+ *$", re.MULTILINE | re.DOTALL)
# Blocks without a language and those called text or json are for reading only.
EXECUTED = ("python", "sh", "console")
# Their options are checked, but they are not run: the demo and the server have tests of their own.
TOO_LONG = ("demo", "review")


class Block(NamedTuple):
    """A block of code: its page, its language, and its text."""

    page: str
    language: str
    code: str


def blocks(path):
    """The blocks of a page that are executed, in order."""
    text = path.read_text("utf-8")
    found = [Block(path.name, language, code) for _, language, code in FENCE.findall(text)]
    return [block for block in found if block.language in EXECUTED]


PAGES_WITH_CODE = [path for path in PAGES if blocks(path)]


def built_site(folder):
    """The site in this folder, built as by `make docs`."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([*command, "--site-dir", folder], cwd=ROOT, env=environment, check=True)
    return folder


def run_page(path):
    """Execute all blocks of a page in one namespace; its names, and the language of each block."""
    names, ran = taken_for_granted(), []
    code = "".join(block.code for block in blocks(path))
    for name, make in MADE_ON_DEMAND.items():
        if name in code:
            names |= make()
    for block in blocks(path):
        if block.language == "python":
            exec(compile(block.code, f"{block.page}: {block.code[:40]!r}", "exec"), names)
        else:
            assert commands(block), f"no command in {block.code!r}"
            run_commands(block)
        ran.append(block.language)
    return names, ran


def run_commands(block):
    """Run the commands of ``unsplit``; of other programs, check that what they name is there."""
    for line, said in commands(block):
        program, *arguments = shlex.split(line, comments=True)
        if program != "unsplit":
            check_command(program, arguments)
        elif arguments[0] in TOO_LONG:
            check_options(arguments)
        else:
            result = command(*arguments)
            refusals = [text for text in said if text.startswith("unsplit: ")]
            assert result.exit_code == (2 if refusals else 0), f"{line}\n{result.output}"
            for refusal in refusals:
                assert refusal in result.stderr


def commands(block):
    """Lines that are typed, each with the lines that the page shows as its answer."""
    found = []
    for line in block.code.splitlines():
        if block.language == "sh" and line.strip() and not line.strip().startswith("#"):
            found.append((line, []))
        elif block.language == "console" and line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def check_options(arguments):
    """Whether the command exists and has these options."""
    from unsplit.cli import main

    name, *rest = arguments
    found = main.get_command(click.Context(main), name)
    assert found is not None, name
    found.make_context(name, rest)


def check_command(program, arguments):
    """Whether a target of make, a module, a script, tests or an extra exists."""
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "python" and arguments[0] == "-m":
        place = ROOT.joinpath(*arguments[1].split("."))
        assert arguments[1] == "http.server" or place.with_suffix(".py").exists() or place.is_dir()
    elif program == "python" or "pytest" in arguments or program == "pytest":
        files = [a for a in arguments if a.startswith(("examples/", "tests/"))]
        assert files
        assert all((ROOT / file).exists() for file in files), arguments
    elif program == "torchrun":
        after = arguments[arguments.index("-m") + 1 :]
        assert after[0] == "unsplit"
        check_options(after[1:])
    elif program == "pip":
        assert arguments[0] in ("install", "wheel")
    else:
        assert program in ("git", "cd", "ls", "head", "cat"), program


def taken_for_granted():
    """Names that pages use without saying where they come from, all of them small."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 12)
    X = rng.normal(size=(48, 5)) + 4 * (labels[:, None] // 2)
    measured = [f"x{i}" for i in range(5)]
    return {
        "X": X,
        "labels": labels,
        "new": X[:3],
        "df": pd.DataFrame(X, columns=measured).assign(leiden=labels.astype(str)),
        "measured": measured,
        "images": rng.integers(0, 255, (48, 12, 12, 3), dtype=np.uint8),
        "clouds": rng.normal(size=(48, 16, 3)),
        "counts": scipy.sparse.csr_array(rng.poisson(1 + labels[:, None], (48, 20))),
        "embeddings": X,
        "docs": ["text"] * 48,
        "topic_model": types.SimpleNamespace(
            fit_transform=lambda docs, embeddings: (labels, None),
            merge_topics=lambda docs, topics: None,
        ),
        "GridSearchCV": GridSearchCV,
        "np": np,
        "unsplit": unsplit,
    }


def blood_cells():
    """Cells that come with scanpy, with neighbours and positions, and some of their genes."""
    import scanpy

    adata = scanpy.datasets.pbmc68k_reduced()[:300].copy()
    adata.obs["leiden"] = adata.obs["louvain"]
    adata.write_h5ad("cells.h5ad")
    return {"adata": adata, "markers": list(adata.var_names[:3])}


def short_recording():
    """Make ten seconds of four neurons, one of them split at random into two units."""
    import spikeinterface
    from spikeinterface.core.generate import inject_some_split_units

    recording, sorting = spikeinterface.generate_ground_truth_recording(
        durations=[10.0], num_channels=4, num_units=4, seed=0
    )
    split = inject_some_split_units(sorting, split_ids=sorting.unit_ids[:1], seed=0)
    return {"recording": recording, "sorting": split}


MADE_ON_DEMAND = {"adata": blood_cells, "recording": short_recording}


def write_files(folder):
    """Write the files that pages use as examples to a folder: a table, photos, answers."""
    from PIL import Image

    rng = np.random.default_rng(0)
    names = np.repeat(["a", "b", "c", "d"], 15)
    X = rng.normal(size=(60, 3)) + 6.0 * np.isin(names, ["c", "d"])[:, None]
    rows = [f"{x},{y},{z},{name}" for (x, y, z), name in zip(X, names, strict=True)]
    (folder / "cells.csv").write_text("\n".join(["x,y,z,leiden", *rows]) + "\n")
    same = [{"answer": "same", "left": ["a"], "right": ["b"]}]
    answers = {"format": "unsplit.constraints/1", "answers": same}
    (folder / "unsplit-review.json").write_text(json.dumps(answers))
    for number, name in enumerate(("cat-1", "cat-2", "dog")):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(60 * number, 60 * number + 120, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{i}.png")
    write_shards(folder)


def write_shards(folder):
    """Pack the photos into two .tar files, as WebDataset does: an image and its .cls each."""
    (folder / "shards").mkdir()
    photos = sorted((folder / "photos").glob("*/*.png"))
    for shard in range(2):
        with tarfile.open(folder / "shards" / f"photos-{shard}.tar", "w") as archive:
            for i, photo in list(enumerate(photos))[shard::2]:
                archive.add(photo, f"{i:04d}.png")
                label = tarfile.TarInfo(f"{i:04d}.cls")
                label.size = len(photo.parent.name)
                archive.addfile(label, io.BytesIO(photo.parent.name.encode()))


def small_torchvision():
    """What pages use of torchvision, which is not installed: a network without its weights."""

    def resnet50(weights=None):
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))

    module = types.ModuleType("torchvision")
    module.models = types.SimpleNamespace(resnet50=resnet50)
    module.transforms = types.SimpleNamespace(Normalize=lambda mean, std: nn.Identity())
    return module
