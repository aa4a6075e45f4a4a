"""A ledger that cannot be written while the controller runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.errors import LedgerError
from slurm_tiresias.store.ledger import FILE_NAME

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and seal"),
]

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
DISK_KB = 1024


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system on this folder, which soon fills up."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def ordinary_disk(folder: Path) -> Iterator[None]:
    """A file system on which files can be sealed: for tmpfs this requires Linux 6.6."""
    folder.mkdir()
    with TemporaryDirectory(dir="/var/tmp") as real:
        mount = ["mount", "--bind", real, str(folder)]
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            pytest.skip("nothing can be mounted here")
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the disk."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    yield
    ballast.unlink()


@contextmanager
def sealed(folder: Path) -> Iterator[None]:
    """Make the ledger unwritable."""
    files = [str(folder / FILE_NAME), str(folder / f"{FILE_NAME}-wal")]
    if subprocess.run(["chattr", "+i", *files], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no file can be sealed here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], check=True)


class Log:
    """Return the controller's log so far."""

    def __init__(self, controller: RealController) -> None:
        assert controller.process is not None and controller.process.stderr is not None
        self._file = controller.process.stderr.fileno()
        os.set_blocking(self._file, False)
        self.text = ""

    def failures(self) -> list[str]:
        """Return the lines about failed cycles."""
        with suppress(BlockingIOError):
            self.text += os.read(self._file, 1 << 16).decode()
        return [line for line in self.text.splitlines() if "cycle failed" in line]


@pytest.mark.parametrize(
    ("disk", "without_room"),
    [(small_disk, full), (ordinary_disk, sealed)],
    ids=["a full disk", "a read-only ledger"],
)
def test_a_controller_that_cannot_write_its_ledger_acts_on_nothing_and_recovers(
    clean_cluster: RealCluster,
    controller: RealController,
    disk: Callable[[Path], AbstractContextManager[None]],
    without_room: Callable[[Path], AbstractContextManager[None]],
) -> None:
    with disk(controller.state_dir):
        controller.start()
        log = Log(controller)
        wall = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]
        for job in wall:
            controller.wait_for_tier(job, 1)
        with without_room(controller.state_dir):
            urgent = clean_cluster.sbatch(*WHOLE_NODE)
            natural = clean_cluster.squeue_field(urgent, "PriorityLong")
            controller.wait_until(lambda: len(log.failures()) >= 3, "cycles fail")
            assert clean_cluster.squeue_field(urgent, "PriorityLong") == natural
            assert [clean_cluster.squeue_field(job, "RestartCnt") for job in wall] == ["0"] * 4
            with pytest.raises(LedgerError, match="cannot be used"):
                controller.command("pause")
        controller.command("nudge")
        clean_cluster.wait_for_state(urgent, "RUNNING")
        assert sum(int(clean_cluster.squeue_field(job, "RestartCnt")) for job in wall) == 1
        assert all("cannot be used" in line for line in log.failures())
        assert "Traceback" not in log.text + controller.stop()


def test_a_controller_does_not_start_on_a_full_disk(controller: RealController) -> None:
    with small_disk(controller.state_dir):
        for _ in range(2):
            with full(controller.state_dir):
                ended = controller.cli("controller")
                assert ended.returncode == 8, ended.stderr
                assert ended.stderr.count("\n") == 1
            controller.start().stop()
