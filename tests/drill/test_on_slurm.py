"""Drills on a real Slurm, by an ordinary user: broken jobs, the examples, and interruptions."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from slurm_tiresias.cli.drill import FAILED
from tests.drill.jobs import LIBRARY, LIKE_THE_PLUGIN, PROGRAMS, PYTHON, write, write_program

ROOT = Path(__file__).parents[2]
USER_ID = 65534
SLOW = "launcher-killed"
"""Needs a KillWait of more than the launcher's 30 s."""

TRIALS: Mapping[str, tuple[str, ...]] = {
    "good": (),
    "save-torn": ("--trial", "save"),
    # Only a start on the same node shows that the node is not the cause.
    "resumed-from-nothing": ("--trial", "step", "--nodelist=n1"),
    "steps-skipped": ("--trial", "step", "--nodelist=n1"),
}
AT_ONCE = 6

pytestmark = pytest.mark.slurm


@dataclass(frozen=True)
class Drilled:
    """The output of a drill, and the contents of its folder afterwards."""

    code: int
    said: Mapping[str, Any]
    complaints: str
    left: frozenset[str]

    @property
    def causes(self) -> set[str]:
        return {trial["cause"]["code"] for trial in self.said["trials"] if trial["cause"]}


def names_in(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir())


class User:
    """An ordinary user with a folder."""

    def __init__(self, cluster: RealCluster, program: Path, folder: Path) -> None:
        self.cluster = cluster
        self.program = program
        self.folder = folder

    def command(self, *words: str) -> list[str]:
        rights = ("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups")
        python = (PYTHON, "-m", "slurm_tiresias.cli", "drill")
        return [*(rights if os.geteuid() == 0 else ()), *python, *words]

    @property
    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.program), "HOME": str(self.folder)}
        return {**os.environ, **self.cluster.env, **own}

    def place(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir()
        path.chmod(0o777)
        return path

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def drill(self, folder: Path, *words: str) -> Drilled:
        before = names_in(folder)
        process = self.start(folder, "--json", *words)
        said, complaints = process.communicate(timeout=2 * PATIENCE_S)
        left = names_in(folder) - before
        return Drilled(process.returncode, json.loads(said) if said else {}, complaints, left)


@pytest.fixture(scope="module")
def user(cluster: RealCluster, readable: Path) -> Iterator[User]:
    # Earlier tests leave their jobs on the cluster, which would delay the drill's.
    cluster.clean()
    with short_folder() as folder:
        folder.chmod(0o777)
        yield User(cluster, readable, folder)


@pytest.fixture(scope="module")
def drilled(user: User) -> Mapping[str, Drilled]:
    """Run all small jobs, several at a time."""

    def one(name: str) -> Drilled:
        folder = user.place(name)
        return user.drill(folder, *TRIALS.get(name, ("--trial", "step")), str(write(name, folder)))

    names = [name for name in PROGRAMS if name != SLOW]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("good", SLOW)])
def test_each_flawed_job_gets_its_cause(drilled: Mapping[str, Drilled], name: str) -> None:
    assert drilled[name].causes == {name}, drilled[name]
    assert drilled[name].code == FAILED


def test_a_good_job_passes(drilled: Mapping[str, Drilled]) -> None:
    good = drilled["good"]
    assert good.code == 0, good
    assert [trial["kind"] for trial in good.said["trials"]] == ["start-up", "step", "save", "twice"]
    assert all(trial["steps_redone"] == 0 for trial in good.said["trials"])
    (hit,) = [run for trial in good.said["trials"] for run in trial["runs"] if run["number"] == 2]
    assert hit["signalled_again_s"] is not None


def test_a_drill_leaves_only_its_jobs_files(drilled: Mapping[str, Drilled], user: User) -> None:
    for one in drilled.values():
        assert one.left == set(one.said["left"])
        assert all(one.said["job_id"] in name for name in one.left)
    assert nothing_runs(user)


def test_a_folder_that_is_named_like_the_job_is_left_and_named(user: User) -> None:
    folder = user.place("named")
    words = ("--trial", "start-up", "--json", str(write("good", folder)))
    process = user.start(folder, *words)
    assert process.stderr is not None
    job_id = process.stderr.readline().split()[2]
    kept = folder / f"checkpoint-{job_id}"
    kept.mkdir()
    (kept / "model").write_text("of another job")
    said, complaints = process.communicate(timeout=2 * PATIENCE_S)
    assert (kept / "model").exists()
    assert kept.name in json.loads(said)["left"], complaints


