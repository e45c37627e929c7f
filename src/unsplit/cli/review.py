"""``unsplit review``: the page of a saved result, on which every answer merges again at once."""

import json
import os
import re
import secrets
import signal
import socketserver
import webbrowser
from collections.abc import Mapping
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any

import click
import numpy as np

from unsplit.cli.console import Console
from unsplit.cli.outputs import ANSWERS, EXTRA_FILES, NEIGHBOURS, about_run, described_tree
from unsplit.data.saving import reason_of, replacing, write_json
from unsplit.devices import memory_errors
from unsplit.errors import InputError, is_whole
from unsplit.estimator import seeds_of
from unsplit.merging.api import FEWER_CLUSTERS, merge_with
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.plan import LINKS, MergeOptions
from unsplit.merging.saved_merges import ANSWERS as FORMAT
from unsplit.merging.saved_merges import MOST_TEXT, Answer, read_answers
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.plots.style import counted
from unsplit.report.api import RESULT, content_of_folder, files_of_result, make_page
from unsplit.report.sections import fingerprint

# Names of this computer, with any port: somebody may reach it through a tunnel of SSH.
HERE = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
PATIENCE = 60.0  # seconds for one request
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
SETTINGS = ("n_clusters", "max_tvd", "alpha", "rank_by", "labels_from")


@click.command(
    epilog="\b\nExample:\n"
    "  unsplit merge cells.csv --labels leiden --out merged --report --also scores\n"
    "  unsplit review merged\n",
    short_help="Review pairs on a page that merges again at once.",
)
@click.argument("folder", type=click.Path())
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The port of the address; by default any that is free.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def review(folder: str, port: int, opens: bool) -> None:
    """Show the page of FOLDER, the result of an earlier `unsplit merge`, and merge again with every
    answer at once.

    Nothing is trained: that merge must have been run with --report --also scores. Answers are saved
    in FOLDER as unsplit-review.json; nothing else is changed. Only programs on this computer that
    know the address, which has a random part, can see the page. Ctrl-C ends the review.
    """
    with Console(progress=False).show_warnings():
        session = Session(folder)
        with _serving(session, port) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}{server.path}"
            click.echo(
                f"Open {address} in a browser on this computer.\n"
                f"Every answer merges again and is saved in {session.path}; Ctrl-C ends the review."
            )
            if opens:
                webbrowser.open(address)
            # Whoever runs this in the background ends it by SIGTERM, and no file is cut off either.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                session.lock.acquire()  # what is being saved is saved
    click.echo(session.farewell())


