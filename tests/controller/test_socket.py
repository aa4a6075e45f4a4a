"""The socket that every user may query: no user's behaviour affects the answers to others."""

from __future__ import annotations

import re
import select
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.errors import LedgerError, NotRunningError, RefusedError
from slurm_tiresias.status import report_query, server
from slurm_tiresias.status.ask import SOCKET_NAME, answer_of, ask
from slurm_tiresias.status.job_history import history_service, query_history
from slurm_tiresias.status.report_query import query_report, report_service
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Peer, Question, Service
from slurm_tiresias.store.ledger import Ledger
from tests.other_user import BECOMES_NOBODY, as_root, folder_for_all
from tests.report.pictures import job, remember

WITHIN_S = 60.0
"""What hangs up on silent clients only later must not be what lets others be answered."""

STAYS_SILENT = f"""
import socket, sys
{BECOMES_NOBODY}
many = []
for _ in range(int(sys.argv[2])):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    many.append(connection)
print("connected", flush=True)
sys.stdin.read()
"""

CONNECTS_IN_A_LOOP = f"""
import socket, sys
{BECOMES_NOBODY}
print("connects", flush=True)
while True:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(sys.argv[1])
            connection.send(b"history 1")
        except OSError:
            pass
"""

ASKS_FOR_A_REPORT = f"""
import sys
from pathlib import Path
from slurm_tiresias.status.report_query import query_report
from slurm_tiresias.errors import TiresiasError
{BECOMES_NOBODY}
try:
    print(len(query_report(Path(sys.argv[1]), 0.0, 2e9, own=sys.argv[2:] == ["own"]).jobs))
except TiresiasError as error:
    print(error.exit_code, error)
"""

SERVES = """
import sys
from pathlib import Path
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.report_query import report_service
folder = Path(sys.argv[1])
with serving(folder, {"report": report_service(folder / "ledger.sqlite", private=False)}):
    print("serves", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory that other users may read, with a ledger that they may not."""
    with folder_for_all() as path:
        remember(path / "ledger.sqlite", [job("1", "####|", user="nobody")])
        yield path


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of another user that has printed a line; it is killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


def asks_for_a_report(folder: Path, *options: str) -> str:
    command = [sys.executable, "-c", ASKS_FOR_A_REPORT, str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@as_root
@pytest.mark.parametrize("connections", [100, 300])
def test_silent_connections_of_one_user_keep_no_other_from_being_answered(
    folder: Path, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 3 * WITHIN_S)
    path = str(folder / SOCKET_NAME)
    with serving(folder, of_ledger(folder)), running(STAYS_SILENT, path, str(connections)):
        began_s = time.monotonic()
        assert query_history(folder, "1").history is not None
        assert len(query_report(folder, 0.0, 2000.0).jobs) == 1
        assert query_report(folder, 0.0, 2000.0).live
        assert time.monotonic() - began_s < WITHIN_S


def test_a_user_is_answered_although_silent_connections_take_all_places(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 3 * WITHIN_S)
    with serving(folder, of_ledger(folder)), ExitStack() as stack:
        for _ in range(2 * server.MOST_OF_A_USER):
            stack.enter_context(connected(folder))
        began_s = time.monotonic()
        assert query_history(folder, "1").history is not None
        assert time.monotonic() - began_s < WITHIN_S


def test_the_user_with_most_connections_loses_one_if_all_are_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = connections_of(monkeypatch, [1, 2, 2, 3, 4])
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    with serving(folder, ECHO), ExitStack() as stack:
        clients = [stack.enter_context(connected(folder)) for _ in uids]
        clients[4].sendall(b"echo x\n")
        assert read(clients[4]) == b"x\n"
        assert read(clients[2]) == b"", "the newest of user 2"
        clients[1].sendall(b"echo y\n")
        assert read(clients[1]) == b"y\n"


def test_slow_clients_are_disconnected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.2)
    with (
        serving(folder, {"much": Service(lambda _question: b"x" * 3_000_000)}),
        connected(folder) as never_reads,
        connected(folder) as never_asks,
    ):
        never_reads.sendall(b"much\n")
        assert read(never_asks) == b""
        poll = select.poll()
        poll.register(never_reads, 0)
        assert poll.poll(PATIENCE_S * 1000), "it is hung up on"
        assert 0 < len(read(never_reads)) < 3_000_000


