"""The drivers on a real cluster: every write is checked by reading it back.

Tests with a ``driver`` run with each driver for this Slurm; the others test the command driver
only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import DRIVERS, RealCluster, job
from slurm_tiresias.errors import SlurmAnswerError, SlurmPermissionError, SlurmUnreachableError
from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Requeue, Unpin, Update

pytestmark = pytest.mark.slurm

PINNED = 3_000_000_000


@pytest.fixture(params=DRIVERS)
def driver(clean_cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[CommandSlurm]:
    with clean_cluster.driver_by(request.param) as driver:
        yield driver


def observed(driver: CommandSlurm, key: str) -> JobStatus:
    return job(driver.observe(), key)


def running(cluster: RealCluster, *options: str, script: str = "sleep 600") -> str:
    """Submit a job and wait until it runs."""
    key = cluster.sbatch(*options, script=script)
    cluster.wait_for_state(key, "RUNNING")
    return key


# --------------------------------------------------------------------------- observing


def test_a_job_without_n_may_spread_and_its_request_outlives_its_start(
    driver: CommandSlurm, clean_cluster: RealCluster
) -> None:
    for node in ("n1", "n2", "n3", "n4"):
        running(clean_cluster, "--gres=gpu:2", "-w", node)
    key = clean_cluster.sbatch("--hold", "--gpus=8", "-N2-4")
    before = observed(driver, key).spec.request
    clean_cluster.run("scontrol", "release", key)
    clean_cluster.wait_for_state(key, "RUNNING")
    after = observed(driver, key)
    assert (before.chunks, before.min_nodes, before.max_nodes) == (8, 2, 4)
    assert after.spec.request == before
    assert [held.gpu_count for held in after.allocation.values()] == [2, 2, 2, 2]


def test_administrators_settings_for_the_commands_have_no_effect(
    clean_cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = running(clean_cluster, "--gres=gpu:1", "--time=10")
    before = observed(clean_cluster.driver(), key)
    for name, value in {
        "SQUEUE_STATES": "PENDING",
        "SQUEUE_FORMAT2": "JobID",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_CLUSTERS": "other",
        "SACCT_FORMAT": "JobID",
        "TZ": "America/St_Johns",
        "LC_ALL": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    after = observed(clean_cluster.driver(), key)
    assert (after.start_s, after.spec.submit_s, after.spec.time_limit_s, after.allocation) == (
        before.start_s,
        before.spec.submit_s,
        600.0,
        before.allocation,
    )
    assert before.spec.submit_s == pytest.approx(time.time(), abs=60)


# --------------------------------------------------------------------------- priorities


# --------------------------------------------------------------------------- node lists


# --------------------------------------------------------------------------- requeue


# --------------------------------------------------------------------------- arrays


# --------------------------------------------------------------------------- refusals


def test_two_hundred_writes_cost_one_process(clean_cluster: RealCluster, tmp_path: Path) -> None:
    log, counted = tmp_path / "log", tmp_path / "scontrol"
    counted.write_text(f'#!/bin/sh\necho "call $*" >>{log}\nexec scontrol "$@"\n')
    counted.chmod(0o755)
    driver = clean_cluster.driver(scontrol=str(counted))
    running(clean_cluster, "--gpus=16")
    keys = [clean_cluster.sbatch("--gpus=16") for _ in range(20)]
    writes = [Update(key, priority=PINNED + at) for at in range(10) for key in keys]
    assert driver.write(writes) == ()
    assert log.read_text().splitlines() == ["call ping", "call "]
    priorities = {seen.key: seen.priority for seen in driver.observe().jobs}
    assert {priorities[key] for key in keys} == {PINNED + 9}


def test_nothing_to_write_starts_no_process(clean_cluster: RealCluster) -> None:
    assert clean_cluster.driver(scontrol="/nonexistent/scontrol").write([]) == ()


# --------------------------------------------------------------------------- accounting, signals


def test_no_accounting_means_no_runs_and_no_slurmdbd_an_error(clean_cluster: RealCluster) -> None:
    """sacct itself reads in slurm.conf whether there is accounting, and where."""
    config = Path(clean_cluster.env["SLURM_CONF"]).read_text().splitlines()
    kept = [line for line in config if not line.startswith("AccountingStorage")]
    lost = ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStoragePort=19"]
    for name, added in (("without", []), ("lost", lost)):
        (clean_cluster.folder / name).write_text("\n".join([*kept, *added, ""]))
    without, unreachable = RealCluster(clean_cluster.folder), RealCluster(clean_cluster.folder)
    without.env = {**clean_cluster.env, "SLURM_CONF": str(clean_cluster.folder / "without")}
    unreachable.env = {**clean_cluster.env, "SLURM_CONF": str(clean_cluster.folder / "lost")}
    assert without.driver().runs(["1"], 0.0) == []
    with pytest.raises(SlurmUnreachableError):
        unreachable.driver().runs(["1"], 0.0)


def test_a_job_that_vanishes_between_two_queries_does_no_harm(clean_cluster: RealCluster) -> None:
    key = running(clean_cluster, "--gpus=6")
    gone = clean_cluster.folder / "scontrol-that-knows-no-jobs"
    gone.write_text('#!/bin/sh\nsed "s/^show job .*/show job 99999/" | scontrol "$@"\n')
    gone.chmod(0o755)
    seen = observed(clean_cluster.driver(scontrol=str(gone)), key)
    assert sum(held.gpu_count for held in seen.allocation.values()) == 6


# --------------------------------------------------------------------------- failures


@pytest.fixture
def as_nobody(tmp_path_factory: pytest.TempPathFactory, cluster: RealCluster) -> Iterator[str]:
    """Run scontrol as a user without rights."""
    if os.getuid() != 0:
        pytest.skip("only root can become the user nobody")
    path = cluster.folder / "scontrol-as-nobody"
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    path.write_text(f'#!/bin/sh\nexec {nobody} scontrol "$@"\n')
    path.chmod(0o755)
    modes = {folder: folder.stat().st_mode for folder in (cluster.folder.parent, cluster.folder)}
    for folder in modes:
        folder.chmod(0o755)
    yield str(path)
    for folder, mode in modes.items():
        folder.chmod(mode)


def test_a_user_without_rights_is_told_so(clean_cluster: RealCluster, as_nobody: str) -> None:
    key = clean_cluster.sbatch("--gpus=4", "--begin=now+3600")
    driver = clean_cluster.driver(scontrol=as_nobody)
    for write in (Update(key, priority=PINNED), Requeue(running(clean_cluster)), Unpin(key)):
        with pytest.raises(SlurmPermissionError):
            driver.write([write])


def test_a_slurmctld_that_is_down_is_noticed_at_once(clean_cluster: RealCluster) -> None:
    config = clean_cluster.folder / "elsewhere.conf"
    text = Path(clean_cluster.env["SLURM_CONF"]).read_text()
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    config.write_text(text.replace(port, "SlurmctldPort=19"))
    driver = clean_cluster.driver()
    lost = RealCluster(clean_cluster.folder)
    lost.env = {**clean_cluster.env, "SLURM_CONF": str(config)}
    calls: list[Callable[[CommandSlurm], object]] = [
        lambda driver: driver.observe(),
        lambda driver: driver.cluster(),
        lambda driver: driver.write([Update("1", priority=5)]),
        lambda driver: driver.signal(["1"], "USR1"),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(SlurmUnreachableError):
            call(lost.driver())
        assert time.monotonic() - started < 30
    assert driver.observe().nodes


def test_a_missing_or_hanging_command_is_unreachable(clean_cluster: RealCluster) -> None:
    with pytest.raises(SlurmUnreachableError, match="cannot be started"):
        clean_cluster.driver(squeue="/nonexistent/squeue").observe()
    hangs = clean_cluster.folder / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    with pytest.raises(SlurmUnreachableError, match="no answer within"):
        clean_cluster.driver(squeue=str(hangs), timeout_s=1.0).observe()


@pytest.mark.parametrize("command", ["squeue", "scontrol"])
def test_a_truncated_answer_is_refused(clean_cluster: RealCluster, command: str) -> None:
    running(clean_cluster, "--gpus=4")
    cuts = clean_cluster.folder / f"cuts-{command}"
    cuts.write_text(
        f'#!/bin/sh\ncase "$1" in ping) exec {command} ping;; esac\n{command} "$@" | head -c 700\n'
    )
    cuts.chmod(0o755)
    with pytest.raises(SlurmAnswerError):
        clean_cluster.driver(**{command: str(cuts)}).observe()


def test_a_job_list_cut_off_between_two_jobs_is_rejected(clean_cluster: RealCluster) -> None:
    cut, whole = clean_cluster.folder / "squeue-cut", clean_cluster.folder / "squeue-whole"
    switch = clean_cluster.folder / "squeue-now"
    for path, script in ((cut, 'squeue "$@" | head -n 1'), (whole, 'exec squeue "$@"')):
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    mine = {running(clean_cluster) for _ in range(3)}
    switch.symlink_to(whole)
    driver = clean_cluster.driver(squeue=str(switch))
    assert alive(driver) == mine
    switch.unlink()
    switch.symlink_to(cut)
    with pytest.raises(SlurmAnswerError, match="lacks job"):
        driver.observe()
    with pytest.raises(SlurmAnswerError, match="lacks job"):
        clean_cluster.driver(squeue=str(switch)).observe()
    switch.unlink()
    switch.symlink_to(whole)
    assert alive(driver) == mine
    switch.unlink()


def alive(driver: CommandSlurm) -> set[str]:
    return {job.key for job in driver.observe().jobs if job.state is not None}


def test_squeues_release_is_read_once_and_again_after_its_replacement(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    """Slurm is upgraded under a running controller: the columns are those of the new squeue."""
    log, path = tmp_path / "log", tmp_path / "squeue"
    log.touch()

    def install() -> None:
        draft = tmp_path / "draft"
        draft.write_text(f'#!/bin/sh\necho "$1" >>{log}\nexec squeue "$@"\n')
        draft.chmod(0o755)
        draft.rename(path)

    install()
    driver = clean_cluster.driver(squeue=str(path))
    driver.observe()
    driver.observe()
    assert log.read_text().split().count("--version") == 1
    install()
    driver.observe()
    assert log.read_text().split().count("--version") == 2


def test_both_clocks_are_read_together_however_slow_squeue_is(clean_cluster: RealCluster) -> None:
    slow = clean_cluster.folder / "squeue-slow"
    slow.write_text('#!/bin/sh\nsleep 3\nexec squeue "$@"\n')
    slow.chmod(0o755)
    clock_s, steady_s = time.time(), time.monotonic()
    seen = clean_cluster.driver(squeue=str(slow)).observe()
    assert (seen.at_s - clock_s) == pytest.approx(seen.steady_s - steady_s, abs=1.0)
    assert seen.steady_s < steady_s + 2.5
