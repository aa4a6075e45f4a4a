"""The interface that the contract tests need, for a real cluster and for the in-memory Slurm.

Each has the operations of users and administrators; the driver under test reads it and writes to
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from scripts.testbed.in_memory import InMemorySlurm, Settings, Submission
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from slurm_tiresias.model import Amount, JobState, JobStatus, Request
from slurm_tiresias.slurm.protocol import Slurm

Value = TypeVar("Value")

Script = Literal["lasts", "ends", "fails", "ignores SIGTERM", "requeues itself"]

SCRIPTS: dict[Script, str] = {
    "lasts": "sleep 600",
    "ends": "true",
    "fails": "exit 3",
    # Its comment tells that a signal does not end it any more.
    "requeues itself": "trap 'scontrol requeue $SLURM_JOB_ID' USR1; "
    "scontrol update JobId=$SLURM_JOB_ID Comment=ready; while :; do sleep 0.2; done",
    # Only in its first run: a test that has ended need not wait until Slurm kills the job.
    "ignores SIGTERM": "[ $SLURM_RESTART_COUNT ] || trap '' TERM; while :; do sleep 1; done",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A job to be submitted; ``nodes`` is ``-N``, ``tasks`` ``-n``, ``node_list`` ``-w``.

    ``per_node`` requests the GPUs on each node (``--gres``), else they may be spread (``--gpus``).
    """

    gpus: int = 1
    nodes: int | None = None
    tasks: int | None = None
    per_node: bool = False
    script: Script = "lasts"
    name: str = "job"
    held: bool = False
    node_list: str = ""
    begin_in_s: int | None = None
    array: str = ""
    dependency: str = ""
    minutes: int | None = None
    requeue: bool = True
    reservation: str = ""
    licenses: str = ""


class RealSite:
    """A real cluster, and a driver for it."""

    def __init__(self, cluster: RealCluster, slurm: Slurm) -> None:
        self.slurm = slurm
        self._cluster = cluster

    def submit(self, asked: Asked) -> str:
        """Submit a job; return its id."""
        gpus = f"--gres=gpu:{asked.gpus}" if asked.per_node else f"--gpus={asked.gpus}"
        options = {"-N": asked.nodes, "-n": asked.tasks, "-w": asked.node_list, "-t": asked.minutes}
        long_options = {
            "job-name": asked.name,
            "begin": asked.begin_in_s is not None and f"now+{asked.begin_in_s}",
            "array": asked.array,
            "dependency": asked.dependency,
            "reservation": asked.reservation,
            "licenses": asked.licenses,
        }
        given = [f"{name}{value}" for name, value in options.items() if value]
        given += [f"--{name}={value}" for name, value in long_options.items() if value]
        given += ["--hold"] * asked.held + ["--no-requeue"] * (not asked.requeue)
        return self._cluster.sbatch(gpus, *given, script=SCRIPTS[asked.script])

    def cancel(self, key: str) -> None:
        self._cluster.run("scancel", key)

    def hold(self, key: str, *, by_admin: bool = False) -> None:
        """Hold a job as its user, or as an administrator."""
        self._cluster.run("scontrol", "hold" if by_admin else "uhold", key)

    def release(self, key: str) -> None:
        self._cluster.run("scontrol", "release", key)

    def requeue(self, key: str) -> None:
        self._cluster.run("scontrol", "requeue", key)

    def suspend(self, key: str) -> None:
        self._cluster.run("scontrol", "suspend", key)

    def resume(self, key: str) -> None:
        self._cluster.run("scontrol", "resume", key)

    def set_nice(self, key: str, nice: int) -> None:
        self._update(f"JobId={key}", f"Nice={nice}")

    def set_requeue(self, key: str, allowed: bool) -> None:
        self._update(f"JobId={key}", f"Requeue={allowed:d}")

    def limit_array(self, array: str, limit: int) -> None:
        self._update(f"JobId={array}", f"ArrayTaskThrottle={limit}")

    def move(self, key: str, partitions: str) -> None:
        """Change the partition, or the partitions, separated by commas."""
        self._update(f"JobId={key}", f"Partition={partitions}")

    def set_partition(self, name: str, nodes: str) -> None:
        self._update(f"PartitionName={name}", f"Nodes={nodes}")

    def drain(self, node: str) -> None:
        self._update(f"NodeName={node}", "State=DRAIN", "Reason=test")

    def fail_node(self, node: str) -> None:
        # ReturnToService=2 brings it back as soon as it answers, unless it is drained too.
        self.drain(node)
        self._update(f"NodeName={node}", "State=DOWN", "Reason=test")

    def resume_node(self, node: str) -> None:
        self._update(f"NodeName={node}", "State=RESUME")

    def reserve(self, name: str, node: str, start_in_s: int) -> None:
        """Reserve a node for jobs that name the reservation."""
        lasts = ("Duration=60", "Users=root", f"Nodes={node}")
        start = f"StartTime=now+{start_in_s}"
        self._cluster.run(
            "scontrol", "create", "reservation", f"ReservationName={name}", start, *lasts
        )

    def remove_reservation(self, name: str) -> None:
        self._cluster.run("scontrol", "delete", f"ReservationName={name}")

    def wait_until(
        self, condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S
    ) -> Value:
        return self._cluster.wait_until(condition, what, timeout_s)

    def _update(self, *words: str) -> None:
        self._cluster.run("scontrol", "update", *words)


STEP_S = 0.05


