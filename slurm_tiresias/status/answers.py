"""Unix sockets at which every user of the host may send a question and get an answer.

One thread reads questions and sends answers, and blocks on no client: each client has a deadline to
ask and another to read the answer, and no user can take all connections. Slow answers are computed
by two more threads, for one question of a user at a time, and for no more than a share of the time.
No cycle waits for any of these threads. The kernel identifies the user.
"""

from __future__ import annotations

import logging
import os
import pwd
import queue
import select
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias import json_codec
from slurm_tiresias.errors import (
    DamagedLedgerError,
    NotRunningError,
    RefusedError,
    TiresiasError,
)
from slurm_tiresias.status.published import answer_of, checked_answer
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

LONGEST_QUESTION = 64
MOST_CONNECTIONS = 384
MOST_OF_A_USER = 48
BACKLOG = 128

PATIENCE_S = 2.0
"""How long a client may take to ask, and to begin to read the answer."""
SLOWEST_BYTES_PER_S = 10e6
"""A client may take longer to read a long answer, at this rate."""
LONGEST_WAIT_S = 10.0
"""How long a question waits for earlier questions of the same user."""

SHARE_OF_A_USER = 0.25
"""The share of a computing thread that one user may use; root and the controller are unlimited."""
MOST_UNREAD_BYTES = 64 << 20
"""While this much is still to be read, no other long answer is computed."""

LEAST_GAP_S = 0.001
"""The pause after each connection: a client that connects in a loop leaves time for cycles."""
ACCEPTED_AT_A_TIME = 16
SENT_AT_A_TIME_BYTES = 256 << 10
LOOK_AGAIN_S = 0.05
"""How often a waiting question is checked for whether it may be computed."""

T = TypeVar("T")

_CREDENTIALS = struct.Struct("3i")
"""The layout of ``SO_PEERCRED``: pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The user of the client."""

    uid: int

    @property
    def sees_everything(self) -> bool:
        """Whether the user is root or the controller's own user."""
        return self.uid in (0, os.geteuid())

    @property
    def name(self) -> str:
        """The user's name, as Slurm knows it; "" for a uid that this host does not know.

        Only the computing threads should ask for it: a directory service may be slow.
        """
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return ""

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class Question:
    """A user's question. ``is_over`` returns whether the client has disconnected."""

    peer: Peer
    text: str
    is_over: Callable[[], bool]

    def stop_after(self, seconds: float) -> Callable[[], bool]:
        """Make a ``stop`` for ``Ledger.to_read``: true after a time, or if the client has gone."""
        until_s = time.monotonic() + seconds
        return lambda: self.is_over() or time.monotonic() >= until_s


@dataclass(frozen=True, slots=True)
class Service:
    """One socket and its answers.

    ``answer`` computes the whole answer, and may raise ``OSError`` or ``TiresiasError``.
    ``silent``: connecting is enough, there is no question to send. ``long``: answers may take
    seconds, and those of other services do not wait for them. ``ready`` returns the answer for a
    uid if it is available already. ``remedy`` is what to do about an answer that is too large.
    """

    path: Path
    answer: Callable[[Question], bytes | bytearray]
    silent: bool = False
    long: bool = False
    ready: Callable[[int], bytes | None] = lambda _uid: None
    remedy: str = "Ask for less"


class _Stage(Enum):
    ASKS = auto()
    WAITS = auto()
    IS_COMPUTED = auto()
    READS = auto()
    IS_OVER = auto()


@dataclass(slots=True, eq=False)
class _Client:
    """One connection, until its answer has been read."""

    connection: socket.socket
    service: Service
    peer: Peer
    until_s: float
    stage: _Stage = _Stage.ASKS
    said: bytes = b""
    unread: memoryview = field(default_factory=lambda: memoryview(b""))

    def is_over(self) -> bool:
        return self.stage is _Stage.IS_OVER


@contextmanager
def serving(*services: Service) -> Iterator[None]:
    """Answer at these sockets until the context ends."""
    with ExitStack() as stack:
        listeners = [
            (stack.enter_context(_listening(service.path)), service) for service in services
        ]
        loop = _Loop(listeners)
        thread = threading.Thread(target=loop.run, name="sockets", daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.close()
            thread.join()


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(BACKLOG)
        with removed_afterwards(path):
            yield listener


@contextmanager
def removed_afterwards(path: Path) -> Iterator[None]:
    """Remove a socket's file when the context ends, unless another controller uses it by then."""
    mine = path.lstat().st_ino
    try:
        yield
    finally:
        with suppress(OSError):
            if path.lstat().st_ino == mine:
                path.unlink()


class _Computer:
    """A thread that computes one answer at a time."""

    def __init__(
        self, name: str, on_answer: Callable[[_Client, bytes | bytearray, float], None]
    ) -> None:
        self.works_for: _Client | None = None
        self.free_s: dict[int, float] = {}
        """By uid, when the user's next question may be computed."""
        self._on_answer = on_answer
        self._given: queue.SimpleQueue[_Client | None] = queue.SimpleQueue()
        self._warning = WarnOnce("a user could not be answered")
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, client: _Client) -> None:
        self.works_for = client
        self._given.put(client)

    def close(self) -> None:
        self._given.put(None)

    def is_done(self, peer: Peer, took_s: float, now_s: float) -> None:
        """Delay the user's next question so that its share of the time is not exceeded."""
        self.works_for = None
        self.free_s = {uid: free_s for uid, free_s in self.free_s.items() if free_s > now_s}
        if not peer.sees_everything:
            self.free_s[peer.uid] = now_s + took_s * (1 / SHARE_OF_A_USER - 1)

    def _run(self) -> None:
        while (client := self._given.get()) is not None:
            began_s = time.monotonic()
            answer = self._answer(client)
            self._on_answer(client, answer, time.monotonic() - began_s)

    def _answer(self, client: _Client) -> bytes | bytearray:
        text = client.said.decode("ascii", errors="replace").strip()
        try:
            return client.service.answer(Question(client.peer, text, client.is_over))
        except RefusedError as error:
            return refusal(error.what, client.service.remedy)
        except Exception as error:  # the next question is answered all the same
            if not client.is_over():
                self._warning.warn(error)
            return refusal("The controller cannot answer this now", "See the controller's log")


