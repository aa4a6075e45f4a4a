"""All messages that programs send are counted exactly, and nothing else is."""

from __future__ import annotations

import sys

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.profiler.traffic import sent_in
from tests.monitor.running import Monitor, announced

EXACT = {
    "every_function": "each function that sends is seen",
    "partial": "a message in many parts is one message",
    "abandoned": "of a message that was given up, what was sent counts",
    "more": "what MSG_MORE holds together is one message",
    "threads": "eight threads, their own sockets and one that all share",
    "forked": "children count into the same file",
    "vforked": "a child that borrows its parent's memory forgets only for itself",
    "vforked_to_write": "nor does what it learns of its descriptors hold for its parent",
    "forked_in_the_middle": "an incomplete message stays its sender's",
    "all_closed": "closing every descriptor changes nothing",
    "interrupted": "a signal handler that sends, in the middle of sending",
    "many_at_once": "five hundred messages in one call",
    "keeps_errno": "errno is left as it was",
    "reused": "the number of a closed socket may become that of a file",
    "reused_unseen": "also when it was closed behind the back of libc",
    "high_descriptors": "descriptors beyond those that are remembered",
}


@pytest.mark.parametrize("program", EXACT)
def test_every_sent_message_is_counted_exactly(monitor: Monitor, program: str) -> None:
    ended = monitor.run(monitor.program("senders"), program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout
    assert monitor.messages().listed == announced(ended.stdout)
    assert not any(octave.unlisted_messages for octave in monitor.messages().octaves)


def test_files_pipes_local_sockets_and_failed_sends_are_not_counted(monitor: Monitor) -> None:
    ended = monitor.run(monitor.program("senders"), "uncounted")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert monitor.messages().total_bytes == 0


TALKER = """
import socket, sys
sizes = [int(size) for size in sys.argv[2:]]
if sys.argv[1] == "listen":
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection = server.accept()[0]
else:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def receive(total):
    while total:
        total -= len(connection.recv(min(total, 1 << 20)))

largest = bytes(max(sizes))
for turn in range(3):
    for size in sizes:
        if sys.argv[1] == "listen":
            receive(size)
            connection.sendall(largest[:size])
        else:
            connection.sendall(largest[:size])
            receive(size)
"""


def exchange(monitor: Monitor, sizes: list[int]) -> None:
    """Two processes that send each other messages of these sizes in turn, three times."""
    words = [str(size) for size in sizes]
    listener = monitor.start(sys.executable, "-c", TALKER, "listen", *words)
    assert listener.stdout is not None
    port = listener.stdout.readline().strip()
    caller = monitor.run(sys.executable, "-c", TALKER, port, *words)
    _, errors = listener.communicate(timeout=PATIENCE_S)
    assert (caller.stderr, errors, caller.returncode, listener.returncode) == ("", "", 0, 0)


def test_two_processes_that_exchange_known_sizes_are_measured_exactly(monitor: Monitor) -> None:
    sizes = [4, 1024, 9_437_184, 1_000_003, 1024]
    exchange(monitor, sizes)
    section = monitor.messages()
    assert section.listed == {4: 6, 1024: 12, 9_437_184: 6, 1_000_003: 6}
    assert section.total_bytes == 6 * sum(sizes)


@pytest.mark.parametrize(("model", "ratio"), [("vgg16", 0.743), ("resnet50", 0.092)])
def test_the_tensors_of_a_model_have_the_ratio(monitor: Monitor, model: str, ratio: float) -> None:
    exchange(monitor, list(tensor_sizes(model)))
    measured = sent_in(monitor.messages())
    assert measured is not None
    assert measured.skew.ratio == pytest.approx(ratio, rel=0.01)


def test_counting_continues_after_exec(monitor: Monitor) -> None:
    send = (
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(bytes({}), ('127.0.0.1', 9))"
    )
    script = (
        send.format(321)
        + "\nimport os, sys\n"
        + f'os.execv(sys.executable, [sys.executable, "-c", "{send.format(322)}"])'
    )
    assert monitor.python(script).returncode == 0
    assert monitor.messages().listed == {321: 1, 322: 1}


@pytest.mark.parametrize("messages", [1000, 10_000])
def test_counts_of_a_killed_task_are_kept(monitor: Monitor, messages: int) -> None:
    """Whether or not the thread has its own list."""
    script = f"""
import os, signal, socket
sender = socket.socket(type=socket.SOCK_DGRAM)
for _ in range({messages}):
    sender.sendto(bytes(500), ("127.0.0.1", 9))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert monitor.python(script).returncode == -9
    assert monitor.messages().listed == {500: messages}
