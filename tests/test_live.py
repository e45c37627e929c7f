"""``unsplit review``: what its server answers, whom it refuses, and what it saves."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tests.cli_cases import QUICK, merge, read_csv, read_json, snapshot, succeeds, write_data
from tests.cli_cases import unsplit as command
from unsplit.cli import review
from unsplit.data.saving import verify_folder
from unsplit.merging.saved_merges import MOST_TEXT

JSON = {"Content-Type": "application/json"}
SAME = {"answer": "same", "left": ["0", "1"], "right": ["2"]}
APART = {"answer": "different", "left": ["0"], "right": ["1"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A result of four clusters, two pairs of which are one each."""
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data()
        succeeds(merge("--report", "--also", "scores", "--must-link", "2,3"))
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out"


@contextmanager
def served(folder="out"):
    with review.Server(review.Session(str(folder)), 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, method="GET", path="", body=None, headers=None, whole=None):
    """Status, headers and text of what the server answers."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.request(method, whole or server.path + path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def send(server, answers, result=None):
    content = {"format": "unsplit.constraints/1", "answers": answers}
    content["result"] = server.session.fingerprint if result is None else result
    status, _, text = ask(server, "POST", "answers", json.dumps(content), JSON)
    assert status == 200
    return json.loads(text)


def page_data(server):
    text = ask(server)[2]
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(data)


def saved(tree):
    """What a file of a tree holds."""
    tree.save("again.npz")
    return Path("again.npz").read_bytes()


def test_merging_again_without_answers_changes_nothing(folder):
    assert saved(review.Session("out").merged(())) == Path("out/tree.npz").read_bytes()


def test_answers_merge_again_and_are_saved(folder):
    before = snapshot("out")
    with served() as server:
        status, headers, page = ask(server)
        assert status == 200
        assert headers["Cache-Control"] == "no-store"
        assert "connect-src 'self'" in page
        assert page_data(server)["live"] == "out/unsplit-review.json"
        first = server.session.fingerprint
        assert send(server, [SAME]) == {"result": server.session.fingerprint}
        assert page_data(server)["tree"]["n_clusters"] == 1
        assert [one["answer"] for one in page_data(server)["review"]["given"]] == ["same"]
        assert "another window" in send(server, [], first)["message"].lower()
        send(server, [])
        assert page_data(server)["tree"]["n_clusters"] == 2
        send(server, [APART, SAME | {"left": ["1"]}])
        assert server.session.tree.mapping == {0: 0, 1: 1, 2: 1, 3: 1}
        said = server.session.farewell()
    after = snapshot("out")
    kept = json.loads(after.pop("unsplit-review.json"))
    assert kept["answers"] == [APART, SAME | {"left": ["1"]}]
    assert after == before
    verify_folder("out")
    assert said.startswith("The review has ended, with answers in out/unsplit-review.json.")

    # The next review goes on from there, and the command that was named obeys, and keeps the file.
    assert review.Session("out").tree.mapping == server.session.tree.mapping
    typed = said.splitlines()[1].split()
    assert typed[0] == "unsplit"
    succeeds(command(*typed[1:]))
    table = read_csv("out/labels.csv")
    named = {"0": "0", **dict.fromkeys("123", "1 + 2 + 3")}
    assert dict(zip(table["old"], table["new"], strict=True)) == named
    assert read_json("out/unsplit-review.json") == kept
    assert saved(server.session.tree) == Path("out/tree.npz").read_bytes()


def test_contradictions_and_strange_answers_are_refused_in_a_sentence(folder):
    deep = "[" * 100_000
    wrong = [
        ([APART, SAME], "are to be kept apart"),
        ([APART | {"left": ["2"], "right": ["3"]}], "are to be kept apart"),
        ([APART | {"left": ["7"]}], "names '7', which is not a cluster"),
        ([APART | {"left": 3}], "answer 1 must have"),
        ({"a": 1}, "must hold a list of answers"),
    ]
    with served() as server:
        before = server.session.page
        for answers, part in wrong:
            message = send(server, answers)["message"]
            assert part in message
            assert message.endswith(".")
        result = json.dumps({"result": server.session.fingerprint, "format": "other"})
        for body, part in [
            ('"data.csv"', "no answers in JSON"),
            (deep, "no answers in JSON"),
            (b"\xff{", "no answers in JSON"),
            ("null", "no answers in JSON"),
            ("{}", "nother window"),
            (result, "does not hold answers"),
        ]:
            status, _, text = ask(server, "POST", "answers", body, JSON)
            assert status == 200
            assert part in json.loads(text)["message"]
        assert server.session.page is before
    assert not Path("out/unsplit-review.json").exists()


def test_others_are_refused(folder):
    with served() as server:
        port = server.server_address[1]
        assert server.server_address[0] == "127.0.0.1"
        evil = "evil.example"
        for host, status in [
            (f"127.0.0.1:{port}", 200), (f"localhost:{port}", 200), ("localhost:9", 200),
            (evil, 403), (f"{evil}:{port}", 403), (f"127.0.0.1.{evil}", 403),
            (f"127.0.0.1:{port}@{evil}", 403), ("", 403), ("[::1]", 403),
        ]:  # fmt: skip
            assert ask(server, headers={"Host": host})[0] == status
        own = f"http://127.0.0.1:{port}"
        for origin, status in [
            (own, 200), (f"http://{evil}", 403), ("null", 403), (f"https://127.0.0.1:{port}", 403),
            ("http://127.0.0.1:1", 403),
        ]:  # fmt: skip
            assert ask(server, headers={"Origin": origin})[0] == status
        token = server.path.strip("/")
        assert len(token) > 40
        for whole in [
            "/", f"/{token}", f"/{token[:-1]}/", f"/{token}x/", f"/{token}/report.html", "/é/",
            f"/{token}/../{token}/", f"{own}/{token}/", f"/{token}/?",
        ]:  # fmt: skip
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.putrequest("GET", "/", skip_host=True)
            connection._buffer[0] = f"GET {whole} HTTP/1.1".encode("latin-1")
            connection.putheader("Host", f"127.0.0.1:{port}")
            connection.endheaders()
            assert connection.getresponse().status == 404, whole
            connection.close()
        for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"):
            assert ask(server, method)[0] == 501
        assert ask(server, "GET", "answers")[0] == 404
        assert ask(server, "POST", "", "{}", JSON)[0] == 404
        assert ask(server, "POST", "answers", "{}", {"Content-Type": "text/plain"})[0] == 415
        for length in (str(MOST_TEXT + 1), "-1", "x", "9" * 5000):
            assert ask(server, "POST", "answers", "", JSON | {"Content-Length": length})[0] == 413


def test_folders_without_what_merging_again_needs_are_refused(folder):
    def refused(sentence):
        result = command("review", "out")
        assert result.exit_code == 2
        assert result.stderr == f"unsplit: {sentence}\n"

    Path("out/unsplit-review.json").symlink_to("../data.csv")
    refused("out/unsplit-review.json is a link, which is not followed; remove it.")
    Path("out/unsplit-review.json").unlink()
    Path("out/unsplit-review.json").write_text("{", "utf-8")
    refused(
        "out/unsplit-review.json is not valid JSON, or it is damaged; export it again from the "
        "page of the result."
    )
    manifest = read_json("out/manifest.json")
    elsewhere = manifest | {"files": manifest["files"] | {"../data.csv": {}}}
    Path("out/manifest.json").write_text(json.dumps(elsewhere), "utf-8")
    assert "which is outside this folder" in command("review", "out").stderr
    del manifest["files"]["neighbours.npz"]  # as an older version wrote it
    Path("out/manifest.json").write_text(json.dumps(manifest), "utf-8")
    refused(
        "out was saved without what merging again needs; run unsplit merge with --report --also "
        "scores."
    )


def test_images_and_small_clusters_merge_again_as_before(tmp_path, monkeypatch):
    """The graph is that of scores, and some clusters are too small to hold anything out."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], [30, 30, 30, 1])
    images = rng.normal(size=(len(labels), 6, 6)) + 4 * (labels % 3 > 0)[:, None, None]
    np.savez("images.npz", X=images.astype(np.float32), cluster=labels)
    where = ("images.npz", "--labels", "cluster", "--out", "out", "--seed", 0, *QUICK)
    succeeds(command("merge", *where, "--report", "--also", "scores"))
    assert read_json("out/result.json")["assigned"] == {"3": 0}
    assert saved(review.Session("out").merged(())) == Path("out/tree.npz").read_bytes()