class _Loop:
    """All connections, in one thread. Other threads call only ``close`` and ``_take_answer``."""

    def __init__(self, listeners: list[tuple[socket.socket, Service]]) -> None:
        self._clients: dict[_Client, None] = {}
        self._closing = False
        self._computed: deque[tuple[_Client, bytes | bytearray, float]] = deque()
        self._selector = selectors.DefaultSelector()
        for listener, service in listeners:
            self._selector.register(listener, selectors.EVENT_READ, service)
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._quick = _Computer("answers", self._take_answer)
        self._long = _Computer("long answers", self._take_answer)
        self._warning = WarnOnce("users are not answered for a moment")

    def close(self) -> None:
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):
            self._wakes.send(b"x")

    def _take_answer(self, client: _Client, answer: bytes | bytearray, took_s: float) -> None:
        self._computed.append((client, answer, took_s))
        self._wake()

    def run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception as error:  # no file descriptors, for example: retry later
                self._warning.warn(error)
                time.sleep(PATIENCE_S)
        for computer in (self._quick, self._long):
            computer.close()
        for client in list(self._clients):
            self._end(client)
        self._selector.close()
        self._woken.close()
        self._wakes.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout_s()):
            if isinstance(key.data, Service):
                assert isinstance(key.fileobj, socket.socket)
                self._accept(key.fileobj, key.data)
            elif isinstance(key.data, _Client):
                self._go_on(key.data)
            else:
                self._woken.recv(4096)
        while self._computed:
            client, answer, took_s = self._computed.popleft()
            self._of(client).is_done(client.peer, took_s, time.monotonic())
            if not client.is_over():
                self._begin_to_send(client, answer)
        self._end_overdue(time.monotonic())
        for computer in (self._quick, self._long):
            self._give_work(computer, time.monotonic())

    def _timeout_s(self) -> float | None:
        if any(client.stage is _Stage.WAITS for client in self._clients):
            return LOOK_AGAIN_S
        until_s = min((client.until_s for client in self._clients), default=None)
        return None if until_s is None else max(0.0, until_s - time.monotonic())

    # Connections

    def _accept(self, listener: socket.socket, service: Service) -> None:
        for _ in range(ACCEPTED_AT_A_TIME):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            time.sleep(LEAST_GAP_S)
            connection.setblocking(False)
            until_s = time.monotonic() + PATIENCE_S
            client = _Client(connection, service, peer_of(connection), until_s)
            if not self._has_room_for(client.peer.uid):
                with suppress(OSError):
                    connection.send(refusal("Too many commands ask the controller", "Try again"))
                connection.close()
                continue
            self._clients[client] = None
            self._selector.register(connection, selectors.EVENT_READ, client)
            if service.silent:
                self._has_asked(client)

    def _has_room_for(self, uid: int) -> bool:
        """Whether there is room for a connection of a user.

        To make room, closes the newest connection without a question, of the same user if that user
        has too many, or else of the user with the most.
        """
        taken = Counter(client.peer.uid for client in self._clients)
        if taken[uid] < MOST_OF_A_USER:
            if len(self._clients) < MOST_CONNECTIONS:
                return True
            uid = max(taken, key=lambda each: taken[each])
        for client in reversed(self._clients):
            if client.peer.uid == uid and client.stage is _Stage.ASKS:
                self._end(client)
                return True
        return False

    def _go_on(self, client: _Client) -> None:
        try:
            if client.stage is _Stage.ASKS:
                self._read(client)
            elif client.stage is _Stage.READS:
                self._send(client)
        except BlockingIOError:
            pass
        except OSError as error:
            log.debug("a user did not wait for the answer: %s", error)
            self._end(client)

    def _read(self, client: _Client) -> None:
        # Read and drop what exceeds a question: closing with unread data is an error for the
        # client.
        said = client.connection.recv(4096)
        client.said += said
        if b"\n" in said or len(client.said) > LONGEST_QUESTION or (client.said and not said):
            client.said = client.said[:LONGEST_QUESTION]
            self._has_asked(client)
        elif not said:
            self._end(client)

    def _has_asked(self, client: _Client) -> None:
        self._selector.unregister(client.connection)
        client.stage, client.until_s = _Stage.WAITS, time.monotonic() + LONGEST_WAIT_S
        answer = client.service.ready(client.peer.uid)
        if answer is not None:
            self._begin_to_send(client, answer)

    def _begin_to_send(self, client: _Client, answer: bytes | bytearray) -> None:
        longest_s = PATIENCE_S + len(answer) / SLOWEST_BYTES_PER_S
        client.stage, client.until_s = _Stage.READS, time.monotonic() + longest_s
        client.unread = memoryview(answer)
        self._selector.register(client.connection, selectors.EVENT_WRITE, client)
        self._go_on(client)

    def _send(self, client: _Client) -> None:
        sent = client.connection.send(client.unread[:SENT_AT_A_TIME_BYTES])
        client.unread = client.unread[sent:]
        if not client.unread:
            self._end(client)

    def _end(self, client: _Client) -> None:
        if client.stage in (_Stage.ASKS, _Stage.READS):
            self._selector.unregister(client.connection)
        client.stage = _Stage.IS_OVER
        client.unread = memoryview(b"")
        client.connection.close()
        self._clients.pop(client, None)

    def _end_overdue(self, now_s: float) -> None:
        gone = _hung_up([c for c in self._clients if c.stage in (_Stage.WAITS, _Stage.IS_COMPUTED)])
        for client in list(self._clients):
            if client in gone:
                self._end(client)
            elif now_s < client.until_s or client.stage is _Stage.IS_COMPUTED:
                continue
            elif client.stage is _Stage.WAITS:
                what = "The controller still computes what this user asked before"
                self._begin_to_send(client, refusal(what, "Ask again in a minute"))
            else:
                log.debug("a user did not ask, or read the answer, in time")
                self._end(client)

    # Answers

    def _give_work(self, computer: _Computer, now_s: float) -> None:
        """Compute the oldest question of a user none of whose other questions is being computed."""
        if computer.works_for:
            return
        clients = [client for client in self._clients if self._of(client) is computer]
        unread_bytes = sum(len(client.unread) for client in clients)
        if computer is self._long and unread_bytes > MOST_UNREAD_BYTES:
            return
        in_work = (_Stage.IS_COMPUTED, _Stage.READS)
        busy = {client.peer.uid for client in clients if client.stage in in_work}
        for client in clients:
            uid = client.peer.uid
            is_its_turn = uid not in busy and now_s >= computer.free_s.get(uid, 0.0)
            if client.stage is _Stage.WAITS and is_its_turn:
                client.stage = _Stage.IS_COMPUTED
                computer.begin(client)
                return

    def _of(self, client: _Client) -> _Computer:
        return self._long if client.service.long else self._quick


