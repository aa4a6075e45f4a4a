"""Faults around a controller, on a cluster busy enough to notice them.

Each fault begins, may be noticed by the controller, and ends. Then the controller must recover by
itself, and in the end every job must have completed.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurm_commands import WRITE, Commands
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status.published import PublishedState

SETTINGS: dict[str, dict[str, object]] = {
    "policy": {"thresholds_gpu_s": [8]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
    "constants": {"COMMAND_TIMEOUT_S": 2, "RETRY_AFTER_S": 10},
}
NODE = "n2"
ALIVE = 8
GONE_S = 2.0
"""How long a fault lasts if no cycle fails."""


@dataclass
class Bed:
    """A cluster, a controller that uses wrapped commands, and the jobs submitted so far."""

    cluster: RealCluster
    folder: Path
    seed: int = 0
    jobs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.submitted_s = 0.0
        self.commands = Commands(self.folder / "bin")
        self.controller = RealController(
            self.cluster, self.folder, SETTINGS, extra_environment=self.commands.environment
        )

    def submit(self, gpus: int, seconds: float, *options: str) -> str:
        asked = (f"--gres=gpu:{gpus}", "--mem=100", *options)
        self.jobs.append(self.cluster.sbatch(*asked, script=f"sleep {seconds:g}"))
        self.submitted_s = time.time()
        return self.jobs[-1]

    def wait_until_saved(self) -> None:
        """Wait until slurmctld has saved the jobs; if killed before, it would lose them."""
        saved = self.cluster.folder / "state" / "job_state"
        wait_until(
            lambda: saved.exists() and saved.stat().st_mtime > self.submitted_s,
            "slurmctld has saved its jobs",
        )

    def keep_busy(self) -> None:
        """Submit jobs until enough are in the queue."""
        waiting = len(self.cluster.run("squeue", "-h").splitlines())
        for _ in range(ALIVE - waiting):
            if self.random.random() < 0.3:
                self.submit(4, self.random.uniform(5, 9))
            else:
                self.submit(self.random.choice((1, 2)), self.random.uniform(0.5, 2))

    def state(self) -> PublishedState:
        return self.controller.state()

    def wait_until_well(self) -> float:
        """Wait for a good cycle that begins after now; return how long that took."""
        now_s = time.time()

        def well() -> bool:
            try:
                state = self.state()
            except NotRunningError:
                return False
            return state.at_s > now_s and not state.failures

        wait_until(well, "the controller is well again")
        return time.time() - now_s

    def wait_until_felt(self, words: str) -> PublishedState:
        """Wait until ``status`` reports failing cycles; check the reason."""
        wait_until(lambda: self.state().failures > 0, f"cycles fail: {words}")
        state = self.state()
        assert re.search(words, state.error), state.error
        return state

    def wait_until_done(self) -> None:
        """Wait until every job has ended."""
        wait_until(lambda: not self.cluster.run("squeue", "-h").strip(), "all jobs over")

    def lost(self) -> list[str]:
        """Return the jobs that are not known to have completed."""
        rows = self.cluster.run("sacct", "-nPX", "-o", "JobID,State", "-j", ",".join(self.jobs))
        ended = dict(row.split("|")[:2] for row in rows.splitlines())
        ended |= self.cluster.squeue_fields("State")
        return [job for job in self.jobs if ended.get(job) != "COMPLETED"]

    def requeued_too_often(self, by_slurm: int = 0) -> list[str]:
        """Return the jobs that restarted more often than the controller requeued them, plus
        ``by_slurm`` times."""
        lines = (write.line for write in self.commands.writes())
        asked = Counter(line.split()[-1] for line in lines if line.startswith("requeue"))
        restarts = self.cluster.squeue_fields("RestartCnt")
        return [job for job in self.jobs if int(restarts.get(job, 0)) > asked[job] + by_slurm]

    def node_lists_left(self) -> list[str]:
        """Return waiting jobs with a node list, which no user here requests."""
        lists = self.cluster.squeue_fields("ReqNodes", states="PD")
        return [f"{job}: {nodes}" for job, nodes in lists.items() if nodes]


@dataclass(frozen=True)
class Trouble:
    """One kind of fault. ``says`` is a pattern for the error that ``status`` must show meanwhile;
    None if no cycle fails."""

    name: str
    begin: Callable[[Bed], object]
    end: Callable[[Bed], object]
    says: str | None = None
    slurm_requeues: bool = False


def _command(name: str, command: str, script: str, says: str | None) -> Trouble:
    return Trouble(
        f"{command} {name}",
        lambda bed: bed.commands.go_wrong(command, script),
        lambda bed: bed.commands.go_right(),
        says,
    )


CUT_IN_THE_MIDDLE = '"$@" | head -c 150'
CUT_BETWEEN_LINES = '"$@" | head -n 1'
# What users wrote may have line breaks: a row ends as the controller asked squeue to end it.
CUT_BETWEEN_ROWS = (
    """"$@" | awk -v RS="${SQUEUE_FORMAT2##*:}" 'NR == 1 { printf "%s%s", $0, RS }'"""
)
GARBAGE = "head -c 2000 /dev/urandom"
SILENCE = "exit 0"
HANGS = "exec sleep 100"
SLOW = 'sleep 0.7; exec "$@"'

MESSAGES: Sequence[tuple[str, str]] = (
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "reach"),
    ("slurm_load_jobs error: Socket timed out on send/recv operation", "reach"),
    ("slurm_load_jobs error: Zero Bytes were transmitted or received", "reach"),
    ("slurm_load_jobs error: Protocol authentication error", "reach"),
    ("slurm_load_jobs error: Slurm backup controller in standby mode", "reach"),
    ("slurm_load_jobs error: Transport endpoint is not connected", "failed|reach"),
    ("slurm_load_jobs error: Access/permission denied", "refuses"),
    ("slurm_load_jobs error: Invalid user id", "refuses"),
    ("squeue: fatal: Unable to process configuration file", "finds no configuration"),
    ("Segmentation fault", "failed"),
)
"""Error messages of Slurm's commands, and a pattern for the controller's resulting error."""


def _message(said: str, says: str) -> Trouble:
    script = f"echo '{said}' >&2; exit 1"
    return _command(f"says {said.partition('error: ')[2] or said}", "squeue", script, says)


COMMAND_TROUBLES: Sequence[Trouble] = (
    _command("slow", "squeue", SLOW, None),
    _command("slow", "scontrol", SLOW, None),
    _command("hangs", "squeue", HANGS, "no answer within"),
    _command("hangs", "scontrol", HANGS, "no answer within"),
    _command("hangs", WRITE, HANGS, "no answer within"),
    _command("cut in the middle", "squeue", CUT_IN_THE_MIDDLE, "cannot be parsed"),
    _command("cut in the middle", "scontrol", CUT_IN_THE_MIDDLE, "answered|down"),
    _command("cut between lines", "squeue", CUT_BETWEEN_ROWS, "lacks job"),
    _command("cut between lines", "scontrol", CUT_BETWEEN_LINES, "answered"),
    _command("cut in the middle", WRITE, 'head -n 2 | "$@"', "failed"),
    _command("silent", "squeue", SILENCE, "lacks job"),
    _command("silent", "scontrol", SILENCE, "answered|down"),
    _command("silent", WRITE, SILENCE, "failed"),
    _command("garbage", "squeue", GARBAGE, "cannot be parsed"),
    _command("garbage", "scontrol", GARBAGE, "answered|down|failed"),
    _command("garbage", WRITE, GARBAGE + " >&2", "failed"),
    _command("garbage", "sacct", GARBAGE, None),
    _command("hangs", "sacct", HANGS, None),
    *(_message(*message) for message in MESSAGES),
)


OUT = "down|reach|no answer"
"""Matches the errors for a slurmctld that is gone, or dies in the middle of an answer."""


def _kill(*daemons: str, signal: str = "KILL") -> Callable[[Bed], None]:
    return lambda bed: bed.cluster.kill(*daemons, signal=signal)


def _start(*daemons: str) -> Callable[[Bed], None]:
    return lambda bed: bed.cluster.start(*daemons)


def _set_node(bed: Bed, state: str) -> None:
    bed.cluster.run("scontrol", "update", f"NodeName={NODE}", f"State={state}", "Reason=test")


def _node_dies(bed: Bed) -> None:
    bed.cluster.kill(f"slurmd.{NODE}")
    _set_node(bed, "DOWN")


def _node_returns(bed: Bed) -> None:
    bed.cluster.start(f"slurmd.{NODE}")
    wait_until(lambda: _resumed(bed), f"{NODE} is back")


def _resumed(bed: Bed) -> bool:
    state = bed.cluster.run("sinfo", "-h", "-n", NODE, "-o", "%T").strip()
    if state.rstrip("*") in ("idle", "mixed", "allocated", "completing"):
        return True
    if "drain" in state or "down" in state or "inval" in state:
        # Slurm refuses it if the node has come back by itself meanwhile.
        bed.cluster.answers("scontrol", "update", f"NodeName={NODE}", "State=RESUME")
        time.sleep(0.5)
    return False


def _node_loses_gpus(bed: Bed) -> None:
    _set_gpu_files(bed, "gpu[0-3]", "gpu[0-1]")
    bed.cluster.kill(f"slurmd.{NODE}")
    bed.cluster.start(f"slurmd.{NODE}")
    wait_until(
        lambda: re.search("drain|inval", bed.cluster.run("sinfo", "-hn", NODE, "-o", "%T")),
        f"{NODE} is seen to have fewer GPUs",
    )


def _node_finds_gpus(bed: Bed) -> None:
    _set_gpu_files(bed, "gpu[0-1]", "gpu[0-3]")
    bed.cluster.kill(f"slurmd.{NODE}")
    _node_returns(bed)


def _set_gpu_files(bed: Bed, before: str, after: str) -> None:
    path = Path(bed.cluster.env["SLURM_CONF"]).with_name("gres.conf")
    lines = path.read_text().splitlines()
    changed = [line.replace(before, after) if f"={NODE} " in line else line for line in lines]
    path.write_text("\n".join([*changed, ""]))


def _ctld_dies(bed: Bed) -> None:
    bed.wait_until_saved()
    bed.cluster.kill("slurmctld")


def _failed_back(bed: Bed) -> None:
    wait_until(lambda: bed.cluster.answers("squeue"), "the backup slurmctld acts")
    bed.wait_until_well()
    bed.cluster.start("slurmctld")
    wait_until(lambda: bed.cluster.answers("squeue"), "slurmctld acts again")


SLURM_TROUBLES: Sequence[Trouble] = (
    Trouble("slurmctld restarted", _kill("slurmctld", signal="TERM"), _start("slurmctld"), OUT),
    Trouble("slurmctld killed", _ctld_dies, _start("slurmctld"), OUT),
    Trouble(
        "slurmctld stopped",
        _kill("slurmctld", signal="STOP"),
        _kill("slurmctld", signal="CONT"),
        OUT,
    ),
    Trouble("slurmdbd down", _kill("slurmdbd"), _start("slurmdbd"), None),
    Trouble("munge down", _kill("munged"), _start("munged"), f"{OUT}|failed"),
    Trouble("a node dies", _node_dies, _node_returns, None, slurm_requeues=True),
    Trouble(
        "a node drains", lambda bed: _set_node(bed, "DRAIN"), lambda bed: _set_node(bed, "RESUME")
    ),
    Trouble(
        "a node comes back with fewer GPUs",
        _node_loses_gpus,
        _node_finds_gpus,
        None,
        slurm_requeues=True,
    ),
    Trouble("reconfigure", lambda bed: bed.cluster.run("scontrol", "reconfigure"), lambda _: None),
)
FAILOVER = Trouble("slurmctld fails over to its backup", _ctld_dies, _failed_back, OUT)
"""For a cluster with a backup slurmctld, where no other fault may keep slurmctld down for long."""


def go_through(bed: Bed, trouble: Trouble) -> float:
    """Inject a fault; return the time from its end to the next good cycle, in seconds.

    While cycles fail the controller must not write, because its data is unreliable. Raises
    ``AssertionError`` if the controller does that, does not report the fault, or does not recover.
    """
    began_s = time.time()
    trouble.begin(bed)
    try:
        if trouble.says is None:
            wait_until(lambda: time.time() - began_s > GONE_S, "a while")
        else:
            _check_that_it_is_said(bed, trouble)
    finally:
        trouble.end(bed)
    return bed.wait_until_well()


def _check_that_it_is_said(bed: Bed, trouble: Trouble) -> None:
    if trouble.name.startswith(WRITE):
        bed.submit(1, 1)  # there must be something to write
    first = bed.wait_until_felt(trouble.says or "")
    wrote = _acted(bed)
    wait_until(
        lambda: bed.state().failures > first.failures or bed.state().failures == 0,
        "it is tried again",
    )
    last = bed.state()
    if last.failures and not trouble.name.startswith(WRITE):
        assert _acted(bed) == wrote, f"it acted all the same: {_acted(bed) - wrote}"
    assert last.next_try_s is not None or not last.failures
    assert sum(last.failed_cycles.values()) >= first.failures


def _acted(bed: Bed) -> set[str]:
    return {f"{write.at_s} {write.line}" for write in bed.commands.writes()}
