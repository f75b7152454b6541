"""A Prometheus that is slow, huge, hostile or not there holds no diagnosis up, and gets no more than it is to have."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from validation.diagnose.job import read_job
from validation.diagnose.metrics import prometheus
from validation.diagnose.metrics.measured import Wanted
from validation.diagnose.metrics.places import Window
from validation.diagnose.metrics.prometheus import ask, queries
from validation.diagnose.metrics.series import incomplete

WINDOW = Window(1_763_000_000.0, 1_763_003_600.0, ("gpu-0", "gpu-1.cluster"))
EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
ONE = json.dumps(
    {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": "up", "instance": "gpu-0:9100"}, "values": [[1_763_000_000, "1"]]}]}}
).encode()  # fmt: skip

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]], dict[str, str]]]]]:
    """A server that answers so; its address, and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.path, parse_qs(body), dict(self.headers)))
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def says(body: bytes, code: int = 200, **headers: str) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(code)
        for name, value in headers.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)

    return answer


def test_only_the_job_s_nodes_and_time_are_asked_for() -> None:
    with serving(says(ONE)) as (url, asked):
        found, wrong = ask(f"{url}/prefix/", ["up", "a_b"], WINDOW)
    assert [each.name for each in found] == ["up"]
    assert not wrong
    ((path, told, _),) = asked
    assert path == "/prefix/api/v1/query_range"
    assert '__name__=~"a_b|up"' in told["query"][0]
    assert 'instance=~"(gpu-0|gpu-1)([.:].*)?"' in told["query"][0]
    assert (told["start"], told["end"]) == (["1762999940"], ["1763003720"])
    assert int(told["step"][0]) >= prometheus.STEP_S


def test_many_nodes_and_names_are_asked_for_in_parts() -> None:
    every = list(queries([f"metric_{i}" for i in range(20)], [f"gpu-{i}" for i in range(130)]))
    assert len(every) == 15
    assert max(map(len, every)) < 8000


def test_an_address_is_asked_for_whole() -> None:
    (query,) = queries(["up"], ["10.0.0.1"])
    assert "(10[.]0[.]0[.]1)" in query


def test_a_node_s_name_cannot_leave_its_place_in_the_query() -> None:
    (query,) = queries(["up"], ['x"} or {__name__=~".+', "gpu-0"])
    assert query.count("(gpu-0)") == 4
    assert ".+" not in query


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(b"x" * 3000), "no JSON"),
        (says(b"<html>", 502), "502"),
        (says(b"", 401), "401"),
        (says(b'{"status":"error","error":"too many samples"}', 422), "too_many_samples"),
        (says(b"", 302, Location="http://127.0.0.1:1/"), "302"),
        (says(b"{", 200, **{"Content-Length": "5000"}), "IncompleteRead|no JSON|bytes"),
    ],
    ids=["no JSON", "502", "401", "its own error", "leads elsewhere", "cut off"],
)
def test_an_answer_that_is_none_is_said_and_the_diagnosis_goes_on(answer: Answer, why: str, tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    log.write_text(f"[2026-11-12 10:00:00] step 1 loss 2.3\n[2026-11-12 10:05:00] {error}\n")
    with serving(answer) as (url, _):
        told = read_job([log], metrics=Wanted(url, nodes=("gpu-0",)))
    assert told.root_cause.kind == "gpu.illegal_access"
    (said,) = told.read.left_out
    assert said.startswith(url)
    assert re.search(why, said), said


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "LARGEST", 1 << 20)

    def endless(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        try:
            while True:
                to.wfile.write(b" " * 65536)
        except OSError:
            return

    with serving(endless) as (url, _):
        found, wrong = ask(url, ["up"], WINDOW)
    assert not found
    assert "an answer of more than 1 MiB" in wrong[0]


def test_one_that_says_a_byte_at_a_time_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "LIMIT_S", 0.5)
    done = threading.Event()

    def slowly(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        try:
            while not done.wait(0.05):
                to.wfile.write(b" ")
                to.wfile.flush()
        except OSError:
            return

    with serving(slowly) as (url, asked):
        found, wrong = ask(url, [f"m_{i}" for i in range(99)], WINDOW)
        done.set()
    assert not found
    assert "not all was told" in wrong[0]
    assert len(asked) == 1, "one that does not answer is not asked again"


def test_one_that_says_a_header_at_a_time_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "LIMIT_S", 0.5)
    done = threading.Event()

    def slowly(to: BaseHTTPRequestHandler) -> None:
        to.wfile.write(b"HTTP/1.1 500 x\r\n")
        try:
            while not done.wait(0.05):
                to.wfile.write(b"X: y\r\n")
                to.wfile.flush()
        except OSError:
            return

    with serving(slowly) as (url, _):
        found, wrong = ask(url, ["up"], WINDOW)
        done.set()
    assert not found
    assert "not all was told" in wrong[0]


def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.3)
    done = threading.Event()
    with serving(lambda _: done.wait(30) and None) as (url, asked):
        found, wrong = ask(url, [f"m_{i}" for i in range(99)], WINDOW)
        done.set()
    assert (found, len(wrong), len(asked)) == ([], 1, 1)
    assert "timed out" in wrong[0]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1", "refused"),
        ("file:///etc/passwd", "no address"),
        ("gopher://x", "no address"),
        ("127.0.0.1:9090", "no address"),
        ("http://", "no address"),
        ("http://x:99999999", "no address"),
        ("http://x y/", "no address"),
        ("http://[::1", "no address"),
        ("http://nowhere.invalid", "·"),
    ],
)
def test_an_address_that_is_none_is_said(url: str, why: str) -> None:
    found, wrong = ask(url, ["up"], WINDOW)
    assert not found
    assert len(wrong) == 1
    assert why in wrong[0]


def test_a_password_is_sent_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(says(b"", 403)) as (url, asked):
        _, wrong = ask(url.replace("://", "://ada:hush%40@"), ["up"], WINDOW)
        monkeypatch.setenv(prometheus.TOKEN, "secret-token\n")
        _, more = ask(url, ["up"], WINDOW)
    assert [each[2]["Authorization"] for each in asked] == ["Basic YWRhOmh1c2hA", "Bearer secret-token"]
    assert not any(word in str(wrong + more) for word in ("hush", "secret"))


def test_too_many_points_end_the_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_POINTS", 1)
    with serving(says(ONE)) as (url, asked):
        found, wrong = ask(url, [f"m_{i}" for i in range(99)], WINDOW)
    assert len(found) == len(asked) == 2
    assert "not asked for" in wrong[0]


@pytest.mark.parametrize("more", [b', "warnings": ["store b does not answer"]}', b', "isPartial" : true}'])
def test_an_answer_that_says_it_is_not_whole_is_read_and_that_is_said(more: bytes) -> None:
    with serving(says(ONE.rstrip().removesuffix(b"}") + more)) as (url, _):
        found, wrong = ask(url, ["up"], WINDOW)
    assert [each.name for each in found] == ["up"]
    (said,) = wrong
    assert "may not be whole" in said


@pytest.mark.parametrize("label", [{"warnings": '["'}, {"x": '"warnings": ["a"]'}, {"isPartial": "true"}])
def test_a_label_does_not_make_an_answer_incomplete(label: dict[str, str]) -> None:
    raw = json.dumps({"status": "success", "data": {"result": [{"metric": label}]}, "warnings": []}).encode()
    assert not incomplete(raw, "x")
