"""The HTTP listener: it answers, and no client can harm it."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.ports import free_port
from slurm_tiresias.web import http as shown
from slurm_tiresias.web.http import MOST_AT_ONCE, Answer, Listener, Request


@contextmanager
def listening(port: int) -> Iterator[None]:
    def page() -> Answer:
        return Answer("text/plain; charset=utf-8", b"hello")

    with Listener(f"127.0.0.1:{port}", {"/page": page}).open():
        yield


def asked(
    port: int, path: str = "/page", method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def wait_until_answered(port: int, **headers: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError):
            if asked(port, **headers).status == 200:
                return
        assert time.monotonic() < give_up_s, "the server does not listen"
        time.sleep(0.02)


def silent_reader(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_a_page_is_shown_by_its_path() -> None:
    port = free_port()
    with listening(port):
        answer = asked(port, "/page?x=1")
        assert (answer.status, answer.read()) == (200, b"hello")
        assert "Python" not in str(answer.headers)
        assert asked(port, method="HEAD").read() == b""
        assert asked(port, "/<script>").status == 404


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:1", "LOCALHOST:9817", "127.0.0.1:9817", "[::1]:9817", "10.1.2.3"),
        *("hopper.example.org", "HOPPER.example.org.:80", "hopper", "login.example.net"),
    ],
)
@pytest.mark.parametrize("path", ["/page", "/other"])
def test_requests_for_own_addresses_or_names_are_answered(named: int, host: str, path: str) -> None:
    assert asked(named, path, Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example.com", "localhost.evil.example.com", "127.0.0.1.evil.example.com:9817"),
        *("evil@localhost.example.com", "[::1", "localhost:80@evil.example.com", "127.1"),
    ],
)
@pytest.mark.parametrize("path", ["/page", "/other"])
def test_a_page_of_a_foreign_host_name_is_refused(named: int, host: str, path: str) -> None:
    """Any path, even that of the metrics."""
    answer = asked(named, path, Host=host)
    assert answer.status == 421
    assert b"hello" not in answer.read()


@pytest.fixture(scope="module")
def named() -> Iterator[int]:
    """A port at which all pages say hello; the host's names are hopper.example.org and, in the
    DNS, login.example.net."""

    def page(_request: Request | None = None) -> Answer:
        return Answer("text/plain; charset=utf-8", b"hello")

    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "Hopper.example.org")
        patch.setattr(socket, "getfqdn", lambda: "Login.example.net")
        with Listener(f"127.0.0.1:{port}", {"/page": page}, page).open():
            wait_until_answered(port, Host="login.example.net")
            yield port


def test_no_request_waits_for_the_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    monkeypatch.setattr(socket, "getfqdn", lambda: answers.wait(PATIENCE_S) and "n1.example.org")
    port = free_port()
    with listening(port):
        assert asked(port, Host="localhost").status == 200
        assert asked(port, Host="n1.example.org").status == asked(port, Host="").status == 421
        answers.set()
        wait_until_answered(port, Host="n1.example.org")


def test_a_fallback_page_answers_all_other_paths_and_gets_the_request_headers() -> None:
    def any_page(request: Request) -> Answer:
        if request.headers.get("if-none-match") == '"1"':
            return Answer("text/plain", b"", 304, {"ETag": '"1"'})
        return Answer("text/plain", request.path.encode(), 404, {"Cache-Control": "no-cache"})

    port = free_port()
    pages = {"/page": lambda: Answer("text/plain", b"hello")}
    with Listener(f"127.0.0.1:{port}", pages, any_page).open():
        assert asked(port).read() == b"hello"
        other = asked(port, "/other?x=1")
        assert (other.status, other.read()) == (404, b"/other")
        assert other.headers.get_all("Cache-Control") == ["no-cache"]
        assert other.headers["X-Content-Type-Options"] == "nosniff"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/other", headers={"If-None-Match": '"1"'})
        known = connection.getresponse()
        assert (known.status, known.read()) == (304, b"")
        assert known.headers["Content-Length"] is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_only_reading_requests_are_accepted(method: str) -> None:
    port = free_port()
    with listening(port):
        assert asked(port, method=method).status == 501


def test_it_answers_on_the_loopback_of_ipv6_too() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this machine")
        port = probe.getsockname()[1]
    with Listener(f"[::1]:{port}", {"/page": lambda: Answer("text/plain", b"six")}).open():
        connection = http.client.HTTPConnection("::1", port, timeout=PATIENCE_S)
        connection.request("GET", "/page")
        assert connection.getresponse().read() == b"six"


@pytest.mark.parametrize(
    "sent", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x00\xff" * 70_000, b"GET /page HTTP/9.9\r\n\r\n", b""]
)
def test_bad_requests_harm_no_other_client(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with listening(port):
        with silent_reader(port) as reader:
            try:
                reader.sendall(sent)
                reader.shutdown(socket.SHUT_WR)
                while reader.recv(65536):
                    pass
            except OSError:
                pass  # it has sent enough
        assert asked(port).status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_query_is_answered_despite_many_silent_connections() -> None:
    port = free_port()
    with listening(port):
        silent = [silent_reader(port) for _ in range(3 * MOST_AT_ONCE)]
        assert asked(port).status == 200
        # The oldest connections were closed.
        assert silent[0].recv(1) == b""
        for reader in silent:
            reader.close()


def test_a_failing_page_affects_only_its_own_request() -> None:
    def broken() -> Answer:
        raise RuntimeError("broken")

    port = free_port()
    pages = {"/page": lambda: Answer("text/plain", b"good"), "/broken": broken}
    with Listener(f"127.0.0.1:{port}", pages).open():
        with pytest.raises(http.client.HTTPException):
            asked(port, "/broken")
        assert asked(port).read() == b"good"


def test_a_port_in_use_is_logged_once_and_used_once_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shown, "LISTENS_AGAIN_S", 0.05)
    with caplog.at_level(logging.WARNING), socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with listening(port):
            other.close()
            wait_until_answered(port)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"nothing is shown over HTTP for now: 127.0.0.1:{port} cannot be used "
        "(Address already in use). Stop the program that uses it, or name another address in "
        "http.listen"
    )


@pytest.mark.parametrize("listen", ["no.such.host.invalid:9817", "a..b:9817", "203.0.113.1:9817"])
def test_an_address_of_another_host_is_logged_in_one_line_and_harms_nothing(
    listen: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Listener(listen, {}).open():
        pass
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{listen} cannot be used (" in line
