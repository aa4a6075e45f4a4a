"""The monitor records progress from a program's output, and never changes the output."""

from __future__ import annotations

import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.progress.output import FILE_BYTES, readings_in
from tests.monitor.running import Monitor

TQDM = """
import sys
def draw(text):
    sys.stderr.write("\\r" + text)
    sys.stderr.flush()
total = int(sys.argv[1])
for step in range(total + 1):
    bar = "█" * (10 * step // total)
    share = f"{100 * step // total:3d}%|{bar:10}|"
    draw(f"{share} {step}/{total} [00:01<00:02,  9.70it/s]")
sys.stderr.write("\\n")
"""
"""Output like tqdm's, without tqdm."""


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What the plugin creates at the start of a run: a file of zeros."""
    file = tmp_path / "7.0.node1.output"
    file.write_bytes(bytes(FILE_BYTES))
    return file


def environment(monitor: Monitor, output: Path, **more: str) -> dict[str, str]:
    """For a job whose output is recorded and whose traffic is not."""
    settings = {**os.environ, "LD_PRELOAD": str(monitor.library), **more}
    return {**settings, "TIRESIAS_OUTPUT_FILE": str(output)}


def run(
    settings: Mapping[str, str], script: str, *arguments: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=settings,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


def kept(output: Path) -> list[str]:
    """The texts in the file, the latest last."""
    slots = [slot for slot in readings_in(output.read_bytes()).values() if slot]
    return [slot.text.decode() for slot in sorted(slots, key=lambda slot: slot.last_s)]


def test_the_latest_state_of_a_bar_is_kept(monitor: Monitor, output: Path) -> None:
    assert run(environment(monitor, output), TQDM, "50").returncode == 0
    assert kept(output) == ["100%|██████████| 50/50 [00:01<00:02,  9.70it/s]"]


WAYS_TO_PRINT = {
    "print": "print('step 3/7', flush=True)",
    "print at the end": "print('step 3/7')",
    "stderr": "import sys; sys.stderr.write('step 3/7\\n')",
    "write": "import os; os.write(2, b'step 3/7\\n')",
    "writev": "import os; os.writev(1, [b'st', b'ep 3', b'', b'/7\\nloss'])",
    "a child": (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(\\'step 3/7\\')'])"
    ),
    "dup2": "import os; os.dup2(1, 2); os.write(2, b'step 3/7\\n')",
    "closed, then a file": (
        "import os; os.close(1); f = os.open('/dev/null', os.O_WRONLY);"
        "assert f == 1; os.write(f, b'step 3/7\\n')"
    ),
    "closed, then a socket": (
        "import os, socket; os.close(1); a, b = socket.socketpair();"
        "assert a.fileno() == 1; a.send(b'x'); os.write(1, b'step 3/7\\n')"
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_PRINT)
def test_lines_are_seen_by_every_way_of_printing(monitor: Monitor, output: Path, way: str) -> None:
    ended = run(environment(monitor, output), WAYS_TO_PRINT[way])
    assert ended.returncode == 0, ended.stderr
    assert kept(output) == ["step 3/7"]


def test_other_descriptors_are_ignored(monitor: Monitor, output: Path) -> None:
    script = "import os; r, w = os.pipe(); os.write(w, b'step 3/7\\n')"
    assert run(environment(monitor, output), script).returncode == 0
    assert kept(output) == []


@pytest.mark.parametrize("rank", ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_only_the_first_process_is_recorded(monitor: Monitor, output: Path, rank: str) -> None:
    run(environment(monitor, output, **{rank: "1"}), "print('step 3/7')")
    assert kept(output) == []
    run(environment(monitor, output, **{rank: "0"}), "print('step 4/7')")
    assert kept(output) == ["step 4/7"]


def test_traffic_and_output_are_watched_together(monitor: Monitor, output: Path) -> None:
    script = (
        "import socket; socket.socket(type=socket.SOCK_DGRAM)"
        ".sendto(bytes(321), ('127.0.0.1', 9)); print('step 3/7')"
    )
    settings = environment(monitor, output, TIRESIAS_TRAFFIC_FILE=str(monitor.file))
    assert run(settings, script).returncode == 0
    assert kept(output) == ["step 3/7"]
    assert monitor.messages().listed == {321: 1}


MUCH = """
import os, random, sys
chance = random.Random(int(sys.argv[1]))
words = ["Epoch 1/3", "step 3/7", "loss 0.5", " 12%|█▏  | 12/99 [00:01<00:02]", "/a/1/2", "x" * 700]
for _ in range(2000):
    text = chance.choice(["\\r", ""]) + chance.choice(words) + chance.choice(["\\n", "\\r", ""])
    stream = chance.choice([sys.stdout, sys.stderr])
    stream.write(text * chance.choice([1, 1, 30]))
    if chance.random() < 0.5:
        stream.flush()
