"""What listens for HTTP: pages that may be read, and nothing else.

It lives in threads of its own. Whatever is sent to it, however slowly and by however many, no
cycle waits for it; and where it cannot listen, the controller goes on without.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

from slurm_tiresias.config import host_and_port
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

LISTENS_AGAIN_S = 15.0
"""After this time a port that was taken is tried again."""

MOST_AT_ONCE = 16
"""Readers. When one more comes, the one that has been there longest is hung up on."""

QUIET_S = 10.0
"""How long a reader may say and take nothing."""

ACCEPTS_AGAIN_S = 1.0

LEAST_GAP_S = 0.01
"""Between two readers: they share the interpreter with the cycles."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. ``path`` is without the query; ``headers`` by name, in lower case."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page shows, and what kind of text that is."""

    content_type: str
    body: bytes
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beside those that every answer has, or in their place."""


Page = Callable[[], Answer]
AnyPage = Callable[[Request], Answer]
"""One that answers for many paths, also for those that there is nothing at."""

TEXT = "text/plain; charset=utf-8"
OTHER_NAME = b"This host has another name; see http.names in the configuration\n"

EVERY_ANSWER: Mapping[str, str] = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Listener:
    """Shows pages, by path, at ``http.listen``."""

    def __init__(
        self,
        listen: str,
        pages: Mapping[str, Page],
        any_page: AnyPage | None = None,
        names: Collection[str] = (),
    ) -> None:
        """``any_page`` answers for all other paths. ``names``: what this host may be called, beside
        its addresses and ``localhost``; who asks for another name is refused (421)."""
        self._names = frozenset({"localhost", *(name.lower() for name in names)})
        self._listen = listen
        self._pages = pages
        self._any_page = any_page
        self._closing = threading.Event()
        self._warning = WarnOnce("nothing is shown over HTTP for now")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Answer until the end of the block."""
        threading.Thread(target=self._run, args=(self._server(),), daemon=True).start()
        try:
            yield
        finally:
            self._closing.set()

    def _run(self, server: _Server | None) -> None:
        while not self._closing.is_set():
            if server is None:
                self._closing.wait(LISTENS_AGAIN_S)
                server = self._server()
                continue
            server.timeout = LISTENS_AGAIN_S
            server.handle_request()
        if server:
            server.server_close()

    def _server(self) -> _Server | None:
        """One that listens; None, and a word why, where it cannot."""
        host, port = host_and_port(self._listen)
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server = _Server(
                family, (str(address[0]), port), self._pages, self._any_page, self._names
            )
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            self._warning.warn(
                f"{self._listen} cannot be listened at ({why}). "
                "Stop what does, or name another address in http.listen"
            )
            return None
        shown = ["/"] * bool(self._any_page) + list(self._pages)
        log.info("listens at http://%s (%s)", self._listen, ", ".join(shown))
        return server


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    """A thread for each reader, and only so many."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        family: int,
        address: tuple[str, int],
        pages: Mapping[str, Page],
        any_page: AnyPage | None,
        names: Collection[str],
    ) -> None:
        self.address_family = family
        self.names = names
        self.pages = pages
        self.any_page = any_page
        self._readers: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The one of HTTPServer asks for the name of the host, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        time.sleep(LEAST_GAP_S)
        try:
            return super().get_request()
        except OSError as error:
            log.debug("no connection can be accepted for a moment: %s", error)
            time.sleep(ACCEPTS_AGAIN_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._readers) >= MOST_AT_ONCE:
                longest = next(iter(self._readers))
                del self._readers[longest]
                with suppress(OSError):
                    longest.shutdown(socket.SHUT_RDWR)
            self._readers[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._readers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("an HTTP request could not be answered: %r", sys.exc_info()[1])


def is_one_of(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, or one of these names in lower case; any port will do.

    A page from elsewhere whose own name has been made to lead here (DNS rebinding) comes with that
    name, and never with an address.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name.rstrip(".") in names:
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = QUIET_S
    server_version = "tiresias-slurm"
    sys_version = ""

    def do_GET(self) -> None:
        if answer := self._head():
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        self._head()

    def _head(self) -> Answer | None:
        path = self.path.partition("?")[0]
        if not is_one_of(self.headers.get("Host", ""), self.server.names):
            answer = Answer(TEXT, OTHER_NAME, HTTPStatus.MISDIRECTED_REQUEST)
        elif page := self.server.pages.get(path):
            answer = page()
        elif self.server.any_page:
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = self.server.any_page(Request(path, headers))
        else:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"See {', '.join(self.server.pages)}")
            return None
        self.send_response(answer.status)
        for name, value in {**EVERY_ANSWER, **answer.headers}.items():
            self.send_header(name, value)
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        return answer

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        log.debug("HTTP: %r", format % arguments)