def test_only_a_user_with_many_queries_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User 1 asks five questions at once, then user 2 asks one."""
    connections_of(monkeypatch, [1, 1, 1, 1, 1, 2])
    asked: list[tuple[int, float]] = []

    def slow(question: Question) -> bytes:
        asked.append((question.peer.uid, time.monotonic()))
        time.sleep(0.1)
        return b"done"

    with serving(folder, {"slow": Service(slow)}), ExitStack() as stack:
        clients = [stack.enter_context(connected(folder)) for _ in range(6)]
        for client in clients:
            client.sendall(b"slow x\n")
        assert [read(client) for client in clients] == [b"done\n"] * 6
    assert [uid for uid, _ in asked][:2] == [1, 2]
    mine_s = [at_s for uid, at_s in asked if uid == 1]
    gaps_s = [b - a for a, b in pairwise(mine_s)]
    assert min(gaps_s) >= 0.1 / server.SHARE_OF_A_USER


def test_a_query_that_waits_too_long_for_earlier_ones_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LONGEST_WAIT_S", 0.2)
    go_on = threading.Event()

    def stuck(_question: Question) -> bytes:
        go_on.wait(PATIENCE_S)
        return b"done"

    with serving(folder, {"slow": Service(stuck)}), connected(folder) as first:
        first.sendall(b"slow\n")
        with pytest.raises(RefusedError, match="still computes what this user asked before"):
            ask(folder, "slow", 1, str)
        go_on.set()
        assert read(first) == b"done\n"


def test_a_question_whose_client_has_left_is_not_computed(folder: Path) -> None:
    go_on, asked = threading.Event(), list[str]()

    def slow(question: Question) -> bytes:
        asked.append(question.text)
        go_on.wait(PATIENCE_S)
        return b"done"

    with (
        serving(folder, {"slow": Service(slow)}),
        connected(folder) as first,
        connected(folder) as third,
    ):
        first.sendall(b"slow 1\n")
        wait_until(lambda: asked == ["1"])
        with connected(folder) as second:
            second.sendall(b"slow 2\n")
        third.sendall(b"slow 3\n")
        go_on.set()
        assert read(third) == b"done\n"
    assert asked == ["1", "3"]


def test_a_failed_answer_is_refused_and_later_ones_work(folder: Path) -> None:
    def fails(question: Question) -> bytes:
        return str(1 / len(question.text)).encode()

    with serving(folder, {"fails": Service(fails)}):
        with pytest.raises(RefusedError, match="cannot answer this now"):
            ask(folder, "fails", 1, str)
        assert answer_of(folder, "fails ab") == b"0.5\n"


def test_an_error_of_the_controller_is_raised_by_the_client(folder: Path) -> None:
    def fails(_question: Question) -> bytes:
        raise LedgerError("The ledger cannot be read", "Try again")

    with serving(folder, {"fails": Service(fails)}):
        with pytest.raises(LedgerError, match=r"The ledger cannot be read\. Try again\."):
            ask(folder, "fails", 1, str)
        with pytest.raises(RefusedError, match="does not answer this"):
            ask(folder, "other", 1, str)


def test_an_answer_of_another_schema_is_from_another_version(folder: Path) -> None:
    with (
        serving(folder, {"x": Service(lambda _question: b'{"schema": 2}')}),
        pytest.raises(NotRunningError, match="not a controller of this version"),
    ):
        ask(folder, "x", 1, str)


@pytest.mark.parametrize("sent", [b"\n", b"\xff" * 100_000, b"echo", b" echo x\n", b"\x00\n", b"."])
def test_any_request_is_answered_or_closed_and_later_ones_work(folder: Path, sent: bytes) -> None:
    with serving(folder, ECHO):
        with connected(folder) as client, suppress(OSError):
            client.sendall(sent)
            read(client)
        assert answer_of(folder, "echo x") == b"x\n"


@as_root
def test_users_who_connect_in_a_loop_keep_no_other_from_being_answered(folder: Path) -> None:
    path = str(folder / SOCKET_NAME)
    with serving(folder, of_ledger(folder)), ExitStack() as stack:
        for _ in range(3):
            loop = stack.enter_context(running(CONNECTS_IN_A_LOOP, path))
            stack.callback(loop.kill)
        began_s = time.monotonic()
        for _ in range(5):
            assert query_history(folder, "1").history is not None
        assert time.monotonic() - began_s < WITHIN_S


def test_a_socket_that_another_controller_has_taken_over_is_left_to_it(folder: Path) -> None:
    with serving(folder, ECHO):
        (folder / SOCKET_NAME).unlink()
        (folder / SOCKET_NAME).touch()
    assert (folder / SOCKET_NAME).exists()


# Reports that are too large


@pytest.fixture(scope="module")
def large() -> Iterator[Path]:
    """300,000 jobs with 450,000 runs."""
    with folder_for_all() as path:
        record, runs = job("0", "####|", name="train" * 30)
        remember(path / "ledger.sqlite", [(record, runs)])
        with closing(sqlite3.connect(path / "ledger.sqlite")) as database, database:
            number = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 299999)"
            copy_rows(database, "jobs", number, user="'user' || (i % 20)", key="i")
            copy_rows(database, "runs", number, key="i")
            copy_rows(database, "runs", f"{number}", key="i * 2", start_s="start_s + 0.5")
            database.execute("UPDATE jobs SET user = 'nobody' WHERE user = 'user7'")
        yield path


def copy_rows(database: sqlite3.Connection, table: str, numbers: str, **values: str) -> None:
    names = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
    columns = ", ".join(values.get(name, name) for name in names)
    source = f"(SELECT * FROM {table} WHERE key = '0' LIMIT 1), n"
    database.execute(f"INSERT OR IGNORE INTO {table} {numbers} SELECT {columns} FROM {source}")


@as_root
def test_twenty_reports_at_once_take_the_memory_of_one(large: Path) -> None:
    with running(SERVES, str(large)) as process:
        with ExitStack() as stack:
            command = [sys.executable, "-c", ASKS_FOR_A_REPORT, str(large)]
            asks = [
                stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                for _ in range(20)
            ]
            told = [ask.communicate()[0] for ask in asks]
        said = {line.partition(".")[0] for line in told}
        too_large = "15 The report of this time has more than 32 MB"
        waited = "15 The controller still computes what this user asked before"
        assert too_large in said and said <= {too_large, waited}
        assert any("your own jobs alone (--own)" in line for line in told)
        assert most_memory_bytes(process.pid) < 200e6
        assert len(query_report(large, 0.0, 2e9).jobs) == 300_000, "root gets all of them"
        assert most_memory_bytes(process.pid) < 300e6


@as_root
def test_a_user_gets_a_report_of_own_jobs_if_all_jobs_are_too_many(large: Path) -> None:
    with serving(large, of_ledger(large)):
        assert asks_for_a_report(large, "own") == "15000\n"


def most_memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) * 1024


def test_if_an_answer_is_too_large_a_user_who_may_read_the_ledger_does_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_query, "OF_ADMINS", report_query.OF_ADMINS.__class__(1.0, 10))
    with serving(folder, of_ledger(folder)):
        with pytest.raises(RefusedError, match="has more than"):
            ask(folder, "report 0.0 2000.0", report_query.SCHEMA, str)
        found = query_report(folder, 0.0, 2000.0)
    assert len(found.jobs) == 1 and found.live, "a controller runs"


def test_a_query_that_takes_too_long_is_aborted(folder: Path) -> None:
    began_s = time.monotonic()

    def stop() -> bool:
        return time.monotonic() - began_s > 0.1

    endless = "WITH RECURSIVE n (i) AS (SELECT -1 UNION ALL SELECT i - 1 FROM n) SELECT i FROM n"
    with (
        closing(Ledger.to_read(folder / "ledger.sqlite", stop)) as ledger,
        pytest.raises(RefusedError, match="takes too long"),
    ):
        ledger.read_one(f"{endless} WHERE i = 1")


# The clients


def connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(folder / SOCKET_NAME))
    return connection


def read(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as answer:
        return answer.read()


ECHO = {"echo": Service(lambda question: question.text.encode())}


def of_ledger(folder: Path) -> dict[str, Service]:
    ledger = folder / "ledger.sqlite"
    return {
        "history": history_service(ledger, private=False),
        "report": report_service(ledger, private=False),
    }


def connections_of(monkeypatch: pytest.MonkeyPatch, uids: Sequence[int]) -> Sequence[int]:
    """Make the next connections appear to come from these users."""
    following = iter(uids)
    monkeypatch.setattr(server, "peer_of", lambda _connection: Peer(next(following)))
    return uids
