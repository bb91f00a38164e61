"""The weekly look at addresses of others: what is found in prose, and which answers break a link."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.links import addresses, fault
from tests.tiny_book import write


class Answers(BaseHTTPRequestHandler):
    """/404 answers 404; /moved leads to /200."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else int(self.path[1:]))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "why"),
    [("200", ""), ("moved", ""), ("403", ""), ("429", ""), ("503", ""), ("404", "404 Not Found"), ("410", "410 Gone")],
)
def test_what_leads_nowhere_is_told_and_a_busy_server_is_not(server: str, path: str, why: str) -> None:
    assert fault(f"{server}/{path}") == why


def test_a_host_that_never_answers_is_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as gone:
        address = f"http://127.0.0.1:{gone.server_port}/200"
    assert "refused" in fault(address, tries=2, pause=0.01)


def test_addresses_of_others_are_read_from_prose(tmp_path: Path) -> None:
    text = "[a](https://one.example/x_1#part), <https://two.example/y>. See https://three.example. `https://github.com/attention-checked/z`"
    write(tmp_path / "book/deep/page.md", text)
    write(tmp_path / "book/references.bib", "url = {https://four.example/b},")
    write(tmp_path / "notebooks/page.ipynb", '"https://five.example"')
    found = addresses(tmp_path)
    assert [*found] == [
        "https://one.example/x_1",
        "https://two.example/y",
        "https://three.example",
        "https://four.example/b",
    ]
    assert found["https://two.example/y"] == "book/deep/page.md"
    assert "https://arxiv.org/abs/2410.07746" in addresses(ROOT)
