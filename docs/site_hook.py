"""Pages of the site that are files elsewhere in the repository: the examples, two files at its top.

Links to them are those of the repository, so that they work in both places.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parent.parent
AT_THE_TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
FILE_NAME = re.compile(r"\[([\w-]+\.md)\]\(")  # [stopping.md](
ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):<code>~?([\w.]+)</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, page in AT_THE_TOP.items():
        text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "examples").glob("*.py")):
        page = f"examples/{path.stem}.md"
        hidden = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, page, content=example_page(path), inclusion=hidden))
    return files


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: object) -> str:
    """Point links to files of the repository at their pages, and name pages by their titles."""
    for source, page in AT_THE_TOP.items():
        markdown = markdown.replace(f"](../{source}", f"]({page}")
    for path in (ROOT / "examples").glob("*.py"):
        markdown = markdown.replace(f"](../examples/{path.name})", f"](examples/{path.stem}.md)")
    titles = {file: title for section in config.nav or [] for file, title in titles_of(section)}
    return FILE_NAME.sub(lambda found: f"[{titles.get(found[1], found[1])}](", markdown)


def titles_of(section: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pages of a part of the navigation, and their titles."""
    for title, inside in section.items():
        if isinstance(inside, str):
            yield inside, title
        else:
            for part in inside:
                yield from titles_of(part)


def on_page_content(html: str, **_: object) -> str:
    """Turn roles in docstrings into links where there is a page, and empty headers into cells."""
    html = re.sub(r"<th[^>]*></th>", "<td></td>", html)
    return ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', html)


def example_page(path: Path) -> str:
    """Return the page of an example: its first sentence and its code."""
    code = path.read_text("utf-8")
    first = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")[0]
    return f"# examples/{path.name}\n\n{first}\n\n````python\n{code}````\n"