def nothing_runs(user: User) -> bool:
    """Whether the user has no job, and no process of one."""
    jobs = user.cluster.run("squeue", "-h", "-o", "%i %u")
    return not jobs.strip() and not processes_in(user.folder)


def processes_in(folder: Path) -> Sequence[int]:
    """Return the processes whose jobs were submitted below the folder, or that run there."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"={folder}".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def interrupted(user: User, name: str, number: signal.Signals, after_s: float) -> None:
    """Start a drill and stop it after a while; it must leave nothing behind."""
    folder = user.place(f"{name}-{number.name}-{after_s:.2f}")
    process = user.start(folder, str(write(name, folder)))
    before = names_in(folder)
    time.sleep(after_s)
    process.send_signal(number)
    _, complaints = process.communicate(timeout=PATIENCE_S)
    # On a busy machine it may not have begun yet.
    assert process.returncode == 128 + number or not complaints, complaints
    user.cluster.wait_until(lambda: nothing_runs(user), f"nothing runs: {after_s}")
    assert all(name.startswith("checkpoint-") for name in names_in(folder) - before), after_s
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_drill_that_is_stopped_leaves_nothing(user: User, number: signal.Signals) -> None:
    source = random.Random(f"{number} {time.time_ns()}")
    interrupted(user, source.choice(("good", "survivor")), number, source.uniform(0.3, 12.0))


def test_the_watcher_cancels_the_job_of_a_drill_that_was_killed(user: User) -> None:
    folder = user.place("killed")
    process = user.start(folder, "--trial", "step", str(write("survivor", folder)))
    assert process.stderr is not None
    # It watches the job once it shows progress.
    assert any("preempts it" in line for line in process.stderr)
    process.kill()
    process.communicate()
    user.cluster.wait_until(lambda: nothing_runs(user), "the job is cancelled")
    assert not list(folder.glob(".*"))


def test_a_drill_that_is_killed_while_its_job_waits_leaves_nothing(user: User) -> None:
    folder = user.place("killed-between")
    before = names_in(folder)
    process = user.start(folder, "--trial", "step", str(write("no-handler", folder)))
    assert process.stderr is not None
    assert any("preempts it" in line for line in process.stderr)
    waits = ("squeue", "-h", "-t", "PENDING", "-o", "%i")
    user.cluster.wait_until(lambda: bool(user.cluster.run(*waits).strip()), "the job waits")
    process.kill()
    process.communicate()
    user.cluster.wait_until(lambda: nothing_runs(user), "the job is cancelled")
    user.cluster.wait_until(lambda: not list(folder.glob(".*")), "its folder is removed")
    left = names_in(folder) - before - {"no-handler.py", "no-handler.sh"}
    assert all(name.startswith("checkpoint-") for name in left)


@pytest.mark.long
def test_a_drill_that_is_stopped_at_any_moment_leaves_nothing(user: User) -> None:
    source = random.Random(time.time_ns())
    for _ in range(30):
        name, number = source.choice(("good", "survivor")), source.choice((2, 15, 1))
        interrupted(user, name, signal.Signals(number), source.uniform(0.3, 25.0))


def test_train_py_passes(user: User) -> None:
    folder = user.place("train")
    shutil.copytree(ROOT / "examples", folder / "examples")
    words = ("examples/train.sbatch", "--steps", "5000", "--step-seconds", "0.1")
    one = user.drill(folder, "--trial", "step", "--trial", "twice", *words)
    assert one.code == 0, one
    assert one.left == set(one.said["left"])
    # A failed job would count against its program and its nodes.
    assert user.cluster.squeue_field(one.said["job_id"], "State") == "CANCELLED"


def test_a_job_that_saves_on_request_is_asked_to_and_requeued_once_it_has(user: User) -> None:
    folder = user.place("asked")
    words = ("--trial", "step", "--trial", "save", "--trial", "twice")
    one = user.drill(folder, *words, str(write_program("asked", LIBRARY, folder, LIKE_THE_PLUGIN)))
    assert one.code == 0, one
    for trial in one.said["trials"]:
        assert (trial["asked"], trial["answered"], trial["saved"]) == (True, True, True), one
        assert trial["requeued_s"] < 30.0, "it had 60 s"
        assert trial["steps_redone"] == 0


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("launcher", ["python3", "torchrun"])
def test_pytorch_train_py_passes(cluster: RealCluster, tmp_path: Path, launcher: str) -> None:
    words = ["examples/pytorch_train.py", "--steps", "5000"]
    if launcher == "torchrun":
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port")
        run = ("-m", "slurm_tiresias.job.command", "run", "--", "python3", *torchrun)
        words = [*run, str(free_port()), *words]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    folder = Path(sys.executable).parent
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "slurm_tiresias.cli",
            "drill",
            "examples/preemptible.sbatch",
            *words,
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            **cluster.env,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{folder}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert names_in(tmp_path) == {"examples"}


@pytest.mark.long
def test_a_launcher_that_kills_after_thirty_seconds_is_named(readable: Path) -> None:
    options = ("--nodes", "1", "--gpus", "1", "--slurm-conf-line", "KillWait=40")
    with short_folder() as above, started_cluster(above, *options) as cluster:
        user = User(cluster, readable, above)
        folder = user.place("launcher")
        one = user.drill(folder, "--trial", "step", str(write(SLOW, folder)))
    assert one.causes == {SLOW}
    assert "torchrun waits 30 s" in str(one.said)


def test_a_drill_uses_the_sites_checkpoint_signal(user: User) -> None:
    """The signal would kill a job that does not handle it, and Slurm would not requeue that job."""
    folder = user.place("signal")
    (folder / "tiresias.toml").write_text('[preemption]\ncheckpoint = "USR1@1"\n')
    words = ("--config", "tiresias.toml", "--trial", "step", str(write("good", folder)))
    one = user.drill(folder, *words)
    assert one.causes == {"ended-by-signal"}, one


def test_a_job_that_reports_its_save_is_requeued_before_the_grace_is_over(user: User) -> None:
    folder = user.place("answers")
    (folder / "tiresias.toml").write_text('[preemption]\ncheckpoint = "USR1@100"\n')
    words = ("--config", "tiresias.toml", "--trial", "step")
    one = user.drill(
        folder, *words, str(write_program("answers", LIBRARY, folder, LIKE_THE_PLUGIN))
    )
    assert one.code == 0, one
    (only,) = one.said["trials"]
    assert (only["asked"], only["answered"]) == (False, True)
    assert only["requeued_s"] < 60.0


def test_a_job_that_does_not_answer_gets_the_whole_grace_and_then_sigterm(user: User) -> None:
    folder = user.place("deaf")
    (folder / "tiresias.toml").write_text("[preemption]\nmax_grace_s = 4.0\n")
    deaf = "import signal\n" + LIBRARY + "    signal.signal(signal.SIGURG, signal.SIG_IGN)\n"
    words = ("--config", "tiresias.toml", "--trial", "step")
    one = user.drill(folder, *words, str(write_program("deaf", deaf, folder, LIKE_THE_PLUGIN)))
    assert one.code == 0, one
    (only,) = one.said["trials"]
    assert (only["asked"], only["answered"], only["saved"]) == (True, False, True), one
    assert only["requeued_s"] >= 3.9


def test_without_the_plugin_a_job_is_not_asked_to_save(user: User) -> None:
    """The controller would not know that it saves on request."""
    folder = user.place("unasked")
    words = ("--trial", "step", str(write_program("unasked", LIBRARY, folder)))
    one = user.drill(folder, *words)
    assert one.code == 0, one
    (only,) = one.said["trials"]
    assert (only["asked"], only["saved"]) == (False, True), one


def test_a_job_that_ends_by_itself_is_reported_as_untested(user: User) -> None:
    folder = user.place("short")
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem=100\necho nothing to do\nexit 3\n")
    one = user.drill(folder, str(script))
    assert (one.code, one.left) == (17, frozenset()), one
    assert one.said["last_lines"] == ["nothing to do"]


def test_a_refusal_of_sbatch_is_a_one_line_error(user: User) -> None:
    folder = user.place("refused")
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nsleep 60\n")
    one = user.drill(folder, "--partition=none", str(script))
    assert (one.code, one.left) == (2, frozenset())
    assert "sbatch refused the script" in one.complaints and "Traceback" not in one.complaints
