"""The controller's socket, at which every user of the host may ask and get an answer.

One thread reads requests and sends answers. Each client has a deadline to ask and another to read
the answer, and no user can take all connections. Two more threads compute answers, the long ones in
one of them, for one request of a user at a time, and for no more than a share of the time. No cycle
waits for any of these threads. The kernel identifies the user.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from slurm_tiresias import json_codec
from slurm_tiresias.errors import ConfigError, RefusedError, TiresiasError
from slurm_tiresias.status.ask import SOCKET_NAME
from slurm_tiresias.status.service import Peer, Question, Service, Text
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

LONGEST_REQUEST_BYTES = 1024
MOST_CONNECTIONS = 384
MOST_OF_A_USER = 48
BACKLOG = 128

PATIENCE_S = 2.0
"""How long a client may take to ask, and to begin to read the answer."""
SLOWEST_BYTES_PER_S = 10e6
"""A client may take longer to read a long answer, at this rate."""
LONGEST_WAIT_S = 10.0
"""How long a request waits for earlier ones of the same user."""

SHARE_OF_A_USER = 0.25
"""The share of a computing thread that one user may use; root and the controller are unlimited."""

LEAST_GAP_S = 0.001
"""The pause for each connection: a client that connects in a loop leaves time for cycles."""
ACCEPTED_AT_A_TIME = 16

_CREDENTIALS = struct.Struct("3i")
"""The layout of ``SO_PEERCRED``: pid, uid, gid."""


@contextmanager
def serving(state_dir: Path, services: Mapping[str, Service]) -> Iterator[None]:
    """Answer at the socket in the state directory until the context ends."""
    with _listening(state_dir / SOCKET_NAME) as listener, asyncio.Runner() as runner:
        closing = asyncio.Event()
        answering = _Server(services).run(listener, closing)
        thread = threading.Thread(target=runner.run, args=(answering,), name="socket", daemon=True)
        thread.start()
        try:
            yield
        finally:
            runner.get_loop().call_soon_threadsafe(closing.set)
            thread.join()


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ConfigError(
                f"The socket {path} cannot be made: {error}",
                "Give controller.state_dir a path of less than 90 characters on a local disk",
            ) from error
        path.chmod(0o666)
        listener.listen(BACKLOG)
        mine = path.lstat().st_ino
        try:
            yield listener
        finally:
            # Another controller may use the path by now.
            with suppress(OSError):
                if path.lstat().st_ino == mine:
                    path.unlink()


@dataclass(slots=True, eq=False)
class _Client:
    """One connection, until its answer has been read."""

    connection: socket.socket
    peer: Peer
    has_asked: bool = False


@dataclass(slots=True)
class _User:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_s: float = 0.0
    """When the user's next answer may be computed."""