def _hung_up(clients: list[_Client]) -> set[_Client]:
    """Return the clients that have disconnected."""
    if not clients:
        return set()
    poll = select.poll()
    by_descriptor = {client.connection.fileno(): client for client in clients}
    for descriptor in by_descriptor:
        poll.register(descriptor, 0)
    return {by_descriptor[descriptor] for descriptor, _ in poll.poll(0)}


def peer_of(connection: socket.socket) -> Peer:
    """Return the user at the other end of a connection, as the kernel reports it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(uid)


def refusal(what: str, remedy: str) -> bytes:
    """Return the answer that refuses a question, at any socket."""
    return json_codec.dumps({"schema": 0, "refused": [what, remedy]})


def query_or_read(
    service_path: Path,
    question: str,
    schema: int,
    from_answer: Callable[[Mapping[str, Any]], T],
    read: Callable[[Ledger, bool], T],
    answer_s: float,
) -> T:
    """Ask a controller; if it does not answer or refuses, read its ledger if this user may.

    ``from_answer`` parses the answer's JSON and raises ``ValueError`` or similar for any other.
    ``read`` is also given whether a controller runs. Raises ``NotRunningError`` if there is neither
    a controller nor a readable ledger, and ``RefusedError`` if the controller refuses.
    """
    state_dir = service_path.parent
    try:
        answer = answer_of(service_path, f"{question}\n".encode(), answer_s)
    except OSError as no_answer:
        try:
            with closing(_ledger_in(state_dir)) as ledger:
                return read(ledger, False)
        except DamagedLedgerError:
            raise
        except (OSError, TiresiasError) as error:
            raise NotRunningError(
                f"No controller answers in {state_dir} ({no_answer.strerror or no_answer})",
                "Start it with: tiresias-slurm controller --config FILE, or name its configuration "
                "here",
            ) from error
    try:
        return from_answer(checked_answer(answer, schema))
    except RefusedError:
        with suppress(OSError, TiresiasError), closing(_ledger_in(state_dir)) as ledger:
            return read(ledger, True)
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"What answers at {service_path} is not a controller of this version",
            "Restart the controller with the same version as this command",
        ) from error


def _ledger_in(state_dir: Path) -> Ledger:
    path = newest_ledger(state_dir)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    return Ledger.to_read(path)
