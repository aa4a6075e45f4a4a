"""GPU use of profiled jobs: the real sampler and real processes, with a fake driver."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until
from scripts.testbed.real_cluster import short_folder
from slurm_tiresias.profiler import gpu_sampler, node_folders, processes
from slurm_tiresias.profiler.gpu_activity import SUFFIX, parse
from slurm_tiresias.profiler.gpu_sampler import Sampler
from slurm_tiresias.profiler.gpu_use import GpuAtWork, GpuUse
from slurm_tiresias.profiler.gpu_use_folder import FOLDER
from slurm_tiresias.profiler.processes import ProcessOwner, confined_to, owner_of
from tests.profiler.compute_node import ANN, BOB, GIB, SQUASHED, UUID, Node, with_rights

ME = os.geteuid()
ROOT = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(ME != 0, reason="only root has processes of several users")


@pytest.fixture
def node(tmp_path: Path, driver: str) -> Iterator[Node]:
    made = Node(tmp_path, driver)
    yield made
    made.clear_away()


@pytest.fixture
def open_node(driver: str) -> Iterator[Node]:
    """A folder that every user may enter."""
    with short_folder() as folder:
        made = Node(folder, driver)
        yield made
        made.clear_away()


def test_gpu_use_of_a_profiled_job_is_written_when_it_ends(node: Node) -> None:
    node.samples("7.1.n1")
    node.says("utilization", 20)
    node.says("memory", 70 * GIB)
    node.says("nvlink", 1007)
    node.when_sampled()
    node.says("memory", 10 * GIB)
    node.when_sampled()
    assert list(node.collect.iterdir()) == []
    node.epilog("7.1.n1")
    gpu = node.written("7.1.n1")
    assert 0.2 < gpu.pop("utilization") < 0.87
    assert gpu.pop("samples") >= 3
    assert gpu.pop("seen_s") > 0.1
    assert gpu == {
        "uuid": UUID,
        "pci": "00000000:3B:00.0",
        "name": "Fake H200",
        "peak_memory_bytes": 70 * GIB,
        "memory_bytes": 80 * GIB,
        "pcie_sent_bytes_per_s": 1_500_000,
        "pcie_received_bytes_per_s": 2_500_000,
        "nvlink_sent_bytes": 1000 * 1024,
        "nvlink_received_bytes": None,
    }
    assert node.ends() == 0


@pytest.mark.skipif(ME != 0, reason="only root can give folders away")
def test_written_files_are_readable_by_the_folders_group(node: Node) -> None:
    os.chown(node.collect, ANN, BOB)
    node.collect.chmod(0o750)
    node.samples()
    node.epilog("7.0.n1")
    node.written("7.0.n1")
    [file] = node.collect.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (file.stat().st_uid, file.stat().st_gid) == (0, BOB)


def as_the_unit_with_root_squash() -> tuple[str, ...]:
    """Root with the capabilities that the unit leaves it, minus those that a file server takes
    away."""
    unit = (ROOT / "etc" / "tiresias-slurm-sampler.service").read_text()
    named = re.search(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)
    assert named
    left = {word.removeprefix("CAP_").lower() for word in named[1].split()} - SQUASHED
    return with_rights(",".join(["-all", *(f"+{right}" for right in left)]))


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o777, 0o1777])
def test_if_root_may_not_write_the_folders_owner_does(open_node: Node, mode: int) -> None:
    node = open_node
    os.chown(node.collect, ANN, BOB)
    node.collect.chmod(mode)
    node.prolog("7.0.n1", 0)
    node.computes(node.process(0, SLURM_JOB_ID="7"))
    node.begins(wrapper=as_the_unit_with_root_squash())
    for _ in range(2):  # it is root again after each file
        node.when_sampled()
        node.epilog("7.0.n1")
        node.written("7.0.n1")
        [file] = node.collect.iterdir()
        status = file.stat()
        assert (status.st_uid, status.st_gid) == (ANN, BOB)
        assert stat.S_IMODE(status.st_mode) == 0o640
        file.unlink()
        node.prolog("7.0.n1", 0)
    assert node.ends() == 0
    assert "WARNING" not in node.logged


@needs_root
def test_a_folder_that_its_owner_may_not_write_to_either_is_refused(open_node: Node) -> None:
    node = open_node
    os.chown(node.collect, ANN, BOB)
    node.collect.chmod(0o555)
    assert node.starts(wrapper=as_the_unit_with_root_squash()).wait(timeout=PATIENCE_S) == 10
    assert "may not be written to" in node.logged


@needs_root
def test_no_user_can_claim_processes_for_another_users_job(node: Node) -> None:
    node.prolog("7.0.n1", ANN)
    node.prolog("8.0.n1", BOB)
    node.computes(node.process(BOB, SLURM_JOB_ID="7"), node.process(BOB, SLURM_JOB_ID="8"))
    node.begins()
    node.when_sampled()
    node.epilog("7.0.n1")
    node.epilog("8.0.n1")
    node.written("8.0.n1")
    assert [file.name for file in node.collect.iterdir()] == ["8.0.n1.gpus"]


def test_a_gpu_shared_by_two_jobs_counts_for_both(node: Node) -> None:
    node.prolog("7.0.n1", ANN)
    node.prolog("8.0.n1", BOB)
    node.prolog("9.0.n1", BOB)  # computes nowhere
    node.computes(node.process(ANN, SLURM_JOB_ID="7"))
    node.says("mps_pids", node.process(BOB, SLURM_JOB_ID="8"))
    node.begins()
    node.when_sampled()
    for job in ("7", "9", "8"):
        node.epilog(f"{job}.0.n1")
    assert node.written("7.0.n1")["uuid"] == node.written("8.0.n1")["uuid"] == UUID
    assert len(list(node.collect.iterdir())) == 2


def test_only_the_latest_run_of_a_restarted_job_counts(node: Node) -> None:
    """Files of earlier runs may remain after a crash of the node."""
    for run_id in ("7.0.n1", "7.10.n1", "7.9.n1"):
        node.prolog(run_id)
    node.computes(node.process(SLURM_JOB_ID="7"))
    node.begins()
    node.when_sampled()
    for run_id in ("7.0.n1", "7.10.n1", "7.9.n1"):
        node.epilog(run_id)
    node.written("7.10.n1")
    assert len(list(node.collect.iterdir())) == 1


def test_nvml_is_not_loaded_if_no_job_is_profiled(node: Node) -> None:
    node.says("asked", "")
    for other in ("other", "7.0.n1.progress", "7.0.n1.output"):
        (node.run / other).touch()
    node.computes(node.process(SLURM_JOB_ID="7"))
    node.begins()
    assert node.ends() == 0  # after a last sample
    assert node.asked == ""
    node.prolog("7.0.n1")
    node.begins()
    node.when_sampled()


def test_without_a_driver_it_continues_with_one_message(node: Node, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    (nothing / "libnvidia-ml.so.1").write_bytes(b"no library")
    node.prolog("7.0.n1")
    node.computes(node.process(SLURM_JOB_ID="7"))
    node.begins(driver=str(nothing))
    wait_until(lambda: "nothing is sampled" in node.logged)
    node.epilog("7.0.n1")
    assert node.ends() == 0
    assert node.logged.count("NVML") == 1
    assert list(node.collect.iterdir()) == []


def test_samples_of_a_lost_gpu_are_kept(node: Node) -> None:
    node.samples()
    node.says("lost", "")
    node.says("asked", "")
    wait_until(lambda: node.asked.count("i") >= 3)
    node.epilog("7.0.n1")
    assert node.written("7.0.n1")["samples"] >= 1
    assert node.ends() == 0


def test_a_mig_device_is_sampled_with_fewer_figures_than_a_gpu(node: Node) -> None:
    node.says("mig", "")
    node.samples()
    node.epilog("7.0.n1")
    gpu = node.written("7.0.n1")
    assert gpu["uuid"].startswith("MIG-")
    assert gpu["peak_memory_bytes"] == 60 * GIB
    assert gpu["utilization"] is gpu["pcie_sent_bytes_per_s"] is gpu["nvlink_sent_bytes"] is None


def test_processes_that_are_gone_or_belong_to_no_job_are_ignored(node: Node) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    strange = [node.process(SLURM_JOB_ID=text) for text in ("x", "", "9" * 4000)]
    mine = node.process(SLURM_JOB_ID="7", OTHER="x" * 100_000)
    node.prolog("7.0.n1")
    node.computes(0, 1, 2, gone.pid, 4294967295, *strange, node.process(), mine)
    node.begins()
    node.when_sampled()
    node.epilog("7.0.n1")
    node.written("7.0.n1")
    assert node.ends() == 0
    assert "WARNING" not in node.logged


def test_jobs_running_when_a_sampler_stops_are_left_to_the_next_sampler(node: Node) -> None:
    node.computes(node.process(SLURM_JOB_ID="7"), node.process(SLURM_JOB_ID="8"))
    node.prolog("7.0.n1")
    node.prolog("8.0.n1")
    node.begins("--every", "1")
    node.when_sampled()
    node.epilog("8.0.n1")
    assert node.ends() == 0
    assert [file.name for file in node.collect.iterdir()] == ["8.0.n1.gpus"]
    node.begins()
    node.when_sampled()
    node.epilog("7.0.n1")
    assert node.written("7.0.n1")["uuid"] == UUID


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_sampler_stops_at_once_during_a_wait(node: Node, number: signal.Signals) -> None:
    node.begins("--every", "3600")
    assert node.sampler is not None
    node.sampler.send_signal(number)
    assert node.sampler.wait(timeout=PATIENCE_S) == 0


def test_the_sampler_creates_the_run_folder_if_it_starts_before_the_plugin(node: Node) -> None:
    node.run.rmdir()
    node.begins()
    assert stat.S_IMODE(node.run.stat().st_mode) == 0o755


def _broken(node: Node, how: str) -> None:
    if how == "no run folder":
        node.run.rmdir()
        node.run = node.run / "not" / "there"
    elif how == "open run folder":
        node.run.chmod(0o777)
    elif how == "run folder is a file":
        node.run.rmdir()
        node.run.touch()
    elif how == "no collect folder":
        node.collect.rmdir()


@pytest.mark.parametrize(
    "how", ["no run folder", "open run folder", "run folder is a file", "no collect folder"]
)
def test_unusable_folders_are_a_one_line_error(node: Node, how: str) -> None:
    _broken(node, how)
    assert node.starts().wait(timeout=PATIENCE_S) == 10
    assert re.fullmatch(r"tiresias-slurm: error: [^\n]+\.\n", node.logged)


def test_only_one_sampler_runs_per_folder(node: Node) -> None:
    node.begins()
    first = node.sampler
    assert node.starts().wait(timeout=PATIENCE_S) == 9
    assert "Another sampler" in node.logged
    node.sampler = first


@needs_root
@pytest.mark.parametrize("kind", ["--shared", "--exclusive"])
def test_a_user_who_locks_the_folder_keeps_no_sampler_out(open_node: Node, kind: str) -> None:
    hold = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "flock", "-F", kind]
    command = [*hold, str(open_node.run), "sh", "-c", "echo locked; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        try:
            assert user.stdout is not None and user.stdout.readline() == "locked\n"
            open_node.begins()
            first = open_node.sampler
            assert open_node.starts().wait(timeout=PATIENCE_S) == 9
            assert "Another sampler" in open_node.logged
            open_node.sampler = first
            assert open_node.ends() == 0
        finally:
            user.kill()


def test_only_the_samplers_user_can_open_the_file_that_it_locks(node: Node) -> None:
    node.begins()
    status = (node.run / node_folders.LOCK_NAME).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, ME)
    assert gpu_sampler.profiled(node.run) == {}


# Single ticks


def at_work(*pids: int, **numbers: Any) -> GpuAtWork:
    return GpuAtWork(GpuUse(UUID, uuid=UUID, **numbers), frozenset(pids))


def test_a_file_that_cannot_be_written_is_logged_once_and_written_later(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pid = node.process(SLURM_JOB_ID="7")
    monkeypatch.setattr(gpu_sampler, "gpus_at_work", lambda: [at_work(pid, utilization=0.5)])
    sampler = Sampler(node.run, node.collect)
    node.prolog("7.0.n1")
    sampler.tick(100.0)
    node.collect.rmdir()
    node.epilog("7.0.n1")
    sampler.tick(110.0)
    sampler.tick(120.0)
    assert caplog.text.count("cannot be kept") == 1
    node.collect.mkdir()
    sampler.tick(130.0)
    assert node.written("7.0.n1")["utilization"] == 0.5


def test_the_oldest_unwritten_runs_are_dropped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sampler, "MOST_UNWRITTEN", 2)
    pids = [node.process(SLURM_JOB_ID=str(job_id)) for job_id in range(4)]
    monkeypatch.setattr(gpu_sampler, "gpus_at_work", lambda: [at_work(*pids)])
    sampler = Sampler(node.run, node.collect)
    node.collect.rmdir()
    for job_id in range(4):
        node.prolog(f"{job_id}.0.n1")
    sampler.tick(100.0)
    for job_id in range(4):
        node.epilog(f"{job_id}.0.n1")
    sampler.tick(110.0)
    node.collect.mkdir()
    sampler.tick(120.0)
    assert sorted(file.name for file in node.collect.iterdir()) == ["2.0.n1.gpus", "3.0.n1.gpus"]


def test_thousands_of_files_are_listed_quickly(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for job_id in range(5000):
        (node.run / f"{job_id}.0.n1.traffic").touch()
    pid = node.process(ME, SLURM_JOB_ID="4999")
    monkeypatch.setattr(gpu_sampler, "gpus_at_work", lambda: [at_work(pid)])
    sampler = Sampler(node.run, node.collect)
    began_s = time.monotonic()
    sampler.tick(100.0)
    assert time.monotonic() - began_s < 30.0
    node.epilog("4999.0.n1")
    sampler.tick(110.0)
    node.written("4999.0.n1")


# The owner of a process


def test_a_process_claims_its_job_and_the_kernel_gives_its_user(node: Node) -> None:
    assert owner_of(node.process(ANN, A="b", SLURM_JOB_ID="7", Z="z")) == ProcessOwner(7, ANN)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "seven"},
        {"SLURM_JOB_ID": "-7"},
        {"SLURM_JOB_ID": "7 "},
        {"SLURM_JOB_ID": "7" * 11},
        {"XSLURM_JOB_ID": "7"},
        {"X": "\nSLURM_JOB_ID=7"},
    ],
)
def test_without_a_claim_a_process_has_no_job(node: Node, environment: dict[str, str]) -> None:
    assert owner_of(node.process(ANN, **environment)) is None


@pytest.mark.parametrize("pid", [0, 2**31, 2**63])
def test_a_missing_process_belongs_to_no_job(pid: int) -> None:
    assert owner_of(pid) is None


# Busy GPUs, as reported to the controller


def wanted(node: Node) -> Path:
    """Make the controller request GPU activity; return the node's file."""
    folder = node.collect / FOLDER
    folder.mkdir(mode=0o755)
    return folder / f"{socket.gethostname()}{SUFFIX}"