class InMemorySite:
    """The in-memory Slurm, set up like the tests' real cluster."""

    def __init__(self) -> None:
        self.slurm = InMemorySlurm(settings=Settings(backfill=True, licenses={"solver": 1}))

    def submit(self, asked: Asked) -> str:
        nodes = asked.nodes
        if asked.per_node:
            chunks = nodes or 1
            shape = Request(Amount({"": asked.gpus}, 1), chunks, max_chunks_per_node=1)
        elif asked.tasks:
            shape = Request(Amount({"": 1}, asked.tasks // asked.gpus), asked.gpus)
        else:
            shape = Request(Amount({"": 1}), asked.gpus, per_node=Amount(cpus=1))
        request = Request(
            chunk=shape.chunk,
            chunks=shape.chunks,
            per_node=shape.per_node,
            max_chunks_per_node=shape.max_chunks_per_node,
            min_nodes=nodes or 1,
            max_nodes=nodes or (1 if asked.per_node else asked.tasks),
        )
        return self.slurm.submit(
            Submission(
                request,
                name=asked.name,
                held=asked.held,
                node_list=asked.node_list,
                begin_in_s=asked.begin_in_s,
                array=_tasks(asked.array),
                array_limit=_array_limit(asked.array),
                dependency=asked.dependency,
                time_limit_s=None if asked.minutes is None else 60.0 * asked.minutes,
                requeue=asked.requeue,
                reservation=asked.reservation,
                licenses=asked.licenses,
                duration_s=0.0 if asked.script in ("ends", "fails") else None,
                exit_code=3 if asked.script == "fails" else 0,
                dies_in_s=60.0 if asked.script == "ignores SIGTERM" else 0.0,
                comment="ready" if asked.script == "requeues itself" else "",
                requeues_itself_in_s=0.0 if asked.script == "requeues itself" else None,
            )
        )

    def cancel(self, key: str) -> None:
        _done(self.slurm.cancel(key))

    def hold(self, key: str, *, by_admin: bool = False) -> None:
        _done(self.slurm.hold(key, by_admin=by_admin))

    def release(self, key: str) -> None:
        _done(self.slurm.release(key, by_admin=True))

    def requeue(self, key: str) -> None:
        _done(self.slurm.requeue(key))

    def suspend(self, key: str) -> None:
        _done(self.slurm.suspend(key))

    def resume(self, key: str) -> None:
        _done(self.slurm.resume(key))

    def set_nice(self, key: str, nice: int) -> None:
        _done(self.slurm.edit(key, nice=nice))

    def set_requeue(self, key: str, allowed: bool) -> None:
        _done(self.slurm.edit(key, requeue=allowed))

    def limit_array(self, array: str, limit: int) -> None:
        _done(self.slurm.edit(array, array_limit=limit))

    def move(self, key: str, partitions: str) -> None:
        _done(self.slurm.edit(key, partitions=tuple(partitions.split(","))))

    def set_partition(self, name: str, nodes: str) -> None:
        self.slurm.set_partition(name, nodes)

    def drain(self, node: str) -> None:
        self.slurm.drain(node)

    def fail_node(self, node: str) -> None:
        self.slurm.fail_node(node)

    def resume_node(self, node: str) -> None:
        self.slurm.resume_node(node)

    def reserve(self, name: str, node: str, start_in_s: int) -> None:
        self.slurm.reserve(name, node, start_in_s, 3600.0)

    def remove_reservation(self, name: str) -> None:
        self.slurm.remove_reservation(name)

    def wait_until(
        self, condition: Callable[[], Value], what: str, timeout_s: float = PATIENCE_S
    ) -> Value:
        give_up_s = self.slurm.clock.steady_s + timeout_s
        while not (value := condition()):
            jobs = [(job.key, job.slurm_state, job.reason) for job in self.slurm.observe().jobs]
            assert self.slurm.clock.steady_s < give_up_s, f"not within {timeout_s} s: {what} {jobs}"
            self.pass_time()
        return value

    def pass_time(self) -> None:
        """Let the time between two checks pass."""
        self.slurm.advance(STEP_S)


SlurmSite = RealSite | InMemorySite
"""An idle Slurm with four nodes of four GPUs each and one licence of a ``solver``, and a driver
for it. Refusals of Slurm raise ``AssertionError``."""


def job(site: SlurmSite, key: str) -> JobStatus:
    """Return what the driver shows of a job."""
    jobs = {seen.key: seen for seen in site.slurm.observe().jobs}
    assert key in jobs, f"{key} was not observed"
    return jobs[key]


def wait_for(site: SlurmSite, key: str, state: JobState | None) -> JobStatus:
    """Let time pass until a job is in this state; None: it has ended."""
    site.wait_until(lambda: job(site, key).state is state, f"job {key} is {state}")
    return job(site, key)


def wait_for_reason(site: SlurmSite, key: str, reason: str) -> JobStatus:
    """Let time pass until Slurm's reason why a job waits begins with this text."""
    site.wait_until(lambda: job(site, key).reason.startswith(reason), f"job {key} waits: {reason}")
    return job(site, key)


def running(site: SlurmSite, asked: Asked) -> str:
    """Submit a job and let time pass until it runs."""
    key = site.submit(asked)
    wait_for(site, key, JobState.RUNNING)
    return key


def _done(words: str) -> None:
    assert not words, words


def _tasks(array: str) -> tuple[int, ...]:
    """``0-3%2`` is 0, 1, 2 and 3."""
    first, _, last = array.partition("%")[0].partition("-")
    return tuple(range(int(first), int(last) + 1)) if array else ()


def _array_limit(array: str) -> int | None:
    limit = array.partition("%")[2]
    return int(limit) if limit else None