class _Lane:
    """A thread that computes one answer at a time, and the users who wait for it."""

    def __init__(self, name: str) -> None:
        self._computing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, name)
        self._users: dict[int, _User] = {}

    async def reply(
        self, peer: Peer, compute: Callable[[], Text], send: Callable[[Text], Awaitable[None]]
    ) -> None:
        """Compute an answer when it is the user's turn, which lasts until the answer is read."""
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        self._users = {u: o for u, o in self._users.items() if o.turn.locked() or o.free_s > now_s}
        user = self._users.setdefault(peer.uid, _User())
        try:
            async with asyncio.timeout(LONGEST_WAIT_S) as waiting, user.turn:
                await asyncio.sleep(user.free_s - time.monotonic())
                async with self._computing:
                    waiting.reschedule(None)
                    began_s = time.monotonic()
                    answer = await loop.run_in_executor(self._thread, compute)
                    took_s = time.monotonic() - began_s
                if not peer.sees_everything:
                    user.free_s = time.monotonic() + took_s * (1 / SHARE_OF_A_USER - 1)
                await send(answer)
        except TimeoutError:
            if not waiting.expired():
                raise
            what = "The controller still computes what this user asked before"
            raise RefusedError(what, "Ask again in a minute") from None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Server:
    """All connections, in one thread."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self._services = services
        self._clients: dict[_Client, asyncio.Task[None]] = {}
        self._short, self._long = _Lane("answers"), _Lane("long answers")
        self._warning = WarnOnce("a user could not be answered")

    async def run(self, listener: socket.socket, closing: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._accept, listener)
        await closing.wait()
        loop.remove_reader(listener)
        self._short.close()
        self._long.close()

    def _accept(self, listener: socket.socket) -> None:
        accepted = 0
        try:
            while accepted < ACCEPTED_AT_A_TIME:
                connection, _ = listener.accept()
                accepted += 1
                self._begin(connection)
        except (BlockingIOError, ConnectionAbortedError):
            pass
        except OSError as error:  # no file descriptors, for example: retry later
            self._warning.warn(error)
            time.sleep(PATIENCE_S)
        time.sleep(accepted * LEAST_GAP_S)

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        client = _Client(connection, peer_of(connection))
        if not self._has_room_for(client.peer.uid):
            with connection, suppress(OSError):
                too_many = RefusedError("Too many commands ask the controller", "Try again")
                connection.send(refusal(too_many) + b"\n")
            return
        self._clients[client] = asyncio.create_task(self._serve(client))

    def _has_room_for(self, uid: int) -> bool:
        """Whether there is room for a connection of a user.

        To make room, closes the newest connection without a request, of the same user if that user
        has too many, or else of the user with the most.
        """
        taken = Counter(client.peer.uid for client in self._clients)
        if taken[uid] < MOST_OF_A_USER:
            if len(self._clients) < MOST_CONNECTIONS:
                return True
            uid = max(taken, key=lambda each: taken[each])
        for client in reversed(self._clients):
            if client.peer.uid == uid and not client.has_asked:
                with suppress(OSError):
                    client.connection.shutdown(socket.SHUT_RDWR)  # ends its task
                del self._clients[client]
                return True
        return False

    async def _serve(self, client: _Client) -> None:
        send = partial(_send, client.connection)
        try:
            with client.connection:
                try:
                    await self._answer(client, send)
                except TiresiasError as error:
                    await send(refusal(error))
        except OSError as error:
            log.debug("a user did not ask, or wait for the answer: %s", error)
        finally:
            self._clients.pop(client, None)

    async def _answer(self, client: _Client, send: Callable[[Text], Awaitable[None]]) -> None:
        """Answer a client; raises ``TiresiasError`` before anything is sent."""
        async with asyncio.timeout(PATIENCE_S):
            loop = asyncio.get_running_loop()
            said = await loop.sock_recv(client.connection, LONGEST_REQUEST_BYTES)
        if not said:
            return
        client.has_asked = True
        name, _, text = said.decode("ascii", errors="replace").strip().partition(" ")
        question = Question(client.peer, text.strip(), partial(_has_left, client.connection))
        service = self._services.get(name)
        if service is None:
            raise RefusedError("The controller does not answer this", "Check its version")
        ready = service.ready(question)
        if isinstance(ready, Future):
            ready = await asyncio.wrap_future(ready)
        if ready is not None:
            await send(ready)
        else:
            lane = self._long if service.long else self._short
            await lane.reply(client.peer, partial(self._computed, service, question), send)

    def _computed(self, service: Service, question: Question) -> Text:
        if question.is_over():
            return b""
        try:
            return service.answer(question)
        except RefusedError as error:
            raise RefusedError(error.what, service.remedy or error.remedy) from error
        except TiresiasError:
            raise
        except Exception as error:  # the next request is answered all the same
            if not question.is_over():
                self._warning.warn(error)
            what = "The controller cannot answer this now"
            raise RefusedError(what, "See the controller's log") from error


async def _send(connection: socket.socket, answer: Text) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S + len(answer) / SLOWEST_BYTES_PER_S):
        await loop.sock_sendall(connection, answer)
        await loop.sock_sendall(connection, b"\n")


def peer_of(connection: socket.socket) -> Peer:
    """Return the user at the other end of a connection, as the kernel reports it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(uid)


def _has_left(connection: socket.socket) -> bool:
    poll = select.poll()
    try:
        poll.register(connection, 0)
    except ValueError:  # closed
        return True
    return bool(poll.poll(0))


def refusal(error: TiresiasError) -> bytes:
    """Return the answer that makes the client raise this error."""
    return json_codec.dumps({"refused": [error.what, error.remedy, error.exit_code]})