os._exit(chance.randrange(3)) if chance.random() < 0.5 else sys.exit(chance.randrange(3))
"""


@pytest.mark.parametrize("seed", range(4))
def test_output_is_unchanged_byte_for_byte(monitor: Monitor, output: Path, seed: int) -> None:
    with_it = run(environment(monitor, output), MUCH, str(seed))
    without = run(os.environ, MUCH, str(seed))
    assert with_it.stdout == without.stdout
    assert with_it.stderr == without.stderr
    assert with_it.returncode == without.returncode
    assert "step 3/7" in "".join(kept(output))


HARD = """
import errno, os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
outcomes = []
def attempt(fd, data):
    try:
        outcomes.append(os.write(fd, data))
    except OSError as error:
        outcomes.append(errno.errorcode[error.errno])
saved = os.dup(2)
reading, writing = os.pipe()
os.dup2(writing, 1)
os.set_blocking(1, False)
for _ in range(3):
    attempt(1, b"step 3/7 and more\\n" * 2500)
os.close(reading)
attempt(1, b"step 4/7\\n")
os.close(1)
attempt(1, b"step 5/7\\n")
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
attempt(1, b"step 6/7\\n")
os.write(saved, repr(outcomes).encode())
"""


def test_errors_of_the_kernel_are_passed_on(monitor: Monitor, output: Path) -> None:
    with_it = run(environment(monitor, output), HARD)
    without = run(os.environ, HARD)
    assert with_it.stderr == without.stderr
    outcomes = ast.literal_eval(with_it.stderr.decode())
    whole, part, *errors = outcomes
    assert 0 < part < whole
    assert errors == ["EAGAIN", "EPIPE", "EBADF", "ENOSPC"]
    assert kept(output) == ["step 3/7 and more"]


def test_a_bad_address_is_an_error_not_a_crash(monitor: Monitor, output: Path) -> None:
    script = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
        "r = libc.write(1, ctypes.c_void_p(8), 5), ctypes.get_errno();"
        "s = libc.writev(1, ctypes.c_void_p(8), 5), ctypes.get_errno(); print(r, s)"
    )
    ended = run(environment(monitor, output), script)
    assert ended.stdout == b"(-1, 14) (-1, 14)\n"


COUNTING = """
for step in range(10**9):
    print(f"step {step}/1000000000 and so on", flush=True)
"""


def test_a_program_killed_at_random_leaves_a_readable_file(monitor: Monitor, output: Path) -> None:
    chance = random.Random(23)
    for _ in range(15):
        process = subprocess.Popen(
            [sys.executable, "-c", COUNTING],
            env=environment(monitor, output),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 400)):
            process.stdout.readline()
        time.sleep(chance.random() / 1000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for text in kept(output):
            assert text.startswith("step ") and text.endswith("so on")


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _forged(file: Path) -> None:
    file.write_bytes(b"OUT1" + b"\xff" * (FILE_BYTES - 4))


SPOILT: dict[str, Callable[[Path], None]] = {
    "missing": lambda file: file.unlink(),
    "short": lambda file: os.truncate(file, 100),
    "long": lambda file: os.truncate(file, 10 * FILE_BYTES),
    "forged": _forged,
    "a folder": _folder,
    "a pipe": _pipe,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_job_works_whatever_its_output_file_is(monitor: Monitor, output: Path, how: str) -> None:
    SPOILT[how](output)
    ended = run(environment(monitor, output), TQDM, "500")
    assert ended.returncode == 0
    assert ended.stderr == run(os.environ, TQDM, "500").stderr


def test_a_job_continues_if_its_output_file_is_truncated(monitor: Monitor, output: Path) -> None:
    script = (
        f"import os; os.truncate({str(output)!r}, 0)\nfor i in range(99): print(f'step {{i}}/99')"
    )
    settings = environment(monitor, output, TIRESIAS_TRAFFIC_FILE=str(monitor.file))
    ended = run(settings, "import sys; sys.stdout.reconfigure(line_buffering=True)\n" + script)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(ended.stdout.splitlines()) == 99


def test_a_program_that_prints_is_clean_under_valgrind(monitor: Monitor, output: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind on this machine")
    ended = subprocess.run(
        ["valgrind", "--quiet", "--error-exitcode=99", monitor.program("printer"), "3000", "tqdm"],
        env=environment(monitor, output),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(kept(output)) == 1
