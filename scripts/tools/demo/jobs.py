"""One of the demo's runs: jobs submitted like a user's, watched with scontrol, and verified."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed import progress_channel
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.tools.demo.mix import GPUS_PER_NODE, MOST_GPUS, SAVE_EVERY_S, STEP_S, Job

POLL_S = 0.5
RUN_PATIENCE_S = 400.0
TRAINING = Path(__file__).parent / "training.py"
OTHER_USER = "nobody"
"""The second user of the jobs, if root runs the demo: no other user can submit for another."""
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY")
GPUS = re.compile(r"\bNodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=gpu\S*?:\d+\(IDX:([\d,-]+)\)")


@dataclass(frozen=True)
class Submitted:
    """A job of the mix, and the id that Slurm gave it."""

    job: Job
    job_id: str
    folder: Path


@dataclass(frozen=True)
class Sample:
    """What a cluster did at a time since the first submission."""

    at_s: float
    holders: tuple[Job | None, ...]
    """The job on each GPU."""
    running: int = 0
    waiting: int = 0
    finished: int = 0
    preemptions: int = 0

    @property
    def busy_gpus(self) -> int:
        return sum(holder is not None for holder in self.holders)


@dataclass
class Run:
    """One run of the mix; ``reports``: with the job library."""

    name: str
    folder: Path
    own_limit_min: int = 0
    """The time limit of all jobs; 0: those of their users."""
    reports: bool = False
    submitted: list[Submitted] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    controller: RealController | None = None

    @property
    def cluster(self) -> RealCluster:
        conf = self.folder / "cluster" / "etc" / "slurm.conf"
        return RealCluster(self.folder / "cluster", {"SLURM_CONF": str(conf)})

    def submit(self, job: Job) -> Submitted:
        jobs, folder = self.folder / "jobs", self.folder / "jobs" / job.name
        library = [str(self.folder / progress_channel.LIBRARY)] if self.reports else []
        as_user = [f"--uid={OTHER_USER}"] if job.user and os.geteuid() == 0 else []
        limit_min = self.own_limit_min or job.limit_min
        answer = self.cluster.run(
            *("sbatch", "--parsable", f"--job-name={job.name}", f"--gpus={job.gpus}", "--requeue"),
            *(f"--nodes={job.nodes}", f"--ntasks={job.nodes}", f"--time={limit_min}", *as_user),
            *(f"--chdir={jobs}", f"--output={folder}.out", "--open-mode=append"),
            str(program_in(jobs)),
            *(str(folder), str(job.steps), str(STEP_S), str(SAVE_EVERY_S), *library),
        )
        self.submitted.append(Submitted(job, answer.strip(), folder))
        return self.submitted[-1]

    def follow(self, at_s: float) -> Sample:
        """Keep what Slurm shows now."""
        rows = dict(shown(self.cluster.run("scontrol", "-d", "-o", "-a", "show", "jobs")))
        states = {one.job_id: rows.get(one.job_id, ("COMPLETED", 0, [])) for one in self.submitted}
        holders: list[Job | None] = [None] * MOST_GPUS
        for one in self.submitted:
            state, _, gpus = states[one.job_id]
            for gpu in gpus if state == "RUNNING" else []:
                holders[gpu] = one.job
        named = [state for state, _, _ in states.values()]
        self.samples.append(
            Sample(
                at_s,
                tuple(holders),
                running=named.count("RUNNING"),
                waiting=named.count("PENDING"),
                finished=sum(state in ENDED for state in named),
                preemptions=sum(restarts for _, restarts, _ in states.values()),
            )
        )
        return self.samples[-1]


def program_in(jobs: Path) -> Path:
    """Return the jobs' program, laid where all users can read it."""
    program = jobs / TRAINING.name
    if not program.exists():
        jobs.chmod(0o1777)
        shutil.copy(TRAINING, program)
    return program


def shown(text: str) -> Iterator[tuple[str, tuple[str, int, list[int]]]]:
    """Yield each job's id, state, restarts and GPUs, as ``scontrol --details`` shows them."""
    for line in text.splitlines():
        found = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        gpus = [gpu for nodes, indexes in GPUS.findall(line) for gpu in numbers(nodes, indexes)]
        if "JobId" in found:
            yield found["JobId"], (found["JobState"], int(found["Restarts"]), gpus)


def numbers(nodes: str, indexes: str) -> Iterator[int]:
    """Yield the cluster's numbers of these GPUs, each on all of these nodes: n[1-2], 0,2-3."""
    for node, index in itertools.product(spans(nodes.strip("n[]")), spans(indexes)):
        yield (node - 1) * GPUS_PER_NODE + index


def spans(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@dataclass(frozen=True)
class Proof:
    """What a job's journal proves; no ``fault``: its saves contain each step once."""

    steps_redone: int = 0
    fault: str = ""


def proof(one: Submitted) -> Proof:
    """Follow the journal of a job from start to start."""
    done = saved = redone = 0
    try:
        lines = (one.folder / "journal").read_text().splitlines()
    except OSError as error:
        return Proof(fault=f"it has no journal: {error.strerror}")
    for event, number in (line.split() for line in lines):
        step = int(number)
        if event == "start":
            if step != saved:
                return Proof(redone, f"resumed from step {step}, but had saved step {saved}")
            redone += done - step
            done = step
        elif step != done + (event == "step"):
            return Proof(redone, f"{event} {step} came after step {done}")
        elif event == "step":
            done = step
        else:
            saved = step
    problem = "" if saved == one.job.steps else f"saved {saved} of {one.job.steps} steps"
    return Proof(redone, problem)


def run_all(runs: Sequence[Run], mix: Sequence[Job]) -> Iterator[None]:
    """Submit each job to all runs at its time; yield after each look, until all have ended."""
    began_s, to_come = time.monotonic(), list(mix)
    running = list(runs)
    while running:
        while to_come and to_come[0].arrives_s <= time.monotonic() - began_s:
            job = to_come.pop(0)
            for run in runs:
                run.submit(job)
        for run in running:
            run.follow(time.monotonic() - began_s)
        running = [run for run in running if run.samples[-1].finished < len(mix)]
        if time.monotonic() - began_s > RUN_PATIENCE_S:
            raise AssertionError(f"after {RUN_PATIENCE_S:g} s not all jobs had ended")
        yield
        time.sleep(POLL_S)
