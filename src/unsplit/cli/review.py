"""``unsplit review``: the page of a saved result, on which every answer merges again at once."""

import json
import os
import re
import secrets
import signal
import webbrowser
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Lock
from typing import Any

import click

from unsplit.cli.console import Console
from unsplit.cli.outputs import ANSWERS, EXTRA_FILES, NEIGHBOURS, about_run, described_tree
from unsplit.data.saving import reason_of, replacing, write_json
from unsplit.devices import memory_errors
from unsplit.errors import InputError
from unsplit.estimator import seeds_of
from unsplit.merging.api import FEWER_CLUSTERS, merge_with
from unsplit.merging.neighbours.graph import NeighbourGraph
from unsplit.merging.plan import LINKS, MergeOptions
from unsplit.merging.saved_merges import ANSWERS as FORMAT
from unsplit.merging.saved_merges import MOST_TEXT, Answer, read_answers
from unsplit.merging.tree import MergeTree
from unsplit.pairwise.result import PairwiseTVD
from unsplit.report.api import content_of_folder, files_of_result, make_page
from unsplit.report.sections import fingerprint

# Names of this computer, with any port: somebody may reach it through a tunnel of SSH.
HERE = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
PATIENCE = 60.0  # seconds for one request
SETTINGS = ("n_clusters", "max_tvd", "alpha", "rank_by", "labels_from")


def review(folder: str, port: int, opens: bool) -> None:
    """Show the page, and merge again with every answer until Ctrl-C."""
    with Console(progress=False).show_warnings():
        session = Session(folder)
        with Server(session, port) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}{server.path}"
            click.echo(f"Open {address} in a browser on this computer.")
            click.echo(
                f"Every answer merges again and is saved in {session.path}; Ctrl-C ends the review."
            )
            if opens:
                webbrowser.open(address)
            # What runs in the background is ended by SIGTERM, and cuts off no file either.
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
        files, self.path, self.lock = files_of_result(folder), os.path.join(folder, ANSWERS), Lock()
        if os.path.islink(self.path):
            raise InputError(f"{self.path} is a link, which is not followed; remove it.")
        self.content, self.result = content_of_folder(folder)
        assert isinstance(self.content.distances, PairwiseTVD)  # of a folder always
        self.distances = self.content.distances
        # Of very many observations that are no vectors no graph is made.
        connected = self.result.get("n_connected") != 0
        needed = {name for name in EXTRA_FILES["scores"] if connected or name != NEIGHBOURS}
        if not needed <= {*files} or not self.distances.has_scores:
            raise InputError(
                f"{folder} was saved without what merging again needs; run unsplit merge with "
                "--report --also scores."
            )
        self.graph = NeighbourGraph.load(os.path.join(folder, NEIGHBOURS)) if connected else None
        try:
            self._read_settings()
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(
                f"result.json of {folder} does not say how it was made; run unsplit merge again."
            ) from None
        self.use(self.content.tree)
        answers = read_answers(self.path) if os.path.exists(self.path) else self.tree.answers
        if answers != self.tree.answers:
            self.use(self.merged(answers))

    def _read_settings(self) -> None:
        """How the result was merged; the answers that it obeyed are in its tree, not in a file."""
        known, small = self.result["settings"], self.result.get("assigned", {})
        links = known["constraints"] if isinstance(known["constraints"], dict) else {}
        options = MergeOptions(**{name: known[name] for name in SETTINGS})
        links = {name: links[name] for name in LINKS if name in links}
        self.options, self.seed = options.with_constraints(links or None), self.result["seed"]
        names = list(map(str, self.distances.cluster_ids.tolist()))
        place = {name: i for i, name in enumerate(names)}
        self.assigned = [place.get(str(small.get(name)), -1) for name in names]
        self.seed = int(seeds_of(int(self.seed))[1])
        about_run(self.result)

    def merged(self, answers: tuple[Answer, ...]) -> MergeTree:
        """Merge again with these answers."""
        given = self.distances, replace(self.options, answers=answers), self.graph, self.seed
        with memory_errors("merging the clusters", FEWER_CLUSTERS):
            return merge_with(*given, assigned=self.assigned)

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
            with replacing(self.path) as new:
                write_json(new, {"format": FORMAT, "answers": list(map(asdict, answers))})
            self.use(tree)
            return self.fingerprint

    def farewell(self) -> str:
        """Where the answers are, and which command makes the final result."""
        if not self.tree.answers:
            return "The review has ended, without answers."
        again = about_run(self.result, self.path).get("again", "")
        if not again.isprintable():
            again = f"unsplit merge … --constraints {self.path}"
        return (
            f"The review has ended, with answers in {self.path}. This makes the final result:\n"
            f"  {again}"
        )


class Server(ThreadingTCPServer):
    """Serves the page of a session, to this computer and at an address that nobody can guess.

    Not an HTTPServer, which would ask the network for the computer's name.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, session: Session, port: int) -> None:
        self.session, self.path = session, f"/{secrets.token_urlsafe()}/"
        try:
            super().__init__(("127.0.0.1", port), Request)
        except OSError as error:
            raise InputError(
                f"--port {port} cannot be used ({reason_of(error)}); choose another one."
            ) from None


class Request(BaseHTTPRequestHandler):
    """One request: for the page, or to merge again with answers."""

    server: Server
    timeout = PATIENCE

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
            self._send(413, b"The answers are too large, or their length is not given.")
        elif self.headers.get_content_type() != "application/json":
            self._send(415, b"Answers are sent as application/json.")
        else:
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
            self._send(403, b"This page is for this computer only.")
        elif origin not in (None, f"http://{hosts[0]}"):
            self._send(403, b"Other pages are not answered.")
        elif not secrets.compare_digest(self.path.encode(), (self.server.path + name).encode()):
            self._send(404, b"There is nothing at this address.")
        else:
            return True
        return False

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing in the terminal, where the address would stay."""
