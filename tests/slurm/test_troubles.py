"""Faults of Slurm and its commands: no data is lost, no job is harmed, and the controller recovers
by itself."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import only_by_commands
from scripts.testbed.slurm_faults import COMMAND_TROUBLES, Bed

pytestmark = pytest.mark.slurm


@contextmanager
def bed_on(cluster: RealCluster, folder: Path) -> Iterator[Bed]:
    bed = Bed(cluster, folder)
    try:
        yield bed
    finally:
        bed.controller.end()


@pytest.fixture
def bed(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[Bed]:
    """The cluster shared by all tests: for faults that do not damage it."""
    with bed_on(clean_cluster, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def single_cluster() -> Iterator[RealCluster]:
    """A cluster without a backup: no slurmctld is left when the only one is killed."""
    with short_folder() as folder, started_cluster(folder, "--nodes", "2", "--gpus", "4") as real:
        yield real


class Systemd:
    """A socket that listens like systemd, and keeps the last status."""

    def __init__(self, path: Path) -> None:
        self.status = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            said = self._socket.recv(65536).decode()
            if found := re.search(r"^STATUS=(.*)", said, re.MULTILINE):
                self.status = found[1]


@only_by_commands
def test_an_unknown_newer_release_is_one_warning_and_works(bed: Bed) -> None:
    pretend = "s/^\\(SLURM_VERSION *= \\).*/\\199.05.0/"
    bed.commands.go_wrong("scontrol", f"\"$@\" | sed '{pretend}'")
    bed.controller.extra_environment = bed.commands.environment
    bed.controller.start()
    job = bed.submit(4, 1.0)
    bed.controller.wait_until(
        lambda: (seen := bed.controller.job(job)) is not None and seen.managed, "it is managed"
    )
    warning = "Slurm 99.05.0 is newer than 26.05"
    assert bed.controller.state().warning.startswith(warning)
    assert "Slurm 99.05.0" in bed.controller.cli("status").stdout
    bed.wait_until_done()
    assert bed.controller.stop().count(warning) == 1


@only_by_commands
def test_the_controller_acts_on_nothing_while_a_command_fails(bed: Bed, tmp_path: Path) -> None:
    (trouble,) = (one for one in COMMAND_TROUBLES if one.name == "squeue cut between lines")
    systemd = Systemd(tmp_path / "notify")
    listens = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    bed.controller.extra_environment = {**bed.commands.environment, **listens}
    bed.controller.start()
    for _ in range(4):
        bed.submit(4, 600, "--job-name=two\nlines")
    for job in bed.jobs:
        bed.controller.wait_for_tier(job, 1)
    trouble.begin(bed)
    state = bed.wait_until_felt(trouble.says or "")
    short = bed.submit(1, 1)
    began_s = time.time()
    bed.cluster.wait_until(lambda: bed.state().failures > state.failures + 1, "it tries again")
    assert "cycles failed, next try in" in systemd.status
    assert bed.state().last_failure_s
    assert sum(bed.state().failed_cycles.values()) == bed.state().failures
    shown = bed.controller.cli("status").stdout
    assert "failed since" in shown and re.search(trouble.says or "", " ".join(shown.split()))
    assert [w for w in bed.commands.writes() if w.at_s > began_s] == []
    trouble.end(bed)
    bed.cluster.wait_for_state(short, "COMPLETED")
    bed.wait_until_well()
    assert systemd.status.startswith("enforce, cycle")
    assert bed.state().next_try_s is None
    assert bed.controller.events("preempted")[0][1] == short


@pytest.mark.long
def test_a_missing_partition_is_reported_and_managed_again_when_it_returns(
    single_cluster: RealCluster, tmp_path: Path
) -> None:
    conf = Path(single_cluster.env["SLURM_CONF"])
    text = conf.read_text()
    with bed_on(single_cluster, tmp_path) as bed:
        bed.controller.start()
        conf.write_text(text.replace("PartitionName=gpu", "PartitionName=renamed"))
        try:
            single_cluster.run("scontrol", "reconfigure")
            bed.wait_until_felt("manage.partitions names gpu, which this cluster does not have")
            assert bed.state().failed_cycles.keys() == {"config"}
        finally:
            conf.write_text(text)
            single_cluster.run("scontrol", "reconfigure")
        bed.wait_until_well()
        job = bed.submit(1, 1)
        single_cluster.wait_for_state(job, "COMPLETED")
