"""A real Slurm cluster for tests: submit jobs, query them, wait for a condition."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from scripts import ROOT
from scripts.testbed.patience import PATIENCE_S, Value, wait_until
from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import AccountedRun, Commands, Observation
from slurm_tiresias.slurm.pyslurm_driver import PyslurmSlurm

SCRIPT = ROOT / "scripts" / "cluster"

DRIVERS = ("commands", "pyslurm") if find_spec("pyslurm") else ("commands",)
"""The drivers that can be tested here."""

REQUEUED, COMPLETED = "REQUEUED", "COMPLETED"
"""States of runs in accounting."""


class RealCluster:
    """A cluster started by ``scripts/cluster`` in ``folder``; ``env`` lets commands find it."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.env = env or {}

    def up(self, *options: str) -> None:
        """Start the cluster and read its environment."""
        self._script("up", *options)
        self.join()

    def join(self) -> None:
        """Read the environment of a running cluster."""
        self.env = _exports(self._script("env"))

    def down(self) -> None:
        """Stop it and remove its folder."""
        self._script("down")

    def kill(self, *daemons: str, signal: str = "KILL") -> None:
        """Kill daemons, or send them another signal."""
        self._script("kill", "--signal", signal, *daemons)

    def start(self, *daemons: str) -> None:
        """Start daemons again."""
        self._script("start", *daemons)

    def run(self, *command: str) -> str:
        """Run a command in the cluster's folder; return its output.

        Raises ``AssertionError`` if it fails.
        """
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr or ended.stdout}"
        return ended.stdout

    def answers(self, *command: str) -> bool:
        """Whether a command succeeds."""
        try:
            self.run(*command)
        except AssertionError:
            return False
        return True

    def sbatch(self, *options: str, script: str = "sleep 600") -> str:
        """Submit a job that runs ``script``; return its id."""
        wrapped = ("--parsable", "--output=/dev/null", *options, "--wrap", script)
        return self.run("sbatch", *wrapped).strip()

    def sacct_rows(self, jobs: Iterable[str], fields: str) -> dict[str, list[list[str]]]:
        """Return these fields of all accounting rows of the jobs, by job; times since the epoch."""
        columns = f"jobid,{fields}"
        answer = self.run(
            *("env", "SLURM_TIME_FORMAT=%s", "sacct", "-DXnP", "-j", ",".join(jobs), "-o", columns)
        )
        found: dict[str, list[list[str]]] = {}
        for line in answer.splitlines():
            job, *values = line.split("|")
            found.setdefault(job, []).append(values)
        return found

    def ended_runs(self, keys: Collection[str]) -> Sequence[AccountedRun]:
        """Return all runs of these jobs, once accounting has the end of each job."""
        driver = self.driver()

        def runs() -> Sequence[AccountedRun]:
            found = driver.runs(keys, 0.0)
            over = {run.key for run in found if run.end_s and run.state != REQUEUED}
            return found if over == set(keys) else ()

        return self.wait_until(runs, "accounting has the end of every job")

    def squeue_field(self, job: str, field: str) -> str:
        """Return one field of ``squeue -O`` for one job or array task."""
        answer = self.run(
            "squeue", "-h", "-a", "-r", "-t", "all", "-j", job, "-O", f"jobarrayid:|,{field}:|"
        )
        for line in answer.splitlines():
            key, value, *_ = line.split("|")
            if key == job:
                return value
        raise AssertionError(f"squeue does not list job {job}")

    def squeue_fields(self, field: str, states: str = "all") -> dict[str, str]:
        """Return one field of ``squeue -O`` of every job in these states, by job id."""
        shown = self.run("squeue", "-h", "-a", "-t", states, "-O", f"JobID:|,{field}:|")
        rows = (line.split("|") for line in shown.splitlines())
        return {job: value.strip() for job, value, *_ in rows}

    def driver(self, **commands: str | float) -> CommandSlurm:
        """Return a new driver for this cluster."""
        return CommandSlurm(Commands(environment=dict(self.env), **commands))  # type: ignore[arg-type]

    @contextmanager
    def driver_by(self, name: str) -> Iterator[CommandSlurm]:
        """Yield a new driver of this name, and close it afterwards."""
        driver = slurm_by(name, Commands(environment=dict(self.env)))
        assert isinstance(driver, CommandSlurm)
        try:
            yield driver
        finally:
            if isinstance(driver, PyslurmSlurm):
                driver.close()

    def wait_until(
        self, condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S
    ) -> Value:
        """Wait until the condition is true; return its value."""
        try:
            return wait_until(condition, what, timeout_s, longest_pause_s=0.15)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.run('squeue')}") from error

    def wait_for_state(self, job: str, state: str) -> None:
        """Wait until squeue shows the job in this state."""
        self.wait_until(lambda: self.squeue_field(job, "State") == state, f"job {job} {state}")

    def clean(self) -> None:
        """Cancel every job and wait until all nodes are idle."""
        self.run("scancel", "--me")
        self.wait_until(
            lambda: (
                set(self.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}
                and not self.run("squeue", "-h").strip()
            ),
            "all nodes idle and no job left",
        )

    def _script(self, *arguments: str) -> str:
        action, *options = arguments
        ended = subprocess.run(
            [str(SCRIPT), action, "--dir", str(self.folder), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"scripts/cluster {action}: {ended.stderr}"
        return ended.stdout


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a temporary folder that other users may read. It is directly below $TMPDIR, which
    scripts/test puts into memory, or /tmp, because paths of Unix sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def started_cluster(folder: Path, *options: str) -> Iterator[RealCluster]:
    """Start a cluster in ``folder``, with options of ``scripts/cluster up``; stop it afterwards."""
    cluster = RealCluster(folder / "c")
    cluster.up(*options)
    try:
        yield cluster
    finally:
        cluster.down()


def job(observation: Observation, key: str) -> JobStatus:
    """Return the job with this key."""
    for observed in observation.jobs:
        if observed.key == key:
            return observed
    raise AssertionError(f"{key} was not observed")


def _exports(script: str) -> dict[str, str]:
    """Return the variables that ``eval`` of the script would export."""
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{script}\nenv -0"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (pair.partition("=") for pair in shell.stdout.split("\0") if pair)
    return {key: value for key, _, value in pairs if key not in {"PWD", "SHLVL", "_", "OLDPWD"}}