def told(file: Path) -> dict[str, int | None]:
    """Return how many GPUs of each run are busy; None if the run has been idle for a while."""
    found = parse(file.read_bytes()) if file.exists() else {}
    return {
        str(run_id): use.busy if use.idle_since_s is None else None for run_id, use in found.items()
    }


def test_busy_gpus_of_all_jobs_are_reported_once_the_folder_exists(node: Node) -> None:
    for run_id in ("7.0.n1", "8.0.n1"):
        (node.run / f"{run_id}.progress").touch()
        os.chown(node.run / f"{run_id}.progress", ANN, -1)
    node.computes(node.process(SLURM_JOB_ID="7"))
    node.begins()
    time.sleep(0.5)
    assert list(node.collect.iterdir()) == []
    file = wanted(node)
    wait_until(lambda: told(file) == {"7.0.n1": 1, "8.0.n1": None})
    node.says("utilization", 0)
    wait_until(lambda: told(file) == {"7.0.n1": None, "8.0.n1": None})
    node.says("utilization", 1)
    wait_until(lambda: told(file)["7.0.n1"] == 1)
    node.computes()
    wait_until(lambda: told(file)["7.0.n1"] is None)
    for run_id in ("7.0.n1", "8.0.n1"):
        (node.run / f"{run_id}.progress").unlink()
    wait_until(lambda: told(file) == {})
    assert node.ends() == 0
    assert "WARNING" not in node.logged


