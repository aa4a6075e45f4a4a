"""The operations of a user without operator rights on their own job.

Submit, query, signal, requeue, cancel, and watch it from a step of the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from slurm_tiresias.errors import SlurmAnswerError, UsageError
from slurm_tiresias.slurm import job_rows, process
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.job_fields import STATES
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import Requeue

TIMEOUT_S = 60.0
MOST_COMPLAINTS = 200
WATCHER = Path(__file__).with_name("job_watcher.py")
WATCHER_VARIABLE = "TIRESIAS_DRILL_WATCHER"

_FIELDS = (
    "State",
    "RestartCnt",
    "NodeList",
    "Reason",
    "Partition",
    "Account",
    "QOS",
    "Comment",
    "admin_comment",
    "WorkDir",
    "exit_code",
)
_JOB_ID = re.compile(r"[0-9]{1,10}", re.ASCII)

_READ_AND_RUN = (
    "import os\ntext = b''\n"
    "while len(text) < {size}:\n"
    "    text += os.read(0, {size} - len(text)) or exit(1)\n"
    "exec(compile(text, 'watcher', 'exec'))"
)
"""The Python program that is started on the node: it reads the real program from standard input,
which then stays open."""


@dataclass(frozen=True, slots=True)
class UserJob:
    """The state of a job as Slurm shows it."""

    state: str
    restarts: int
    nodes: tuple[str, ...]
    reason: str
    partition: str
    account: str
    qos: str
    comment: str
    admin_comment: str
    work_dir: str
    exit_code: str

    @property
    def has_ended(self) -> bool:
        """Whether it has ended: it neither runs nor waits."""
        return self.state in STATES and STATES[self.state] is None


class UserCommands:
    """Slurm as an ordinary user has it: sbatch, squeue, scontrol, scancel and srun.

    A job is signalled and requeued by the controller's own driver.
    """

    def __init__(self) -> None:
        self._environment = process.environment({}, own_cluster=False)
        self._driver = CommandSlurm()

    def settings(self) -> tuple[str, float]:
        """Return the cluster's name, and how long it waits between SIGTERM and SIGKILL (s)."""
        cluster = self._driver.cluster()
        # slurmd never waits less.
        return cluster.name, max(5.0, cluster.kill_wait_s)

    def submit(
        self, options: Sequence[str], script: Sequence[str], environment: Mapping[str, str]
    ) -> str:
        """Submit a batch script with its arguments; return the job's id.

        sbatch gets the user's own environment, because the job inherits it. Raises ``UsageError``
        if sbatch refuses.
        """
        answer = process.run(
            ["sbatch", "--parsable", *options, *script],
            stdin="",
            timeout_s=TIMEOUT_S,
            environment={**os.environ, **environment},
        )
        job_id = answer.stdout.strip().partition(";")[0]
        if answer.status == 0 and _JOB_ID.fullmatch(job_id):
            return job_id
        error = process.complaint("sbatch", answer.stderr)
        if isinstance(error, SlurmAnswerError):
            words = " ".join(answer.stderr.replace("sbatch: error: ", "").split())
            raise UsageError(
                f"sbatch refused the script: {words[:300]}", "Submit it with sbatch itself first"
            )
        raise error

    def guard(self, job_id: str, folder: str) -> Callable[[], None]:
        """Have the job cancelled and the folder removed if this process is killed."""
        # The shell's standard input ends without a word when this process is gone.
        script = 'trap "" HUP INT TERM; read -r word || { scancel "$1"; rm -rf "$2"; }'
        guard = subprocess.Popen(
            ["sh", "-c", script, "drill", job_id, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

        def dismiss() -> None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                guard.communicate(b"done\n", timeout=5)

        return dismiss

    def job(self, job_id: str) -> UserJob:
        """Return the state of the job."""
        separator = job_rows.new_separator()
        printed = job_rows.environment(_FIELDS, separator)
        squeue = ("squeue", "-h", "-a", "-t", "all", "-j", job_id)
        values = next(job_rows.split(self._run(*squeue, environment=printed), separator), [])
        if len(values) != len(_FIELDS) or not values[1].strip().isdecimal():
            raise SlurmAnswerError(
                f"squeue does not show job {job_id}", "See whether it was cancelled: sacct"
            )
        state, restarts, nodes, *rest = (value.strip() for value in values)
        rest[-1] = _exit_code(rest[-1])
        return UserJob(state, int(restarts), tuple(node_names(nodes)) if nodes else (), *rest)

    def signal(self, job_id: str, signal: str) -> None:
        """Send a signal the way the controller does."""
        if words := self._driver.signal([job_id], signal).get(job_id):
            raise process.complaint("scancel", words)

    def requeue(self, job_id: str, *, ended: bool = False) -> None:
        """Requeue a running job the way the controller does, or restart a job that has ended."""
        if ended:
            self._run("scontrol", "requeue", job_id)
        for failure in self._driver.write([] if ended else [Requeue(job_id)]):
            if not failure.has_ended:
                raise process.complaint("scontrol requeue", failure.message)

    def start_soon(self, job_id: str, in_s: int, excluded: str) -> None:
        """Let a requeued job start again without Slurm's delay, on other nodes than these."""
        changes = f"StartTime=now+{in_s}", f"ExcNodeList={excluded}"
        self._run("scontrol", "update", f"JobId={job_id}", *changes)

    def excluded(self, job_id: str) -> str:
        """Return the nodes on which the job must not start, as Slurm writes them."""
        return self._run("squeue", "-h", "-a", "-j", job_id, "-o", "%x").strip()

    def fits_without(self, options: Sequence[str], script: Sequence[str], excluded: str) -> bool:
        """Whether other nodes than these could ever run such a job; submits nothing."""
        answer = process.run(
            ["sbatch", "--test-only", *options, f"--exclude={excluded}", *script],
            stdin="",
            timeout_s=TIMEOUT_S,
            environment=os.environ,
        )
        return answer.status == 0

    def cancel(self, job_id: str) -> None:
        """Cancel the job; no error if it has ended."""
        self._run("scancel", "--quiet", job_id)

    def step(self, job_id: str, nodes: int, told: Mapping[str, object]) -> Step:
        """Watch the job (``job_watcher.py``), beside its own steps on each of its nodes."""
        place = [f"--jobid={job_id}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}"]
        return Step([*place, "--ntasks-per-node=1"], told)

    def look_at(self, node: str, like: UserJob, told: Mapping[str, object]) -> Step:
        """Run a watcher on one node, in a separate job of at most one minute."""
        place = [f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--time=1", "--immediate=20"]
        named = (("partition", like.partition), ("account", like.account), ("qos", like.qos))
        place += [f"--{name}={value}" for name, value in named if value not in ("", "(null)")]
        return Step([*place, "--job-name=tiresias-drill"], told)

    def _run(self, *command: str, environment: Mapping[str, str] = MappingProxyType({})) -> str:
        answer = process.run(
            command, stdin="", timeout_s=TIMEOUT_S, environment={**self._environment, **environment}
        )
        if answer.status != 0:
            raise process.complaint(" ".join(command[:2]), answer.stderr)
        return answer.stdout


def _exit_code(status: str) -> str:
    """Convert a wait status, as squeue shows it, into an exit code or a signal name."""
    if not status.isdecimal():
        return status
    number = int(status)
    return f"{number >> 8}" if number >> 8 else f"128 + signal {number & 127}" if number else "0"


class Step:
    """An srun with one watcher per node. A thread reads its output, so that it never blocks."""

    def __init__(self, options: Sequence[str], told: Mapping[str, object]) -> None:
        environment = {
            name: value
            for name, value in process.environment({}, own_cluster=False).items()
            if not name.startswith(("SLURM_", "SRUN_", "SBATCH_")) or name == "SLURM_CONF"
        }
        text = WATCHER.read_bytes()
        start = _READ_AND_RUN.format(size=len(text))
        command = ["srun", *options, "--cpus-per-task=1", "--gres=none", "--unbuffered"]
        command += ["--kill-on-bad-exit=0", "--mpi=none", "python3", "-I", "-S", "-c", start]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen(
            [*command, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**environment, WATCHER_VARIABLE: "1"},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.is_over = False
        """Whether it has ended and all of its lines were read."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._write(text)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def _write(self, text: bytes) -> None:
        assert self._process.stdin is not None
        # It may have ended already, which the end of its output will show.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def line(self, timeout_s: float) -> str | None:
        """Return its next line of output; None if there is none within this time."""
        if self.is_over:
            return None
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self.is_over = line is None
        return line

    def order(self, words: str) -> None:
        """Send a line to its standard input."""
        self._write(f"{words}\n".encode())

    def complaints(self) -> str:
        """Return the beginning of srun's error output."""
        self._errors.seek(0)
        return self._errors.read(MOST_COMPLAINTS).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Kill its srun."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