class Session:
    """A saved result that is merged again with answers, and its page.

    Parameters
    ----------
    folder : str
        It may come from a stranger: everything in it is checked, and nothing outside it is read or
        written.
    """

    def __init__(self, folder: str) -> None:
        files, self.path = files_of_result(folder), os.path.join(folder, ANSWERS)
        if os.path.islink(self.path):
            raise InputError(f"{self.path} is a link, which is not followed; remove it.")
        self.content, self.result = content_of_folder(folder)
        self.lock = Lock()
        distances, self.graph = self.content.distances, None
        if not isinstance(distances, PairwiseTVD):  # the page has no room for a sparse estimate
            distances = PairwiseTVD.load(Path(folder, "distances.npz"))
        self.distances = distances
        connected = self.result.get("n_connected") != 0
        needed = [name for name in EXTRA_FILES["scores"] if connected or name != NEIGHBOURS]
        if {*needed} - {*files} or not distances.has_scores:
            raise InputError(
                f"{folder} was saved without what merging again needs; run unsplit merge with "
                "--report --also scores."
            )
        if connected:
            self.graph = NeighbourGraph.load(Path(folder, NEIGHBOURS))
            if self.graph.rows.max(initial=0) >= len(self.content.clusters):  # type: ignore[arg-type]
                raise InputError(f"{NEIGHBOURS} of {folder} is about other data; merge again.")
        self._read_settings(folder)
        self.use(self.content.tree)
        if os.path.exists(self.path):
            answers = read_answers(self.path)
            if answers != self.tree.answers:
                self.use(self.merged(answers))

    def _read_settings(self, folder: str) -> None:
        """How the result was merged; the answers that it obeyed are in its tree."""
        known, seed = self.result.get("settings"), self.result.get("seed")
        small = self.result.get("assigned", {})
        if not isinstance(known, Mapping) or not isinstance(small, Mapping) or not is_whole(seed):
            raise InputError(f"{RESULT} of {folder} does not say how it was made; merge again.")
        links = known.get("constraints")
        links = links if isinstance(links, Mapping) else {}
        links = {name: links[name] for name in LINKS if name in links}
        options = MergeOptions(**{name: known[name] for name in SETTINGS if name in known})
        self.options, self.seed = options.with_constraints(links or None), int(seeds_of(seed)[1])
        names = self.distances.cluster_ids.tolist()
        place = {str(name): i for i, name in enumerate(names)}
        self.assigned = np.array([place.get(str(small.get(str(n))), -1) for n in names])

    def merged(self, answers: tuple[Answer, ...]) -> MergeTree:
        """Merge again with these answers."""
        options = replace(self.options, answers=answers)
        with memory_errors("merging the clusters", FEWER_CLUSTERS):
            return merge_with(
                self.distances, options, self.graph, self.seed, assigned=self.assigned
            )

    def use(self, tree: MergeTree) -> None:
        """Make the page of a tree."""
        about = about_run(self.result | described_tree(tree), self.path)
        content = replace(self.content, tree=tree, about=about, live=self.path)
        self.page = make_page(content).html.encode("utf-8", "backslashreplace")
        self.tree, self.fingerprint = tree, fingerprint(tree)

    def answer(self, text: bytes) -> str:
        """Merge again with the answers that the page sent, save them, and name the new result."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):  # a text would be taken for the name of a file
            raise InputError("the page sent no answers in JSON; load it again.")
        with self.lock:
            if content.get("result") != self.fingerprint:
                raise InputError("another window has changed the result; load this page again.")
            answers = read_answers(content)
            tree = self.merged(answers)
            listed = {"format": FORMAT, "answers": [asdict(one) for one in answers]}
            with replacing(self.path) as new:
                write_json(new, listed)
            self.use(tree)
            return self.fingerprint

    def farewell(self) -> str:
        """Where the answers are, and which command makes the final result."""
        if not self.tree.answers:
            return "The review has ended, without answers."
        said = f"{counted(len(self.tree.answers), 'answer')} in {self.path}"
        again = about_run(self.result, self.path).get("again", "")
        if not again.isprintable():
            again = f"unsplit merge … --constraints {self.path}"
        return f"The review has ended, with {said}. This makes the final result:\n  {again}"


class _Server(socketserver.ThreadingTCPServer):
    """Serves the page of a session; not an HTTPServer, which would ask for the computer's name."""

    allow_reuse_address = daemon_threads = True
    session: Session
    path: str


def _serving(session: Session, port: int) -> _Server:
    """A server at an address that nobody can guess, which only this computer can reach."""
    try:
        server = _Server(("127.0.0.1", port), _Request)
    except OSError as error:
        raise InputError(
            f"--port {port} cannot be used ({reason_of(error)}); choose another one."
        ) from None
    server.session, server.path = session, f"/{secrets.token_urlsafe()}/"
    return server


class _Request(BaseHTTPRequestHandler):
    """One request: for the page, or to merge again with answers."""

    server: _Server
    timeout = PATIENCE
    server_version, sys_version = "unsplit", ""

    def do_GET(self) -> None:
        """Send the page."""
        if self._is_welcome(""):
            self._send(200, self.server.session.page, "text/html")

    def do_POST(self) -> None:
        """Merge again, and name the new result or say in one sentence why there is none."""
        if not self._is_welcome("answers"):
            return
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > MOST_TEXT:
            return self._say(413, "The answers are too large, or their length is not given.")
        if self.headers.get_content_type() != "application/json":
            return self._say(415, "Answers are sent as application/json.")
        try:
            found = {"result": self.server.session.answer(self.rfile.read(int(length)))}
        except (InputError, OSError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            found = {"message": f"{why[:1].upper()}{why[1:]}"}
        self._send(200, json.dumps(found).encode(), "application/json")

    def _is_welcome(self, name: str) -> bool:
        """Whether a request is for this address and comes from this page; others are refused."""
        hosts, origin = self.headers.get_all("Host", []), self.headers.get("Origin")
        if len(hosts) != 1 or not HERE.fullmatch(hosts[0]):
            self._say(403, "This page is for this computer only.")
        elif origin not in (None, f"http://{hosts[0]}"):
            self._say(403, "Other pages are not answered.")
        elif not secrets.compare_digest(self.path.encode(), (self.server.path + name).encode()):
            self._say(404, "There is nothing at this address.")
        else:
            return True
        return False

    def _say(self, status: int, sentence: str) -> None:
        self._send(status, sentence.encode(), "text/plain")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (HEADERS | length).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing in the terminal, where the address would stay."""