@needs_root
def test_an_unattributed_process_makes_all_jobs_busy(node: Node) -> None:
    node.prolog("7.0.n1", ANN)
    node.prolog("8.0.n1", BOB)
    file = wanted(node)
    node.computes(node.process(BOB, SLURM_JOB_ID="7"))
    node.begins()
    wait_until(lambda: told(file) == {"7.0.n1": None, "8.0.n1": None})
    node.computes(node.process(BOB))
    wait_until(lambda: told(file) == {"7.0.n1": 1, "8.0.n1": 1})
    node.computes()
    wait_until(lambda: told(file) == {"7.0.n1": None, "8.0.n1": None})
    node.computes(node.process(0, SLURM_JOB_ID="7"))
    wait_until(lambda: told(file) == {"7.0.n1": 1, "8.0.n1": 1})
    assert node.ends() == 0


def test_without_a_driver_no_activity_is_reported(node: Node, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    node.prolog("7.0.n1")
    file = wanted(node)
    node.begins(driver=str(nothing))
    wait_until(lambda: "without NVML" in node.logged)
    time.sleep(1.0)
    assert not file.exists()
    assert node.ends() == 0


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", 12),
        ("4:devices:/slurm/uid_1000/job_345/step_batch\n0::/\n", 345),
        ("0::/system.slice/n1_slurmstepd.scope/job_12/step_0/user/job_13\n", 12),
        ("4:devices:/slurm_n1/uid_0/job_345/step_batch\n0::/\n", 345),
        ("0::/user.slice/job_12/step_0\n", None),
        ("0::/user.slice/slurm/uid_0/job_12\n", None),
        ("0::/system.slice/slurmstepd.scope/job_x/step_0\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_slurms_cgroup_of_a_process_names_its_job(
    text: str, job: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cgroup").write_text(text)
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert confined_to(1) == job
    assert confined_to(2) is None


def test_the_cgroup_of_a_process_takes_precedence_over_its_claim(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / FOLDER).mkdir()
    for name in ("7.0.n1", "8.0.n1"):
        (tmp_path / f"{name}.traffic").touch()
    use = GpuUse("g", uuid=UUID, utilization=1.0)
    monkeypatch.setattr(gpu_sampler, "gpus_at_work", lambda: [GpuAtWork(use, frozenset({1}))])
    monkeypatch.setattr(gpu_sampler, "owner_of", lambda pid: ProcessOwner(7, ME))
    monkeypatch.setattr(gpu_sampler, "confined_to", lambda pid: 8)
    Sampler(tmp_path, tmp_path, 10.0).tick(100.0, 1000.0)
    [file] = (tmp_path / FOLDER).iterdir()
    busy = {str(run_id): use.busy for run_id, use in parse(file.read_bytes()).items()}
    assert busy == {"7.0.n1": 0, "8.0.n1": 1}
