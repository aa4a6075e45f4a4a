"""scripts/cluster for real: it starts, works, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slurm

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"
PACKAGE = Path("scripts", "testbed", "cluster")
"""The packages that the script imports."""
SMALL = ("--nodes", "1", "--gpus", "2")


def cluster(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options
    )


def up(folder: Path, *arguments: str) -> None:
    result = cluster("up", "--dir", folder, *arguments)
    assert result.returncode == 0, result.stderr


def running(folder: Path) -> dict[str, int]:
    """The cluster's daemons and their pids."""
    result = cluster("status", "--dir", folder, "--json")
    processes = json.loads(result.stdout).get("processes", [])
    return {process["name"]: process["pid"] for process in processes if process["alive"]}


def state(folder: Path) -> str:
    result = cluster("status", "--dir", folder, "--json")
    return cast(str, json.loads(result.stdout)["state"])


def in_shell(folder: Path, script: str) -> str:
    """Return the output of a user's shell that has evaluated `env`."""
    prologue = f'eval "$({shlex.quote(str(SCRIPT))} env --dir {folder})"\n'
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    result = subprocess.run(
        ["bash", "-ec", prologue + script],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd="/tmp",
        env=outside,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def traces(folder: Path) -> list[str]:
    """Return every process that names the folder in its command or environment, found
    independently."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            text = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            if bytes(folder) in text:
                found.append(f"{entry.name} {text[:80]!r}")
    return found


def job_names(folder: Path) -> list[str]:
    return in_shell(folder, "sacct -nPX -o jobname").split()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """pytest's own folders have names too long for Unix sockets."""
    parent = Path(tempfile.mkdtemp(prefix="sct-"))
    parent.chmod(0o755)
    folder = parent / "c"
    try:
        yield folder
    finally:
        result = cluster("down", "--dir", folder)
        left = traces(folder)
        shutil.rmtree(parent)
        assert result.returncode == 0, result.stderr
        assert left == []


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A cluster for the tests that do not change it."""
    with short_folder() as path:
        up(
            path,
            *("--nodes", "2", "--gpus", "4", "--gpu-type", "n1=a100,n2=v100"),
            *("--partition", "gpu", "--partition", "other"),
            *("--slurm-conf-line", "KillWait=7"),
            *("--slurm-conf-line", "AuthInfo=cred_expire=9"),
            *("--slurm-conf-line", "NodeName=n2 Weight=5"),
            *("--slurm-conf-line", "PartitionName=half Nodes=n1"),
        )
        yield path


def test_a_gpu_job_runs_and_accounting_counts_its_gpus(shared: Path) -> None:
    # One job on both nodes: it has more GPUs than either node.
    job = in_shell(shared, "sbatch --parsable -o /dev/null -N2 --gpus=6 --wrap 'srun true'").strip()

    def row() -> str:
        return in_shell(shared, f"sacct -nPX -j {job} -o state,alloctres").strip()

    wait_until(lambda: row().startswith("COMPLETED"), "the job completed")
    assert "gres/gpu=6" in row()


def test_a_job_sees_the_gpus_it_was_given(shared: Path) -> None:
    output = in_shell(
        shared, "srun --gpus=v100:3 bash -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"
    )
    assert output.split() == ["n2", "0,1,2"]


def test_two_jobs_without_a_memory_request_share_a_node(shared: Path) -> None:
    output = in_shell(
        shared,
        "for i in 1 2; do sbatch -o /dev/null -w n1 --gpus=1 --wrap 'sleep 60'; done\n"
        "for i in $(seq 200); do\n"
        "  [ $(squeue -h -t R | wc -l) = 2 ] && break; sleep 0.05\n"
        "done\n"
        "squeue -h -o '%T %N'; scancel -u $(id -un)",
    )
    assert output.splitlines()[-2:] == ["RUNNING n1", "RUNNING n1"]


def test_every_partition_has_all_nodes_and_the_first_is_the_default(shared: Path) -> None:
    lines = in_shell(shared, "sinfo -h -o '%P %N'").splitlines()
    assert sorted(lines) == ["gpu* n[1-2]", "half n1", "other n[1-2]"]


def test_a_given_configuration_line_replaces_the_scripts_own(shared: Path) -> None:
    output = in_shell(shared, "scontrol show config; scontrol -o show node n2")
    values = {
        key.strip(): value.strip()
        for key, equals, value in (line.partition("=") for line in output.splitlines())
        if equals
    }
    assert values["KillWait"].startswith("7")
    assert values["AuthInfo"] == f"socket={shared}/run/munge.socket,cred_expire=9"
    assert "Weight=5" in output
    assert "Gres=gpu:v100:4" in output


def test_up_on_a_running_cluster_accepts_only_the_same_shape(folder: Path) -> None:
    up(folder, *SMALL, "--no-accounting")
    before = running(folder)
    again = cluster("up", "--dir", folder, *SMALL, "--no-accounting")
    assert (again.returncode, running(folder)) == (0, before)
    assert "already running" in again.stderr

    other = cluster("up", "--dir", folder, "--nodes", "2")
    assert (other.returncode, running(folder)) == (2, before)
    assert "another shape" in other.stderr


def test_two_clusters_started_at_once_run_side_by_side(folder: Path) -> None:
    with short_folder() as second:
        command = [str(SCRIPT), "up", *SMALL, "--dir"]
        starts = [
            subprocess.Popen([*command, str(path)], stdout=subprocess.DEVNULL)
            for path in (folder, second)
        ]
        assert [start.wait(PATIENCE_S) for start in starts] == [0, 0]

        for path in (folder, second):
            in_shell(path, f"srun -J {path.parent.name} true")
        wait_until(lambda: bool(job_names(folder) and job_names(second)), "both are accounted")
        assert job_names(folder) == [folder.parent.name]
        assert job_names(second) == [second.parent.name]

        assert cluster("down", "--dir", second).returncode == 0
        assert state(folder) == "up"


def test_down_ends_jobs_that_ignore_sigterm_and_spares_the_users_shell(folder: Path) -> None:
    up(folder, *SMALL, "--no-accounting")
    pids = folder.parent / "pids"
    stubborn = f"trap '' TERM; echo $$ >> {pids}; for i in $(seq 600); do sleep 0.1; done"
    script = folder.parent / "job.sh"
    script.write_text(
        f"#!/bin/bash\n(setsid bash -c {shlex.quote(stubborn)} &)\nexec bash -c "
        f"{shlex.quote(stubborn)}\n"
    )
    in_shell(folder, f"sbatch -o /dev/null {script}")
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the job runs")

    exported = {"SLURM_CONF": f"{folder}/etc/slurm.conf", "SLURM_TIRESIAS_CLUSTER_DIR": str(folder)}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **exported}) as shell:
        assert cluster("down", "--dir", folder).returncode == 0
        assert shell.poll() is None
        shell.kill()

    assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []
    assert not folder.exists()


def test_a_daemon_restarted_by_hand_is_ended_too(folder: Path) -> None:
    up(folder, *SMALL, "--no-accounting")
    first = running(folder)["slurmctld"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first), "slurmctld is dead")
    assert state(folder) == "broken"

    in_shell(folder, "PATH=$PATH:/usr/sbin slurmctld; until scontrol ping | grep UP; do :; done")
    assert cluster("down", "--dir", folder).returncode == 0
    assert traces(folder) == []


def test_a_daemon_is_killed_and_started_again_by_its_name(folder: Path) -> None:
    up(folder, *SMALL, "--no-accounting")
    before = running(folder)
    assert cluster("kill", "--dir", folder, "slurmctld", "slurmd.n1").returncode == 0
    assert state(folder) == "broken"
    assert running(folder).keys() == {"munged"}
    refused = cluster("kill", "--dir", folder, "slurmctld")
    assert refused.returncode == 2 and "no daemon 'slurmctld' runs" in refused.stderr
    assert cluster("start", "--dir", folder, "slurmctld", "slurmd.n1", "munged").returncode == 0
    after = running(folder)
    assert after.keys() == before.keys() and after["munged"] == before["munged"]
    wait_until(lambda: "1" in in_shell(folder, "srun -N1 echo 1 || true"), "it runs jobs again")
    unknown = cluster("start", "--dir", folder, "slurmd.n9")
    assert unknown.returncode == 2 and "There are: munged, slurmctld, slurmd.n1." in unknown.stderr


@pytest.mark.long
@pytest.mark.usefixtures("own_mounts")
def test_a_backup_slurmctld_takes_over_and_gives_back(folder: Path) -> None:
    up(folder, *SMALL, "--backup")
    job = in_shell(folder, "sbatch --parsable -n1 --wrap 'sleep 600'").strip()
    assert cluster("kill", "--dir", folder, "slurmctld").returncode == 0
    wait_until(lambda: job in in_shell(folder, "squeue -h || true"), "the backup acts")
    assert "Slurmctld(primary) at ctl1 is DOWN" in in_shell(folder, "scontrol ping || true")
    assert cluster("start", "--dir", folder, "slurmctld").returncode == 0
    wait_until(lambda: "ctl1 is UP" in in_shell(folder, "scontrol ping || true"), "it is back")
    wait_until(lambda: job in in_shell(folder, "squeue -h || true"), "the job is still there")


@pytest.mark.usefixtures("own_mounts")
def test_a_backup_starts_if_the_own_name_does_not_resolve(folder: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    arguments = ["up", "--dir", folder, *SMALL, "--backup"]
    up_there = (
        f"mount --bind {hosts} /etc/hosts && exec {shlex.join(map(str, [SCRIPT, *arguments]))}"
    )
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", up_there],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stderr
    assert "ctl2 is UP" in in_shell(folder, "scontrol ping")


@pytest.mark.parametrize("after", [0.3, 0.9, 1.4])
def test_down_leaves_no_process_behind_after_up_was_killed(folder: Path, after: float) -> None:
    command = [str(SCRIPT), "up", "--dir", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as start:
        time.sleep(after)
        start.kill()
    assert cluster("down", "--dir", folder).returncode == 0
    assert traces(folder) == []
    assert not folder.exists()


def test_up_removes_leftovers_of_a_dead_cluster(folder: Path) -> None:
    up(folder, *SMALL)
    dead = running(folder)
    for name in ("slurmctld", "database"):
        os.kill(dead[name], signal.SIGKILL)
    wait_until(lambda: not is_alive(dead["slurmctld"]), "slurmctld is dead")

    up(folder, *SMALL)
    assert state(folder) == "up"
    assert [pid for pid in dead.values() if is_alive(pid)] == []


def test_up_cleans_up_when_it_is_interrupted(folder: Path) -> None:
    command = [str(SCRIPT), "up", "--dir", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as start:
        assert start.stderr is not None
        assert "starting" in start.stderr.readline()
        time.sleep(0.5)
        start.terminate()
        assert start.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert start.stderr.read() == "cluster: stopped by SIGTERM\n"
    assert traces(folder) == []


def test_a_failed_start_shows_the_log_line_that_says_why(folder: Path) -> None:
    line = "SelectType=select/no_such_thing"
    result = cluster("up", "--dir", folder, *SMALL, "--no-accounting", "--slurm-conf-line", line)
    assert result.returncode == 1
    assert "slurmctld ended with status 1" in result.stderr
    assert "select/no_such_thing" in result.stderr
    assert "Traceback" not in result.stderr
    assert traces(folder) == []


def test_a_node_that_slurm_refuses_is_named_at_once(folder: Path) -> None:
    line = "NodeName=n1 Gres=gpu:9"
    began = time.monotonic()
    result = cluster("up", "--dir", folder, *SMALL, "--no-accounting", "--slurm-conf-line", line)
    assert result.returncode == 1
    assert "node n1" in result.stderr
    assert "gres/gpu count" in result.stderr
    assert time.monotonic() - began < PATIENCE_S / 2


def test_an_ordinary_user_can_run_it(folder: Path) -> None:
    # A copy, since the user may be unable to access the folder of this checkout.
    copy = shutil.copytree(SCRIPT.parent / "testbed" / "cluster", folder.parent / PACKAGE)
    script = shutil.copy(SCRIPT, copy.parents[1] / "cluster")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
    identity: Mapping[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(folder.parent, "nobody", "nogroup")

    def as_user(command: str) -> str:
        result = subprocess.run(
            ["bash", "-c", f'eval "$({script} env --dir {folder} 2>/dev/null)"; {command}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            cwd="/tmp",
            env=environment,
            **identity,
        )
        assert result.returncode == 0, result.stderr
        return str(result.stdout)

    as_user(f"{script} up --dir {folder} --nodes 2 --gpus 2")
    assert as_user("srun -N2 --gpus=4 id -un").split() == [as_user("id -un").strip()] * 2
    wait_until(lambda: "gres/gpu=4" in as_user("sacct -nPX -o alloctres"), "accounting knows it")
    as_user(f"{script} down --dir {folder}")
    assert traces(folder) == []
    assert not folder.exists()


def test_a_folder_of_something_else_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    refused = cluster("up", "--dir", folder, *SMALL)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "holds something else" in refused.stderr
    assert cluster("down", "--dir", folder).returncode == 0
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_down_can_be_repeated_and_env_says_what_to_do(folder: Path) -> None:
    assert cluster("down", "--dir", folder).returncode == 0
    assert cluster("down", "--dir", folder).returncode == 0
    result = cluster("env", "--dir", folder)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Start one with" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("sideways",),
        ("up", "--nodes", "0"),
        ("up", "--gpus", "many"),
        ("up", "--gpu-type", "n9=a100"),
        ("up", "--partition", "a,b"),
        ("up", "--slurm-conf-line", "no equals sign"),
        ("up", "--slurm-conf-line", "ClusterName=mine"),
        ("up", "--slurm-user", "nobody-of-that-name"),
        ("up", "--dir", "/tmp/with blank"),
        ("up", "--dir", "/tmp/" + "x" * 100),
        ("down", "--dir", "/"),
        ("kill", "--signal", "LOUD", "slurmctld"),
        ("kill", "--dir", "/tmp/no-cluster-is-there", "slurmctld"),
    ],
)
def test_bad_usage_is_one_line_that_says_what_to_do(arguments: tuple[str, ...]) -> None:
    result = cluster(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("cluster: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.count(". ") >= 1