def test_the_address_is_printed_and_opened_on_demand(folder, monkeypatch):
    def serve(server):
        raise KeyboardInterrupt

    opened, before = [], signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(review.Server, "serve_forever", serve)
    monkeypatch.setattr(review.webbrowser, "open", opened.append)
    said = succeeds(command("review", "out", "--open")).splitlines()
    signal.signal(signal.SIGTERM, before)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", opened[0])
    assert said == [
        f"Open {opened[0]} in a browser on this computer.",
        "Every answer merges again and is saved in out/unsplit-review.json; Ctrl-C ends the "
        "review.",
        "The review has ended, without answers.",
    ]
    succeeds(command("review", "out"))
    assert len(opened) == 1
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        said = command("review", "out", "--port", taken).stderr
    assert said == (
        f"unsplit: --port {taken} cannot be used (address already in use); choose another one.\n"
    )


IN_BACKGROUND = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(
    ("started", "ended"),
    [(None, [signal.SIGINT]), (IN_BACKGROUND, [signal.SIGINT, signal.SIGTERM])],
)
def test_ctrl_c_and_in_the_background_sigterm_end_it_well(folder, started, ended):
    program = [sys.executable, "-m", "unsplit", "review", "out"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, **pipes, preexec_fn=started) as run:
        first = run.stdout.readline()
        address = re.fullmatch(r"Open http://127\.0\.0\.1:(\d+)(/\S+/) in a browser .*\n", first)
        for number in ended:
            connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=30)
            connection.request("GET", address[2])
            assert connection.getresponse().status == 200
            connection.close()
            run.send_signal(number)
        said, warned = run.communicate(timeout=60)
        assert run.returncode == 0
        assert said.endswith("The review has ended, without answers.\n")
        assert warned == ""
