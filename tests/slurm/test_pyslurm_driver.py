"""pyslurm as a driver: if available, both drivers show the same; if not, the reason is given."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts import ROOT
from scripts.testbed.hostile_text import HOSTILE_TEXT
from scripts.testbed.job_shapes import OPTIONS
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import DRIVERS, RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.errors import BindingError, SlurmUnreachableError
from slurm_tiresias.model import JobSpec, JobStatus
from slurm_tiresias.slurm import pyslurm_process
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Commands, Observation, Update
from slurm_tiresias.slurm.pyslurm_driver import PyslurmSlurm
from slurm_tiresias.slurm.tally import LOAD, MODIFY, SACCT, Tally

pytestmark = pytest.mark.slurm

needs_pyslurm = pytest.mark.skipif(
    "pyslurm" not in DRIVERS, reason="no pyslurm for this Slurm: scripts/dev matrix has one"
)

WORKS = "import os"
ENDS = "import os; print('error: no slurm.conf', flush=True); os._exit(1)"
CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "import time; time.sleep(60)"
RAISES = "raise ImportError('libslurmfull.so: cannot open shared object file')"

FIELDS = {field.name for shape in (JobSpec, JobStatus) for field in dataclasses.fields(shape)}
FIELDS -= {"spec"}
FIELDS_OF_THE_PAST = FIELDS - {"request", "array_limit"}
"""Whether the request of an ended job is known varies; nothing uses it."""

NotThere = Callable[[str], Commands]


@pytest.fixture
def with_pyslurm(cluster: RealCluster, tmp_path: Path) -> NotThere:
    """Commands of the cluster, and on the path a package pyslurm 25.11.2 that begins with this
    code."""

    def made(beginning: str) -> Commands:
        package = tmp_path / "pyslurm"
        package.mkdir()
        (package / "__init__.py").write_text(f"{beginning}\n__version__ = '25.11.2'\n")
        metadata = tmp_path / "pyslurm-25.11.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: pyslurm\nVersion: 25.11.2\n")
        return Commands(environment={**cluster.env, "PYTHONPATH": str(tmp_path)})

    return made


# --------------------------------------------------------------------------- if it is missing


@pytest.mark.parametrize(
    ("beginning", "because"),
    [
        (ENDS, "pyslurm cannot be used: error: no slurm.conf"),
        (CRASHES, "pyslurm cannot be used: it was ended by signal SIGSEGV"),
        (RAISES, "pyslurm cannot be used: ImportError: libslurmfull.so: cannot open"),
        (HANGS, "pyslurm cannot be used: it was not imported within 2 s"),
    ],
)
def test_a_failed_import_of_pyslurm_falls_back_to_commands(
    with_pyslurm: NotThere, beginning: str, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyslurm_process, "PATIENCE_S", 2.0 if beginning == HANGS else 60.0)
    commands = with_pyslurm(beginning)
    with pytest.raises(BindingError, match=because):
        slurm_by("pyslurm", commands)
    driver = slurm_by("auto", commands)
    assert driver.driver.name == "commands"
    assert driver.driver.because.startswith(because)
    assert driver.observe().nodes


def test_another_releases_pyslurm_is_refused(cluster: RealCluster, with_pyslurm: NotThere) -> None:
    said = cluster.run("scontrol", "--version")
    release = ".".join(said.split()[-1].split(".")[:2])
    if release == "25.11":
        pytest.skip("the release that this pyslurm is for")
    because = f"pyslurm 25.11.2 was built for Slurm 25.11, and this host has {release}"
    commands = with_pyslurm(WORKS)
    with pytest.raises(BindingError) as error:
        slurm_by("pyslurm", commands)
    assert error.value.what == because
    assert slurm_by("auto", commands).driver.because == because


def test_choosing_the_command_driver_imports_no_pyslurm(with_pyslurm: NotThere) -> None:
    driver = slurm_by("commands", with_pyslurm(CRASHES))
    assert type(driver) is CommandSlurm
    assert (driver.driver.name, driver.driver.because) == ("commands", "")


@pytest.mark.skipif("pyslurm" in DRIVERS, reason="pyslurm is here")
def test_without_pyslurm_auto_chooses_commands(clean_cluster: RealCluster, tmp_path: Path) -> None:
    controller = RealController(clean_cluster, tmp_path, {"slurm": {"driver": "auto"}}).start()
    try:
        state = controller.state()
    finally:
        controller.stop()
    assert (state.driver, state.driver_because) == ("commands", "pyslurm is not installed")


@pytest.mark.skipif("pyslurm" in DRIVERS, reason="pyslurm is here")
def test_requiring_a_missing_pyslurm_is_one_line(cluster: RealCluster, tmp_path: Path) -> None:
    controller = RealController(cluster, tmp_path, {"slurm": {"driver": "pyslurm"}})
    controller.write_config()
    process = controller.spawn()
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == BindingError.exit_code == 14
    (line,) = said.splitlines()
    assert line.startswith("tiresias-slurm: error: pyslurm is not installed. Build it for this")


def test_pyslurm_is_built_only_for_supported_releases(tmp_path: Path) -> None:
    headers = tmp_path / "slurm"
    headers.mkdir()
    (headers / "slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x160508\n")
    command = [str(ROOT / "scripts" / "pyslurm"), "--python", sys.executable]
    env = {**os.environ, "SLURM_INCLUDE_DIR": str(tmp_path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "no pyslurm is known to work on Slurm 22.05.8, only on 25.11, 26.05" in line


# --------------------------------------------------------------------------- if it works


@pytest.fixture
def by_pyslurm(clean_cluster: RealCluster) -> Iterator[PyslurmSlurm]:
    with clean_cluster.driver_by("pyslurm") as driver:
        assert isinstance(driver, PyslurmSlurm)
        yield driver


@pytest.fixture
def by_commands(clean_cluster: RealCluster) -> CommandSlurm:
    return clean_cluster.driver()


def seen_alike(by_commands: CommandSlurm, by_pyslurm: PyslurmSlurm) -> Observation:
    """Return what both drivers show once they agree; otherwise fail with their differences."""
    give_up_s = time.monotonic() + PATIENCE_S
    while differences := _differences(by_commands.observe(), by_pyslurm.observe()):
        # Between the two readings a second may have begun, or a job started.
        assert time.monotonic() < give_up_s, "\n".join(differences[:10])
    return by_pyslurm.observe()


def _differences(one: Observation, other: Observation) -> list[str]:
    jobs, others = _by_key(one), _by_key(other)
    found = [f"job {key}: known to one" for key in jobs.keys() ^ others.keys()]
    for name in ("nodes", "partitions", "reservations"):
        if getattr(one, name) != getattr(other, name):
            found.append(f"{name}: {getattr(one, name)} != {getattr(other, name)}")
    for key in jobs.keys() & others.keys():
        for name in sorted(FIELDS if jobs[key].state else FIELDS_OF_THE_PAST):
            mine, theirs = (
                getattr(job if hasattr(job, name) else job.spec, name)
                for job in (jobs[key], others[key])
            )
            if mine != theirs:
                found.append(f"job {key} ({jobs[key].spec.name}) {name}: {mine} != {theirs}")
    return found


def _by_key(seen: Observation) -> Mapping[str, JobStatus]:
    return {job.key: job for job in seen.jobs}


@needs_pyslurm
def test_both_drivers_show_the_same_jobs_and_nodes(
    clean_cluster: RealCluster, by_commands: CommandSlurm, by_pyslurm: PyslurmSlurm
) -> None:
    submit = clean_cluster.sbatch
    for name, options in OPTIONS.items():
        if "-C" not in options:
            submit("--hold", f"--job-name={name}", *options)
    submit("--gres=gpu:1", "--array=0-7%2")
    submit("--hold", "--gpus=2", "--array=0-12:4,20")
    submit("--gpus=3", "--comment=None", "--job-name=None")
    submit("--gpus=1", f"--job-name={HOSTILE_TEXT}", f"--comment={HOSTILE_TEXT}")
    submit("-N2", "-n6", "--gpus=6", "--time=10")
    submit(script="false")
    suspended = submit("--gres=gpu:1")
    clean_cluster.wait_for_state(suspended, "RUNNING")
    clean_cluster.run("scontrol", "suspend", suspended)
    clean_cluster.run("salloc", "--job-name=shell", "--gres=gpu:1", "--no-shell")
    kept = clean_cluster.run(
        *("scontrol", "create", "reservation", "StartTime=now+1hour", "Duration=60"),
        *("Nodes=n3", "Users=root", "Flags=IGNORE_JOBS"),
    )
    try:
        clean_cluster.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test")
        seen = seen_alike(by_commands, by_pyslurm)
        assert len(seen.jobs) > len(OPTIONS) + 8
        assert seen.reservations
        clean_cluster.run("scancel", "--me", "--state=PENDING")
        seen_alike(by_commands, by_pyslurm)
    finally:
        clean_cluster.run("scontrol", "delete", f"ReservationName={kept.split()[-1]}")
        clean_cluster.run("scontrol", "update", "NodeName=n4", "State=RESUME")
    seen_alike(by_commands, by_pyslurm)


@needs_pyslurm
def test_a_name_in_no_encoding_is_read_by_squeue(
    clean_cluster: RealCluster, by_commands: CommandSlurm, by_pyslurm: PyslurmSlurm
) -> None:
    key = clean_cluster.sbatch("--hold", "--job-name=a\udcffb", "--comment=c\udcffd")
    seen = _by_key(seen_alike(by_commands, by_pyslurm))[key]
    assert (seen.spec.name, seen.spec.comment) == ("a�b", "c�d")


@needs_pyslurm
def test_unchanged_records_are_the_same_objects_as_before(
    clean_cluster: RealCluster, by_pyslurm: PyslurmSlurm
) -> None:
    keys = [clean_cluster.sbatch("--hold", "--gpus=2") for _ in range(3)]
    before = by_pyslurm.observe()
    clean_cluster.run("scontrol", "update", f"JobId={keys[1]}", "Comment=changed")
    after = by_pyslurm.observe()
    same = [key for key in keys if _by_key(before)[key] is _by_key(after)[key]]
    assert same == [keys[0], keys[2]]


@needs_pyslurm
def test_a_hanging_slurmctld_times_out_and_is_reached_again(clean_cluster: RealCluster) -> None:
    key = clean_cluster.sbatch("--hold", "--gpus=2")
    driver = slurm_by("pyslurm", Commands(timeout_s=2.0, environment=dict(clean_cluster.env)))
    assert isinstance(driver, PyslurmSlurm)
    before = driver.observe()
    clean_cluster.kill("slurmctld", signal="STOP")
    try:
        for call in (driver.observe, lambda: driver.write([Update(key, priority=5)])):
            started = time.monotonic()
            with pytest.raises(SlurmUnreachableError):
                call()
            assert time.monotonic() - started < 30
    finally:
        clean_cluster.kill("slurmctld", signal="CONT")
    clean_cluster.wait_until(lambda: _observed(driver), "slurmctld to answer again")
    again = driver.observe()
    driver.close()
    assert _by_key(again)[key].spec.request == _by_key(before)[key].spec.request


def _observed(driver: PyslurmSlurm) -> Observation | None:
    try:
        return driver.observe()
    except SlurmUnreachableError:
        return None


@needs_pyslurm
def test_queries_through_pyslurm_are_counted(clean_cluster: RealCluster) -> None:
    keys = [clean_cluster.sbatch("--begin=now+1hour", "--gpus=2") for _ in range(3)]
    count = Tally()
    driver = _counted_driver(clean_cluster, count)
    driver.observe()
    assert _asked(count, LOAD) == (1, 1, 0)
    assert _asked(count, MODIFY) == (0, 0, 0)
    assert driver.write([Update(key, priority=5) for key in keys]) == ()
    assert _asked(count, MODIFY) == (1, len(keys), 0)
    assert driver.worker_pid is not None
    os.kill(driver.worker_pid, signal.SIGSEGV)
    with pytest.raises(BindingError):
        driver.observe()
    driver.close()
    assert _asked(count, LOAD) == (2, 2, 1)
    assert count.by_command[LOAD].took_s > 0


@needs_pyslurm
def test_accounting_is_asked_elsewhere_while_pyslurm_is_busy(clean_cluster: RealCluster) -> None:
    key = clean_cluster.sbatch("--gpus=1", script="true")
    clean_cluster.wait_for_state(key, "COMPLETED")
    count = Tally()
    driver = _counted_driver(clean_cluster, count)
    driver.observe()
    assert driver.worker_pid is not None
    with ThreadPoolExecutor(1) as other_thread:
        os.kill(driver.worker_pid, signal.SIGSTOP)
        try:
            reading = other_thread.submit(driver.observe)
            clean_cluster.wait_until(lambda: driver.runs([key], 0.0), "accounting to know the job")
            assert not reading.done()
        finally:
            os.kill(driver.worker_pid, signal.SIGCONT)
        assert key in _by_key(reading.result())
    driver.close()
    assert _asked(count, LOAD) == (2, 2, 0)
    assert count.by_command[SACCT].commands >= 1


def _counted_driver(cluster: RealCluster, count: Tally) -> PyslurmSlurm:
    commands = Commands(timeout_s=60.0, environment=dict(cluster.env))
    driver = slurm_by("pyslurm", commands, count=count)
    assert isinstance(driver, PyslurmSlurm)
    return driver


def _asked(count: Tally, command: str) -> tuple[int, int, int]:
    asked = count.by_command[command]
    return asked.commands, asked.requests, asked.failures


@needs_pyslurm
@pytest.mark.parametrize("driver", ["auto", "pyslurm"])
def test_a_crashing_pyslurm_is_left_or_restarted(clean_cluster: RealCluster, driver: str) -> None:
    key = clean_cluster.sbatch("--hold", "--gpus=2")
    with clean_cluster.driver_by(driver) as slurm:
        assert isinstance(slurm, PyslurmSlurm)
        slurm.observe()
        assert slurm.worker_pid is not None
        os.kill(slurm.worker_pid, signal.SIGSEGV)
        if driver == "pyslurm":
            with pytest.raises(BindingError, match="SIGSEGV"):
                slurm.observe()
        seen = _by_key(slurm.observe())[key]
        assert seen.spec.request.gpu_count == 2
        name = "commands" if driver == "auto" else "pyslurm 25.11.2"
        assert slurm.driver.name == name
        assert ("SIGSEGV" in slurm.driver.because) == (driver == "auto")
