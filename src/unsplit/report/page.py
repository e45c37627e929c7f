"""Write the page: data, template, style and script in one file."""

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from unsplit.data.saving import replacing
from unsplit.data.text_files import plain_values

TEMPLATES = Path(__file__).parent / "templates"
# In the order in which they need each other.
SCRIPTS = (
    "model.js", "elements.js", "picture.js", "tree.js", "matrix.js", "clusters.js", "review.js",
    "downloads.js", "main.js",
)  # fmt: skip


class Report:
    """A page about a merge, as one HTML file without any reference to the network.

    A notebook shows it in a frame.

    Parameters
    ----------
    html : str
        The whole page.

    Examples
    --------
    >>> import unsplit
    >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
    >>> "3 clusters are really 2" in tree.report().html
    True
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, replacing an older one.

        Parameters
        ----------
        path : str or path-like

        Examples
        --------
        >>> import tempfile, unsplit
        >>> tree = unsplit.merge([[0, 0.1, 0.9], [0.1, 0, 0.8], [0.9, 0.8, 0]], n_clusters=2)
        >>> tree.report().save(tempfile.mkdtemp() + "/report.html")
        """
        with replacing(path) as new:
            new.write_bytes(self.html.encode("utf-8", "backslashreplace"))

    def _repr_html_(self) -> str:
        """The page in a frame, which keeps its style and the notebook's apart."""
        content = html.escape(self.html, quote=True)
        return (
            f'<iframe title="Unsplit report" srcdoc="{content}" '
            'style="width:100%;height:900px;border:1px solid #8888;border-radius:6px"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report: {len(self.html) / 1e6:.1f} MB of HTML; write it with save(path)"


def rendered(data: Mapping[str, Any]) -> str:
    """The page about this data, with every text escaped.

    Parameters
    ----------
    data : mapping
        What the sections returned, by the name of each.
    """
    script = "\n".join(_text(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            answer=data["answer"],
            look=data["look"],
            about=data["about"],
            data=embedded(data),
            style=Markup(_text("page.css")),
            script=Markup(script),
            script_hash=digest,
        )
    )


def embedded(content: Any) -> Markup:
    r"""JSON that can stand inside a script element, whatever the texts in it are.

    Examples
    --------
    >>> str(embedded("</script><!--"))
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(plain_values(content), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
