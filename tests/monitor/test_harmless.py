"""Missing, broken or hostile files never change a job's output or exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.profiler.traffic import FILE_BYTES
from tests.monitor.running import Monitor

JOB = """
import socket, sys
sender = socket.socket(type=socket.SOCK_DGRAM)
for size in range(1, 500):
    sender.sendto(bytes(size), ("127.0.0.1", 9))
print("done")
sys.exit(7)
"""


def assert_unharmed(monitor: Monitor) -> None:
    ended = monitor.python(JOB)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 7)


def _missing(file: Path) -> None:
    file.unlink()


def _short(file: Path) -> None:
    os.truncate(file, 100)


def _long(file: Path) -> None:
    os.truncate(file, 10 * FILE_BYTES)


def _forged(file: Path) -> None:
    file.write_bytes(b"\xff" * FILE_BYTES)


def _forged_behind_the_header(file: Path) -> None:
    file.write_bytes(bytes(64) + os.urandom(FILE_BYTES - 64))


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link(file: Path) -> None:
    target = file.with_suffix(".target")
    file.rename(target)
    file.symlink_to(target)


@pytest.mark.parametrize(
    "spoil", [_missing, _short, _long, _forged, _forged_behind_the_header, _folder, _pipe, _link]
)
def test_a_job_works_whatever_its_file_is(monitor: Monitor, spoil: Callable[[Path], None]) -> None:
    spoil(monitor.file)
    assert_unharmed(monitor)


def test_a_symlinked_file_is_not_written(monitor: Monitor) -> None:
    _link(monitor.file)
    assert_unharmed(monitor)
    assert not any(monitor.file.resolve().read_bytes())


@pytest.mark.parametrize("value", ["", "relative", "/dev/zero", "/proc/self/mem", "/" + "x" * 5000])
def test_a_job_works_with_any_value_of_the_variable(monitor: Monitor, value: str) -> None:
    assert_unharmed(replace(monitor, settings={"TIRESIAS_TRAFFIC_FILE": value}))


def test_a_job_continues_if_its_file_is_truncated(monitor: Monitor) -> None:
    ended = monitor.run(monitor.program("senders"), "truncated")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("program", ["bus_error", "real_bus_error"])
def test_a_bus_error_of_the_job_itself_still_kills_it(monitor: Monitor, program: str) -> None:
    without = subprocess.run([monitor.program("senders"), program], check=False)
    assert without.returncode == -signal.SIGBUS
    assert monitor.run(monitor.program("senders"), program).returncode == -signal.SIGBUS


def test_the_jobs_own_handler_for_bus_errors_is_kept(monitor: Monitor) -> None:
    script = """
import os, signal
caught = []
signal.signal(signal.SIGBUS, lambda *_: caught.append(1))
os.kill(os.getpid(), signal.SIGBUS)
print(caught)
"""
    ended = monitor.python(script)
    assert (ended.stdout, ended.returncode) == ("[1]\n", 0)


NO_DISK = 99

MOUNTS = {
    "a full disk": "mount -t tmpfs -o size=4k none {folder} && truncate -s {size} {file}",
    "a read-only disk": "mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}",
}


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("disk", MOUNTS)
def test_a_job_works_despite(monitor: Monitor, disk: str) -> None:
    mount = MOUNTS[disk].format(folder=monitor.file.parent, file=monitor.file, size=FILE_BYTES)
    script = f'{{ {mount}; }} || exit {NO_DISK}; exec env LD_PRELOAD="$LIBRARY" "$@"'
    ended = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", script, "sh", sys.executable, "-c", JOB],
        env={**monitor.environment(), "LD_PRELOAD": "", "LIBRARY": str(monitor.library)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == NO_DISK:
        pytest.skip(f"{disk} could not be made: {ended.stderr}")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 7)
    assert not any(monitor.file.read_bytes())


def test_the_libraries_need_nothing_but_libc(monitor: Monitor) -> None:
    for library in (monitor.library, monitor.nccl_plugin):
        needed = subprocess.run(
            ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
        ).stdout
        names = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "NEEDED" in line]
        assert names == ["libc.so.6"]
