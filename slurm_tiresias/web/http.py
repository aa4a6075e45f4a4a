"""The HTTP listener: serves read-only pages.

It runs in its own threads: no cycle waits for it, however slow or numerous its clients are. If it
cannot listen, the controller runs without it.
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

from slurm_tiresias.settings.http import host_and_port
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

LISTENS_AGAIN_S = 15.0
"""The pause before a port that was in use is tried again."""

MOST_AT_ONCE = 16
"""The most connections; one more closes the oldest."""

QUIET_S = 10.0
"""How long a client may neither send nor receive."""

ACCEPTS_AGAIN_S = 1.0

LEAST_GAP_S = 0.01
"""The pause after each connection: the listener's threads share the interpreter with cycles."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request: ``path`` without the query, ``headers`` by name in lower case."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of a page, with its type and status."""

    content_type: str
    body: bytes
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that are added to ``EVERY_ANSWER``, or replace some of them."""


Page = Callable[[], Answer]
AnyPage = Callable[[Request], Answer]
"""Answers for any path, also for unknown ones."""

TEXT = "text/plain; charset=utf-8"
OTHER_NAME = b"This host has another name: use its host name, its address or localhost\n"

EVERY_ANSWER: Mapping[str, str] = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Listener:
    """Serves pages, by path, at ``http.listen``."""

    def __init__(
        self,
        listen: str,
        pages: Mapping[str, Page],
        any_page: AnyPage | None = None,
    ) -> None:
        """Prepare a listener; ``any_page`` answers for all other paths. A request under a name that
        is not this host's is refused (421)."""
        host = socket.gethostname().lower()
        self._names = {"localhost", host, host.partition(".")[0]} - {""}
        self._listen = listen
        self._pages = pages
        self._any_page = any_page
        self._closing = threading.Event()
        self._warning = WarnOnce("nothing is shown over HTTP for now")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Serve pages until the context ends."""
        threading.Thread(target=self._find_full_name, daemon=True).start()
        threading.Thread(target=self._run, args=(self._server(),), daemon=True).start()
        try:
            yield
        finally:
            self._closing.set()

    def _find_full_name(self) -> None:
        """Add this host's name with its domain. No request waits for the DNS."""
        self._names.update({socket.getfqdn().lower()} - {""})

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
        """Open a listening server; log a warning and return None if that fails."""
        host, port = host_and_port(self._listen)
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server = _Server(
                family, (str(address[0]), port), self._pages, self._any_page, self._names
            )
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            self._warning.warn(
                f"{self._listen} cannot be used ({why}). Stop the program that uses it, or name "
                "another address in http.listen"
            )
            return None
        shown = ["/"] * bool(self._any_page) + list(self._pages)
        log.info("listens at http://%s (%s)", self._listen, ", ".join(shown))
        return server


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    """A server with one thread for each connection, up to ``MOST_AT_ONCE``."""

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
        # HTTPServer's own method looks up the host's name, which may take long.
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
    """Whether a Host header is an address or one of these lower-case names, with any port.

    A foreign page whose name was made to resolve to this host (DNS rebinding) sends that name, and
    never an address.
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
