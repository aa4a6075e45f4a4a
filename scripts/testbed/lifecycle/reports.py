"""The progress reports of jobs in the in-memory Slurm, in the file that a node would write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed.in_memory.clock import Clock
from slurm_tiresias.job.record import Record, encode
from slurm_tiresias.model import JobStatus, ProgressSource
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.folder import ProgressFolder
from slurm_tiresias.progress.live_file import NodeReport, text_of
from slurm_tiresias.progress.node import FOLDER

NODE = "n1"


@dataclass
class Reports:
    """The last report of each run; the nodes' clocks agree with slurmctld's."""

    collect: Path
    clock: Clock
    records: dict[RunId, Record] = field(default_factory=dict)
    answered: dict[RunId, float] = field(default_factory=dict)
    """The latest save request that each run says it has answered, by the steady clock."""
    _writes: int = 0

    def __post_init__(self) -> None:
        (self.collect / FOLDER).mkdir(parents=True)

    def folder(self) -> ProgressFolder:
        """The folder as a newly started controller reads it."""
        steady, wall = lambda: self.clock.steady_s, lambda: self.clock.now_s
        return ProgressFolder(str(self.collect), steady, wall)

    def report(
        self, job: JobStatus, steps: int, first_step: int, answers_s: float | None = None
    ) -> None:
        """Report that a running job has done this many more steps in this run than it had reported.
        With ``answers_s`` (steady clock), also report that it answered the save request of that
        time."""
        run, now_s = RunId(job.raw_id, job.restarts, NODE), self.clock.now_s
        before = self.records.get(run)
        if before and job.start_s is not None and before.at_s < job.start_s - 1.0 <= now_s:
            before = None  # of an earlier job with this id
        if answers_s is not None:
            self.answered[run] = max(answers_s, self.answered.get(run, answers_s))
        said_s = self.answered.get(run)
        self.records[run] = Record(
            (before.step if before else first_step) + steps,
            None,
            now_s,
            before.first_step if before else first_step,
            before.first_s if before else now_s,
            listens=True,
            answered_s=None if said_s is None else now_s - (self.clock.steady_s - said_s),
        )

    def furthest(self, job: JobStatus) -> int:
        """The highest step that any run of a job has reported."""
        mine = (one.step for run, one in self.records.items() if run.job_id == job.raw_id)
        return max(mine, default=0)

    def said_since(self, job: JobStatus, steady_s: float) -> bool:
        """Whether this run says that it answered a request made after ``steady_s``."""
        said_s = self.answered.get(RunId(job.raw_id, job.restarts, NODE))
        return said_s is not None and said_s >= steady_s

    def tell(self, jobs: Mapping[str, JobStatus]) -> None:
        """Write the file of the node, with the runs that have not ended."""
        if not self.records:
            return
        running = {(job.raw_id, job.restarts) for job in jobs.values() if job.allocation}
        told = {
            run: NodeReport(ProgressSource.REPORTS, encode(record).rstrip())
            for run, record in self.records.items()
            if (run.job_id, run.restarts) in running
        }
        path = self.collect / FOLDER / f"{NODE}.live"
        path.write_bytes(text_of(told))
        self._writes += 1
        os.utime(path, ns=(self._writes, self._writes))
